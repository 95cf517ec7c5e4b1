//! Decides for one host: what its ranks are told, what is kept for them, what the launcher hears.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ropewalk_fabric::{
    Address, AgentLink, AgentLinkError, FromAgent, Held, HoldId, Identity, RegionHandle, Role, ToAgent,
    Welcome,
};
use ropewalk_group::{Cause, Departure, Membership, Rank};
use ropewalk_pmi as pmi;

use crate::protocol::{Report, Start, StartError};

const SIGKILL: i32 = 9;

/// The agent's mind.
///
/// While [`poll_spawn`](Self::poll_spawn) names a rank, start it and say what came of it. Tell what happens
/// with `handle_*`, and after each call do what [`poll_action`](Self::poll_action) says until it says nothing.
/// Of a rank that exits, first everything that it sent, then its exit.
#[derive(Debug)]
pub(crate) struct HostAgent {
    start: Start,
    address: Address,
    members: Membership,
    pmi: pmi::Server,
    to_spawn: VecDeque<Rank>,
    running: BTreeSet<Rank>,
    attached: BTreeSet<Rank>,
    departing: BTreeMap<Rank, Departing>,
    /// What every attached rank hears, from the first day.
    announcements: Vec<FromAgent>,
    held: BTreeMap<(Rank, HoldId), Holding>,
    held_bytes: u64,
    held_bytes_max: u64,
    /// The first abort ends the job; no other matters.
    aborted: bool,
    notices: BTreeMap<Rank, u32>,
    swept: bool,
    actions: VecDeque<Action>,
}

/// What has to be done for a [`HostAgent`].
#[derive(Debug)]
pub(crate) enum Action {
    /// Close a rank's PMI connection after what was sent.
    ClosePmi(Rank),
    /// Serve this memory of a rank that is gone, and say where with [`HostAgent::handle_exposed`].
    Expose(Rank, Held),
    /// Let go of memory.
    Forget(Rank, HoldId),
    /// Tell the launcher.
    Report(Report),
    /// Tell a rank.
    SendLink(Rank, FromAgent),
    /// Answer a rank.
    SendPmi(Rank, Vec<u8>),
    /// Send a signal to a rank's process group.
    Signal(Rank, i32),
    /// All ranks are gone: kill what they left behind and send the rest of their output, then call
    /// [`HostAgent::handle_swept`].
    Sweep,
}

/// A rank that is gone, of whose memory so many pieces are still to be exposed.
#[derive(Debug)]
struct Departing {
    departure: Departure,
    exposures: usize,
}

#[derive(Debug)]
struct Holding {
    label: Vec<u8>,
    size: u64,
}

impl HostAgent {
    /// How many pieces of memory are kept for the ranks of one host: the kernel lets a process map 65,530.
    pub(crate) const HOLDINGS_MAX: usize = 1 << 15;
    /// How often the launcher hears of something odd about a rank, which could otherwise fill its memory with it.
    const NOTICES_MAX: u32 = 16;

    /// An agent that serves memory at `address` and keeps at most `held_bytes_max` bytes of it.
    pub(crate) fn new(start: Start, address: Address, held_bytes_max: u64) -> Self {
        let absent = if start.continues {
            pmi::AbsentMembers::Exclude
        } else {
            pmi::AbsentMembers::Fail
        };
        let mut pmi = pmi::Server::root();
        let kvsname = format!("kvs_{}", start.job);
        pmi.add_group(pmi::GroupOptions {
            absent,
            ..pmi::GroupOptions::one_host(FIRST_GROUP, kvsname, start.size)
        });
        for &rank in &start.ranks {
            pmi.open(pmi_connection(rank), pmi::Peer::Process(pmi_process(rank)));
        }
        Self {
            members: Membership::new(start.size),
            pmi,
            to_spawn: start.ranks.iter().copied().collect(),
            start,
            address,
            running: BTreeSet::new(),
            attached: BTreeSet::new(),
            departing: BTreeMap::new(),
            announcements: Vec::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
            held_bytes_max,
            aborted: false,
            notices: BTreeMap::new(),
            swept: false,
            actions: VecDeque::new(),
        }
    }

    /// Whether ranks are still to be started.
    pub(crate) fn is_spawning(&self) -> bool {
        !self.to_spawn.is_empty()
    }

