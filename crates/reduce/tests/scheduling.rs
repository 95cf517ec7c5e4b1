//! The scheduler's decisions, one story at a time.

use std::{num::NonZeroU32, time::Duration};

use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce::{
    Order, Policy, PullFailure, ReductionError, Signature,
    ids::{GroupId, PartId, ReductionId, ReductionNumber, Token},
    message::{Announcement, Contribution, Source, Task, TaskFailure, TaskOutcome, ToScheduler, ToWorker},
    scheduler::Scheduler,
};

const NOW: Duration = Duration::from_secs(1);

fn reduction(size: u32) -> ReductionId {
    ReductionId {
        group: GroupId::of(&ProcessGroup::world(size)),
        number: ReductionNumber::Call(0),
    }
}

fn handle(region: u64) -> RegionHandle {
    let address = "sim://job".parse().expect("a well-formed address");
    RegionHandle {
        address,
        region,
        token: 0,
        length: 0,
        writable: false,
    }
}

fn contribution(size: u32, rank: u32, root: u32, policy: Policy) -> Contribution {
    Contribution {
        reduction: reduction(size),
        members: None,
        signature: Signature {
            operation: "sum".into(),
            element: "f32".into(),
            element_size: NonZeroU32::new(4),
            length: Some(400),
            root: Rank(root),
            order: Order::Any,
            policy,
            stripe_size: u64::MAX,
        },
        token: Token(1 << rank),
        length: 400,
        timeout: Some(Duration::from_secs(60)),
    }
}

fn announce(scheduler: &mut Scheduler, rank: u32, contribution: Contribution) {
    let announcement = Announcement {
        contribution,
        handle: handle(u64::from(rank)),
    };
    scheduler.handle_message(NOW, Rank(rank), ToScheduler::Announce(announcement));
}

fn done(scheduler: &mut Scheduler, rank: Rank, task: &Task) {
    done_after(scheduler, rank, task, Duration::from_millis(1));
}

fn done_after(scheduler: &mut Scheduler, rank: Rank, task: &Task, elapsed: Duration) {
    let source = match task.outcome {
        TaskOutcome::Commit { .. } => None,
        TaskOutcome::Keep(_) => Some(Source {
            handle: handle(99),
            data_offset: 64,
            length: 400,
        }),
    };
    let (reduction, task) = (task.reduction, task.id);
    scheduler.handle_message(
        NOW,
        rank,
        ToScheduler::Done {
            reduction,
            task,
            source,
            elapsed,
        },
    );
}

/// The tasks that are given out, with their executors.
fn tasks(scheduler: &mut Scheduler) -> Vec<(Rank, Task)> {
    let outgoing = scheduler.drain_outgoing().into_iter();
    outgoing
        .filter_map(|outgoing| match outgoing.message {
            ToWorker::Task(task) => Some((outgoing.to, task)),
            _ => None,
        })
        .collect()
}

/// How the reduction ended, as told to each member.
fn endings(scheduler: &mut Scheduler) -> Vec<(Rank, Result<u32, ReductionError>)> {
    let outgoing = scheduler.drain_outgoing().into_iter();
    outgoing
        .filter_map(|outgoing| match outgoing.message {
            ToWorker::Finished { result, .. } => {
                Some((outgoing.to, result.map(|receipt| receipt.contributions)))
            }
            _ => None,
        })
        .collect()
}

fn operands(task: &Task) -> (u32, Option<u32>) {
    (
        task.left.part.number,
        task.right.as_ref().map(|right| right.part.number),
    )
}

