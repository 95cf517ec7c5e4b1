//! Tests of what a launcher decides.

mod stalls;

use ropewalk_membership::{Cause, Departure};
use ropewalk_names::{Epoch, HostId, Incarnation, JobId, Rank};
use ropewalk_pmi as pmi;

use super::{groups::Asker, *};
use crate::{
    event::JobEvent,
    hosts::parse_hosts,
    job::{JobSpec, RespawnPolicy, Segment},
    plan::{self, Surroundings},
    protocol::{Report, StartError, StartErrorKind, Up},
    tree::NodeId,
    verdict::FailureKind,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = JobSpec::GRACE;

pub(super) fn supervisor_of(hosts: &str, on_failure: OnFailure) -> Supervisor {
    let program = Segment {
        ranks: 2,
        ..Segment::new("program")
    };
    let spec = JobSpec {
        hosts: parse_hosts(hosts).unwrap(),
        reactions: on_failure.into(),
        ..JobSpec::new("agent", program)
    };
    let around = Surroundings {
        is_port_free: |_| true,
        job: JobId([0; 16]),
        host_name: "localhost".to_owned(),
        processors: 2,
        environment: vec![],
        working_directory: None,
    };
    let plan = plan::plan(&spec, around).unwrap();
    let mut supervisor = Supervisor::new(&plan, on_failure, Some(60 * SECOND));
    for rank in [0, 1].map(Rank) {
        let host = plan.node_of(rank).and_then(NodeId::host).unwrap();
        let pid = 100 + rank.0;
        supervisor.handle_up(Duration::ZERO, up(host.0, Report::Started { rank, pid }));
    }
    while supervisor.poll_action().is_some() {}
    supervisor
}

pub(super) fn supervisor(on_failure: OnFailure) -> Supervisor {
    supervisor_of("", on_failure)
}

pub(super) fn up(host: u32, report: Report) -> Up {
    let host = HostId(host);
    let stamp = None;
    Up { host, stamp, report }
}

pub(super) fn report(supervisor: &mut Supervisor, now: Duration, report: Report) {
    supervisor.handle_up(now, up(0, report));
}

pub(super) fn depart(supervisor: &mut Supervisor, now: Duration, rank: u32, cause: Cause, unfinished: bool) {
    report(supervisor, now, departed(rank, cause, unfinished, false));
}

pub(super) fn departed(rank: u32, cause: Cause, unfinished: bool, attached: bool) -> Report {
    let departure = Departure {
        rank: Rank(rank),
        incarnation: Incarnation(0),
        epoch: Epoch(1),
        cause,
    };
    Report::Departed {
        departure,
        unfinished,
        attached,
        shortage: None,
        stage: None,
        at_ns: 0,
    }
}

pub(super) fn signals(supervisor: &mut Supervisor) -> Vec<i32> {
    std::iter::from_fn(|| supervisor.poll_action())
        .filter_map(|action| match action {
            Action::Send(Down::Order(Order::Signal { rank: None, signal })) => Some(signal),
            _ => None,
        })
        .collect()
}

pub(super) fn verdict(supervisor: &mut Supervisor) -> Verdict {
    std::iter::from_fn(|| supervisor.poll_action())
        .find_map(|action| match action {
            Action::Finished(verdict) => Some(verdict),
            _ => None,
        })
        .unwrap()
}

/// With `abort` the first failure ends the others, first politely, then not; what dies then is no failure.
#[test]
fn the_first_failure_ends_the_job() {
    let mut supervisor = supervisor(OnFailure::Abort);
    depart(&mut supervisor, SECOND, 1, Cause::Exited(7), false);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    assert_eq!(supervisor.deadline(), Some(SECOND + GRACE));
    supervisor.handle_timeout(SECOND + GRACE);
    assert_eq!(signals(&mut supervisor), [SIGKILL]);
    depart(&mut supervisor, 3 * SECOND, 0, Cause::Signalled(9), false);
    report(&mut supervisor, 3 * SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!((verdict.exit_code(), verdict.failures.len()), (7, 1));
    assert_eq!(verdict.failures[0].pid, Some(101));
    assert!(supervisor.is_over());
}

/// An agent that does not end its ranks although it was told to is killed; one that only waits for somebody to
/// take the output is not.
#[test]
fn an_agent_that_does_not_obey_is_killed() {
    for obeys in [false, true] {
        let mut supervisor = supervisor(OnFailure::Abort);
        let host_name = "vm".to_owned();
        report(&mut supervisor, Duration::ZERO, Report::Ready { host_name });
        supervisor.handle_interrupt(SECOND, SIGTERM);
        let kill_at = SECOND + GRACE;
        supervisor.handle_timeout(kill_at);
        assert_eq!(signals(&mut supervisor), [SIGTERM, SIGKILL]);
        if obeys {
            for rank in [0, 1] {
                depart(&mut supervisor, kill_at, rank, Cause::Signalled(9), false);
            }
        }
        let despair_at = kill_at + JobSpec::DETECT;
        assert_eq!(supervisor.deadline(), Some(despair_at));
        supervisor.handle_timeout(despair_at);
        let is_killed = std::iter::from_fn(|| supervisor.poll_action())
            .any(|action| matches!(action, Action::AbandonAgents));
        assert_eq!(is_killed, !obeys);
        assert_eq!(supervisor.deadline(), None);
    }
}

/// Insistence leaves the ranks no time, and the verdict comes even if no agent says anything any more.
#[test]
fn insistence_is_heard_at_once() {
    for (is_interrupted, code) in [(true, 130), (false, 124)] {
        let mut supervisor = supervisor(OnFailure::Abort);
        match is_interrupted {
            true => supervisor.handle_interrupt(60 * SECOND, 2),
            false => supervisor.handle_timeout(60 * SECOND),
        }
        signals(&mut supervisor);
        supervisor.handle_insistence(61 * SECOND, SIGTERM);
        assert_eq!(signals(&mut supervisor), [SIGKILL]);
        supervisor.handle_timeout(61 * SECOND + GRACE);
        assert_eq!(signals(&mut supervisor), [], "they are killed once");
        supervisor.despair();
        let actions: Vec<_> = std::iter::from_fn(|| supervisor.poll_action()).collect();
        let [Action::AbandonAgents, Action::Finished(verdict)] = &actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(verdict.exit_code(), code);
        supervisor.handle_insistence(62 * SECOND, SIGTERM);
        supervisor.despair();
        assert!(supervisor.poll_action().is_none(), "it is over");
    }
}

/// With `continue` the others go on, and the exit code is still the first failing rank's.
#[test]
fn with_continue_the_others_go_on() {
    let mut supervisor = supervisor(OnFailure::Continue);
    depart(&mut supervisor, SECOND, 0, Cause::Signalled(9), false);
    assert_eq!(signals(&mut supervisor), []);
    depart(&mut supervisor, SECOND, 1, Cause::Exited(3), false);
    report(&mut supervisor, SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!((verdict.exit_code(), verdict.failures.len()), (137, 2));
    assert_eq!(verdict.ending, Ending::Completed);
}

/// "EOF without finalize after any PMI command = abnormal end of that rank".
#[test]
fn a_rank_that_leaves_pmi_open_failed() {
    let mut supervisor = supervisor(OnFailure::Abort);
    depart(&mut supervisor, SECOND, 0, Cause::Exited(0), true);
    report(&mut supervisor, SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!(verdict.failures[0].kind, FailureKind::Unfinished);
    assert_eq!(verdict.exit_code(), 1);
}

/// An abort by PMI ends the job with the rank's exit code whatever the policy is.
#[test]
fn an_abort_ends_the_job() {
    let mut supervisor = supervisor(OnFailure::Continue);
    let rank = Rank(1);
    let message = String::new();
    let aborted = Report::Aborted {
        rank,
        exit_code: 9,
        message,
    };
    report(&mut supervisor, SECOND, aborted);
    assert_eq!(signals(&mut supervisor), [SIGTERM]);
    depart(&mut supervisor, SECOND, 1, Cause::Exited(1), true);
    report(&mut supervisor, SECOND, Report::Finished);
    assert_eq!(verdict(&mut supervisor).exit_code(), 9);
}

/// A program that cannot be started is 126 or 127, and what was started is killed at once.
#[test]
fn a_program_that_is_not_there_is_named() {
    let mut supervisor = supervisor(OnFailure::Continue);
    let error = StartError {
        kind: StartErrorKind::NotFound,
        reason: "no such file".to_owned(),
    };
    let rank = Rank(1);
    report(&mut supervisor, SECOND, Report::NotStarted { rank, error });
    assert_eq!(signals(&mut supervisor), [SIGKILL]);
    report(&mut supervisor, SECOND, Report::Finished);
    let verdict = verdict(&mut supervisor);
    assert_eq!(verdict.exit_code(), 127);
    assert!(verdict.to_string().contains("program: no such file"), "{verdict}");
}

/// Time-outs, interrupts and a lost agent have their own exit codes.
#[test]
fn other_endings() {
    let mut timed_out = supervisor(OnFailure::Abort);
    timed_out.handle_timeout(59 * SECOND);
    assert_eq!(signals(&mut timed_out), []);
    timed_out.handle_timeout(60 * SECOND);
    assert_eq!(signals(&mut timed_out), [SIGTERM]);
    report(&mut timed_out, 60 * SECOND, Report::Finished);
    assert_eq!(verdict(&mut timed_out).exit_code(), 124);

    let mut interrupted = supervisor(OnFailure::Abort);
    interrupted.handle_interrupt(SECOND, 2);
    assert_eq!(signals(&mut interrupted), [2]);
    report(&mut interrupted, SECOND, Report::Finished);
    assert_eq!(verdict(&mut interrupted).exit_code(), 130);

    let mut lost = supervisor(OnFailure::Continue);
    let how = "was killed by signal 9".to_owned();
    report(&mut lost, SECOND, Report::Lost { how });
    let verdict = verdict(&mut lost);
    assert_eq!(verdict.exit_code(), 125);
    let text = "the agent on host localhost was killed by signal 9; the job was ended";
    assert_eq!(verdict.to_string(), text);
}

/// An agent that is lost takes its ranks with it; the job ends with it, or goes on where the user wants that.
#[test]
fn a_lost_agent_is_named() {
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for (on_failure, is_heard) in [
        (OnFailure::Abort, true),
        (OnFailure::Continue, false),
        (OnFailure::Continue, true),
        (respawn, true),
    ] {
        let mut supervisor = supervisor_of("a,b", on_failure);
        let how = "gave no sign of life".to_owned();
        supervisor.handle_up(SECOND, up(1, Report::Lost { how }));
        let mut causes = Vec::new();
        let mut signals = Vec::new();
        let mut losses = 0;
        while let Some(action) = supervisor.poll_action() {
            match action {
                Action::Event(JobEvent::Departed { departure, host, .. }) => causes.push((departure, host)),
                Action::Event(JobEvent::Lost { .. }) => losses += 1,
                Action::Send(Down::Order(Order::WatchProgress)) => {}
                Action::Send(Down::Order(Order::Signal { signal, .. })) => signals.push(signal),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((causes[0].0.rank, causes[0].0.cause), (Rank(1), Cause::AgentLost));
        assert_eq!((causes.len(), causes[0].1.as_str()), (1, "b"));
        let continues = on_failure != OnFailure::Abort;
        assert_eq!((signals.is_empty(), losses), (continues, u32::from(continues)));
        // What the dead agent may still have sent counts no more.
        supervisor.handle_up(SECOND, up(1, departed(1, Cause::Exited(0), false, false)));
        supervisor.handle_up(SECOND, up(0, departed(0, Cause::Exited(0), false, is_heard)));
        supervisor.handle_up(SECOND, up(0, Report::Finished));
        let verdict = verdict(&mut supervisor);
        let (code, outcome) = match (continues, is_heard) {
            (true, true) => (0, "the others did without it"),
            (true, false) => (125, "the others went on"),
            (false, _) => (125, "the job was ended"),
        };
        assert_eq!(verdict.exit_code(), code);
        let expected = format!("the agent on host b gave no sign of life; {outcome}");
        assert_eq!(verdict.to_string(), expected);
    }
}

/// A rank that is about to be started again does not come back if its host is lost meanwhile.
#[test]
fn nobody_is_started_again_on_a_lost_host() {
    let mut supervisor = supervisor_of("a,b", OnFailure::Respawn(RespawnPolicy::default()));
    supervisor.handle_up(SECOND, up(1, departed(1, Cause::Signalled(9), false, true)));
    assert!(supervisor.respawns.are_due());
    let how = "gave no sign of life".to_owned();
    supervisor.handle_up(SECOND, up(1, Report::Lost { how }));
    supervisor.handle_timeout(10 * SECOND);
    let started = std::iter::from_fn(|| supervisor.poll_action())
        .any(|action| matches!(action, Action::Send(Down::To(_, Order::Respawn { .. }))));
    assert!(!started && !supervisor.respawns.are_due());
}

/// With `continue` a job succeeds whose program did without the ranks that failed: all others had heard of it
/// and went well. Ranks that never listened prove nothing.
#[test]
fn a_failure_that_the_program_survives_is_none() {
    for (attached, code, expected) in [(true, 0, 0), (false, 0, 137), (true, 3, 137)] {
        let mut supervisor = supervisor(OnFailure::Continue);
        report(
            &mut supervisor,
            SECOND,
            departed(1, Cause::Signalled(9), false, true),
        );
        report(
            &mut supervisor,
            SECOND,
            departed(0, Cause::Exited(code), false, attached),
        );
        report(&mut supervisor, SECOND, Report::Finished);
        assert_eq!(verdict(&mut supervisor).exit_code(), expected);
    }
}

/// Attached ranks of other hosts hear of every departure, also of those before the first attached.
#[test]
fn departures_are_spread() {
    let mut supervisor = supervisor_of("a,b", OnFailure::Continue);
    supervisor.handle_up(SECOND, up(1, departed(1, Cause::Signalled(9), false, false)));
    let news = |supervisor: &mut Supervisor| {
        let actions = std::iter::from_fn(|| supervisor.poll_action());
        actions
            .filter(|action| matches!(action, Action::Send(Down::News(_))))
            .count()
    };
    assert_eq!(news(&mut supervisor), 0);
    supervisor.handle_up(SECOND, up(0, Report::Attached));
    assert_eq!(news(&mut supervisor), 1);
    supervisor.handle_up(SECOND, up(0, departed(0, Cause::Exited(0), false, true)));
    assert_eq!(news(&mut supervisor), 1);
}

/// A rank that stays stopped is named; one that goes on soon is not.
#[test]
fn a_stopped_rank_is_named() {
    let mut supervisor = supervisor(OnFailure::Abort);
    let named = |supervisor: &mut Supervisor| -> Vec<String> {
        let actions = std::iter::from_fn(|| supervisor.poll_action());
        actions.map(|action| format!("{action:?}")).collect()
    };
    for rank in [0, 1].map(Rank) {
        report(&mut supervisor, SECOND, Report::Stopped { rank, signal: 19 });
    }
    report(&mut supervisor, 2 * SECOND, Report::Continued { rank: Rank(0) });
    let tell_at = SECOND + JobSpec::DETECT;
    assert_eq!(supervisor.deadline(), Some(tell_at));
    supervisor.handle_timeout(tell_at);
    let events = named(&mut supervisor);
    assert!(
        events.len() == 1 && events[0].contains("Stopped { rank: Rank(1)"),
        "{events:?}"
    );
    report(&mut supervisor, 9 * SECOND, Report::Continued { rank: Rank(1) });
    assert_eq!(named(&mut supervisor).len(), 1);
    assert_eq!(supervisor.deadline(), Some(60 * SECOND));
}

/// Where it is wanted, a rank that stays stopped is killed, and the verdict says why; the policy for failures
/// then holds.
#[test]
fn a_rank_that_stays_stopped_may_be_a_failure() {
    for on_failure in [OnFailure::Abort, OnFailure::Continue] {
        let mut supervisor = supervisor(on_failure);
        supervisor.set_on_stopped(OnStopped::Fail);
        let (rank, signal) = (Rank(1), 19);
        report(&mut supervisor, SECOND, Report::Stopped { rank, signal });
        let due = SECOND + JobSpec::DETECT;
        supervisor.handle_timeout(due);
        let actions: Vec<_> = std::iter::from_fn(|| supervisor.poll_action()).collect();
        let kills = actions.iter().filter(|action| {
            let Action::Send(Down::To(node, Order::Signal { rank, signal })) = action else {
                return false;
            };
            (*node, *rank, *signal) == (NodeId::of(HostId(0)), Some(Rank(1)), SIGKILL)
        });
        assert_eq!(kills.count(), 1, "{actions:?}");
        supervisor.handle_timeout(due + SECOND);
        assert!(supervisor.poll_action().is_none());
        // Before the kill comes somebody may let it go on and stop it once more.
        report(&mut supervisor, due + SECOND, Report::Continued { rank });
        report(&mut supervisor, due + SECOND, Report::Stopped { rank, signal });
        depart(&mut supervisor, due + SECOND, 1, Cause::Signalled(SIGKILL), false);
        let is_ended = !signals(&mut supervisor).is_empty();
        assert_eq!(is_ended, on_failure == OnFailure::Abort);
        depart(&mut supervisor, due + SECOND, 0, Cause::Exited(0), false);
        report(&mut supervisor, due + SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        let after = JobSpec::DETECT;
        assert_eq!(verdict.failures[0].kind, FailureKind::Stopped { signal, after });
        assert_eq!((verdict.failures.len(), verdict.exit_code()), (1, 137));
    }
}

/// A group that was planned on a host that is left just then is begun anew on another, and the spawner hears
/// of that one.
#[test]
fn a_spawn_goes_where_processes_are_still_started() {
    let mut supervisor = supervisor_of("localhost:1,other:1", OnFailure::Abort);
    let spawner = pmi::Process {
        group: pmi::GroupId(0),
        rank: 0,
    };
    let command = pmi::SpawnCommand {
        program: "child".into(),
        processes: 2,
        arguments: vec![],
        info: vec![],
    };
    let spawn = pmi::Spawn {
        preput: vec![],
        commands: vec![command],
    };
    let asker = Asker::Agent(HostId(0), 7);
    (supervisor.groups).handle_spawn(&mut supervisor.ground, asker, spawner, spawn);
    let first: Vec<Down> = std::iter::from_fn(|| supervisor.poll_action())
        .filter_map(|action| match action {
            Action::Send(down) => Some(down),
            _ => None,
        })
        .collect();
    let [Down::Group(group)] = first.as_slice() else {
        panic!("{first:?}");
    };
    assert!(group.runs.iter().all(|runs| runs.len() == 1), "{group:?}");
    let there = group.runs[1][0].first;
    let error = StartError {
        kind: StartErrorKind::HostLeft,
        reason: "left".to_owned(),
    };
    supervisor.handle_up(SECOND, up(1, Report::NotStarted { rank: there, error }));
    let then: Vec<_> = std::iter::from_fn(|| supervisor.poll_action()).collect();
    let again = then.iter().find_map(|action| match action {
        Action::Send(Down::Group(group)) => Some(group),
        _ => None,
    });
    let again = again.unwrap();
    assert!(again.runs[1].is_empty() && again.id != group.id, "{again:?}");
    assert!(
        then.iter()
            .any(|action| matches!(action, Action::Send(Down::Cancel(id)) if *id == group.id))
    );
    for rank in 0..2 {
        let started = Report::Started {
            rank: Rank(again.first.0 + rank),
            pid: 300 + rank,
        };
        supervisor.handle_up(2 * SECOND, up(0, started));
    }
    let answers: Vec<_> = std::iter::from_fn(|| supervisor.poll_action())
        .filter_map(|action| match action {
            Action::Send(Down::To(_, Order::Spawned { id, result })) => Some((id, result.is_ok())),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(7, true)]);
}

/// The agent of a host that is alone asks through the launcher, which tells the user why it did not get what
/// it asked for, once for each reason until something goes well.
#[test]
fn the_only_host_asks_for_names_through_the_launcher() {
    let mut supervisor = supervisor(OnFailure::Abort);
    let lookup = || pmi::Question::Lookup { service: "s".into() };
    let failed = |reason: &str| pmi::Answer::Failed {
        reason: reason.into(),
    };
    for (id, answer, is_told) in [
        (4, failed("gone"), true),
        (5, failed("gone"), false),
        (6, failed("full"), true),
        (7, failed("gone"), false),
        (8, pmi::Answer::Value { value: None }, false),
        (9, failed("full"), true),
    ] {
        let question = lookup();
        report(&mut supervisor, SECOND, Report::AskNames { id, question });
        let Some(Action::AskNames(asker, question)) = supervisor.poll_action() else {
            panic!("the name server is not asked");
        };
        assert_eq!(question, lookup());
        supervisor.handle_names_answer(SECOND, asker, answer.clone());
        if is_told {
            let told = supervisor.poll_action();
            assert!(matches!(
                told,
                Some(Action::Event(JobEvent::NameServerFailed { .. }))
            ));
        }
        match supervisor.poll_action() {
            Some(Action::Send(Down::To(
                node,
                Order::NamesAnswered {
                    id: to,
                    answer: given,
                },
            ))) => {
                assert_eq!((node, to, given), (NodeId::of(HostId(0)), id, answer));
            }
            other => panic!("{other:?}"),
        }
        assert!(supervisor.poll_action().is_none());
    }
}
