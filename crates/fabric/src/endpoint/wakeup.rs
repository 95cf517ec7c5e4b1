//! The sleep of an endpoint, and the look at what has become ready.

use std::time::{Duration, Instant};

use crate::{
    Waker,
    poller::{Poller, Ready, Source},
};

/// The means to sleep until something is ready, and the times of the last looks.
pub(super) struct Wakeup {
    pub(super) waker: Waker,
    pub(super) poller: Poller,
    pub(super) ready: Ready,
    /// When the system was last asked about all peers; never since the last sleep if `None`.
    looked: Option<Instant>,
    /// When it was found what is ready, if a sleep did that and nobody has looked at it.
    found: Option<Instant>,
}

impl Wakeup {
    /// How long peers of which nothing was heard lately may wait while others keep the endpoint busy.
    const LOOK_INTERVAL: Duration = Duration::from_micros(50);

    pub(super) fn new(waker: Waker, poller: Poller) -> Self {
        Self {
            waker,
            poller,
            ready: Ready::default(),
            looked: None,
            found: None,
        }
    }

    /// Returns true if the system was asked about all peers a moment ago.
    pub(super) fn has_looked(&self, now: Instant) -> bool {
        self.looked
            .is_some_and(|looked| now.saturating_duration_since(looked) < Self::LOOK_INTERVAL)
    }

    /// Asks the system about all peers.
    pub(super) fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        let found = self.found.take();
        // What a sleep has found needs no second look, unless the owner did something else first.
        if found.is_none_or(|found| now.saturating_duration_since(found) > Self::LOOK_INTERVAL) {
            self.ready.look(&self.poller);
        }
        if self.ready.of(Source::Waker).next().is_some() {
            self.waker.drain();
        }
    }

    /// From now on the descriptor becomes readable for everything that comes. Returns true if there is something to do
    /// already, for which it does not.
    pub(super) fn arm(&mut self) -> bool {
        self.looked = None;
        // The descriptor does not become readable for a bell again.
        self.waker.arm() | self.ready.of(Source::Bell).next().is_some()
    }

    /// Sleeps until something is ready, but not longer than `sleep`.
    pub(super) fn sleep(&mut self, sleep: Duration) {
        self.looked = None;
        self.found = self.ready.sleep(&self.poller, sleep).then(Instant::now);
    }
}
