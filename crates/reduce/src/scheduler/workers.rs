//! What the scheduler knows of each rank, over all reductions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ropewalk_names::Rank;

/// Who is gone, who has how much to do, and how fast each was last: the paper's performance counters.
#[derive(Debug)]
pub(super) struct Workers {
    departed: BTreeSet<Rank>,
    /// Ranks that live and take part in nothing any more, and why.
    left: BTreeMap<Rank, String>,
    loads: Vec<Load>,
}

/// What a rank has to do.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    executing: u32,
    serving: u32,
    last_task: Option<Duration>,
}

impl Workers {
    /// Counters for a job of `size` ranks.
    pub(super) fn new(size: u32) -> Self {
        Self {
            departed: BTreeSet::new(),
            left: BTreeMap::new(),
            loads: vec![Load::default(); size as usize],
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.loads.len() as u32
    }

    pub(super) fn is_alive(&self, rank: Rank) -> bool {
        rank.0 < self.size() && !self.departed.contains(&rank)
    }

    /// Records a departure; whether it was news.
    pub(super) fn depart(&mut self, rank: Rank) -> bool {
        rank.0 < self.size() && self.departed.insert(rank)
    }

    /// Records that a rank takes part in nothing any more; the first reason counts.
    pub(super) fn leave(&mut self, rank: Rank, message: String) {
        if rank.0 < self.size() {
            self.left.entry(rank).or_insert(message);
        }
    }

    /// Why a rank takes part in nothing any more, if so.
    pub(super) fn why_left(&self, rank: Rank) -> Option<&str> {
        self.left.get(&rank).map(String::as_str)
    }

    /// Whether `rank` may be given one more task now.
    pub(super) fn has_capacity(&self, rank: Rank) -> bool {
        self.loads[rank.index()].executing < TASKS_IN_FLIGHT_MAX
    }

    /// Order of preference for executing: the least to do, then the fastest last time.
    pub(super) fn executing_cost(&self, rank: Rank) -> (u32, Duration, u32) {
        let load = self.loads[rank.index()];
        (
            load.executing * 2 + load.serving,
            load.last_task.unwrap_or_default(),
            rank.0,
        )
    }

    /// How long the rank's latest task took; zero if it has done none.
    pub(super) fn last_task(&self, rank: Rank) -> Duration {
        self.loads[rank.index()].last_task.unwrap_or_default()
    }

    /// A task begins on `executor`, which reads from `servers`.
    pub(super) fn begin(&mut self, executor: Rank, servers: impl Iterator<Item = Rank>) {
        self.loads[executor.index()].executing += 1;
        servers.for_each(|server| self.loads[server.index()].serving += 1);
    }

    /// A task ended or was cancelled.
    pub(super) fn end(&mut self, executor: Rank, servers: impl Iterator<Item = Rank>) {
        self.loads[executor.index()].executing -= 1;
        servers.for_each(|server| self.loads[server.index()].serving -= 1);
    }

    /// A task took this long.
    pub(super) fn record(&mut self, executor: Rank, elapsed: Duration) {
        self.loads[executor.index()].last_task = Some(elapsed);
    }
}

/// How many tasks a worker may have at once. Enough to fetch for one while combining another; few enough that
/// a worker that becomes slow holds little back.
pub(super) const TASKS_IN_FLIGHT_MAX: u32 = 4;
