//! Checks what programs and users were promised.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_launch_core::{
    Failure, OnFailure, Verdict,
    host_agent::ToRank,
    protocol::{Plan, Report, Up},
    tree::NodeId,
};
use ropewalk_membership::Cause;
use ropewalk_names::{HostId, Incarnation, Rank};

use super::{Faults, Process, Setting};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A rank got an answer to a question that it had not asked.
    AnsweredTwice(Rank),
    /// A rank was ended in a job that goes on.
    EndedThoughWell(Rank),
    /// Somebody waits for ever.
    Hang {
        /// The processes that are left.
        ranks: Vec<Rank>,
        /// The agents that are left.
        agents: Vec<NodeId>,
        /// There is a verdict nevertheless.
        has_verdict: bool,
    },
    /// More output waits in a node than its windows allow.
    HeldTooMuch {
        /// The node.
        node: NodeId,
        /// The bytes that wait.
        bytes: usize,
    },
    /// A fence failed in a job that goes on.
    LeftAlone(Rank),
    /// An agent left, and a rank of another host may need the memory that it served.
    MemoryGone {
        /// The agent.
        agent: NodeId,
        /// The rank.
        rank: Rank,
    },
    /// A rank heard of a departure before it heard of the memory that was left.
    MemoryUnknown {
        /// The rank that heard it.
        listener: Rank,
        /// The rank that is gone, and which of its lives.
        gone: (Rank, Incarnation),
    },
    /// A rank passed a fence and did not find what another put before it.
    NotFound {
        /// The rank that asked.
        asker: Rank,
        /// The rank that put it.
        other: Rank,
    },
    /// A host was lost that was well; or it is not known how it ended; or it ended twice.
    Ends(HostId),
    /// Output came after the end of its host, or is not what was written.
    Output {
        /// The host.
        host: HostId,
        /// The bytes that its ranks wrote.
        written: usize,
        /// The bytes that came.
        taken: usize,
    },
    /// A verdict that the faults do not explain.
    Verdict(Box<Verdict>),
}

/// All that is known of a job, to judge what its machines do.
#[derive(Debug)]
pub(super) struct Oracle {
    plan: Plan,
    on_failure: OnFailure,
    /// A failure may end the job, and a fence.
    may_end_early: bool,
    is_harmless: bool,
    only_kills: bool,
    pub(super) broken: Option<Violation>,
    pub(super) is_interrupted: bool,
    /// The supervisor gave up on agents.
    pub(super) has_despaired: bool,
    pub(super) exited_well: BTreeSet<Rank>,
    /// Hosts whose agents came up, and those whose agents died of themselves.
    pub(super) came: BTreeSet<HostId>,
    pub(super) struck: BTreeSet<HostId>,
    finished: BTreeSet<HostId>,
    lost: BTreeSet<HostId>,
    written: BTreeMap<HostId, usize>,
    taken: BTreeMap<HostId, usize>,
    /// Pieces of memory of the life of a rank.
    held: BTreeMap<(Rank, Incarnation), u32>,
    /// Pieces of memory by who heard of them, and whose they were.
    heard: BTreeMap<Rank, BTreeMap<(Rank, Incarnation), u32>>,
    pub(super) serving: BTreeSet<NodeId>,
    pub(super) inherited: u32,
}

impl Oracle {
    pub(super) fn new(setting: &Setting, plan: Plan) -> Self {
        let faults = setting.faults;
        Self {
            plan,
            on_failure: setting.spec.reactions.on_failure,
            may_end_early: match setting.spec.reactions.on_failure {
                OnFailure::Continue => false,
                // What programs spawn is not replaced.
                OnFailure::Respawn(_) => faults.kills > 0,
                OnFailure::Abort | OnFailure::Restart(_) => true,
            },
            is_harmless: faults.are_harmless(),
            only_kills: Faults { kills: 0, ..faults }.are_harmless(),
            broken: None,
            is_interrupted: false,
            has_despaired: false,
            exited_well: BTreeSet::new(),
            came: BTreeSet::new(),
            struck: BTreeSet::new(),
            finished: BTreeSet::new(),
            lost: BTreeSet::new(),
            written: BTreeMap::new(),
            taken: BTreeMap::new(),
            held: BTreeMap::new(),
            heard: BTreeMap::new(),
            serving: BTreeSet::new(),
            inherited: 0,
        }
    }

    /// A promise is broken unless this holds. The first counts.
    pub(super) fn expect(&mut self, holds: bool, violation: impl FnOnce() -> Violation) {
        if !holds {
            self.broken.get_or_insert_with(violation);
        }
    }

    pub(super) fn note_written(&mut self, host: HostId, bytes: usize) {
        *self.written.entry(host).or_default() += bytes;
    }

    pub(super) fn note_signal(&mut self, rank: Rank) {
        let is_first = rank.0 < self.plan.size;
        let may_be = self.may_end_early || self.is_interrupted || !is_first;
        self.expect(may_be, || Violation::EndedThoughWell(rank));
    }

    /// A rank has left memory when it began a life.
    pub(super) fn note_held(&mut self, rank: Rank, incarnation: Incarnation, pieces: u32) {
        self.heard.remove(&rank);
        self.held.insert((rank, incarnation), pieces);
    }

