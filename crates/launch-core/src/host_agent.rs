//! Decides for one host: what its ranks are told, what is kept for them, what the launcher hears.

mod audience;
mod departures;
mod groups;
mod holdings;
mod lives;
mod oddities;
mod pmix;
mod rank_link;
mod reported;
mod suspension;

use std::collections::{BTreeMap, VecDeque};

use ropewalk_membership::{Departure, Membership};
use ropewalk_names::{Address, Held, HoldId, Identity, Incarnation, Rank, RegionHandle, Role};
use ropewalk_pmi as pmi;

use crate::{
    pmix::{FromHelper, ModexAsker, Namespace, ToHelper},
    protocol::{News, Report, Start, StartError},
    tree::NodeId,
};
use audience::Audience;
use departures::{Departing, Leaving};
use groups::Groups;
use holdings::Holdings;
use lives::Lives;
use pmix::Pmix;
pub use rank_link::{FromRank, ToRank, Welcome};
use reported::Reported;
use suspension::Suspension;

/// The agent's mind.
///
/// While [`poll_spawn`](Self::poll_spawn) names a rank, start it and say what came of it. Tell what happens
/// with `handle_*`, and after each call do what [`poll_action`](Self::poll_action) says until it says nothing.
/// Of a rank that exits, first everything that it sent, then its exit.
#[derive(Debug)]
pub struct HostAgent {
    start: Start,
    address: Address,
    members: Membership,
    pmi: pmi::Server,
    pmix: Pmix,
    groups: Groups,
    lives: Lives,
    audience: Audience,
    departing: BTreeMap<Rank, Departing>,
    holdings: Holdings,
    reported: Reported,
    suspension: Suspension,
    leaving: Leaving,
    actions: VecDeque<Action>,
}

/// An action that has to be done for a [`HostAgent`].
#[derive(Debug)]
pub enum Action {
    /// Close a rank's PMI connection after what was sent.
    ClosePmi(Rank),
    /// Serve this memory of a rank that is gone, and say where with [`HostAgent::handle_exposed`].
    Expose(Rank, Held),
    /// Let this incarnation of a rank in no more.
    Fence(Identity),
    /// Let go of memory.
    Forget(Rank, HoldId),
    /// Tell the launcher.
    Report(Report),
    /// Tell the PMI server of an agent right below.
    SendChild(NodeId, pmi::Down),
    /// Tell a rank.
    SendLink(Rank, ToRank),
    /// Answer a rank.
    SendPmi(Rank, Vec<u8>),
    /// Send a signal to a rank's process group.
    Signal(Rank, i32),
    /// Serve this memory no more.
    Withdraw(RegionHandle),
    /// All ranks are gone: kill what they left behind and send the rest of their output, then call
    /// [`HostAgent::handle_swept`].
    Sweep,
}

impl HostAgent {
    /// An agent that serves memory at `address` and keeps at most `held_bytes_max` bytes of it.
    pub fn new(start: Start, address: Address, held_bytes_max: u64) -> Self {
        // Alone, it need not ask the launcher.
        let mut pmi = match start.is_alone {
            true => pmi::Server::root(),
            false => pmi::Server::below_parent(),
        };
        if start.shares_names {
            pmi.share_names();
        }
        pmi.add_group(start.pmi.clone());
        let mut agent = Self {
            members: Membership::new(start.size),
            pmi,
            pmix: Pmix::default(),
            groups: Groups::new(start.size),
            lives: Lives::new(&start.ranks),
            start,
            address,
            audience: Audience::default(),
            departing: BTreeMap::new(),
            holdings: Holdings::new(held_bytes_max),
            reported: Reported::default(),
            suspension: Suspension::default(),
            leaving: Leaving::default(),
            actions: VecDeque::new(),
        };
        if !agent.start.is_singleton {
            for rank in agent.start.ranks.clone() {
                agent.open_pmi(rank);
            }
        }
        agent
    }

    /// Returns true if all ranks were told to end.
    pub fn is_ending(&self) -> bool {
        self.lives.is_ending
    }

    /// Returns true if ranks are to be started now.
    pub fn is_spawning(&self) -> bool {
        !self.lives.to_spawn.is_empty() && !self.suspension.is_active() && !self.pmix.holds_back()
    }

    /// The next rank to be started.
    pub fn poll_spawn(&mut self) -> Option<Rank> {
        if self.suspension.is_active() || self.pmix.holds_back() {
            return None;
        }
        self.lives.to_spawn.pop_front()
    }

