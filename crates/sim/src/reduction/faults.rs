//! Faults, and what follows from them at agents and ranks.

use std::time::Duration;

use ropewalk_reduce_core::{
    GiveUp, Member, Session, Site, WorkerAction,
    canary::{Canary, is_put_back},
};

use super::{Fault, GROUP, Job, MESSAGE_BYTES, What, what::Results};
use crate::{Host, Nanos, Process};

impl Job<'_> {
    pub(super) fn strike(&mut self, fault: Fault) {
        let setting = self.setting;
        match fault {
            Fault::KillRank(rank) => {
                for process in [Process(rank), self.copy_kept_by(rank)] {
                    self.kill(process);
                }
                self.give_up_rank(rank);
            }
            Fault::KillHost(host) => {
                for site in [host, host + setting.hosts, self.copy_kept_by(host).0] {
                    self.kill(Process(site));
                    self.oracle.note_gone(site);
                    let span = Nanos(20 * setting.timeouts.detection.0);
                    // That its copy is gone follows from the rank's loss.
                    let others = (0..2 * setting.hosts).filter(|other| other % setting.hosts != host);
                    for other in others.filter(|_| site < 2 * setting.hosts) {
                        self.simulation
                            .after(span, Process(other), What::Lost(Site(site)));
                    }
                }
            }
            Fault::Freeze(rank, span) => {
                self.simulation.freeze(Process(rank));
                self.simulation.freeze(self.copy_kept_by(rank));
                let world = Process(3 * setting.hosts);
                self.simulation.after(span, world, What::Thaw(rank));
                if span > Nanos(20 * setting.timeouts.detection.0) {
                    self.give_up_rank(rank);
                }
            }
            Fault::Cancel(rank) => self.simulation.after(Nanos(0), Process(rank), What::Cancel),
            Fault::Cut(from, to, span) => {
                self.simulation.cut(Host(from), Host(to));
                let world = Process(3 * setting.hosts);
                self.simulation.after(span, world, What::Heal(from, to));
                if span > setting.timeouts.link && from != to {
                    let what = What::Silent(from, to);
                    self.simulation.after(setting.timeouts.link, world, what);
                }
            }
        }
    }

    /// A rank cancels its calls.
    pub(super) fn cancel(&mut self, process: Process) {
        self.oracle.note_cancelled(process.0);
        let site = &mut self.sites[process.0 as usize];
        let calls = match self.setting.calls.are_in_turn {
            true => 0..site.begun,
            false => self.open.clone(),
        };
        for call in calls.filter(|call| !site.ends.contains_key(call)) {
            let session = Session { group: GROUP, call };
            site.worker.give_up(session, Member(process.0), GiveUp::Cancelled);
        }
    }

    fn kill(&mut self, process: Process) {
        self.simulation.kill(process);
        if self.setting.loses_sent {
            self.simulation.lose_sent(process);
        }
    }

    /// The sites of two hosts do not reach each other. Their messages go through a third host that both reach, if
    /// there is one.
    pub(super) fn note_silence(&mut self, from: u32, to: u32) {
        let ends = (Host(from), Host(to));
        let simulation = &self.simulation;
        let is_between = |third: &Host| {
            let ways = [
                (ends.0, *third),
                (*third, ends.1),
                (ends.1, *third),
                (*third, ends.0),
            ];
            *third != ends.0
                && *third != ends.1
                && simulation.runs(Process(third.0))
                && ways.iter().all(|(one, other)| !simulation.is_cut(*one, *other))
        };
        if (0..self.setting.hosts).map(Host).any(|third| is_between(&third)) {
            self.simulation.let_pass(ends.0, ends.1, What::may_be_forwarded);
        }
        for (site, other) in self.setting.pairs(from, to) {
            let what = What::Unreachable(Site(other));
            self.simulation.after(Nanos::ZERO, Process(site), what);
        }
        let world = Process(3 * self.setting.hosts);
        self.simulation
            .after(self.setting.timeouts.link, world, What::Silent(from, to));
    }

    /// The agent of a rank sees that the rank is gone, or fences it.
    fn give_up_rank(&mut self, rank: u32) {
        if self.oracle.is_gone(rank) {
            return;
        }
        self.oracle.note_gone(rank);
        self.oracle.note_gone(self.copy_kept_by(rank).0);
        let agent = Process(rank + self.setting.hosts);
        self.simulation
            .after(self.setting.timeouts.detection, agent, What::RankGone);
    }

    /// An agent inherits the original, and only then tells everybody that the rank is lost.
    pub(super) fn inherit(&mut self, agent: Process) {
        let rank = agent.0 - self.setting.hosts;
        if is_put_back(Canary::DepartureFirst) {
            self.tell_all(agent, rank);
        }
        if self.setting.makes_one(rank) {
            // The rank has let go of what it contributed to calls that have ended there.
            let site = &self.sites[rank as usize];
            let has_let_go = |call: u64| {
                let session = Session { group: GROUP, call };
                let scheduler = site.scheduler.as_ref();
                site.ends.contains_key(&call)
                    && !scheduler.is_some_and(|scheduler| scheduler.has_to_keep(session))
            };
            let (let_go, calls): (Vec<u64>, Vec<u64>) = (0..site.begun).partition(|call| has_let_go(*call));
            for call in let_go.into_iter().filter(|_| site.scheduler.is_none()) {
                self.oracle.note_let_go(call, Member(rank), agent.0);
            }
            let original = (Member(rank), self.tokens[rank as usize]);
            self.contribute_to(agent, calls, &[original]);
            let site = &mut self.sites[agent.0 as usize];
            while let Some(WorkerAction::Tell(to, message)) = site.worker.poll_action() {
                let what = What::ToScheduler(Site(agent.0), message, Results::new());
                self.simulation.send(agent, Process(to.0), MESSAGE_BYTES, what);
            }
        }
        if !is_put_back(Canary::DepartureFirst) {
            self.tell_all(agent, rank);
        }
    }

    fn tell_all(&mut self, agent: Process, rank: u32) {
        for other in (0..2 * self.setting.hosts).filter(|other| *other != rank) {
            self.simulation
                .send(agent, Process(other), MESSAGE_BYTES, What::Lost(Site(rank)));
        }
    }

    /// A site learns of a loss. If it is the lowest rank that is left, it takes over.
    pub(super) fn note_lost(&mut self, process: Process, lost: Site) {
        let hosts = self.setting.hosts;
        let at = process.0 as usize;
        let now = Duration::from(self.simulation.now());
        // A copy is lost with the rank that keeps it.
        let copy = (lost.0 < hosts).then(|| Site(self.copy_kept_by(lost.0).0));
        for site in copy.into_iter().chain([lost]) {
            self.sites[at].lost.insert(site);
            self.sites[at].give_up_sends(site);
            self.send_without(process, site);
            if process.0 < hosts {
                let kept = self.copy_kept_by(process.0);
                self.sites[kept.0 as usize].give_up_sends(site);
                self.act(kept);
            }
            if let Some(scheduler) = &mut self.sites[at].scheduler {
                scheduler.handle_lost(now, site);
            }
        }
        if self.sites[at].scheduler.is_some() {
            return;
        }
        if process.0 < hosts && (0..process.0).all(|lower| self.sites[at].lost.contains(&Site(lower))) {
            let mut scheduler = self.scheduler(Site(process.0));
            let known = &self.sites[at].lost;
            for site in known {
                scheduler.handle_lost(now, *site);
            }
            let living = (0..2 * hosts).map(Site).filter(|site| !known.contains(site));
            let scheduler = scheduler.take_over(living.collect::<Vec<_>>());
            self.sites[at].scheduler = Some(scheduler);
        }
    }
}
