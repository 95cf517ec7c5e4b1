//! Tests of what an agent decides.

use ropewalk_membership::Cause;
use ropewalk_names::{JobId, RegionHandle};

use super::{oddities::Oddities, *};
use crate::plan::FIRST_GROUP;
use crate::protocol::StartErrorKind;

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

fn agent(ranks: u32) -> HostAgent {
    let start = Start {
        job: JobId([1; 16]),
        size: ranks,
        ranks: (0..ranks).map(Rank).collect(),
        is_alone: true,
        encrypt: false,
        detect: std::time::Duration::from_secs(3),
        respawns: false,
        is_singleton: false,
        shares_names: false,
        tells_who_may_hang: false,
        pmi: pmi::GroupOptions {
            absent: pmi::AbsentMembers::Exclude,
            ..pmi::GroupOptions::one_host(FIRST_GROUP, "kvs", ranks)
        },
    };
    HostAgent::new(start, "tcp://127.0.0.1:1".parse().unwrap(), 1000)
}

fn started(ranks: u32) -> HostAgent {
    let mut agent = agent(ranks);
    while let Some(rank) = agent.poll_spawn() {
        agent.handle_spawned(rank, 100 + rank.0);
    }
    drain(&mut agent);
    agent
}

/// Does what has to be done as the driver would, and tells it, one line for each.
fn drain(agent: &mut HostAgent) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(action) = agent.poll_action() {
        lines.push(match action {
            Action::ClosePmi(rank) => format!("close PMI of {rank}"),
            Action::Expose(rank, held) => {
                let line = format!("expose {} of {rank}", held.id.0);
                let handle = RegionHandle {
                    address: agent.address.clone(),
                    region: held.id.0,
                    token: 0,
                    length: 0,
                    writable: false,
                };
                agent.handle_exposed(rank, held, handle);
                line
            }
            // It goes with each departure, and has a test of its own.
            Action::Fence(_) => continue,
            Action::Forget(rank, id) => format!("forget {} of {rank}", id.0),
            Action::Withdraw(handle) => format!("withdraw {}", handle.region),
            Action::Report(Report::Departed {
                departure,
                unfinished,
                stage,
                ..
            }) => {
                let unfinished = if unfinished { ", unfinished" } else { "" };
                let stage = stage.map(|stage| format!(", {stage}")).unwrap_or_default();
                format!("report {} {}{unfinished}{stage}", departure.rank, departure.cause)
            }
            Action::Report(Report::Closed) => continue,
            Action::Report(Report::FenceBegan { fence, .. }) => format!("{fence} began"),
            Action::Report(Report::FenceEnded { fence, failed, .. }) => {
                format!(
                    "{fence} ended{}",
                    failed.map_or(String::new(), |rank| format!(" without {rank}"))
                )
            }
            Action::Report(Report::Notice { rank, .. }) => format!("notice about {rank}"),
            Action::Report(Report::Trace { rank, .. }) => format!("trace of {rank}"),
            Action::Report(report) => format!("{report:?}"),
            Action::SendLink(to, ToRank::Departed(departure)) => {
                format!("tell {to} that {} departed", departure.rank)
            }
            Action::SendLink(to, ToRank::Inherited { rank, held, .. }) => {
                format!("tell {to} of {} of {rank}", held.id.0)
            }
            Action::SendLink(to, ToRank::Taken) => format!("tell {to} that it is taken"),
            Action::SendLink(to, ToRank::Welcome(_)) => format!("welcome {to}"),
            Action::SendChild(node, _) => format!("PMI to {node:?}"),
            Action::SendPmi(rank, _) => format!("answer {rank}"),
            Action::Signal(rank, signal) => format!("signal {signal} to {rank}"),
            Action::Sweep => "sweep".to_owned(),
        });
    }
    lines
}

fn hold(agent: &mut HostAgent, rank: u32, id: u64, memory: Option<u64>) -> bool {
    let (id, label) = (HoldId(id), vec![]);
    agent.handle_link(Rank(rank), FromRank::Hold(Held { id, label }), memory)
}