    /// The life that the next or present process of a rank is.
    pub fn incarnation(&self, rank: Rank) -> Incarnation {
        self.members.incarnation(rank).unwrap_or_default()
    }

    /// The next thing that has to be done for this machine.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Says to a rank who it is: its present incarnation.
    fn welcome(&self, rank: Rank) -> ToRank {
        ToRank::Welcome(Welcome {
            job: self.start.job,
            identity: rank_identity(rank, self.incarnation(rank)),
            size: self.start.size.max(rank.0 + 1),
            agent: self.address.clone(),
            encrypt: self.start.encrypt,
            detect: self.start.detect,
        })
    }

    /// A rank was started as this process.
    pub fn handle_spawned(&mut self, rank: Rank, pid: u32) {
        self.lives.running.insert(rank);
        self.pmix.handle_life(rank, Some(pid));
        self.report(Report::Started { rank, pid });
        if self.start.is_singleton && rank == Rank(0) {
            let peer = pmi::Peer::Singleton(self.groups.process(rank).group);
            self.pmi.open(self.pmi_connection(rank), peer);
            self.forward_pmi();
        }
    }

    /// A rank could not be started, and so no other of its group will be.
    pub fn handle_not_spawned(&mut self, rank: Rank, error: StartError) {
        self.report(Report::NotStarted { rank, error });
        match self.groups.first_beside(rank) {
            Rank(0) => self.lives.to_spawn.clear(),
            first => self.give_up_group(first, rank),
        }
        self.sweep_if_all_are_gone();
    }

    /// The launcher sends all ranks a signal that somebody sent it for them.
    pub fn handle_forward(&mut self, signal: i32) {
        for &rank in &self.lives.running {
            self.actions.push_back(Action::Signal(rank, signal));
        }
    }

    /// The launcher sends a signal to one rank, or ends all with it.
    pub fn handle_signal(&mut self, rank: Option<Rank>, signal: i32) {
        match rank {
            Some(rank) if self.lives.running.contains(&rank) => {
                self.actions.push_back(Action::Signal(rank, signal));
            }
            Some(_) => {}
            None => {
                self.handle_forward(signal);
                self.lives.to_spawn.clear();
                self.lives.waiting.clear();
                self.lives.is_ending = true;
                self.sweep_if_all_are_gone();
                self.finish_if_not_needed();
            }
        }
    }

    /// The user suspends the job: all ranks stop, and none is started. Their process groups are orphaned (POSIX 3.264),
    /// so that SIGTSTP would not stop them. Who is stopped already stays so afterwards.
    pub fn handle_suspend(&mut self) {
        let signals = self.suspension.begin(&self.lives.running);
        self.actions.extend(signals);
    }

    /// The job goes on.
    pub fn handle_resume(&mut self) {
        let signals = self.suspension.end(&self.lives.running);
        self.actions.extend(signals);
    }

    /// A signal stopped a rank, or it goes on.
    pub fn handle_stopped(&mut self, rank: Rank, signal: Option<i32>) {
        let report = self.suspension.handle_stopped(rank, signal);
        self.actions.extend(report.map(Action::Report));
    }

    /// A rank says this on its PMI connection.
    pub fn handle_pmi(&mut self, rank: Rank, bytes: &[u8]) {
        self.pmi.handle_bytes(self.pmi_connection(rank), bytes);
        self.forward_pmi();
        self.tell_whether_ranks_may_hang();
    }

    /// The PMI connection of a rank is closed.
    pub fn handle_pmi_closed(&mut self, rank: Rank) {
        if let Some(stage @ pmi::Stage::InFence(_)) = self.pmi.stage(self.groups.process(rank)) {
            self.lives.stages.insert(rank, stage);
        }
        self.pmi.handle_closed(self.pmi_connection(rank));
        self.forward_pmi();
    }

    /// The PMI server of an agent right below says something.
    pub fn handle_pmi_up(&mut self, child: NodeId, up: pmi::Up) {
        self.pmi.handle_up(pmi::ChildId(child.0), up);
        self.forward_pmi();
    }

    /// The PMI server of the node above says something.
    pub fn handle_pmi_down(&mut self, down: pmi::Down) {
        self.pmi.handle_down(down);
        self.forward_pmi();
    }

    /// An agent right below is gone.
    pub fn handle_child_lost(&mut self, child: NodeId) {
        self.pmi.handle_child_lost(pmi::ChildId(child.0));
        self.forward_pmi();
    }

    /// There is a PMIx server on this host from now on, which is to serve this process group. Its ranks are started
    /// when it has answered.
    pub fn register_namespace(&mut self, namespace: Namespace) {
        self.pmix.register(namespace);
    }