    /// The next rank to be started.
    pub(crate) fn poll_spawn(&mut self) -> Option<Rank> {
        self.to_spawn.pop_front()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The first message of a rank's link, to be sent before the rank runs.
    pub(crate) fn welcome(&self, rank: Rank) -> FromAgent {
        FromAgent::Welcome(Welcome {
            job: self.start.job,
            key: self.start.key.clone(),
            identity: Identity {
                role: Role::Rank,
                rank,
                incarnation: self.members.incarnation(rank).unwrap_or_default(),
            },
            size: self.start.size,
            agent: self.address.clone(),
        })
    }

    pub(crate) fn handle_spawned(&mut self, rank: Rank, pid: u32) {
        self.running.insert(rank);
        self.report(Report::Started { rank, pid });
    }

    /// A rank could not be started, and so no other will be.
    pub(crate) fn handle_not_spawned(&mut self, rank: Rank, error: StartError) {
        self.to_spawn.clear();
        self.report(Report::NotStarted { rank, error });
        self.sweep_if_all_are_gone();
    }

    /// The launcher sends a signal to one rank or to all.
    pub(crate) fn handle_signal(&mut self, rank: Option<Rank>, signal: i32) {
        match rank {
            Some(rank) if self.running.contains(&rank) => {
                self.actions.push_back(Action::Signal(rank, signal));
            }
            Some(_) => {}
            None => {
                for &rank in &self.running {
                    self.actions.push_back(Action::Signal(rank, signal));
                }
                self.to_spawn.clear();
                self.sweep_if_all_are_gone();
            }
        }
    }

    /// The launcher is gone: nobody wants this job any more.
    pub(crate) fn handle_launcher_lost(&mut self) {
        self.handle_signal(None, SIGKILL);
    }

    pub(crate) fn handle_pmi(&mut self, rank: Rank, bytes: &[u8]) {
        self.pmi.handle_bytes(pmi_connection(rank), bytes);
        self.forward_pmi();
    }

    pub(crate) fn handle_pmi_closed(&mut self, rank: Rank) {
        self.pmi.handle_closed(pmi_connection(rank));
        self.forward_pmi();
    }

    /// A rank says something on its link. `memory` is the size of the memory that came with it, if there was
    /// some that nobody can change any more. Returns whether the memory is to be kept.
    pub(crate) fn handle_link(&mut self, rank: Rank, message: ToAgent, memory: Option<u64>) -> bool {
        match message {
            ToAgent::Attach => {
                if self.attached.insert(rank) {
                    for announcement in &self.announcements {
                        self.actions
                            .push_back(Action::SendLink(rank, announcement.clone()));
                    }
                }
                false
            }
            ToAgent::Hold(held) => match self.hold(rank, held, memory) {
                Ok(()) => true,
                Err(text) => {
                    self.notice(rank, text);
                    false
                }
            },
            ToAgent::Release(id) => {
                if let Some(holding) = self.held.remove(&(rank, id)) {
                    self.held_bytes -= holding.size;
                    self.actions.push_back(Action::Forget(rank, id));
                }
                false
            }
            ToAgent::Trace(event) => {
                self.report(Report::Trace { rank, event });
                false
            }
        }
    }

    /// What came on a rank's link was no message; nothing more is read from it.
    pub(crate) fn handle_link_broken(&mut self, rank: Rank, error: &AgentLinkError) {
        self.notice(rank, error.to_string());
    }

    /// A rank's process is gone, and all that it had sent was handled.
    pub(crate) fn handle_exit(&mut self, rank: Rank, cause: Cause, at_ns: u64) {
        let unfinished = self.pmi.is_unfinished(pmi_process(rank));
        self.pmi
            .handle_departure(pmi_process(rank), unfinished || !cause.is_success());
        self.forward_pmi();
        self.running.remove(&rank);
        self.attached.remove(&rank);
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        let Some(departure) = self.members.handle_departure(rank, incarnation, cause) else {
            return;
        };
        self.report(Report::Departed {
            departure,
            unfinished,
            at_ns,
        });
        let all_of_rank = (rank, HoldId(u64::MIN))..=(rank, HoldId(u64::MAX));
        let mut exposures = 0;
        for (&(rank, id), holding) in self.held.range(all_of_rank) {
            let label = holding.label.clone();
            self.actions.push_back(Action::Expose(rank, Held { id, label }));
            exposures += 1;
        }
        self.departing.insert(rank, Departing { departure, exposures });
        self.announce_departure_after_exposures(rank);
        self.sweep_if_all_are_gone();
    }

    /// Memory of a rank that is gone is served under this handle.
    pub(crate) fn handle_exposed(&mut self, rank: Rank, held: Held, handle: RegionHandle) {
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        self.announce(FromAgent::Inherited {
            rank,
            incarnation,
            held,
            handle,
        });
        if let Some(departing) = self.departing.get_mut(&rank) {
            departing.exposures -= 1;
        }
        self.announce_departure_after_exposures(rank);
    }

    /// What the ranks left behind is gone, and all their output was sent.
    pub(crate) fn handle_swept(&mut self) {
        self.report(Report::Finished);
    }

    fn hold(&mut self, rank: Rank, held: Held, memory: Option<u64>) -> Result<(), String> {
        let size =
            memory.ok_or("asked to hold memory without handing over a memfd that only its rank writes")?;
        if self.held.len() >= Self::HOLDINGS_MAX {
            return Err(format!(
                "{} pieces of memory are held already",
                Self::HOLDINGS_MAX
            ));
        }
        if size > self.held_bytes_max - self.held_bytes {
            return Err(format!(
                "{size} bytes more than the {} held already would be over the limit of {}",
                self.held_bytes, self.held_bytes_max
            ));
        }
        if held.label.len() > AgentLink::LABEL_SIZE_MAX {
            return Err(format!(
                "a label of {} bytes for held memory is too long",
                held.label.len()
            ));
        }
        if self.held.contains_key(&(rank, held.id)) {
            return Err(format!("memory is held already under the number {}", held.id.0));
        }
        let label = held.label;
        self.held.insert((rank, held.id), Holding { label, size });
        self.held_bytes += size;
        Ok(())
    }

    fn forward_pmi(&mut self) {
        while let Some(action) = self.pmi.poll_action() {
            if matches!(action, pmi::Action::Abort { .. }) && std::mem::replace(&mut self.aborted, true) {
                continue;
            }
            match action {
                pmi::Action::Abort {
                    process,
                    exit_code,
                    message,
                } => self.report(Report::Aborted {
                    rank: Rank(process.rank),
                    exit_code,
                    message: message.unwrap_or_default().to_string(),
                }),
                pmi::Action::Close { connection } => {
                    self.actions.push_back(Action::ClosePmi(rank_of(connection)));
                }
                pmi::Action::Misbehaved {
                    connection, error, ..
                } => self.notice(
                    rank_of(connection),
                    format!("its PMI connection was closed: {error}"),
                ),
                pmi::Action::Overwritten { .. } => {}
                pmi::Action::Send { connection, bytes } => {
                    self.actions
                        .push_back(Action::SendPmi(rank_of(connection), bytes));
                }
                pmi::Action::Spawn { id, .. } => {
                    let reason = "this launcher does not start process groups yet".into();
                    self.pmi.handle_spawned(id, Err(pmi::SpawnRefused { reason }));
                }
                pmi::Action::ToChild { .. } | pmi::Action::ToParent { .. } => {
                    unreachable!("the tree of one host has one server");
                }
            }
        }
    }

    /// Who hears of a departure must know already where the data of that rank is.
    fn announce_departure_after_exposures(&mut self, rank: Rank) {
        let is_complete = |departing: &Departing| departing.exposures == 0;
        if self.departing.get(&rank).is_some_and(is_complete)
            && let Some(Departing { departure, .. }) = self.departing.remove(&rank)
        {
            self.announce(FromAgent::Departed(departure));
        }
    }

    fn announce(&mut self, message: FromAgent) {
        for &rank in &self.attached {
            self.actions.push_back(Action::SendLink(rank, message.clone()));
        }
        self.announcements.push(message);
    }

    fn sweep_if_all_are_gone(&mut self) {
        if self.running.is_empty() && self.to_spawn.is_empty() && !self.swept {
            self.swept = true;
            self.actions.push_back(Action::Sweep);
        }
    }

    fn notice(&mut self, rank: Rank, text: String) {
        let notices = self.notices.entry(rank).or_default();
        if *notices == Self::NOTICES_MAX {
            return;
        }
        *notices += 1;
        self.report(Report::Notice { rank, text });
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }
}

/// The process group that the job begins with.
const FIRST_GROUP: pmi::GroupId = pmi::GroupId(0);

fn pmi_process(rank: Rank) -> pmi::Process {
    pmi::Process {
        group: FIRST_GROUP,
        rank: rank.0,
    }
}

/// Each rank has one connection.
fn pmi_connection(rank: Rank) -> pmi::ConnectionId {
    pmi::ConnectionId(rank.0.into())
}

fn rank_of(connection: pmi::ConnectionId) -> Rank {
    Rank(connection.0 as u32)
}

#[cfg(test)]
mod tests {
    use ropewalk_fabric::JobKey;
    use ropewalk_group::{HostId, JobId};

