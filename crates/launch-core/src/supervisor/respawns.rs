//! Starting ranks again in place, and killing them on purpose.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::{Action, Phase, Supervisor};
use crate::{
    event::JobEvent,
    injection::Injector,
    job::{Injection, OnFailure},
    protocol::{Down, News, Order},
    tree::NodeId,
    verdict::{Failure, FailureKind},
};

const SIGKILL: i32 = 9;

/// The ranks that were started again, or will be.
#[derive(Debug, Default)]
pub(super) struct Respawns {
    counts: BTreeMap<Rank, u32>,
    due: BTreeMap<Rank, Duration>,
    /// What happened to them, in order of time: the first of them.
    pub(super) failures: Vec<Failure>,
}

impl Respawns {
    /// How many failures are remembered for the verdict.
    const FAILURES_MAX: usize = 1000;

    /// Says if ranks are to be started again, but not yet.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }
}

impl Supervisor {
    /// Whether a rank that failed gets another process.
    pub(super) fn may_respawn(&self, rank: Rank) -> bool {
        let OnFailure::Respawn(policy) = self.on_failure else {
            return false;
        };
        let count = self.respawns.counts.get(&rank).copied().unwrap_or_default();
        self.phase == Phase::Running && rank.0 < self.plan.size && count < policy.per_rank
    }

    /// A rank failed, and gets another process after a while.
    pub(super) fn plan_respawn(&mut self, now: Duration, host: HostId, rank: Rank, kind: FailureKind) {
        let OnFailure::Respawn(policy) = self.on_failure else {
            return;
        };
        let count = self.respawns.counts.entry(rank).or_default();
        let pause = policy.pause.saturating_mul(1 << (*count).min(31));
        let pause = pause.min(policy.pause_max);
        *count += 1;
        self.respawns.due.insert(rank, now + pause);
        let failure = self.failure(now, host, rank, kind);
        if self.respawns.failures.len() < Respawns::FAILURES_MAX {
            self.respawns.failures.push(failure.clone());
        }
        self.watch_progress();
        let stall = self.stall_limit();
        self.tell(JobEvent::Respawning {
            failure,
            pause,
            stall,
        });
    }

    pub(super) fn respawn_deadline(&self) -> Option<Duration> {
        let injection = self.injector.as_ref().map(Injector::next);
        let due = self.respawns.due.values().copied();
        match self.phase {
            Phase::Running => due.chain(injection).min(),
            _ => None,
        }
    }

    /// Starts again who has waited long enough, and kills who is to be killed now.
    pub(super) fn respawn_and_inject(&mut self, now: Duration) {
        if self.phase != Phase::Running {
            return;
        }
        let due = self.respawns.due.iter().filter(|(_, at)| **at <= now);
        for rank in due.map(|(&rank, _)| rank).collect::<Vec<_>>() {
            self.respawns.due.remove(&rank);
            let Some(node) = self.plan.node_of(rank) else {
                continue;
            };
            let Some(incarnation) = self.members.incarnation(rank) else {
                continue;
            };
            let incarnation = incarnation.next();
            if self.members.handle_return(rank, incarnation) {
                self.spread(News::Returned { rank, incarnation });
                let respawn = Order::Respawn { rank, incarnation };
                self.actions.push_back(Action::Send(Down::To(node, respawn)));
                if let Some(host) = node.host() {
                    self.hosts[host.0 as usize].load += 1;
                }
            }
        }
        let Some(injector) = &mut self.injector else {
            return;
        };
        if injector.next() > now {
            return;
        }
        let victim = injector.draw(now, self.running.len());
        let victim = victim.and_then(|victim| self.running.iter().nth(victim));
        if let Some((&rank, running)) = victim {
            let (node, host) = (NodeId::of(running.host), running.host);
            let rank_only = Some(rank);
            let kill = Order::Signal {
                rank: rank_only,
                signal: SIGKILL,
            };
            self.injected += 1;
            self.actions.push_back(Action::Send(Down::To(node, kill)));
            let host = self.hosts[host.0 as usize].name.clone();
            self.tell(JobEvent::Injected { rank, host });
        }
    }

    /// Kills ranks at random from now on.
    pub fn inject(&mut self, injection: Injection, attempt: u32) {
        self.injector = Some(Injector::new(injection, attempt));
    }
}
