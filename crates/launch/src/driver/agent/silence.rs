//! Ranks of scripts that load Open MPI or PMIx: found by a look at what living processes have mapped.

use std::{
    fs,
    time::{Duration, Instant},
};

use ropewalk_launch_core::mpi::service::silent_end_of_libraries;
use ropewalk_names::Rank;

use super::Agent;

/// When living ranks are looked at, from the first of them on: early, and when slow programs have loaded what they
/// need.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// How many children of a rank are looked at.
const CHILDREN_MAX: usize = 8;

/// The looks that are still to be taken.
#[derive(Default)]
pub(super) struct Looks {
    begun: Option<Instant>,
    taken: usize,
}

impl Looks {
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.begun? + *LOOKS.get(self.taken)?)
    }
}

impl Agent {
    /// A rank runs; if nobody can say which MPI it will load, it is looked at later.
    pub(super) fn begin_looks(&mut self, rank: Rank, now: Instant) {
        let group = self.kit.groups.iter().find(|group| group.plan.has(rank));
        let is_open = group.is_some_and(|group| {
            group.plan.size > 1 && group.programs.iter().flatten().any(|started| started.is_open)
        });
        if is_open {
            self.looks.begun.get_or_insert(now);
        }
    }

    /// Looks at one living rank of each such program that has not spoken, if it is time.
    pub(super) fn look_if_due(&mut self, now: Instant) {
        if self.looks.deadline().is_none_or(|due| due > now) {
            return;
        }
        self.looks.taken += 1;
        for group in &mut self.kit.groups {
            for (number, started) in group.programs.iter_mut().enumerate() {
                let Ok(started) = started else {
                    continue;
                };
                if !started.is_open || started.silent_end.is_some() || group.plan.size == 1 {
                    continue;
                }
                let runs_it = |rank: Rank| {
                    let program = group.plan.program_of(rank).filter(|_| group.plan.has(rank));
                    program.is_some_and(|(found, _)| found == number) && !self.mind.has_spoken(rank)
                };
                let mut living = self.ranks.ios.iter().flatten();
                let silent = living.find(|io| io.sockets.is_some() && runs_it(io.rank));
                started.silent_end = silent.and_then(|io| {
                    let pid = io.pid.as_raw_nonzero().get();
                    let own = mapped(pid).into_iter();
                    let maps = own.chain(children(pid).into_iter().filter_map(mapped));
                    maps.into_iter().find_map(|maps| silent_end_of_libraries(&maps))
                });
            }
        }
    }
}

/// The files that a process has mapped; nothing if it is gone.
fn mapped(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/maps")).ok()
}

fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_whitespace().filter_map(|word| word.parse().ok());
    children.take(CHILDREN_MAX).collect()
}
