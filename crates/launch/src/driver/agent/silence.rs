//! Ranks of scripts that load Open MPI or PMIx: found by a look at what living processes have mapped.

use std::{
    fs,
    time::{Duration, Instant},
};

use ropewalk_launch_core::mpi::service::silent_end_of_libraries;
use rustix::process::Pid;

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
    /// There is a rank to look at from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.begun? + *LOOKS.get(self.taken)?)
    }

    /// Returns true if it is time for a look, which is to be taken now.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        self.taken += usize::from(is_due);
        is_due
    }
}

/// The sentence about a silent end of a process, by the MPI library that it or a child of it has loaded.
pub(super) fn silent_end_of_process(pid: Pid) -> Option<String> {
    let pid = pid.as_raw_nonzero().get();
    let own = mapped(pid).into_iter();
    let maps = own.chain(children(pid).into_iter().filter_map(mapped));
    maps.into_iter().find_map(|maps| silent_end_of_libraries(&maps))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks are taken at their times, counted from the first rank, and each once.
    #[test]
    fn looks_are_taken_once() {
        let mut looks = Looks::default();
        let begun = Instant::now();
        assert_eq!(looks.deadline(), None);
        assert!(!looks.take_due(begun));
        looks.begin(begun);
        looks.begin(begun + Duration::from_secs(5));
        for after in LOOKS {
            assert_eq!(looks.deadline(), Some(begun + after));
            assert!(!looks.take_due(begun + after / 2));
            assert!(looks.take_due(begun + after));
        }
        assert_eq!(looks.deadline(), None);
        assert!(!looks.take_due(begun + Duration::from_secs(60)));
    }
}
