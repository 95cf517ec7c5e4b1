//! The process groups of the job, as an agent starts them.

use std::{ops::Range, time::Instant};

use ropewalk_launch_core::{
    group_plan::GroupPlan,
    host_agent::HostAgent,
    protocol::{Plan, StartError, StartErrorKind},
};
use ropewalk_names::{HostId, Rank};

use super::{
    programs::{Started, programs},
    rank_table::RankTable,
    silence::{Looks, silent_end_of_process},
};

/// The process groups that have processes on this host.
pub(super) struct Groups {
    pub(super) all: Vec<OwnGroup>,
    looks: Looks,
}

/// A process group, and what its processes here run.
pub(super) struct OwnGroup {
    pub(super) plan: GroupPlan,
    pub(super) programs: Vec<Result<Started, StartError>>,
    /// The numbers on this host of its processes here.
    pub(super) indices: Range<usize>,
}

impl Groups {
    /// The group that the job begins with.
    pub(super) fn new(first: OwnGroup) -> Self {
        Self {
            all: vec![first],
            looks: Looks::default(),
        }
    }

    /// The group of a rank.
    pub(super) fn of(&self, rank: Rank) -> Option<&OwnGroup> {
        self.all.iter().find(|group| group.plan.has(rank))
    }

    /// The programs that can be started.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Started> {
        self.all.iter().flat_map(|group| &group.programs).flatten()
    }

    /// Nothing is left of a spawned group anywhere.
    pub(super) fn forget(&mut self, id: u32) {
        self.all.retain(|group| group.plan.id != id);
    }

    /// Programs that cannot do without PMIx are not started.
    pub(super) fn refuse_pmix(&mut self, reason: &str) {
        for program in self.all.iter_mut().flat_map(|group| &mut group.programs) {
            if program.as_ref().is_ok_and(|started| started.needs_pmix) {
                *program = Err(StartError {
                    kind: StartErrorKind::NotExecutable,
                    reason: format!("it needs PMIx, and {reason}"),
                });
            }
        }
    }

    /// A rank runs; if nobody can say which MPI it will load, it is looked at later.
    pub(super) fn handle_started(&mut self, rank: Rank, now: Instant) {
        let is_open = self.of(rank).is_some_and(|group| {
            group.plan.size > 1 && group.programs.iter().flatten().any(|started| started.is_open)
        });
        if is_open {
            self.looks.begin(now);
        }
    }

    /// When to call [`look_if_due`](Self::look_if_due).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.looks.deadline()
    }

    /// Looks at one living rank of each program of unknown MPI that has not spoken to PMI, if it is time.
    pub(super) fn look_if_due(&mut self, now: Instant, ranks: &RankTable, mind: &HostAgent) {
        if !self.looks.take_due(now) {
            return;
        }
        for group in &mut self.all {
            for (number, started) in group.programs.iter_mut().enumerate() {
                let Ok(started) = started else {
                    continue;
                };
                if !started.is_open || started.silent_end.is_some() || group.plan.size == 1 {
                    continue;
                }
                let runs_it = |rank: Rank| {
                    let program = group.plan.program_of(rank).filter(|_| group.plan.has(rank));
                    program.is_some_and(|(found, _)| found == number) && !mind.has_spoken(rank)
                };
                let mut living = ranks.ios.iter().flatten();
                let silent = living.find(|io| io.sockets.is_some() && runs_it(io.rank));
                started.silent_end = silent.and_then(|io| silent_end_of_process(io.pid));
            }
        }
    }

    /// The sentence about a rank that ended well and never asked for the others, if that is odd.
    pub(super) fn silent_end(&self, rank: Rank) -> Option<String> {
        let group = self.of(rank)?;
        let (number, _) = group.plan.program_of(rank)?;
        let started = group.programs.get(number)?.as_ref().ok()?;
        started.silent_end.clone()
    }
}

impl OwnGroup {
    pub(super) fn new(plan: &Plan, group: GroupPlan, host: HostId, indices: Range<usize>) -> Self {
        Self {
            programs: programs(plan, &group, host),
            plan: group,
            indices,
        }
    }
}