    /// A rank hears something on its link.
    pub(super) fn note_heard(&mut self, listener: Rank, message: &ToRank) {
        let heard = self.heard.entry(listener).or_default();
        match message {
            ToRank::Inherited {
                rank, incarnation, ..
            } => {
                self.inherited += 1;
                *heard.entry((*rank, *incarnation)).or_default() += 1;
            }
            // The memory that an agent held is gone with it.
            ToRank::Departed(departure) if departure.cause != Cause::AgentLost => {
                let gone = (departure.rank, departure.incarnation);
                let knows = heard.get(&gone).copied().unwrap_or_default()
                    == self.held.get(&gone).copied().unwrap_or_default();
                self.expect(knows, || Violation::MemoryUnknown { listener, gone });
            }
            _ => {}
        }
    }

    /// A rank passed a fence if it asks: it has what all others put before.
    pub(super) fn note_answer(&mut self, rank: Rank, bytes: &[u8], processes: &mut BTreeMap<Rank, Process>) {
        let Some(process) = processes.get_mut(&rank) else {
            return;
        };
        let are_replaced = matches!(self.on_failure, OnFailure::Respawn(_));
        let has = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
        if !has("rc=-1") {
            return;
        }
        if has("cmd=barrier_out") {
            process.has_failed_fence = true;
            // A group with a process that cannot be started is given up.
            let is_first = rank.0 < self.plan.size;
            let may_fail = self.may_end_early || are_replaced && (self.is_interrupted || !is_first);
            self.expect(may_fail, || Violation::LeftAlone(rank));
        }
        let (wanted, has_failed_fence) = (process.wanted, process.has_failed_fence);
        // A new process of a rank begins where others have gone on.
        if let Some(other) = wanted
            && !are_replaced
            && !has_failed_fence
        {
            let is_well = |process: &Process| process.dies_of.is_none();
            let is_there = processes.get(&other).is_some_and(is_well) || self.exited_well.contains(&other);
            self.expect(!is_there, || Violation::NotFound { asker: rank, other });
        }
    }

    /// Something reached the launcher.
    pub(super) fn note_report(&mut self, up: &Up) {
        let host = up.host;
        let (is_finished, is_lost) = (self.finished.contains(&host), self.lost.contains(&host));
        let holds = match up.report {
            Report::Output { ref lines, .. } => {
                *self.taken.entry(host).or_default() += lines.len();
                !is_finished
            }
            Report::Late => !is_finished && !is_lost,
            Report::Finished => self.finished.insert(host),
            // Of one that had said all, but had not heard that it was heard.
            Report::Lost { .. } if self.plan.adopts() && is_finished => true,
            Report::Lost { .. } => {
                let is_below_lost = self.is_below_lost(host);
                self.lost.insert(host);
                !is_finished || is_below_lost
            }
            _ => true,
        };
        self.expect(holds, || Violation::Ends(host));
    }

    fn is_below_lost(&self, host: HostId) -> bool {
        let tree = self.plan.tree();
        let above = std::iter::successors(Some(NodeId::of(host)), |node| tree.parent(*node));
        above
            .filter_map(NodeId::host)
            .any(|host| self.lost.contains(&host))
    }

    /// An agent leaves. While it serves memory, it stays until no rank of another host may need that.
    pub(super) fn note_left(&mut self, agent: NodeId, processes: &BTreeMap<Rank, Process>) {
        if !self.serving.contains(&agent)
            || !self.struck.is_empty()
            || self.may_end_early
            || self.is_interrupted
        {
            return;
        }
        let size = self.plan.size;
        let mut others = processes
            .iter()
            .filter(|(rank, process)| rank.0 < size && process.node != agent);
        let needs = others.next().map(|(rank, _)| *rank);
        if let Some(rank) = needs {
            self.expect(false, || Violation::MemoryGone { agent, rank });
        }
    }

    /// All is over.
    pub(super) fn judge(mut self, verdict: &Verdict) -> Result<(), Violation> {
        let is_spawned = |failure: &Failure| failure.spawned.is_some();
        // Ranks that fail are replaced; what they spawn is not.
        let is_replaced = matches!(self.on_failure, OnFailure::Respawn(_)) && self.only_kills;
        let is_explained = match verdict.is_success() {
            true => true,
            false if is_replaced => verdict.failures.iter().all(is_spawned),
            false => !self.is_harmless,
        };
        self.expect(is_explained, || Violation::Verdict(Box::new(verdict.clone())));
        if !self.has_despaired {
            for host in (0..self.plan.hosts.len() as u32).map(HostId) {
                self.judge_end(host);
            }
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// The launcher knows how a host ended, and has its output once and whole. Only those are lost that died or never
    /// came; or that are below such a one, if orphans are not adopted.
    fn judge_end(&mut self, host: HostId) {
        let (is_finished, is_lost) = (self.finished.contains(&host), self.lost.contains(&host));
        let may_be_lost = match self.plan.adopts() {
            true => {
                self.expect(is_finished != is_lost, || Violation::Ends(host));
                self.struck.contains(&host) || !self.came.contains(&host) || self.is_interrupted
            }
            false if self.is_below_lost(host) => return,
            false => false,
        };
        self.expect(is_finished || may_be_lost, || Violation::Ends(host));
        let [written, taken] = [&self.written, &self.taken].map(|of| of.get(&host).copied().unwrap_or(0));
        let is_whole = !is_finished || written == taken;
        self.expect(is_whole, || Violation::Output { host, written, taken });
    }
}
