//! Rows for a root that has not contributed yet, because others hold its original.

use std::time::Duration;

use ropewalk_reduce_core::{
    Call, Costs, Member, Scheduler, SchedulerAction, Session, Site, Term, ToScheduler, Token, Worker,
    WorkerAction,
};

const SESSION: Session = Session { group: 1, call: 0 };

fn call() -> Call {
    Call {
        bytes: 40,
        element_bytes: 8,
        ..Call::default()
    }
}

/// Copies of all contributions are announced first, also that of the root. The ranks themselves are waited for; what
/// the root is given to do after that is done once it has contributed itself.
#[test]
fn a_root_may_contribute_after_its_copy() {
    let costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-6,
        rate: 1e8,
    };
    let mut scheduler = Scheduler::new(Site(0), costs, Duration::from_millis(1));
    scheduler.add_group(SESSION.group, (0..2).map(Site).collect());
    for member in 0..2 {
        let copy = Site(10 + member);
        scheduler.set_capacity(copy, 0.0);
        let announce = ToScheduler::Announce {
            session: SESSION,
            call: call(),
            originals: vec![(Member(member), Token(member.into()))],
            are_enclosed: false,
        };
        scheduler.handle_message(Duration::ZERO, copy, announce);
    }
    assert_eq!(scheduler.poll_action(), None);
    let deadline = scheduler.poll_timeout();
    assert_eq!(deadline, Some(Duration::from_millis(1)));
    scheduler.handle_timeout(Duration::from_millis(1));
    let mut root = Worker::new(Site(0), Site(0), Term(0));
    let mut rows = 0;
    while let Some(action) = scheduler.poll_action() {
        let SchedulerAction::Send(to, message) = action else {
            continue;
        };
        if to == Site(0) {
            rows += 1;
            root.handle_scheduler(Site(0), message);
        }
    }
    assert!(rows > 0 && root.poll_action().is_none());
    root.contribute(SESSION, call(), vec![(Member(0), Token(0))]);
    let actions: Vec<_> = std::iter::from_fn(|| root.poll_action()).collect();
    let granted = actions.iter().filter_map(|action| match action {
        WorkerAction::Grant { to, .. } => Some(*to),
        _ => None,
    });
    assert_eq!(granted.collect::<Vec<_>>(), [Site(10), Site(11)], "{actions:?}");
}
