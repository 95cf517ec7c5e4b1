//! Starting ranks again in place, and killing them on purpose.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::Rank;

use super::{SIGKILL, ground::Ground};
use crate::{
    event::JobEvent,
    injection::Injector,
    job::{OnFailure, RespawnPolicy},
    protocol::{Down, News, Order},
    verdict::Failure,
};

/// The ranks that were started again, or will be.
#[derive(Debug, Default)]
pub(super) struct Respawns {
    counts: BTreeMap<Rank, u32>,
    due: BTreeMap<Rank, Duration>,
    /// Their failures, in order of time: the first of them.
    pub(super) failures: Vec<Failure>,
    pub(super) injector: Option<Injector>,
    pub(super) injected: u32,
}

impl Respawns {
    /// How many failures are remembered for the verdict.
    const FAILURES_MAX: usize = 1000;

    /// Says if ranks are to be started again, but not yet.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The way in which a rank that failed gets another process, if it does.
    pub(super) fn policy_for(&self, ground: &Ground, rank: Rank) -> Option<RespawnPolicy> {
        let OnFailure::Respawn(policy) = ground.on_failure else {
            return None;
        };
        let count = self.counts.get(&rank).copied().unwrap_or_default();
        let may = ground.is_running() && rank.0 < ground.plan.size && count < policy.per_rank;
        may.then_some(policy)
    }

    /// A rank failed, and gets another process after the pause that is returned.
    pub(super) fn plan(&mut self, now: Duration, policy: RespawnPolicy, failure: &Failure) -> Duration {
        let count = self.counts.entry(failure.rank).or_default();
        let pause = policy.pause.saturating_mul(1 << (*count).min(31));
        let pause = pause.min(policy.pause_max);
        *count += 1;
        self.due.insert(failure.rank, now + pause);
        if self.failures.len() < Self::FAILURES_MAX {
            self.failures.push(failure.clone());
        }
        pause
    }

    /// A rank does not come back, for its host is lost.
    pub(super) fn forget_rank(&mut self, rank: Rank) {
        self.due.remove(&rank);
    }

    pub(super) fn deadline(&self, ground: &Ground) -> Option<Duration> {
        let injection = self.injector.as_ref().map(Injector::next);
        let next = self.due.values().copied().chain(injection).min();
        next.filter(|_| ground.is_running())
    }

    /// Starts again who has waited long enough, and kills who is to be killed now.
    pub(super) fn handle_timeout(&mut self, now: Duration, ground: &mut Ground) {
        if !ground.is_running() {
            return;
        }
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        for rank in due.map(|(&rank, _)| rank).collect::<Vec<_>>() {
            self.due.remove(&rank);
            let node = ground.plan.node_of(rank);
            let Some((node, incarnation)) = node.zip(ground.members.incarnation(rank)) else {
                continue;
            };
            let incarnation = incarnation.next();
            if ground.members.handle_return(rank, incarnation) {
                ground.spread(News::Returned { rank, incarnation });
                ground.send(Down::To(node, Order::Respawn { rank, incarnation }));
                if let Some(host) = node.host() {
                    ground.host(host).load += 1;
                }
            }
        }
        self.inject(now, ground);
    }

    fn inject(&mut self, now: Duration, ground: &mut Ground) {
        let Some(injector) = self.injector.as_mut().filter(|injector| injector.next() <= now) else {
            return;
        };
        let victim = injector.draw(now, ground.running.len());
        let victim = victim.and_then(|victim| ground.running.iter().nth(victim));
        if let Some((&rank, running)) = victim {
            let host = running.host;
            let kill = Order::Signal {
                rank: Some(rank),
                signal: SIGKILL,
            };
            self.injected += 1;
            ground.order(host, kill);
            let host = ground.name_of(host).to_owned();
            ground.tell(JobEvent::Injected { rank, host });
        }
    }
}