    /// The next that the PMIx server is to be told. Ask after each call, as for actions.
    pub fn poll_helper(&mut self) -> Option<ToHelper> {
        self.pmix.poll()
    }

    /// The PMIx server says something.
    pub fn handle_helper(&mut self, message: FromHelper) {
        if let Some(report) = self.pmix.handle(message, &mut self.pmi) {
            let is_abort = matches!(report, Report::Aborted { .. });
            if !(is_abort && std::mem::replace(&mut self.reported.abort, true)) {
                self.report(report);
            }
        }
        self.forward_pmi();
        self.tell_whether_ranks_may_hang();
    }

    /// The launcher takes output of this host. Say so again and again: processes that wrote by PMIx wait for that, as
    /// those do that write into a pipe.
    pub fn handle_output_taken(&mut self) {
        self.pmix.release_logs();
    }

    /// The PMIx server is gone. Returns a rank that was served by it, if there is one: it cannot go on.
    pub fn handle_helper_lost(&mut self) -> Option<Rank> {
        let was_serving = self.pmix.handle_lost();
        (was_serving && !self.lives.is_ending && !self.lives.swept)
            .then(|| self.lives.running.first().copied())
            .flatten()
    }

    /// A rank of another host wants what one of this host has put.
    pub fn handle_modex_wanted(&mut self, asker: ModexAsker, rank: Rank) {
        let report = self.pmix.handle_modex_wanted(asker, rank);
        self.actions.extend(report.map(Action::Report));
    }

    /// The data of a rank of another host has come.
    pub fn handle_modex_found(&mut self, token: u64, data: Option<Vec<u8>>) {
        self.pmix.handle_modex_found(token, data);
    }

    /// The processes of all hosts that run, for a question by PMIx.
    pub fn handle_processes(&mut self, token: u64, running: &[(Rank, u32)]) {
        self.pmix.handle_processes(token, running);
    }

    /// Returns true if a rank has said anything by PMI or PMIx.
    pub fn has_spoken(&self, rank: Rank) -> bool {
        self.pmi.has_spoken(self.groups.process(rank))
    }

    /// A rank says something on its link. `memory` is the size of the memory that came with it, if there was
    /// some that nobody can change any more. Returns whether the memory is to be kept.
    pub fn handle_link(&mut self, rank: Rank, message: FromRank, memory: Option<u64>) -> bool {
        match message {
            FromRank::Join => {
                // What one program holds here, and was told, is not for another.
                let answer = match self.audience.has(rank) {
                    true => ToRank::Taken,
                    false => self.welcome(rank),
                };
                self.actions.push_back(Action::SendLink(rank, answer));
                false
            }
            FromRank::Attach => {
                if self.audience.attach(rank, &mut self.actions) {
                    self.tell_whether_ranks_may_hang();
                }
                false
            }
            FromRank::Hold(held) => match self.holdings.hold(rank, held, memory) {
                Ok(()) => true,
                Err(refusal) => {
                    self.notice(rank, refusal.to_string());
                    false
                }
            },
            FromRank::Release(id) => {
                if self.holdings.release(rank, id) {
                    self.actions.push_back(Action::Forget(rank, id));
                }
                false
            }
            FromRank::Trace(event) => {
                self.report(Report::Trace { rank, event });
                false
            }
            FromRank::Admitted => {
                self.audience.forget_inherited(rank);
                let served = self.holdings.forget_left(rank);
                self.actions.extend(served.into_iter().map(Action::Withdraw));
                false
            }
        }
    }

    /// A message on a rank's link was malformed; the link is closed.
    pub fn handle_link_broken(&mut self, rank: Rank, error: String) {
        self.notice(rank, error);
    }

    /// Something happened to a rank. All agents hear it, and this one knows already what concerns its own.
    pub fn handle_news(&mut self, news: News) {
        let (News::Departed { rank, .. } | News::Inherited { rank, .. } | News::Returned { rank, .. }) =
            &news;
        if self.start.ranks.contains(rank) {
            return;
        }
        match news {
            News::Departed {
                rank,
                incarnation,
                cause,
            } => {
                if let Some(departure) = self.members.handle_departure(rank, incarnation, cause) {
                    self.fence(departure);
                    if !cause.is_success() {
                        self.pmix.handle_departure(rank);
                    }
                    self.audience
                        .announce(&mut self.actions, ToRank::Departed(departure));
                }
            }
            News::Inherited {
                rank,
                incarnation,
                held,
                handle,
            } => self.audience.announce(
                &mut self.actions,
                ToRank::Inherited {
                    rank,
                    incarnation,
                    held,
                    handle,
                },
            ),
            // Whoever is attached hears from the new process itself.
            News::Returned { rank, incarnation } => {
                self.members.handle_return(rank, incarnation);
            }
        }
    }

