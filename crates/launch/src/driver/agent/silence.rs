//! Ranks of scripts that load Open MPI or PMIx: found by a look at what living processes have mapped.

use std::{
    fs,
    time::{Duration, Instant},
};

use ropewalk_launch_core::mpi::service::{is_launcher, silent_end_of_libraries, singleton};
use rustix::process::Pid;

/// When living ranks are looked at, from the first of them on: early, and when slow programs have loaded what they
/// need.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// When a look that found a singleton is taken again: a process may map files a moment before its request is read.
const CONFIRMATION: Duration = Duration::from_millis(500);
/// How many children of a rank are looked at.
const CHILDREN_MAX: usize = 8;

/// The looks that are still to be taken.
#[derive(Default)]
pub(super) struct Looks {
    begun: Option<Instant>,
    taken: usize,
    confirmation: Option<Instant>,
}

/// The sentences about a process that has not asked for the other ranks.
#[derive(Default)]
pub(super) struct Silence {
    /// If it ends well, and has loaded an MPI library.
    pub(super) end: Option<String>,
    /// If it has initialised that library.
    pub(super) singleton: Option<String>,
}

/// The end of a rank with exit code 0 that has not asked for the other ranks.
pub(super) enum SilentEnd {
    /// It was seen to be a job of one rank while it ran.
    OfSingleton,
    /// It has loaded what should have asked, as this sentence says.
    Odd(String),
}

impl SilentEnd {
    /// The exit code of a job whose ranks were jobs of one rank each.
    pub(super) const EXIT_CODE: i32 = 125;
    pub(super) const VERDICT: &str =
        "Open MPI ran in it as a job of one rank: the ranks did not work together";
}

impl Looks {
    /// There is a rank to look at from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// A look found something that the next one has to confirm.
    pub(super) fn confirm(&mut self, now: Instant) {
        self.confirmation = Some(now + CONFIRMATION);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let planned = LOOKS.get(self.taken).zip(self.begun);
        let planned = planned.map(|(after, begun)| begun + *after);
        planned.into_iter().chain(self.confirmation).min()
    }

    /// Returns true if it is time for a look, which is to be taken now.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_over = |due: &Instant| *due <= now;
        if self.confirmation.take_if(|due| is_over(due)).is_some() {
            return true;
        }
        let is_due = self.deadline().as_ref().is_some_and(is_over);
        self.taken += usize::from(is_due);
        is_due
    }
}

/// The sentences about a process, by the files that it or a child of it has mapped. The children of another launcher
/// are its own affair.
pub(super) fn silence_of(pid: Pid) -> Silence {
    let pid = pid.as_raw_nonzero().get();
    let Some(own) = mapped(pid).filter(|maps| !is_launcher(maps)) else {
        return Silence::default();
    };
    let all: Vec<_> = [own]
        .into_iter()
        .chain(children(pid).into_iter().filter_map(mapped))
        .collect();
    Silence {
        end: all.iter().find_map(|maps| silent_end_of_libraries(maps)),
        singleton: all.iter().find_map(|maps| singleton(maps)),
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

    /// A look that found something is taken again soon, and the planned ones stay.
    #[test]
    fn looks_are_confirmed() {
        let mut looks = Looks::default();
        let begun = Instant::now();
        looks.begin(begun);
        assert!(looks.take_due(begun + LOOKS[0]));
        looks.confirm(begun + LOOKS[0]);
        let again = begun + LOOKS[0] + CONFIRMATION;
        assert_eq!(looks.deadline(), Some(again));
        assert!(!looks.take_due(again - Duration::from_millis(1)));
        assert!(looks.take_due(again));
        assert_eq!(looks.deadline(), Some(begun + LOOKS[1]));
        assert!(!looks.take_due(again));
    }
}
