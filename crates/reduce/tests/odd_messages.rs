//! Messages in any order and of any content: the machines must not fall over them.

use std::{num::NonZeroU32, time::Duration};

use proptest::prelude::*;
use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce::{
    Order, Policy, PullFailure, Receipt, ReductionError, Signature,
    ids::{GroupId, PartId, ReductionId, ReductionNumber, TaskId, Token},
    message::{
        Announcement, Contribution, Operand, Source, Task, TaskFailure, TaskOutcome, ToScheduler, ToWorker,
    },
    scheduler::Scheduler,
    worker::{Side, Worker},
};

const SIZE: u32 = 4;

fn reduction() -> impl Strategy<Value = ReductionId> {
    let group = GroupId::of(&ProcessGroup::world(SIZE));
    (0u64..2).prop_map(move |number| ReductionId {
        group,
        number: ReductionNumber::Call(number),
    })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 7), 0u64..1_000_000]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::MAX),
        Just(Duration::ZERO),
        Just(Duration::from_secs(5))
    ]
}

fn handle() -> impl Strategy<Value = RegionHandle> {
    (0u64..9, number()).prop_map(|(region, length)| {
        let address = "sim://job".parse().expect("a well-formed address");
        RegionHandle {
            address,
            region,
            token: 0,
            length,
            writable: false,
        }
    })
}

fn source() -> impl Strategy<Value = Source> {
    (handle(), number(), number()).prop_map(|(handle, data_offset, length)| Source {
        handle,
        data_offset,
        length,
    })
}

fn signature() -> impl Strategy<Value = Signature> {
    let shape = prop_oneof![
        8 => Just((NonZeroU32::new(4), Some(400), 64)),
        1 => (any::<u32>(), prop::option::of(number()), number())
            .prop_map(|(size, length, stripe)| (NonZeroU32::new(size), length, stripe)),
    ];
    let order = prop_oneof![Just(Order::Any), Just(Order::Ordered)];
    let policy = prop_oneof![3 => Just(Policy::Chunked), 1 => Just(Policy::Paper)];
    let root = prop_oneof![9 => Just(0), 1 => 0u32..9];
    (shape, order, policy, root).prop_map(|((element_size, length, stripe_size), order, policy, root)| {
        Signature {
            operation: "sum".into(),
            element: "f32".into(),
            element_size,
            length,
            root: Rank(root),
            order,
            policy,
            stripe_size,
        }
    })
}

fn contribution() -> impl Strategy<Value = Contribution> {
    let members = prop_oneof![
        6 => Just(None),
        1 => prop::collection::btree_set(0u32..9, 1..5)
            .prop_map(|ranks| ProcessGroup::new(ranks.into_iter().map(Rank).collect::<Vec<_>>()).ok()),
    ];
    (
        reduction(),
        members,
        signature(),
        any::<u128>(),
        number(),
        prop::option::of(duration()),
    )
        .prop_map(
            |(reduction, members, signature, token, length, timeout)| Contribution {
                reduction,
                members,
                signature,
                token: Token(token),
                length,
                timeout,
            },
        )
}

fn failure() -> impl Strategy<Value = TaskFailure> {
    let pull = part().prop_map(|part| TaskFailure::Pull {
        part,
        failure: PullFailure::NotHeld,
    });
    prop_oneof![
        Just(TaskFailure::Receipt),
        Just(TaskFailure::Operation { message: "no".into() }),
        pull
    ]
}

fn part() -> impl Strategy<Value = PartId> {
    (0u32..9, 0u32..12).prop_map(|(stripe, number)| PartId { stripe, number })
}

fn to_scheduler() -> impl Strategy<Value = ToScheduler> {
    let announce = (contribution(), handle())
        .prop_map(|(contribution, handle)| ToScheduler::Announce(Announcement { contribution, handle }));
    let done = (
        reduction(),
        0u64..40,
        prop::option::weighted(0.9, source()),
        duration(),
    )
        .prop_map(|(reduction, task, source, elapsed)| ToScheduler::Done {
            reduction,
            task: TaskId(task),
            source,
            elapsed,
        });
    let failed =
        (reduction(), 0u64..40, failure()).prop_map(|(reduction, task, failure)| ToScheduler::Failed {
            reduction,
            task: TaskId(task),
            failure,
        });
    let withdraw = reduction().prop_map(|reduction| ToScheduler::Withdraw {
        reduction,
        members: Some(ProcessGroup::world(SIZE)),
        message: "no memory".into(),
    });
    let leave = Just(ToScheduler::Leave {
        message: "no memory".into(),
    });
    prop_oneof![6 => announce, 20 => done, 1 => failed, 1 => withdraw, 1 => leave]
}

