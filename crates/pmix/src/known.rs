//! The process groups that this server serves.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_launch_core::pmix::{Namespace, Process};

use crate::sys::{
    types::process_state,
    values::{Item, ProcessRow},
};

/// A process group.
pub(crate) struct Known {
    pub(crate) namespace: Namespace,
    /// The processes of this host that run, by their ranks, with their numbers here.
    pub(crate) running: BTreeMap<u32, u32>,
    /// Those of them that have connected.
    pub(crate) connected: BTreeSet<u32>,
}

impl Known {
    pub(crate) fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            running: BTreeMap::new(),
            connected: BTreeSet::new(),
        }
    }

    /// A process of this host runs, with this number, or has ended.
    pub(crate) fn handle_life(&mut self, rank: u32, pid: Option<u32>) {
        // It may connect before this is told.
        if let Some(pid) = pid {
            self.running.insert(rank, pid);
        } else {
            self.running.remove(&rank);
            self.connected.remove(&rank);
        }
    }

    /// The value of a key about this group; `None` for other keys.
    pub(crate) fn value(&self, key: &str) -> Option<Item> {
        let namespace = &self.namespace;
        let count = |list: usize| Some(Item::Uint32(u32::try_from(list).unwrap_or(u32::MAX)));
        match key {
            "pmix.job.napps" => count(namespace.programs.len()),
            "pmix.job.size" | "pmix.max.size" => Some(Item::Uint32(namespace.size)),
            "pmix.local.size" => count(namespace.local_ranks().len()),
            "pmix.num.nodes" => count(namespace.nodes.len()),
            "pmix.univ.size" => Some(Item::Uint32(namespace.universe_size)),
            "pmix.qry.lptable" => Some(Item::ProcessTable(self.table())),
            // Only the own host's processes are known here.
            "pmix.qry.ptable" if namespace.nodes.len() <= 1 => Some(Item::ProcessTable(self.table())),
            _ => None,
        }
    }

    /// The processes of this host that run.
    fn table(&self) -> Vec<ProcessRow> {
        let namespace = &self.namespace;
        let host = namespace.own_node.map(|own| namespace.nodes[own].name.clone());
        let host = host.unwrap_or_default();
        let row = |(&rank, &pid): (&u32, &u32)| ProcessRow {
            process: Process {
                namespace: namespace.name.clone(),
                rank: Some(rank),
            },
            host: host.clone(),
            program: namespace
                .program_of(rank)
                .map_or_else(String::new, |(_, program)| program.name.clone()),
            pid,
            state: match self.connected.contains(&rank) {
                true => process_state::CONNECTED,
                false => process_state::RUNNING,
            },
        };
        self.running.iter().map(row).collect()
    }
}