/// "When a rank is gone the agent exposes what it held for it and tells every attached rank, first one
/// `Inherited` for each memfd, then `Departed`"; who attaches later is told all of it, in the same order.
#[test]
fn data_is_announced_before_the_departure() {
    let mut agent = started(3);
    agent.handle_link(Rank(0), FromRank::Join, None);
    assert_eq!(drain(&mut agent), ["welcome 0"]);
    agent.handle_link(Rank(0), FromRank::Attach, None);
    assert_eq!(drain(&mut agent), ["Attached"]);
    agent.handle_link(Rank(0), FromRank::Join, None);
    assert_eq!(drain(&mut agent), ["tell 0 that it is taken"]);
    assert!(hold(&mut agent, 1, 7, Some(400)) && hold(&mut agent, 1, 8, Some(400)));
    assert!(hold(&mut agent, 0, 7, Some(100)));
    agent.handle_link(Rank(1), FromRank::Release(HoldId(7)), None);
    assert!(hold(&mut agent, 1, 9, Some(400)));
    assert_eq!(drain(&mut agent), ["forget 7 of 1"]);
    agent.handle_exit(Rank(1), Cause::Signalled(9), None, 0);
    assert_eq!(
        drain(&mut agent),
        [
            "expose 8 of 1",
            "expose 9 of 1",
            "tell 0 of 8 of 1",
            "tell 0 of 9 of 1",
            "report 1 killed by signal 9",
            "tell 0 that 1 departed",
        ]
    );
    agent.handle_link(Rank(2), FromRank::Attach, None);
    assert_eq!(
        drain(&mut agent),
        ["tell 2 of 8 of 1", "tell 2 of 9 of 1", "tell 2 that 1 departed"]
    );
    // The memory of a rank without any is announced in no time.
    agent.handle_exit(Rank(2), Cause::Exited(0), None, 0);
    assert_eq!(
        drain(&mut agent),
        ["report 2 exited with code 0", "tell 0 that 2 departed"]
    );
}

/// Other hosts too hear where the memory of a rank is before they hear that it is gone. The agent stays after
/// its last rank until the launcher says that nobody needs the memory any more, or the job is being ended.
#[test]
fn memory_is_served_until_it_is_released() {
    for is_ended in [false, true] {
        let mut agent = agent(1);
        agent.start.is_alone = false;
        let rank = agent.poll_spawn().unwrap();
        agent.handle_spawned(rank, 100);
        assert!(hold(&mut agent, 0, 7, Some(400)) && hold(&mut agent, 0, 8, Some(400)));
        drain(&mut agent);
        agent.handle_exit(Rank(0), Cause::Signalled(9), None, 0);
        let lines = drain(&mut agent);
        let [_, _, first, second, departed, sweep] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(
            first.starts_with("Inherited") && second.starts_with("Inherited"),
            "{lines:?}"
        );
        assert_eq!([departed, sweep], ["report 0 killed by signal 9", "sweep"]);
        agent.handle_swept();
        assert!(drain(&mut agent).is_empty());
        match is_ended {
            true => agent.handle_signal(None, SIGKILL),
            false => agent.handle_released(),
        }
        assert_eq!(drain(&mut agent), ["Finished"]);
        agent.handle_released();
        assert!(drain(&mut agent).is_empty());
    }
}

/// Memory that could still change, too much of it, or a name used twice is refused, and told.
#[test]
fn held_memory_is_bounded() {
    let mut agent = started(2);
    assert!(!hold(&mut agent, 0, 1, None));
    assert!(!hold(&mut agent, 0, 1, Some(1001)));
    assert!(hold(&mut agent, 0, 1, Some(600)));
    assert!(!hold(&mut agent, 0, 1, Some(1)));
    assert!(!hold(&mut agent, 1, 1, Some(401)));
    let label = vec![0; Held::LABEL_SIZE_MAX + 1];
    let held = Held { id: HoldId(2), label };
    assert!(!agent.handle_link(Rank(0), FromRank::Hold(held), Some(1)));
    assert_eq!(drain(&mut agent).len(), 5);
    agent.handle_link(Rank(0), FromRank::Release(HoldId(1)), None);
    assert!(hold(&mut agent, 1, 1, Some(1000)));
}

