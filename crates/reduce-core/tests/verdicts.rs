//! Verdicts that end a session on all its ranks.

use std::time::Duration;

use ropewalk_reduce_core::{
    Call, Contributions, Costs, End, FromScheduler, GiveUp, Member, Scheduler, SchedulerAction, Session,
    Site, Standing, Term, ToScheduler, Token,
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
    let ends = actions.filter_map(|action| match action {
        SchedulerAction::Send(to, FromScheduler::Ended { end, .. }) => Some((to, end)),
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
        let all = [1, 2, 0].map(|site| (Site(site), end.clone()));
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

/// A session that gives way to another ends when that is called for, and is over if it was.
#[test]
fn a_session_gives_way_to_another() {
    const OTHER: u64 = 2;
    let giving = Session {
        group: OTHER,
        ..SESSION
    };
    let announce_giving = |session: Session, site: u32| ToScheduler::Announce {
        session,
        call: Call {
            bytes: 40,
            element_bytes: 8,
            gives_way_to: Some(SESSION.group),
            ..Call::default()
        },
        originals: vec![(Member(site), Token(site.into()))],
        are_enclosed: false,
    };
    for is_first in [true, false] {
        let mut scheduler = scheduler();
        scheduler.add_group(OTHER, (0..2).map(Site).collect());
        let mut messages = [(0, announce_giving(giving, 0)), (1, announce(1))];
        if !is_first {
            messages.reverse();
        }
        for (site, message) in messages {
            scheduler.handle_message(Duration::ZERO, Site(site), message);
        }
        let told = ends(&mut scheduler);
        let is_of_other = |(site, end): &(Site, End)| site.0 < 2 && matches!(end, End::Mismatch(_));
        assert!(told.iter().all(is_of_other) && !told.is_empty(), "{told:?}");
        assert_eq!(scheduler.sessions(), 1);
        // Who calls for it later is told so, and one of another number goes on.
        scheduler.handle_message(Duration::ZERO, Site(1), announce_giving(giving, 1));
        assert!(ends(&mut scheduler).iter().all(is_of_other));
        let next = Session {
            call: SESSION.call + 1,
            ..giving
        };
        scheduler.handle_message(Duration::ZERO, Site(0), announce_giving(next, 0));
        assert_eq!(scheduler.sessions(), 2);
    }
}

/// Nobody is to contribute to a session when the one that would give way to it has a result. What a rank that is gone
/// has left is told so.
#[test]
fn a_result_is_enough() {
    let giving = Session { group: 2, ..SESSION };
    let mut scheduler = scheduler();
    scheduler.add_group(giving.group, vec![Site(0)]);
    let announce_giving = ToScheduler::Announce {
        session: giving,
        call: Call {
            gives_way_to: Some(SESSION.group),
            ..Call::default()
        },
        originals: vec![(Member(0), Token(1))],
        are_enclosed: false,
    };
    scheduler.handle_message(Duration::ZERO, Site(0), announce_giving);
    let complete = ToScheduler::Complete {
        session: giving,
        term: Term(0),
        generation: 0,
        tokens: Token(1),
        is_for_all: false,
        is_enclosed: false,
    };
    scheduler.handle_message(Duration::ZERO, Site(0), complete);
    let told = ends(&mut scheduler);
    assert!(matches!(told[..], [(Site(0), End::Done { .. })]), "{told:?}");
    scheduler.handle_message(Duration::ZERO, Site(1), announce(1));
    let told = ends(&mut scheduler);
    assert!(matches!(told[..], [(Site(1), End::Mismatch(_))]), "{told:?}");
    assert_eq!(scheduler.sessions(), 0);
}

/// A session that gives way waits also for ranks that it could do without: they may call for the other one.
#[test]
fn all_have_to_call_for_a_session_that_gives_way() {
    for gives_way_to in [Some(SESSION.group), None] {
        let giving = Session { group: 2, ..SESSION };
        let mut scheduler = scheduler();
        scheduler.add_group(giving.group, vec![Site(0), Site(1)]);
        let broadcast = ToScheduler::Announce {
            session: giving,
            call: Call {
                contributions: Contributions::One(Member(0)),
                is_spread: true,
                gives_way_to,
                ..Call::default()
            },
            originals: vec![(Member(0), Token(1))],
            are_enclosed: false,
        };
        scheduler.handle_message(Duration::ZERO, Site(0), broadcast);
        scheduler.handle_lost(Duration::ZERO, Site(1));
        let told = ends(&mut scheduler);
        let is_lost = matches!(told[..], [(Site(0), End::Lost(_))]);
        assert_eq!(is_lost, gives_way_to.is_some(), "{told:?}");
    }
}

/// Two ranks are known as lost before anybody calls. If both have left their contributions, neither is missed.
#[test]
fn all_that_was_left_is_known_at_once() {
    let mut scheduler = scheduler();
    for rank in [1, 2] {
        scheduler.handle_lost(Duration::ZERO, Site(rank));
    }
    let left = |rank: u32| {
        let ToScheduler::Announce {
            session,
            call,
            originals,
            ..
        } = announce(rank)
        else {
            unreachable!()
        };
        let standing = Standing {
            session,
            call,
            originals,
            shares: Vec::new(),
            chunking: None,
            roster: None,
            end: None,
        };
        (Site(10 + rank), standing)
    };
    scheduler.handle_left(Duration::ZERO, [left(1), left(2)]);
    scheduler.handle_message(Duration::ZERO, Site(0), announce(0));
    assert_eq!(ends(&mut scheduler), []);
    assert_eq!(scheduler.sessions(), 1);
}

/// A new seat hears of a contribution to a session before it hears that the one that would give way has a result. The
/// result stands.
#[test]
fn a_result_stands_after_a_takeover() {
    let giving = Session { group: 2, ..SESSION };
    let mut scheduler = scheduler().take_over([Site(1), Site(2)]);
    scheduler.add_group(giving.group, vec![Site(0), Site(1), Site(2)]);
    scheduler.handle_lost(Duration::ZERO, Site(0));
    let standing = |session, call, originals, end| Standing {
        session,
        call,
        originals,
        shares: Vec::new(),
        chunking: None,
        roster: None,
        end,
    };
    let left = standing(SESSION, Call::default(), vec![(Member(0), Token(1))], None);
    scheduler.handle_left(Duration::ZERO, [(Site(10), left)]);
    let call = Call {
        gives_way_to: Some(SESSION.group),
        ..Call::default()
    };
    let done = End::Done {
        root: Member(0),
        excluded: Vec::new(),
    };
    let waiting = standing(giving, call, vec![(Member(2), Token(3))], None);
    let told = standing(giving, Call::default(), Vec::new(), Some(done.clone()));
    for (site, session) in [(Site(2), waiting), (Site(1), told)] {
        let message = ToScheduler::Standing {
            term: Term(0),
            sessions: vec![session],
        };
        scheduler.handle_message(Duration::ZERO, site, message);
    }
    let told = ends(&mut scheduler);
    let (of_result, of_left): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, end)| *end == done);
    assert!(
        of_result.iter().any(|(site, _)| *site == Site(2)),
        "{of_result:?}"
    );
    assert!(
        of_left.iter().all(|(_, end)| matches!(end, End::Mismatch(_))),
        "{of_left:?}"
    );
    assert_eq!(scheduler.sessions(), 0);
}
