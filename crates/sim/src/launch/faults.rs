//! Faults, and messages that a node does not hear.

use ropewalk_launch_core::{
    protocol::{Down, Report, Up},
    tree::NodeId,
};

use super::{Job, Mind, SIGKILL, SIGTERM, What};
use crate::{Nanos, Process};

/// Something goes wrong, somewhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A process of a rank is killed.
    Kill,
    AgentDeath,
    /// A connection is lost.
    Cut,
    /// The user ends the job.
    Interrupt,
}

impl Job<'_> {
    pub(super) fn plan_faults(&mut self) {
        let faults = self.setting.faults;
        for (count, fault) in [
            (faults.kills, Fault::Kill),
            (faults.agent_deaths, Fault::AgentDeath),
            (faults.cuts, Fault::Cut),
            (u32::from(faults.is_interrupted), Fault::Interrupt),
        ] {
            for _ in 0..count {
                // Each phase of a job gets its part: they differ in length by orders of magnitude.
                let scale = 1 << self.dice.within(22..30);
                let at = Nanos(self.dice.below(scale));
                self.plan_fault(at, fault);
            }
        }
    }

    fn plan_fault(&mut self, after: Nanos, fault: Fault) {
        let nobody = Process(self.plan.hosts.len() as u32 + 1);
        self.simulation.after(after, nobody, What::Fault(fault));
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        let has_struck = match fault {
            Fault::Kill => {
                let victims: Vec<_> = self.processes.keys().copied().collect();
                let victim = self.dice.pick(&victims).copied();
                victim.is_some_and(|victim| self.signal(victim, SIGKILL))
            }
            Fault::AgentDeath => {
                let victims: Vec<_> = self.nodes.keys().copied().skip(1).collect();
                let victim = self.dice.pick(&victims).copied();
                self.oracle.struck.extend(victim.and_then(NodeId::host));
                victim.map(|victim| self.remove(victim, true)).is_some()
            }
            Fault::Cut => {
                let are_there = |(below, above): &(NodeId, NodeId)| {
                    self.nodes.contains_key(below) && self.nodes.contains_key(above)
                };
                let standing: Vec<_> = self.links.standing().into_iter().filter(are_there).collect();
                let cut = self.dice.pick(&standing).copied();
                if let Some((below, above)) = cut {
                    self.outcome.cuts += 1;
                    self.links.lose((below, above));
                    let span = self.drawn(Nanos::from_millis(10));
                    self.after(span, below, What::ConnectAgain(above));
                }
                cut.is_some()
            }
            Fault::Interrupt => {
                self.oracle.is_interrupted = true;
                let now = self.now();
                self.with(NodeId::ROOT, |node| {
                    if let Mind::Launcher(supervisor) = &mut node.mind {
                        supervisor.handle_interrupt(now, SIGTERM);
                    }
                });
                true
            }
        };
        if !has_struck && self.outcome.verdict.is_none() {
            let span = self.drawn(Nanos::from_millis(5));
            self.plan_fault(span + Nanos(1), fault);
        }
    }

    /// A node is gone, and with it the ranks of its host: it dies, or it has nothing more to do. Its neighbours see
    /// that some time later, after all that it had sent; of one that dies the last of that may be lost too.
    pub(super) fn remove(&mut self, id: NodeId, dies: bool) {
        self.simulation.kill(Process(id.0));
        if self.nodes.remove(&id).is_none() {
            return;
        }
        self.processes.retain(|_, process| process.node != id);
        let below = self.nodes.keys().filter(|node| self.parent(**node) == Some(id));
        let neighbours: Vec<_> = below.copied().chain(self.parent(id)).collect();
        for neighbour in neighbours {
            if dies && self.dice.once_in(2) {
                let span = self.drawn(Nanos::from_millis(4));
                self.after(span, neighbour, What::Gone(id));
            } else {
                let span = match self.dice.once_in(2) {
                    true => Nanos::from_millis(4),
                    false => Nanos(Nanos::from(self.plan.detect).0 / 2),
                };
                let span = Nanos(self.dice.below(span.0));
                let (from, to) = (Process(id.0), Process(neighbour.0));
                self.simulation.send_after(span, from, to, 0, What::Gone(id));
            }
        }
    }

    /// A node sees that the one above it, or one below, is gone. Nothing comes from there any more.
    pub(super) fn see_gone(&mut self, id: NodeId, other: NodeId) {
        self.links.end((other, id));
        if other > id {
            self.with(id, |node| node.relay.handle_child_lost(other, "died".to_owned()));
        } else if self.parent(id) == Some(other) {
            self.with(id, |node| node.relay.handle_parent_lost(SIGKILL));
        }
    }

    pub(super) fn forgets_up(&mut self, up: &Up) -> bool {
        self.forgets(matches!(up.report, Report::Pmi(_) | Report::Finished))
    }

    pub(super) fn forgets_down(&mut self, down: &Down) -> bool {
        self.forgets(matches!(down, Down::Pmi(_) | Down::Group(_)))
    }

    /// True if a message that has come is not to be heard.
    fn forgets(&mut self, matters: bool) -> bool {
        match &mut self.forgets_after {
            Some(0) if matters => {
                self.forgets_after = None;
                self.outcome.has_forgotten = true;
                true
            }
            Some(left) if matters => {
                *left -= 1;
                false
            }
            _ => false,
        }
    }
}