/// The memory that a rank left is served, and counts, until the others have taken in its next life.
#[test]
fn what_a_rank_left_is_needed_until_it_is_back() {
    let mut agent = started(2);
    agent.start.respawns = true;
    agent.handle_link(Rank(0), FromRank::Attach, None);
    assert!(hold(&mut agent, 1, 1, Some(900)));
    agent.handle_exit(Rank(1), Cause::Signalled(9), None, 0);
    agent.handle_news(News::Returned {
        rank: Rank(1),
        incarnation: Incarnation(1),
    });
    agent.handle_respawn(Rank(1), Incarnation(1));
    let rank = agent.poll_spawn().unwrap();
    agent.handle_spawned(rank, 200);
    drain(&mut agent);
    assert!(!hold(&mut agent, 1, 1, Some(900)));
    drain(&mut agent);
    agent.handle_link(Rank(1), FromRank::Admitted, None);
    assert_eq!(drain(&mut agent), ["withdraw 1"]);
    assert!(hold(&mut agent, 1, 1, Some(900)));
    // Nobody who attaches later hears of it.
    agent.handle_link(Rank(1), FromRank::Attach, None);
    assert_eq!(drain(&mut agent), ["tell 1 that 1 departed"]);
}

/// A rank cannot fill the launcher's memory with what it does wrong, nor keep others from being heard.
#[test]
fn what_is_odd_is_not_told_for_ever() {
    let mut agent = started(2);
    for _ in 0..1000 {
        hold(&mut agent, 0, 1, None);
        agent.handle_pmi(Rank(0), b"cmd=abort exitcode=7\n");
    }
    let reports = drain(&mut agent);
    assert_eq!(reports.len(), Oddities::TOLD_MAX as usize + 1, "{reports:?}");
    hold(&mut agent, 1, 1, None);
    assert_eq!(drain(&mut agent), ["notice about 1"]);
}

