//! Tests of jobs that make no progress.

use super::*;
use crate::{
    event::JobEvent,
    job::{RespawnPolicy, Stall},
};

fn stall_deadline(supervisor: &Supervisor) -> Option<Duration> {
    supervisor
        .progress
        .deadline(&supervisor.ground, &supervisor.respawns)
}

/// The supervisor of a job of two ranks, one of which is stopped, and which waits in a fence. It made
/// progress last after three seconds.
fn stalled(on_failure: OnFailure, stall: Stall) -> Supervisor {
    let mut supervisor = supervisor(on_failure);
    supervisor.ground.plan.reactions.stall.limit = stall;
    let host_name = "localhost".to_owned();
    report(&mut supervisor, Duration::ZERO, Report::Ready { host_name });
    let began = Report::FenceBegan {
        group: 0,
        fence: "WORLD".to_owned(),
    };
    report(&mut supervisor, SECOND, began);
    report(&mut supervisor, 3 * SECOND, Report::Active);
    let (rank, signal) = (Rank(1), 19);
    report(&mut supervisor, 4 * SECOND, Report::Stopped { rank, signal });
    supervisor
}

/// The warnings of a stall, and if the job is being ended.
fn told(supervisor: &mut Supervisor) -> (Vec<(Duration, Duration)>, bool) {
    let actions: Vec<_> = std::iter::from_fn(|| supervisor.poll_action()).collect();
    let told = actions.iter().filter_map(|action| match action {
        Action::Event(JobEvent::Stalled {
            after, ends_after, ..
        }) => Some((*after, *ends_after)),
        _ => None,
    });
    let is_signal = |action: &Action| matches!(action, Action::Send(Down::Order(Order::Signal { .. })));
    (told.collect(), actions.iter().any(is_signal))
}

/// A job in which nothing happens is ended, and the verdict says who is left, who is stopped, and which fence
/// some wait in.
#[test]
fn a_stall_ends_a_job() {
    let mut supervisor = stalled(OnFailure::Abort, Stall::After(4 * SECOND));
    supervisor.handle_timeout(7 * SECOND);
    assert_eq!(signals(&mut supervisor), [0; 0]);
    assert_eq!(stall_deadline(&supervisor), Some(8 * SECOND));
    supervisor.handle_timeout(8 * SECOND);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    report(&mut supervisor, 9 * SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!(verdict.exit_code(), 124);
    let who = "ranks 0-1 run, rank 1 on host localhost is stopped, some wait in fence WORLD";
    let line = format!("for 4 s (no output, no request by PMI, no bytes moved): {who}; ");
    assert!(verdict.to_string().contains(&line), "{verdict}");
}

/// One that goes on after failures is warned after half of the time, and again if something happened in
/// between; then it is ended too.
#[test]
fn a_stall_is_told_before_the_end() {
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for on_failure in [OnFailure::Continue, respawn] {
        let mut supervisor = stalled(on_failure, Stall::After(4 * SECOND));
        assert_eq!(stall_deadline(&supervisor), Some(6 * SECOND));
        supervisor.handle_timeout(6 * SECOND);
        let warning = (vec![(2 * SECOND, 2 * SECOND)], false);
        assert_eq!(told(&mut supervisor), warning);
        assert_eq!(stall_deadline(&supervisor), Some(8 * SECOND));
        report(&mut supervisor, 7 * SECOND, Report::Active);
        supervisor.handle_timeout(9 * SECOND);
        assert_eq!(told(&mut supervisor), (vec![], false));
        supervisor.handle_timeout(10 * SECOND);
        assert_eq!(told(&mut supervisor), warning);
        supervisor.handle_timeout(12 * SECOND);
        assert_eq!(told(&mut supervisor), (vec![], true));
        report(&mut supervisor, 13 * SECOND, Report::Finished);
        assert_eq!(verdict(&mut supervisor).exit_code(), 124);
    }
}

/// Unless told otherwise, a job is watched from the first loss on, and only if it goes on and a rank lives
/// that would wait for ever for the lost one; the loss is told with the time. Agents look for progress from
/// then on.
#[test]
fn a_loss_begins_the_watch() {
    let minute = 60 * SECOND;
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for (on_failure, stall, may_hang, watches) in [
        (OnFailure::Continue, Stall::default(), true, true),
        (OnFailure::Continue, Stall::default(), false, false),
        (OnFailure::Continue, Stall::Never, true, false),
        (respawn, Stall::default(), true, true),
        (respawn, Stall::default(), false, false),
        (respawn, Stall::Never, true, false),
    ] {
        let mut supervisor = stalled(on_failure, stall);
        report(&mut supervisor, 5 * SECOND, Report::MayHang(may_hang));
        assert_eq!(stall_deadline(&supervisor), None);
        while supervisor.poll_action().is_some() {}
        depart(&mut supervisor, 6 * SECOND, 1, Cause::Signalled(9), false);
        let actions: Vec<_> = std::iter::from_fn(|| supervisor.poll_action()).collect();
        let limits: Vec<_> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Event(JobEvent::Lost { stall, .. } | JobEvent::Respawning { stall, .. }) => {
                    Some(*stall)
                }
                _ => None,
            })
            .collect();
        assert_eq!(limits, [watches.then_some(minute)]);
        let is_order = |action: &Action| matches!(action, Action::Send(Down::Order(Order::WatchProgress)));
        assert_eq!(actions.iter().any(is_order), stall != Stall::Never);
        if on_failure == respawn {
            // For the one that is about to come back the others wait rightly.
            assert_eq!(stall_deadline(&supervisor), None);
            supervisor.handle_timeout(8 * SECOND);
            let (rank, pid) = (Rank(1), 7);
            report(&mut supervisor, 8 * SECOND, Report::Started { rank, pid });
        }
        let began = supervisor.progress.made_at();
        assert_eq!(
            stall_deadline(&supervisor),
            watches.then_some(began + minute / 2 + minute / 4)
        );
        // As when the last rank of MPI has finalized it.
        report(&mut supervisor, 9 * SECOND, Report::MayHang(false));
        assert_eq!(stall_deadline(&supervisor), None);
    }
    // A failure that ends the job begins nothing.
    let mut ended = stalled(OnFailure::Abort, Stall::default());
    report(&mut ended, 5 * SECOND, Report::MayHang(true));
    depart(&mut ended, 6 * SECOND, 1, Cause::Signalled(9), false);
    let is_lost = |action: &Action| matches!(action, Action::Event(JobEvent::Lost { .. }));
    assert!(!std::iter::from_fn(|| ended.poll_action()).any(|action| is_lost(&action)));
    assert_eq!(stall_deadline(&ended), None);
}

/// A host that is lost takes those with it that could have hung.
#[test]
fn who_is_lost_does_not_hang() {
    let mut supervisor = supervisor_of("localhost:1,other:1", OnFailure::Continue);
    for host in [0, 1] {
        let host_name = "h".to_owned();
        supervisor.handle_up(SECOND, up(host, Report::Ready { host_name }));
    }
    supervisor.handle_up(SECOND, up(1, Report::MayHang(true)));
    let how = "is lost".to_owned();
    supervisor.handle_up(2 * SECOND, up(1, Report::Lost { how }));
    let lost = std::iter::from_fn(|| supervisor.poll_action()).find_map(|action| match action {
        Action::Event(JobEvent::Lost { what, stall }) => Some((what, stall)),
        _ => None,
    });
    assert_eq!(lost, Some(("the agent on host other is lost".to_owned(), None)));
    supervisor.handle_up(3 * SECOND, up(0, Report::MayHang(true)));
    assert!(stall_deadline(&supervisor).is_some());
}