/// The paper's worked example (figure 4): p = 4, root 1, order of arrival 0, 3, 1, 2. Tasks: (0, 3) on 3 and (1, 2)
/// on the root, independent of each other; then what they made, on the root.
#[test]
fn the_papers_worked_example() {
    let mut scheduler = Scheduler::new(4);
    let mut given = Vec::new();
    for rank in [0, 3, 1, 2] {
        announce(&mut scheduler, rank, contribution(4, rank, 1, Policy::Paper));
        given.extend(tasks(&mut scheduler));
    }
    let [(first_executor, first), (second_executor, second)] = &given[..] else {
        panic!("{given:?}")
    };
    assert_eq!((*first_executor, operands(first)), (Rank(3), (0, Some(3))));
    assert_eq!((*second_executor, operands(second)), (Rank(1), (1, Some(2))));

    done(&mut scheduler, Rank(1), second);
    assert!(
        tasks(&mut scheduler).is_empty(),
        "a single message waits for a second one"
    );
    done(&mut scheduler, Rank(3), first);
    let third = tasks(&mut scheduler);
    let [(executor, last)] = &third[..] else {
        panic!("{third:?}")
    };
    let TaskOutcome::Keep(second_product) = second.outcome else {
        panic!("{second:?}")
    };
    let TaskOutcome::Keep(first_product) = first.outcome else {
        panic!("{first:?}")
    };
    assert_eq!(*executor, Rank(1));
    assert_eq!(
        operands(last),
        (second_product.number, Some(first_product.number))
    );

    done(&mut scheduler, Rank(1), last);
    let commit = tasks(&mut scheduler);
    let [(Rank(1), commit)] = &commit[..] else {
        panic!("{commit:?}")
    };
    assert_eq!(
        commit.outcome,
        TaskOutcome::Commit {
            stripe: 0,
            token: Token(0b1111)
        }
    );
    done(&mut scheduler, Rank(1), commit);
    let told: Vec<Rank> = endings(&mut scheduler)
        .into_iter()
        .map(|(rank, result)| (rank, result.unwrap()).0)
        .collect();
    assert_eq!(told, [Rank(0), Rank(1), Rank(2), Rank(3)]);
}

/// The paper's step 4: of two ranks neither of which is the root, the one whose last task took less time executes.
#[test]
fn the_paper_gives_the_task_to_the_faster() {
    let mut scheduler = Scheduler::new(5);
    for (root, other, elapsed) in [(1, 3, 30), (2, 4, 10)] {
        // A reduction of two, in which the root has the only task.
        for rank in [root, other] {
            let mut pair = contribution(5, rank, root, Policy::Paper);
            pair.members = Some(ProcessGroup::new(vec![Rank(root), Rank(other)]).unwrap());
            pair.reduction.number = ReductionNumber::Named(u64::from(root));
            announce(&mut scheduler, rank, pair);
        }
        let (executor, task) = tasks(&mut scheduler).remove(0);
        assert_eq!(executor, Rank(root));
        done_after(&mut scheduler, executor, &task, Duration::from_millis(elapsed));
        let (executor, commit) = tasks(&mut scheduler).remove(0);
        done_after(&mut scheduler, executor, &commit, Duration::ZERO);
    }
    for rank in [2, 1] {
        announce(&mut scheduler, rank, contribution(5, rank, 0, Policy::Paper));
    }
    assert_eq!(tasks(&mut scheduler)[0].0, Rank(2));
}

/// Ranks 1 and 2 have been combined on 2, and that is being combined with 3, on 3 (root 0 is late).
fn combined_on_2_and_under_way_on_3() -> (Scheduler, Task) {
    let mut scheduler = Scheduler::new(4);
    for rank in [1, 2] {
        announce(&mut scheduler, rank, contribution(4, rank, 0, Policy::Paper));
    }
    let (executor, first) = tasks(&mut scheduler).remove(0);
    assert_eq!(executor, Rank(2));
    done(&mut scheduler, executor, &first);
    announce(&mut scheduler, 3, contribution(4, 3, 0, Policy::Paper));
    let (executor, second) = tasks(&mut scheduler).remove(0);
    assert_eq!((executor, operands(&second)), (Rank(3), (4, Some(3))));
    (scheduler, second)
}

fn lose(scheduler: &mut Scheduler, rank: u32) {
    scheduler.handle_inherited(
        NOW,
        Rank(rank),
        contribution(4, rank, 0, Policy::Paper),
        handle(1000),
    );
    scheduler.handle_departed(NOW, Rank(rank));
}

/// The paper's recovery, second position: the executor dies. M = M_j goes back to the queue, then P = P_i; the dead
/// side never executes.
#[test]
fn the_paper_recovers_from_a_lost_executor() {
    let (mut scheduler, _) = combined_on_2_and_under_way_on_3();
    lose(&mut scheduler, 3);
    let again = tasks(&mut scheduler);
    let [(executor, task)] = &again[..] else {
        panic!("{again:?}")
    };
    assert_eq!((*executor, operands(task)), (Rank(2), (4, Some(3))));
    assert_eq!(task.right.as_ref().unwrap().source.handle.region, 1000);
}