/// "duplicate put: .. Ours: last write wins, and report it in debug": each time it is another value, but not
/// for ever, and what else is odd is told all the same.
#[test]
fn overwritten_keys_are_reported() {
    let mut agent = started(2);
    agent.handle_pmi(Rank(1), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    drain(&mut agent);
    let mut put = |value: u32| {
        let put = format!("cmd=put kvsname=kvs key=k value={value}\n");
        agent.handle_pmi(Rank(1), put.as_bytes());
        drain(&mut agent)
    };
    assert_eq!(put(0), ["answer 1"]);
    assert_eq!(put(0), ["answer 1"]);
    assert_eq!(put(1), ["Overwritten { rank: Rank(1), key: \"k\" }", "answer 1"]);
    let told = (2..1000).filter(|&value| put(value).len() > 1).count();
    assert_eq!(told, Oddities::TOLD_MAX as usize - 1);
    hold(&mut agent, 1, 1, None);
    assert_eq!(drain(&mut agent), ["notice about 1"]);
}

/// The launcher hears, before a departure, whether a rank is left that would wait for ever: one between the
/// beginning and the end of PMI that hears of no departures.
#[test]
fn ranks_that_may_hang_are_reported() {
    let mut agent = started(3);
    agent.start.tells_who_may_hang = true;
    let mut told = |rank: u32, line: &str| {
        agent.handle_pmi(Rank(rank), line.as_bytes());
        let told = drain(&mut agent)
            .into_iter()
            .filter(|line| !line.starts_with("answer"));
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        told(0, "cmd=init pmi_version=1 pmi_subversion=1\n"),
        ["MayHang(true)"]
    );
    assert_eq!(told(1, "cmd=init pmi_version=1 pmi_subversion=1\n"), [""; 0]);
    assert_eq!(told(1, "cmd=finalize\n"), ["close PMI of 1"]);
    agent.handle_link(Rank(0), FromRank::Attach, None);
    let attached = drain(&mut agent);
    assert!(attached.contains(&"MayHang(false)".to_owned()), "{attached:?}");
    agent.handle_pmi(Rank(2), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    drain(&mut agent);
    agent.handle_exit(Rank(2), Cause::Signalled(9), None, 0);
    let lines = drain(&mut agent);
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(at("MayHang(false)") < at("report 2"), "{lines:?}");
}

/// A rank that leaves PMI open is reported so, and its barrier goes on without it.
#[test]
fn an_open_pmi_connection_is_reported() {
    let mut agent = started(2);
    for rank in [0, 1] {
        agent.handle_pmi(Rank(rank), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    }
    agent.handle_pmi(Rank(0), b"cmd=barrier_in\n");
    assert_eq!(drain(&mut agent), ["answer 0", "answer 1", "WORLD began"]);
    agent.handle_exit(Rank(1), Cause::Exited(0), None, 0);
    assert_eq!(
        drain(&mut agent),
        [
            "WORLD ended",
            "answer 0",
            "report 1 exited with code 0, unfinished, between PMI_Init and PMI_Finalize"
        ]
    );
}

/// Of a rank that dies in a fence that is told, although its connection is closed before its death is seen; of one that
/// never began with PMI too, since another has.
#[test]
fn where_a_rank_failed_is_reported() {
    let mut agent = started(3);
    agent.handle_pmi(Rank(0), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    agent.handle_pmi(Rank(0), b"cmd=barrier_in\n");
    agent.handle_pmi_closed(Rank(0));
    drain(&mut agent);
    agent.handle_exit(Rank(0), Cause::Signalled(9), None, 0);
    agent.handle_exit(Rank(1), Cause::Exited(3), None, 0);
    agent.handle_exit(Rank(2), Cause::Exited(0), None, 0);
    let reports: Vec<_> = drain(&mut agent)
        .into_iter()
        .filter(|line| line.starts_with("report"))
        .collect();
    assert_eq!(
        reports,
        [
            "report 0 killed by signal 9, unfinished, in fence WORLD",
            "report 1 exited with code 3, before PMI_Init",
            "report 2 exited with code 0"
        ]
    );
}

/// If a rank cannot be started no other is tried, and all is over once those that run are gone.
#[test]
fn a_failed_start_stops_the_others() {
    let mut agent = agent(3);
    let first = agent.poll_spawn().unwrap();
    agent.handle_spawned(first, 100);
    let second = agent.poll_spawn().unwrap();
    let error = StartError {
        kind: StartErrorKind::NotFound,
        reason: String::new(),
    };
    agent.handle_not_spawned(second, error);
    assert!(!agent.is_spawning());
    assert_eq!(drain(&mut agent).len(), 2);
    agent.handle_signal(None, SIGKILL);
    agent.handle_exit(first, Cause::Signalled(SIGKILL), None, 0);
    assert_eq!(
        drain(&mut agent),
        ["signal 9 to 0", "report 0 killed by signal 9", "sweep"]
    );
    agent.handle_swept();
    assert_eq!(drain(&mut agent), ["Finished"]);
}

/// Without a launcher every rank is killed, and none is started any more.
#[test]
fn a_lost_launcher_ends_all() {
    let mut agent = agent(3);
    for _ in 0..2 {
        let rank = agent.poll_spawn().unwrap();
        agent.handle_spawned(rank, 100);
    }
    drain(&mut agent);
    agent.handle_signal(None, SIGKILL);
    assert_eq!(drain(&mut agent), ["signal 9 to 0", "signal 9 to 1"]);
    assert!(!agent.is_spawning());
    // A signal to one rank goes to it alone, and to none that is gone.
    agent.handle_signal(Some(Rank(1)), 10);
    agent.handle_signal(Some(Rank(2)), 10);
    assert_eq!(drain(&mut agent), ["signal 10 to 1"]);
}

fn welcomed_as(agent: &HostAgent, rank: u32) -> Identity {
    match agent.welcome(Rank(rank)) {
        ToRank::Welcome(welcome) => welcome.identity,
        other => panic!("{other:?}"),
    }
}

/// The incarnations that the agent lets in no more, of those that something was just told about.
fn fences(agent: &mut HostAgent) -> Vec<Identity> {
    let actions = std::iter::from_fn(|| agent.poll_action());
    let fences = actions.filter_map(|action| match action {
        Action::Fence(identity) => Some(identity),
        _ => None,
    });
    fences.collect()
}

/// Each rank is welcomed under its present incarnation; an incarnation that is gone, here or elsewhere, is
/// let in no more.
#[test]
fn keys_die_with_their_incarnation() {
    let mut agent = agent(4);
    agent.start.respawns = true;
    // The last is on another host.
    agent.start.ranks.pop();
    agent.lives.to_spawn.pop_back();
    for _ in 0..3 {
        let rank = agent.poll_spawn().unwrap();
        agent.handle_spawned(rank, 100 + rank.0);
    }
    let (first, other) = (welcomed_as(&agent, 1), welcomed_as(&agent, 0));
    assert_eq!(first, rank_identity(Rank(1), Incarnation(0)));
    assert!(first != other && first == welcomed_as(&agent, 1));
    assert!(fences(&mut agent).is_empty());
    agent.handle_exit(Rank(1), Cause::Signalled(9), None, 0);
    assert_eq!(fences(&mut agent), [first]);
    // All agents hear of it, this one too, and before it is told to start the process.
    let (rank, incarnation) = (Rank(1), Incarnation(1));
    agent.handle_news(News::Returned { rank, incarnation });
    agent.handle_respawn(rank, incarnation);
    assert_eq!(agent.poll_spawn(), Some(rank));
    let second = welcomed_as(&agent, 1);
    assert_eq!(second, rank_identity(Rank(1), Incarnation(1)));
    assert!(second != first);
    assert!(fences(&mut agent).is_empty());
    agent.handle_news(News::Departed {
        rank: Rank(3),
        incarnation: Incarnation(0),
        cause: Cause::Exited(0),
    });
    assert_eq!(fences(&mut agent), [rank_identity(Rank(3), Incarnation(0))]);
}

/// While the job is suspended all ranks are stopped and none is started; then those go on that were stopped for it.
#[test]
fn a_suspended_job_stands_still() {
    let mut agent = agent(4);
    for _ in 0..3 {
        let rank = agent.poll_spawn().unwrap();
        agent.handle_spawned(rank, 100);
    }
    agent.handle_stopped(Rank(1), Some(SIGSTOP));
    drain(&mut agent);
    for _ in 0..2 {
        // The second time it is suspended already.
        agent.handle_suspend();
    }
    assert_eq!(drain(&mut agent), ["signal 19 to 0", "signal 19 to 2"]);
    assert!(!agent.is_spawning());
    assert_eq!(agent.poll_spawn(), None);
    for rank in [0, 2] {
        agent.handle_stopped(Rank(rank), Some(SIGSTOP));
    }
    agent.handle_exit(Rank(2), Cause::Signalled(SIGKILL), None, 0);
    drain(&mut agent);
    agent.handle_resume();
    assert_eq!(drain(&mut agent), ["signal 18 to 0"]);
    assert_eq!(agent.poll_spawn(), Some(Rank(3)));
    agent.handle_spawned(Rank(3), 100);
    drain(&mut agent);
    // Again, before the agent hears that the rank goes on.
    agent.handle_suspend();
    assert_eq!(drain(&mut agent), ["signal 19 to 0", "signal 19 to 3"]);
    agent.handle_signal(None, SIGKILL);
    assert_eq!(drain(&mut agent).len(), 3);
}