    /// Each life of a rank has one connection.
    fn pmi_connection(&self, rank: Rank) -> pmi::ConnectionId {
        pmi::ConnectionId(u64::from(self.incarnation(rank).0) << 32 | u64::from(rank.0))
    }

    fn open_pmi(&mut self, rank: Rank) {
        let process = self.groups.process(rank);
        let connection = self.pmi_connection(rank);
        self.pmi.open(connection, pmi::Peer::Process(process));
    }

    fn forward_pmi(&mut self) {
        while let Some(action) = self.pmi.poll_action() {
            if matches!(action, pmi::Action::Abort { .. })
                && std::mem::replace(&mut self.reported.abort, true)
            {
                continue;
            }
            match action {
                pmi::Action::Abort {
                    process,
                    exit_code,
                    message,
                } => self.report(Report::Aborted {
                    rank: self.groups.job_rank(process),
                    exit_code,
                    message: message.unwrap_or_default().to_string(),
                }),
                pmi::Action::AskNames { id, question } => {
                    let id = id.0;
                    self.report(Report::AskNames { id, question });
                }
                pmi::Action::BridgedAnswer { token, answer } => self.pmix.handle_answer(token, answer),
                pmi::Action::BridgedFenceEnded { token, end } => self.pmix.handle_fence(token, end),
                pmi::Action::Close { connection } => {
                    self.actions.push_back(Action::ClosePmi(rank_of(connection)));
                }
                pmi::Action::FenceBegan { group, fence } => {
                    let fence = fence.to_string();
                    self.report(Report::FenceBegan {
                        group: group.0,
                        fence,
                    });
                }
                pmi::Action::FenceEnded {
                    group,
                    fence,
                    members,
                    failed,
                } => self.report(Report::FenceEnded {
                    group: group.0,
                    fence: fence.to_string(),
                    members,
                    failed: failed.map(Rank),
                }),
                pmi::Action::Misbehaved {
                    connection, error, ..
                } => self.notice(
                    rank_of(connection),
                    format!("its PMI connection was closed: {error}"),
                ),
                pmi::Action::Overwritten { process, key } => {
                    let rank = self.groups.job_rank(process);
                    if self.reported.oddities.overwritten(rank) {
                        let key = key.to_string();
                        self.report(Report::Overwritten { rank, key });
                    }
                }
                pmi::Action::Send { connection, bytes } => {
                    self.actions
                        .push_back(Action::SendPmi(rank_of(connection), bytes));
                }
                pmi::Action::Spawn { id, from, spawn } => {
                    let id = id.0;
                    self.report(Report::Spawn { id, from, spawn });
                }
                pmi::Action::ToChild { child, message } => {
                    self.actions
                        .push_back(Action::SendChild(NodeId(child.0), message));
                }
                pmi::Action::ToParent { message } => self.report(Report::Pmi(message)),
            }
        }
    }

    /// Lets in no more the incarnation of a rank that is gone: nobody else can prove itself by the key of
    /// that process, even if it has the key.
    fn fence(&mut self, departure: Departure) {
        let gone = rank_identity(departure.rank, departure.incarnation);
        self.actions.push_back(Action::Fence(gone));
    }

    /// Says when the first rank could hang, and when none can any more: one that has begun with PMI, has not finalized
    /// it, and is not attached, so that it hears of no departure.
    fn tell_whether_ranks_may_hang(&mut self) {
        if !self.start.tells_who_may_hang {
            return;
        }
        let may_hang = |rank| !self.audience.has(rank) && self.pmi.is_unfinished(self.groups.process(rank));
        let may_hang = self.lives.running.iter().any(|&rank| may_hang(rank));
        if std::mem::replace(&mut self.reported.may_hang, may_hang) != may_hang {
            self.report(Report::MayHang(may_hang));
        }
    }

    fn notice(&mut self, rank: Rank, text: String) {
        if self.reported.oddities.notice(rank) {
            self.report(Report::Notice { rank, text });
        }
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }
}

fn rank_identity(rank: Rank, incarnation: Incarnation) -> Identity {
    Identity {
        role: Role::Rank,
        rank,
        incarnation,
    }
}

fn rank_of(connection: pmi::ConnectionId) -> Rank {
    Rank(connection.0 as u32)
}

#[cfg(test)]
mod tests;
