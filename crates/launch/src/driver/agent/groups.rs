//! The process groups of the job, as an agent starts them.

use std::{ops::Range, time::Instant};

use ropewalk_launch_core::{
    group_plan::GroupPlan,
    host_agent::HostAgent,
    protocol::{Plan, StartError, StartErrorKind},
};
use ropewalk_names::{HostId, Rank};

use super::{
    programs::{Started, Suspicion, programs},
    rank_table::RankTable,
    silence::{Looks, SilentEnd, silence_of},
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

    /// Looks at one living rank of each program of unknown MPI that has not spoken to PMI, if it is time. Returns the
    /// ranks that were found to be jobs of one rank, and the sentences about them: of each program at most one, and
    /// none if a rank of it here has spoken.
    pub(super) fn look_if_due(
        &mut self,
        now: Instant,
        ranks: &RankTable,
        mind: &HostAgent,
    ) -> Vec<(Rank, String)> {
        let mut singletons = Vec::new();
        if !self.looks.take_due(now) {
            return singletons;
        }
        for group in &mut self.all {
            for (number, started) in group.programs.iter_mut().enumerate() {
                let Ok(started) = started else {
                    continue;
                };
                if !started.is_open || group.plan.size == 1 || started.suspicion == Suspicion::Told {
                    continue;
                }
                let runs_it = |rank: Rank| {
                    let program = group.plan.program_of(rank).filter(|_| group.plan.has(rank));
                    program.is_some_and(|(found, _)| found == number)
                };
                let mut living = ranks.ios.iter().flatten();
                let silent =
                    living.find(|io| io.sockets.is_some() && runs_it(io.rank) && !mind.has_spoken(io.rank));
                let Some(io) = silent else {
                    continue;
                };
                let found = silence_of(io.pid);
                started.silent_end = started.silent_end.take().or(found.end);
                let Some(text) = found.singleton else {
                    continue;
                };
                if ranks
                    .indices
                    .keys()
                    .any(|&rank| runs_it(rank) && mind.has_spoken(rank))
                {
                    continue;
                }
                started.suspicion = match started.suspicion {
                    Suspicion::None => {
                        self.looks.confirm(now);
                        Suspicion::Found
                    }
                    Suspicion::Found | Suspicion::Told => {
                        singletons.push((io.rank, text));
                        Suspicion::Told
                    }
                };
            }
        }
        singletons
    }

    /// The meaning of the end of a rank that ended well and never asked for the others.
    pub(super) fn silent_end(&self, rank: Rank) -> Option<SilentEnd> {
        let group = self.of(rank)?;
        let (number, _) = group.plan.program_of(rank)?;
        let started = group.programs.get(number)?.as_ref().ok()?;
        match started.suspicion {
            Suspicion::Told => Some(SilentEnd::OfSingleton),
            Suspicion::None | Suspicion::Found => started.silent_end.clone().map(SilentEnd::Odd),
        }
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