/// The paper's recovery, third position, with a part that was combined before: M = M_i goes back to the queue, then
/// each rank of P = P_j by itself and with the flag; of a live pair the flagged one executes.
#[test]
fn the_paper_splits_a_lost_part_into_originals() {
    let (mut scheduler, _) = combined_on_2_and_under_way_on_3();
    lose(&mut scheduler, 2);
    let again = tasks(&mut scheduler);
    let [(executor, task)] = &again[..] else {
        panic!("{again:?}")
    };
    assert_eq!((*executor, operands(task)), (Rank(1), (3, Some(1))));
    done(&mut scheduler, *executor, task);
    let last = tasks(&mut scheduler);
    let [(executor, task)] = &last[..] else {
        panic!("{last:?}")
    };
    assert_eq!((*executor, task.left.part.number), (Rank(1), 2));
    assert_eq!(
        task.left.source.handle.region, 1000,
        "the lost rank's own original comes from the store"
    );
}

/// The paper's recovery, third position: the provider of a task dies. The executor's message goes back to the queue
/// and is paired with the lost original, which the store serves; the dead rank never executes.
#[test]
fn the_paper_recovers_from_a_lost_provider() {
    let mut scheduler = Scheduler::new(3);
    for rank in [1, 2] {
        announce(&mut scheduler, rank, contribution(3, rank, 0, Policy::Paper));
    }
    let (executor, task) = tasks(&mut scheduler).remove(0);
    let provider = if executor == Rank(1) { Rank(2) } else { Rank(1) };
    let inherited = contribution(3, provider.0, 0, Policy::Paper);
    scheduler.handle_inherited(NOW, provider, inherited, handle(1000));
    scheduler.handle_departed(NOW, provider);
    let outgoing = scheduler.drain_outgoing();
    assert_eq!(
        outgoing[0].message,
        ToWorker::Cancel {
            reduction: reduction(3),
            task: task.id
        }
    );
    let ToWorker::Task(again) = &outgoing[1].message else {
        panic!("{outgoing:?}")
    };
    assert_eq!(outgoing[1].to, executor);
    let sources = [&again.left, again.right.as_ref().unwrap()].map(|operand| operand.source.handle.region);
    assert!(
        sources.contains(&1000),
        "the lost original is read from the agent: {sources:?}"
    );

    // An answer to the cancelled task is void: it would count the provider's contribution twice.
    done(&mut scheduler, executor, &task);
    assert!(scheduler.drain_outgoing().is_empty());
}

/// A member that asks for something else ends the reduction for all, and is named, also when it came first.
#[test]
fn the_odd_one_is_named() {
    for odd in 0..4 {
        let mut scheduler = Scheduler::new(4);
        for rank in 0..4 {
            let mut one = contribution(4, rank, 0, Policy::Chunked);
            if rank == odd {
                one.signature.operation = "max".into();
            }
            announce(&mut scheduler, rank, one);
        }
        let endings = endings(&mut scheduler);
        assert_eq!(
            endings.iter().filter(|(_, result)| result.is_err()).count(),
            endings.len()
        );
        for rank in (0..4).map(Rank) {
            let told = endings.iter().find(|(to, _)| *to == rank);
            let Some((
                _,
                Err(ReductionError::Mismatch {
                    odd: named,
                    expected,
                    found,
                }),
            )) = told
            else {
                panic!("{endings:?}")
            };
            assert_eq!(*named, Rank(odd));
            assert!(expected.starts_with("sum of 100 x f32") && found.starts_with("max of 100 x f32"));
        }
    }
}

/// Two members that disagree get their verdict after a while although no third one comes.
#[test]
fn a_disagreement_of_two_does_not_wait_for_ever() {
    let mut scheduler = Scheduler::new(3);
    announce(&mut scheduler, 0, contribution(3, 0, 0, Policy::Chunked));
    announce(&mut scheduler, 1, contribution(3, 1, 2, Policy::Chunked));
    assert!(endings(&mut scheduler).is_empty());
    scheduler.handle_time(scheduler.next_deadline().unwrap());
    assert_eq!(endings(&mut scheduler).len(), 3);
    // The third is told when it comes.
    announce(&mut scheduler, 2, contribution(3, 2, 0, Policy::Chunked));
    assert!(matches!(
        &endings(&mut scheduler)[..],
        [(Rank(2), Err(ReductionError::Mismatch { .. }))]
    ));
}

