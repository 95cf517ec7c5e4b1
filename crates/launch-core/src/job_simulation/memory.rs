//! The memory that simulated processes leave behind, and who hears of it when.

use ropewalk_names::{Held, HoldId, Incarnation, RegionHandle};

use super::*;
use crate::host_agent::{FromRank, ToRank};

/// The memory that processes handed to their agents, and what they heard of others' memory.
#[derive(Default)]
pub(super) struct Memory {
    /// Of the life of a rank that began last.
    held: BTreeMap<(Rank, Incarnation), u32>,
    /// By who heard it, and whose it was.
    heard: BTreeMap<Rank, BTreeMap<(Rank, Incarnation), u32>>,
    serving: BTreeSet<NodeId>,
    has_lost_agent: bool,
    /// Processes want to hear of departures and hand over memory.
    pub(super) is_used: bool,
    inherited: u32,
}

impl Memory {
    /// How many pieces of memory were heard of.
    pub(super) fn inherited(&self) -> u32 {
        self.inherited
    }

    /// A process wants to hear of departures, and hands over memory.
    pub(super) fn begin(&mut self, rank: Rank, mind: &mut HostAgent) {
        if !self.is_used {
            return;
        }
        self.heard.remove(&rank);
        mind.handle_link(rank, FromRank::Attach, None);
        let pieces = rank.0 % 3;
        for id in 0..pieces {
            let held = Held {
                id: HoldId(id.into()),
                label: Vec::new(),
            };
            assert!(mind.handle_link(rank, FromRank::Hold(held), Some(1)));
        }
        self.held.insert((rank, mind.incarnation(rank)), pieces);
    }

    pub(super) fn expose(&mut self, node: NodeId, rank: Rank, held: Held, mind: &mut HostAgent) {
        self.serving.insert(node);
        let handle = RegionHandle {
            address: "tcp://127.0.0.1:1".parse().unwrap(),
            region: held.id.0,
            token: 0,
            length: 1,
            writable: false,
        };
        mind.handle_exposed(rank, held, handle);
    }

    /// A process hears something on its link.
    pub(super) fn hear(&mut self, listener: Rank, message: &ToRank) {
        let heard = self.heard.entry(listener).or_default();
        match message {
            ToRank::Inherited {
                rank, incarnation, ..
            } => {
                self.inherited += 1;
                *heard.entry((*rank, *incarnation)).or_default() += 1;
            }
            // What an agent held is gone with it.
            ToRank::Departed(departure) if departure.cause != Cause::AgentLost => {
                let whose = (departure.rank, departure.incarnation);
                let known = heard.get(&whose).copied().unwrap_or_default();
                assert_eq!(
                    Some(&known),
                    self.held.get(&whose),
                    "{listener:?} hears of the end of {whose:?}"
                );
            }
            _ => {}
        }
    }

    pub(super) fn handle_agent_lost(&mut self) {
        self.has_lost_agent = true;
    }
}

impl World {
    /// An agent goes. Of those that serve memory none does while somebody on another host may need it.
    pub(super) fn check_that_memory_is_not_needed(&self, node: NodeId) {
        let memory = &self.memory;
        if !memory.serving.contains(&node) || memory.has_lost_agent || self.on_failure.ends_job() {
            return;
        }
        let mut processes = self.processes.iter();
        let needs = processes.find(|(rank, process)| rank.0 < self.plan.size && process.node != node);
        assert!(
            needs.is_none(),
            "{node:?} goes, and {:?} may need its memory",
            needs.map(|(rank, _)| rank)
        );
    }
}
