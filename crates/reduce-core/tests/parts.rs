//! Copies that have only what nobody can do without.

use std::time::Duration;

use ropewalk_reduce_core::{
    Call, Chunking, Costs, End, FromScheduler, Member, OnLoss, OnRootLoss, Scheduler, SchedulerAction,
    Session, ShareId, Site, Standing, ToScheduler, Token,
};

const SESSION: Session = Session { group: 1, call: 0 };
const PATIENCE: Duration = Duration::from_millis(1);

fn scheduler() -> Scheduler {
    let costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-6,
        rate: 1e8,
    };
    let mut scheduler = Scheduler::new(Site(0), costs, PATIENCE);
    scheduler.add_group(SESSION.group, (0..3).map(Site).collect());
    scheduler
}

fn call() -> Call {
    Call {
        bytes: 64 << 20,
        element_bytes: 8,
        ..Call::default()
    }
}

fn announce(scheduler: &mut Scheduler, call: &Call, member: u32) {
    let message = ToScheduler::Announce {
        session: SESSION,
        call: call.clone(),
        originals: vec![original(member)],
        are_enclosed: false,
    };
    scheduler.handle_message(Duration::ZERO, Site(member), message);
}

/// A site where nobody is has a copy of this member's contribution.
fn announce_copy(scheduler: &mut Scheduler, site: Site, member: u32) {
    let standing = Standing {
        session: SESSION,
        call: call(),
        originals: vec![original(member)],
        shares: Vec::new(),
        chunking: None,
        roster: None,
        end: None,
    };
    scheduler.set_capacity(site, 0.0);
    scheduler.handle_left(Duration::ZERO, [(site, standing)]);
}

fn original(member: u32) -> (Member, Token) {
    (Member(member), Token(1 << member))
}

/// The root has merged so many chunks of each class.
fn merge(scheduler: &mut Scheduler, merged: Vec<u32>) {
    let progress = ToScheduler::Progress {
        session: SESSION,
        generation: 0,
        merged: vec![(ShareId(0), merged)],
    };
    scheduler.handle_message(Duration::ZERO, Site(0), progress);
}

/// The chunking in the rows, and the ends, since it was asked last.
fn told(scheduler: &mut Scheduler) -> (Option<Chunking>, Vec<End>) {
    let (mut chunking, mut ends) = (None, Vec::new());
    while let Some(action) = scheduler.poll_action() {
        match action {
            SchedulerAction::Send(_, FromScheduler::Row(row)) => chunking = Some(row.chunking),
            SchedulerAction::Send(_, FromScheduler::Ended { end, .. }) => ends.push(end),
            _ => {}
        }
    }
    (chunking, ends)
}

/// All that the root has merged is settled, but for the last chunk of each class, which may be under way.
#[test]
fn what_is_merged_is_settled() {
    let mut scheduler = scheduler();
    let settled = |scheduler: &Scheduler| scheduler.settled_bytes(SESSION, Member(1));
    for member in 0..3 {
        assert_eq!(settled(&scheduler), None);
        announce(&mut scheduler, &call(), member);
    }
    let chunking = told(&mut scheduler).0.unwrap();
    assert_eq!(settled(&scheduler), Some(0));
    let classes = usize::from(chunking.classes);
    merge(&mut scheduler, vec![5; classes]);
    let four = 4 * classes as u64 * chunking.chunk_bytes;
    assert_eq!(settled(&scheduler), Some(four));
    let mut merged = vec![9; classes];
    merged[0] = 5;
    merge(&mut scheduler, merged);
    assert_eq!(settled(&scheduler), Some(four));
}

/// Nothing is settled while the root may have to begin anew: another one may get the result, members may be left out,
/// or come late.
#[test]
fn nothing_is_settled_that_may_be_needed_again() {
    let moves = Call {
        on_root_loss: OnRootLoss::MoveToLowest,
        ..call()
    };
    let excludes = Call {
        on_loss: OnLoss::Exclude,
        ..call()
    };
    for (call, members) in [(moves, 3), (excludes, 3), (call(), 2)] {
        let mut scheduler = scheduler();
        for member in 0..members {
            announce(&mut scheduler, &call, member);
        }
        scheduler.handle_timeout(PATIENCE);
        let chunking = told(&mut scheduler).0.unwrap();
        merge(&mut scheduler, vec![5; chunking.classes.into()]);
        assert_eq!(scheduler.settled_bytes(SESSION, Member(1)), Some(0));
    }
}

/// The root begins anew, as the only copy of a contribution is lost before its rank has called. Another contribution of
/// which there is but a part is lost with its rank.
#[test]
fn a_part_does_not_count_when_the_root_begins_anew() {
    for is_part in [true, false] {
        let mut scheduler = scheduler();
        announce(&mut scheduler, &call(), 0);
        announce(&mut scheduler, &call(), 1);
        announce_copy(&mut scheduler, Site(11), 2);
        scheduler.handle_timeout(PATIENCE);
        let chunking = told(&mut scheduler).0.unwrap();
        merge(&mut scheduler, vec![5; chunking.classes.into()]);
        assert!(scheduler.settled_bytes(SESSION, Member(1)) > Some(0));
        announce_copy(&mut scheduler, Site(10), 1);
        if is_part {
            scheduler.note_part(SESSION, Site(10));
        }
        scheduler.handle_lost(Duration::ZERO, Site(11));
        assert_eq!(scheduler.settled_bytes(SESSION, Member(1)), Some(0));
        scheduler.handle_lost(Duration::ZERO, Site(1));
        let lost = End::Lost(vec![Member(1)]);
        assert_eq!(told(&mut scheduler).1.contains(&lost), is_part);
    }
}
