//! Verdicts that end a session on all its ranks.

use std::time::Duration;

use ropewalk_reduce_core::{
    Call, Costs, End, FromScheduler, GiveUp, Member, Scheduler, SchedulerAction, Session, Site, ToScheduler,
    Token,
};

const SESSION: Session = Session { group: 1, call: 0 };

fn scheduler() -> Scheduler {
    let costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-6,
        rate: 1e8,
    };
    let mut scheduler = Scheduler::new(Site(0), costs, Duration::from_millis(1));
    scheduler.add_group(SESSION.group, (0..3).map(Site).collect());
    scheduler
}

fn announce(member: u32) -> ToScheduler {
    ToScheduler::Announce {
        session: SESSION,
        call: Call {
            bytes: 40,
            element_bytes: 8,
            ..Call::default()
        },
        originals: vec![(Member(member), Token(member.into()))],
        are_enclosed: false,
    }
}

/// The sites that are told an end, and the end.
fn ends(scheduler: &mut Scheduler) -> Vec<(Site, End)> {
    let actions = std::iter::from_fn(|| scheduler.poll_action());
    let ends = actions.filter_map(|SchedulerAction::Send(to, message)| match message {
        FromScheduler::Ended { end, .. } => Some((to, end)),
        _ => None,
    });
    ends.collect()
}

/// One member gives up: the session ends for all with its reason, those who had not called are named, and one that
/// calls later is told the same.
#[test]
fn a_member_gives_up_for_all() {
    for reason in [GiveUp::TimedOut, GiveUp::Withdrawn("no memory".into())] {
        let mut scheduler = scheduler();
        let now = Duration::ZERO;
        scheduler.handle_message(now, Site(1), announce(1));
        let give_up = |member| ToScheduler::GiveUp {
            session: SESSION,
            member: Member(member),
            reason: reason.clone(),
        };
        scheduler.handle_message(now, Site(1), give_up(1));
        let end = End::GivenUp {
            member: Member(1),
            reason: reason.clone(),
            missing: vec![Member(0), Member(2)],
        };
        let all: Vec<_> = (0..3).map(|site| (Site(site), end.clone())).collect();
        assert_eq!(ends(&mut scheduler), all);
        // The verdict of another one comes too late.
        scheduler.handle_message(now, Site(2), give_up(2));
        assert_eq!(ends(&mut scheduler), []);
        scheduler.handle_message(now, Site(2), announce(2));
        assert_eq!(ends(&mut scheduler), [(Site(2), end)]);
    }
}

/// A member gives up before anybody has called.
#[test]
fn a_member_gives_up_first() {
    let mut scheduler = scheduler();
    let give_up = ToScheduler::GiveUp {
        session: SESSION,
        member: Member(2),
        reason: GiveUp::Left("it ends".into()),
    };
    scheduler.handle_message(Duration::ZERO, Site(2), give_up);
    let told = ends(&mut scheduler);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(_, end)| matches!(
        end,
        End::GivenUp { member: Member(2), missing, .. } if missing.len() == 3
    )));
}

/// A site that leaves ends what it has not contributed to, now and later; what it has contributed to goes on.
#[test]
fn a_site_leaves() {
    for leaves_first in [true, false] {
        let mut scheduler = scheduler();
        let leave = ToScheduler::Leave {
            why: "it must".into(),
        };
        if leaves_first {
            scheduler.handle_message(Duration::ZERO, Site(2), leave.clone());
        }
        scheduler.handle_message(Duration::ZERO, Site(0), announce(0));
        if !leaves_first {
            scheduler.handle_message(Duration::ZERO, Site(2), leave);
        }
        let told = ends(&mut scheduler);
        assert_eq!(told.len(), 3);
        let expected = GiveUp::Left("it must".into());
        assert!(told.iter().all(|(_, end)| matches!(
            end,
            End::GivenUp { member: Member(2), reason, .. } if *reason == expected
        )));
    }
    let mut scheduler = scheduler();
    scheduler.handle_message(Duration::ZERO, Site(2), announce(2));
    scheduler.handle_message(Duration::ZERO, Site(2), ToScheduler::Leave { why: String::new() });
    scheduler.handle_message(Duration::ZERO, Site(0), announce(0));
    assert_eq!(ends(&mut scheduler), []);
}

/// The scheduler hears of a copy before it hears of the rank that the copy is of, and the keeper is lost: the rank
/// itself still comes.
#[test]
fn a_copy_is_lost_before_its_owner_calls() {
    let mut scheduler = scheduler();
    let now = Duration::ZERO;
    let copy = Site(10);
    scheduler.handle_message(now, copy, announce(0));
    scheduler.handle_message(now, Site(2), announce(2));
    scheduler.handle_message(now, Site(11), announce(1));
    for lost in [copy, Site(1)] {
        scheduler.handle_lost(now, lost);
    }
    assert_eq!(ends(&mut scheduler), []);
    scheduler.handle_lost(now, Site(11));
    let lost = End::Lost(vec![Member(1)]);
    assert!(ends(&mut scheduler).contains(&(Site(0), lost)));
}