#[derive(Clone, Debug)]
enum Event {
    Departed(u32),
    Inherited(u32, Contribution, RegionHandle),
    Message(u32, ToScheduler),
    Time,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0u32..6).prop_map(Event::Departed),
        1 => (0u32..6, contribution(), handle()).prop_map(|(rank, one, handle)| Event::Inherited(rank, one, handle)),
        40 => (0u32..6, to_scheduler()).prop_map(|(rank, message)| Event::Message(rank, message)),
        2 => Just(Event::Time),
    ]
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let operand = || (part(), source()).prop_map(|(part, source)| Operand { part, source });
    let outcome = prop_oneof![
        part().prop_map(TaskOutcome::Keep),
        (0u32..9).prop_map(|stripe| TaskOutcome::Commit {
            stripe,
            token: Token(0)
        }),
    ];
    let task = (
        reduction(),
        0u64..9,
        operand(),
        prop::option::of(operand()),
        outcome,
    )
        .prop_map(|(reduction, id, left, right, outcome)| {
            ToWorker::Task(Task {
                reduction,
                id: TaskId(id),
                left,
                right,
                outcome,
            })
        });
    let receipt = Receipt {
        contributions: 4,
        token: Token(0),
        merges: 3,
        merges_redone: 0,
        lost: Vec::new(),
    };
    let result = prop_oneof![Just(Ok(receipt)), Just(Err(ReductionError::AgentLost))];
    prop_oneof![
        8 => task,
        2 => (reduction(), 0u64..9).prop_map(|(reduction, task)| ToWorker::Cancel { reduction, task: TaskId(task) }),
        1 => (reduction(), 0u32..9).prop_map(|(reduction, stripe)| ToWorker::Release { reduction, stripe }),
        1 => (reduction(), result).prop_map(|(reduction, result)| ToWorker::Finished { reduction, result }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever ranks send, in whatever order they die, the scheduler goes on, and keeps no more than it is told of.
    #[test]
    fn the_scheduler_survives(events in prop::collection::vec(event(), 1..120)) {
        let mut scheduler = Scheduler::new(SIZE);
        let mut now = Duration::ZERO;
        for event in events {
            now += Duration::from_millis(1);
            match event {
                Event::Departed(rank) => scheduler.handle_departed(now, Rank(rank)),
                Event::Inherited(rank, one, handle) => scheduler.handle_inherited(now, Rank(rank), one, handle),
                Event::Message(rank, message) => scheduler.handle_message(now, Rank(rank), message),
                Event::Time => {
                    now = now.max(scheduler.next_deadline().unwrap_or_default().min(Duration::from_secs(100)));
                    scheduler.handle_time(now);
                }
            }
            scheduler.drain_outgoing();
            prop_assert!(scheduler.running() <= 2);
        }
    }

    /// Whatever the scheduler sends, the worker goes on.
    #[test]
    fn the_worker_survives(
        announcements in prop::collection::vec((contribution(), handle()), 0..3),
        messages in prop::collection::vec((to_worker(), any::<bool>()), 1..60),
    ) {
        let mut worker = Worker::new();
        for (contribution, handle) in announcements {
            worker.begin(1, Announcement { contribution, handle });
        }
        for (message, pull_succeeds) in messages {
            let ids = match &message {
                ToWorker::Task(task) => Some((task.reduction, task.id)),
                _ => None,
            };
            worker.handle_message(Duration::ZERO, message);
            if let Some((reduction, task)) = ids {
                for side in [Side::Left, Side::Right] {
                    let result = if pull_succeeds { Ok(()) } else { Err(PullFailure::NotHeld) };
                    worker.handle_pulled(reduction, task, side, result);
                }
                worker.handle_combined(Duration::ZERO, reduction, task, Ok(None));
            }
            worker.drain_actions();
        }
    }
}