    use super::*;
    use crate::protocol::StartErrorKind;

    fn agent(ranks: u32) -> HostAgent {
        let start = Start {
            job: JobId([1; 16]),
            key: JobKey::from_bytes([2; 32]),
            host: HostId(0),
            size: ranks,
            ranks: (0..ranks).map(Rank).collect(),
            program: "program".into(),
            arguments: vec![],
            environment: vec![],
            working_directory: None,
            continues: true,
            has_stdin: false,
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
                Action::Forget(rank, id) => format!("forget {} of {rank}", id.0),
                Action::Report(Report::Departed {
                    departure,
                    unfinished,
                    ..
                }) => {
                    let unfinished = if unfinished { ", unfinished" } else { "" };
                    format!("report {} {}{unfinished}", departure.rank, departure.cause)
                }
                Action::Report(Report::Notice { rank, .. }) => format!("notice about {rank}"),
                Action::Report(Report::Trace { rank, .. }) => format!("trace of {rank}"),
                Action::Report(report) => format!("{report:?}"),
                Action::SendLink(to, FromAgent::Departed(departure)) => {
                    format!("tell {to} that {} departed", departure.rank)
                }
                Action::SendLink(to, FromAgent::Inherited { rank, held, .. }) => {
                    format!("tell {to} of {} of {rank}", held.id.0)
                }
                Action::SendLink(to, FromAgent::Welcome(_)) => format!("welcome {to}"),
                Action::SendPmi(rank, _) => format!("answer {rank}"),
                Action::Signal(rank, signal) => format!("signal {signal} to {rank}"),
                Action::Sweep => "sweep".to_owned(),
            });
        }
        lines
    }

    fn hold(agent: &mut HostAgent, rank: u32, id: u64, memory: Option<u64>) -> bool {
        let (id, label) = (HoldId(id), vec![]);
        agent.handle_link(Rank(rank), ToAgent::Hold(Held { id, label }), memory)
    }

    /// "When a rank is gone the agent exposes what it held for it and tells every attached rank, first one
    /// `Inherited` for each memfd, then `Departed`"; who attaches later is told all of it, in the same order.
    #[test]
    fn data_is_announced_before_the_departure() {
        let mut agent = started(3);
        agent.handle_link(Rank(0), ToAgent::Attach, None);
        assert!(hold(&mut agent, 1, 7, Some(400)) && hold(&mut agent, 1, 8, Some(400)));
        assert!(hold(&mut agent, 0, 7, Some(100)));
        agent.handle_link(Rank(1), ToAgent::Release(HoldId(7)), None);
        assert!(hold(&mut agent, 1, 9, Some(400)));
        assert_eq!(drain(&mut agent), ["forget 7 of 1"]);
        agent.handle_exit(Rank(1), Cause::Signalled(9), 0);
        assert_eq!(
            drain(&mut agent),
            [
                "report 1 killed by signal 9",
                "expose 8 of 1",
                "expose 9 of 1",
                "tell 0 of 8 of 1",
                "tell 0 of 9 of 1",
                "tell 0 that 1 departed",
            ]
        );
        agent.handle_link(Rank(2), ToAgent::Attach, None);
        assert_eq!(
            drain(&mut agent),
            ["tell 2 of 8 of 1", "tell 2 of 9 of 1", "tell 2 that 1 departed"]
        );
        // The memory of a rank without any is announced in no time.
        agent.handle_exit(Rank(2), Cause::Exited(0), 0);
        assert_eq!(
            drain(&mut agent),
            ["report 2 exited with code 0", "tell 0 that 2 departed"]
        );
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
        let label = vec![0; AgentLink::LABEL_SIZE_MAX + 1];
        let held = Held { id: HoldId(2), label };
        assert!(!agent.handle_link(Rank(0), ToAgent::Hold(held), Some(1)));
        assert_eq!(drain(&mut agent).len(), 5);
        agent.handle_link(Rank(0), ToAgent::Release(HoldId(1)), None);
        assert!(hold(&mut agent, 1, 1, Some(1000)));
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
        assert_eq!(reports.len(), HostAgent::NOTICES_MAX as usize + 1, "{reports:?}");
        hold(&mut agent, 1, 1, None);
        assert_eq!(drain(&mut agent), ["notice about 1"]);
    }

    /// A rank that leaves PMI open is reported so, and its barrier goes on without it.
    #[test]
    fn an_open_pmi_connection_is_reported() {
        let mut agent = started(2);
        for rank in [0, 1] {
            agent.handle_pmi(Rank(rank), b"cmd=init pmi_version=1 pmi_subversion=1\n");
        }
        agent.handle_pmi(Rank(0), b"cmd=barrier_in\n");
        assert_eq!(drain(&mut agent), ["answer 0", "answer 1"]);
        agent.handle_exit(Rank(1), Cause::Exited(0), 0);
        assert_eq!(
            drain(&mut agent),
            ["answer 0", "report 1 exited with code 0, unfinished"]
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
        agent.handle_exit(first, Cause::Signalled(SIGKILL), 0);
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
        agent.handle_launcher_lost();
        assert_eq!(drain(&mut agent), ["signal 9 to 0", "signal 9 to 1"]);
        assert!(!agent.is_spawning());
        // A signal to one rank goes to it alone, and to none that is gone.
        agent.handle_signal(Some(Rank(1)), 10);
        agent.handle_signal(Some(Rank(2)), 10);
        assert_eq!(drain(&mut agent), ["signal 10 to 1"]);
    }
}
