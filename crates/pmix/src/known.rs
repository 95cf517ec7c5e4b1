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
            _ => None,
        }
    }

    /// The processes of this host that run, and those that run elsewhere, with their numbers there.
    pub(crate) fn table_of_all(&self, elsewhere: Option<&BTreeMap<u32, u32>>) -> Vec<ProcessRow> {
        let local = self.namespace.local_ranks();
        let mut rows = self.table();
        for node in &self.namespace.nodes {
            let others = node.ranks.iter().filter(|rank| !local.contains(rank));
            let running = others.filter_map(|rank| Some((*rank, *elsewhere?.get(rank)?)));
            rows.extend(running.map(|(rank, pid)| self.row(&node.name, rank, pid)));
        }
        rows.sort_by_key(|row| row.process.rank);
        rows
    }

    /// The processes of this host that run.
    fn table(&self) -> Vec<ProcessRow> {
        let nodes = &self.namespace.nodes;
        let host = self.namespace.own_node.map_or("", |own| &nodes[own].name);
        let running = self.running.iter();
        running.map(|(&rank, &pid)| self.row(host, rank, pid)).collect()
    }

    fn row(&self, host: &str, rank: u32, pid: u32) -> ProcessRow {
        let program = self.namespace.program_of(rank);
        ProcessRow {
            process: Process {
                namespace: self.namespace.name.clone(),
                rank: Some(rank),
            },
            host: host.to_owned(),
            program: program.map_or_else(String::new, |(_, program)| program.name.clone()),
            pid,
            // Servers of other hosts do not tell which of their processes have connected.
            state: match self.connected.contains(&rank) {
                true => process_state::CONNECTED,
                false => process_state::RUNNING,
            },
        }
    }
}
