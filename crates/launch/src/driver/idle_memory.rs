//! Taking little memory, and giving back what starting took and waiting does not take, with unsafe code to call the
//! allocator.
//!
//! A launcher and an agent start for some milliseconds and wait for hours.

use std::time::{Duration, Instant};

/// When memory is given back: a while after the last process was started.
#[derive(Debug, Default)]
pub(super) struct IdleMemory {
    due: Option<Instant>,
}

impl IdleMemory {
    /// Long enough for the last to have said what it has to say first.
    pub(super) const DELAY: Duration = Duration::from_millis(200);

    /// A process was started: more may follow.
    pub(super) fn handle_started(&mut self, now: Instant) {
        self.due = Some(now + Self::DELAY);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Gives memory back, if it is time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            give_back();
        }
    }
}

/// Gives back free memory of the heap.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets all threads of this process have one heap. Each would otherwise begin one of its own, which takes as long as a
/// thread does, and memory for as long as the process lives.
pub(super) fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes where memory comes from later, and has no conditions.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is given back once, a while after the last start, and the program runs on.
    #[test]
    fn is_given_back_after_the_last_start() {
        let mut memory = IdleMemory::default();
        let now = Instant::now();
        assert_eq!(memory.deadline(), None);
        memory.handle_started(now);
        memory.handle_started(now + IdleMemory::DELAY / 2);
        memory.handle_timeout(now + IdleMemory::DELAY);
        assert_eq!(memory.deadline(), Some(now + IdleMemory::DELAY * 3 / 2));
        memory.handle_timeout(now + IdleMemory::DELAY * 3 / 2);
        assert_eq!(memory.deadline(), None);
    }
}