/// A member that is gone before it contributed makes the result impossible, whether the others come before or after.
#[test]
fn a_lost_contribution_is_an_error() {
    for before in [true, false] {
        let mut scheduler = Scheduler::new(2);
        if before {
            announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
        }
        scheduler.handle_departed(NOW, Rank(1));
        if !before {
            announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
        }
        let expected = ReductionError::ContributionLost { rank: Rank(1) };
        assert_eq!(endings(&mut scheduler), [(Rank(0), Err(expected))]);
    }
}

/// A contribution that the agent inherited counts although its owner died before its own announcement came.
#[test]
fn an_inherited_contribution_counts() {
    let mut scheduler = Scheduler::new(2);
    scheduler.handle_inherited(NOW, Rank(1), contribution(2, 1, 0, Policy::Chunked), handle(1000));
    scheduler.handle_departed(NOW, Rank(1));
    announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
    let (executor, task) = tasks(&mut scheduler).remove(0);
    assert_eq!((executor, operands(&task)), (Rank(0), (0, Some(1))));
    assert_eq!(task.right.as_ref().unwrap().source.handle.region, 1000);
    done(&mut scheduler, executor, &task);
    assert_eq!(endings(&mut scheduler), [(Rank(0), Ok(2))]);
}

/// The root's death ends the reduction for all others at once.
#[test]
fn a_lost_root_is_an_error() {
    let mut scheduler = Scheduler::new(3);
    announce(&mut scheduler, 0, contribution(3, 0, 2, Policy::Chunked));
    announce(&mut scheduler, 2, contribution(3, 2, 2, Policy::Chunked));
    scheduler.handle_departed(NOW, Rank(2));
    let expected = ReductionError::RootLost { rank: Rank(2) };
    assert_eq!(
        endings(&mut scheduler),
        [(Rank(0), Err(expected.clone())), (Rank(1), Err(expected))]
    );
}

/// A reduction that does not end in time names who has not called.
#[test]
fn a_timeout_names_who_is_missing() {
    let mut scheduler = Scheduler::new(3);
    announce(&mut scheduler, 0, contribution(3, 0, 0, Policy::Chunked));
    announce(&mut scheduler, 2, contribution(3, 2, 0, Policy::Chunked));
    scheduler.handle_time(NOW + Duration::from_secs(59));
    assert!(endings(&mut scheduler).is_empty());
    scheduler.handle_time(NOW + Duration::from_secs(60));
    let expected = ReductionError::Timeout {
        missing: vec![Rank(1)],
    };
    assert!(
        endings(&mut scheduler)
            .into_iter()
            .all(|(_, result)| result == Err(expected.clone()))
    );
}

/// An operation that fails is an error for all, never a task for the next worker to fail at.
#[test]
fn a_failing_operation_is_not_tried_again() {
    let mut scheduler = Scheduler::new(2);
    announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
    announce(&mut scheduler, 1, contribution(2, 1, 0, Policy::Chunked));
    let (executor, task) = tasks(&mut scheduler).remove(0);
    let failure = TaskFailure::Operation {
        message: "it panicked: index out of bounds".into(),
    };
    let (reduction, task) = (task.reduction, task.id);
    scheduler.handle_message(
        NOW,
        executor,
        ToScheduler::Failed {
            reduction,
            task,
            failure,
        },
    );
    let endings = endings(&mut scheduler);
    assert_eq!(endings.len(), 2);
    assert!(matches!(
        endings[1].1,
        Err(ReductionError::Operation {
            rank: Rank(0),
            stripe: 0,
            ..
        })
    ));
}

/// A pull that fails while its holder is thought alive is tried again after a rest, and not for ever.
#[test]
fn a_failing_pull_is_tried_again_but_not_for_ever() {
    let mut scheduler = Scheduler::new(2);
    announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
    announce(&mut scheduler, 1, contribution(2, 1, 0, Policy::Chunked));
    let mut now = NOW;
    let mut attempts = 0;
    loop {
        let outgoing = scheduler.drain_outgoing();
        match outgoing.iter().map(|outgoing| &outgoing.message).next() {
            Some(ToWorker::Task(task)) => {
                attempts += 1;
                let part = PartId { stripe: 0, number: 1 };
                let failure = TaskFailure::Pull {
                    part,
                    failure: PullFailure::NotHeld,
                };
                let (reduction, task) = (task.reduction, task.id);
                scheduler.handle_message(
                    now,
                    outgoing[0].to,
                    ToScheduler::Failed {
                        reduction,
                        task,
                        failure,
                    },
                );
            }
            Some(ToWorker::Finished { result, .. }) => {
                assert!(matches!(result, Err(ReductionError::Pull { .. })), "{result:?}");
                break;
            }
            Some(other) => panic!("{other:?}"),
            None => {
                now = scheduler.next_deadline().unwrap();
                scheduler.handle_time(now);
            }
        }
    }
    assert!(attempts > 10, "{attempts} attempts");
}

