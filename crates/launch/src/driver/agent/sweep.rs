//! The end of what ranks leave behind.

use std::time::{Duration, Instant};

/// How far what the ranks left behind is gone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Sweep {
    #[default]
    NotYet,
    /// Processes are being killed, again at this time, and no longer than until then.
    Killing {
        next: Instant,
        until: Instant,
    },
    /// Pipes are still open that somebody may hold who could not be killed; this is when one last was read.
    Draining {
        read: Instant,
    },
    Done,
}

/// How long a pipe may stay silent once all ranks are gone and yet be held open by somebody.
const IDLE_MAX: Duration = Duration::from_millis(500);
/// How often what the ranks left behind is killed, and for how long: what the kernel cannot kill by then hangs in a
/// device, and waiting longer does not help.
const KILL_INTERVAL: Duration = Duration::from_millis(1);
const KILL_MAX: Duration = Duration::from_secs(2);

impl Sweep {
    /// No rank is left: what they left behind is killed from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self::Killing {
            next: now,
            until: now + KILL_MAX,
        };
    }

    /// When something is to be done.
    pub(super) fn deadline(&self, are_outputs_read: bool) -> Option<Instant> {
        match *self {
            Self::Killing { next, .. } => Some(next),
            Self::Draining { read } => are_outputs_read.then_some(read + IDLE_MAX),
            Self::NotYet | Self::Done => None,
        }
    }

    /// Returns true if processes are to be killed now.
    pub(super) fn must_kill(&self, now: Instant) -> bool {
        matches!(*self, Self::Killing { next, .. } if next <= now)
    }

    /// They were killed at that time; nothing is left of them, or not yet.
    pub(super) fn handle_killed(&mut self, is_clean: bool, now: Instant) {
        if let Self::Killing { until, .. } = *self {
            *self = if is_clean || until <= now {
                Self::Draining { read: now }
            } else {
                let next = now + KILL_INTERVAL;
                Self::Killing { next, until }
            };
        }
    }

    /// Returns true if all that is left are pipes.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self, Self::Draining { .. })
    }

    /// Something was read from a pipe, or could not be until now.
    pub(super) fn handle_output(&mut self, now: Instant) {
        if let Self::Draining { read } = self {
            *read = now;
        }
    }

    /// Returns true if pipes have been silent for so long that they are waited for no more.
    pub(super) fn is_idle(&self, are_outputs_read: bool, now: Instant) -> bool {
        self.is_draining() && self.deadline(are_outputs_read).is_some_and(|due| due <= now)
    }

    /// Nothing is left.
    pub(super) fn finish(&mut self) {
        *self = Self::Done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes are killed again and again until none is left, but not for ever.
    #[test]
    fn what_cannot_be_killed_is_given_up() {
        for cleans_after in [0, 3, u32::MAX] {
            let begun = Instant::now();
            let mut sweep = Sweep::default();
            assert!(!sweep.must_kill(begun));
            sweep.begin(begun);
            let (mut now, mut kills) = (begun, 0);
            while sweep.must_kill(now) {
                sweep.handle_killed(kills == cleans_after, now);
                kills += 1;
                assert!(!sweep.must_kill(now));
                now = sweep.deadline(true).unwrap();
            }
            assert!(sweep.is_draining());
            let expected = cleans_after.min((KILL_MAX.as_millis() / KILL_INTERVAL.as_millis()) as u32) + 1;
            assert_eq!(kills, expected);
        }
    }

    /// A pipe that somebody holds open is waited for as long as it says something, or cannot be read.
    #[test]
    fn silent_pipes_are_given_up() {
        let begun = Instant::now();
        let mut sweep = Sweep::default();
        sweep.handle_output(begun);
        assert!(!sweep.is_draining());
        sweep.begin(begun);
        sweep.handle_killed(true, begun);
        let read = begun + IDLE_MAX / 2;
        sweep.handle_output(read);
        assert!(!sweep.is_idle(true, begun + IDLE_MAX));
        assert_eq!(sweep.deadline(false), None);
        assert!(!sweep.is_idle(false, read + IDLE_MAX));
        assert!(sweep.is_idle(true, read + IDLE_MAX));
        sweep.finish();
        assert_eq!(sweep.deadline(true), None);
    }
}