/// A second use of an identifier is refused, not answered with the first use's end.
#[test]
fn an_identifier_serves_once() {
    let mut scheduler = Scheduler::new(1);
    announce(&mut scheduler, 0, contribution(1, 0, 0, Policy::Chunked));
    let (executor, commit) = tasks(&mut scheduler).remove(0);
    done(&mut scheduler, executor, &commit);
    assert_eq!(endings(&mut scheduler), [(Rank(0), Ok(1))]);
    announce(&mut scheduler, 0, contribution(1, 0, 0, Policy::Chunked));
    let expected = ReductionError::IdReused {
        reduction: reduction(1),
    };
    assert_eq!(endings(&mut scheduler), [(Rank(0), Err(expected))]);
}

/// A member that cannot contribute after all ends the reduction for those that have called, and for those that will.
#[test]
fn a_withdrawn_contribution_ends_the_reduction() {
    for before in [true, false] {
        let mut scheduler = Scheduler::new(2);
        if before {
            announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
        }
        let withdraw = ToScheduler::Withdraw {
            reduction: reduction(2),
            members: Some(ProcessGroup::world(2)),
            message: "no memory".into(),
        };
        scheduler.handle_message(NOW, Rank(1), withdraw);
        if !before {
            announce(&mut scheduler, 0, contribution(2, 0, 0, Policy::Chunked));
        }
        let expected = ReductionError::Withdrawn {
            rank: Rank(1),
            message: "no memory".into(),
        };
        assert!(endings(&mut scheduler).contains(&(Rank(0), Err(expected))));
    }
}

/// A rank that gives up ends the reductions that it takes part in, those under way and later ones, whether it has called
/// or not; others go on.
#[test]
fn a_rank_that_leaves_ends_its_reductions() {
    for has_called in [true, false] {
        let mut scheduler = Scheduler::new(3);
        announce(&mut scheduler, 0, contribution(3, 0, 0, Policy::Chunked));
        if has_called {
            announce(&mut scheduler, 1, contribution(3, 1, 0, Policy::Chunked));
        }
        let expected = ReductionError::Withdrawn {
            rank: Rank(1),
            message: "tired".into(),
        };
        for _ in 0..2 {
            let message = "tired".to_owned();
            scheduler.handle_message(NOW, Rank(1), ToScheduler::Leave { message });
        }
        let told = endings(&mut scheduler);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().all(|(_, result)| *result == Err(expected.clone())));
        let mut later = contribution(3, 2, 0, Policy::Chunked);
        later.reduction.number = ReductionNumber::Named(1);
        announce(&mut scheduler, 2, later);
        assert!(endings(&mut scheduler).contains(&(Rank(2), Err(expected.clone()))));
        let mut of_others = contribution(3, 2, 0, Policy::Chunked);
        of_others.members = Some(ProcessGroup::new(vec![Rank(0), Rank(2)]).unwrap());
        of_others.reduction.number = ReductionNumber::Named(2);
        announce(&mut scheduler, 2, of_others);
        assert_eq!(scheduler.running(), 1);
    }
}

/// What no worker of ours sends does not bring the scheduler down.
#[test]
fn odd_announcements_are_survived() {
    let mut scheduler = Scheduler::new(2);
    let mut endless = contribution(2, 0, 0, Policy::Chunked);
    endless.timeout = Some(Duration::MAX);
    endless.signature.length = Some(u64::MAX);
    endless.signature.element_size = NonZeroU32::new(u32::MAX);
    announce(&mut scheduler, 0, endless);
    let mut strangers = contribution(2, 1, 0, Policy::Chunked);
    strangers.reduction.number = ReductionNumber::Named(1);
    strangers.members = Some(ProcessGroup::new(vec![Rank(1), Rank(1 << 30)]).unwrap());
    announce(&mut scheduler, 1, strangers);
    let mut not_mine = contribution(2, 1, 0, Policy::Chunked);
    not_mine.reduction.number = ReductionNumber::Named(2);
    not_mine.members = Some(ProcessGroup::new(vec![Rank(0)]).unwrap());
    announce(&mut scheduler, 1, not_mine);
    assert_eq!(scheduler.running(), 1);
}
