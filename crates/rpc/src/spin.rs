//! How long it is worth looking for work before sleeping.

use std::time::Duration;

/// The time to look for work: longer while looking would have paid, shorter while it does not.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
}

impl Spin {
    /// About what it costs to be woken: looking for longer costs more than sleeping.
    pub(crate) const MAX: Duration = Duration::from_micros(20);
    const MIN: Duration = Duration::from_micros(1);
    /// What comes so soon although this side slept would have come within [`MAX`](Self::MAX) if nobody had: a call and its
    /// answer each wake one side, which takes up to 60 us. With less, two sides that fell asleep once would
    /// never spin again, as each finds that the other takes too long to wake.
    const SLEPT_MAX: Duration = Duration::from_micros(140);

    pub(crate) fn new() -> Self {
        Self { limit: Self::MAX }
    }

    /// Whether to go on looking after this long.
    pub(crate) fn goes_on(&self, elapsed: Duration) -> bool {
        elapsed <= self.limit
    }

    /// Tells that there was work after `elapsed`, which includes being woken if it `slept`.
    pub(crate) fn handle_work(&mut self, elapsed: Duration, slept: bool) {
        let paid_max = if slept { Self::SLEPT_MAX } else { Self::MAX };
        if elapsed <= paid_max {
            self.limit = (self.limit * 2).min(Self::MAX);
        } else {
            self.handle_none();
        }
    }

    /// Tells that looking did not pay.
    pub(crate) fn handle_none(&mut self) {
        self.limit = (self.limit / 2).max(Self::MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long waits bring the spinning to its least, and short ones after them bring it back, although it is
    /// by then too short to find anything.
    #[test]
    fn spinning_comes_back() {
        let mut spin = Spin::new();
        for _ in 0..10 {
            spin.handle_work(Duration::from_secs(1), true);
        }
        assert!(!spin.goes_on(Spin::MIN * 2));
        for _ in 0..10 {
            let elapsed = Duration::from_micros(5);
            let slept = !spin.goes_on(elapsed);
            spin.handle_work(elapsed, slept);
        }
        assert!(spin.goes_on(Spin::MAX) && !spin.goes_on(Spin::MAX * 2));
        spin.handle_none();
        assert!(!spin.goes_on(Spin::MAX));
    }

    /// Two sides that sleep, and so wait for each other to be woken, come back to spinning: neither can do so alone.
    #[test]
    fn sides_that_wait_for_each_others_waking_spin_again() {
        const WAKING: Duration = Duration::from_micros(50);
        let mut spins = [Spin::new(), Spin::new()];
        for spin in &mut spins {
            (0..10).for_each(|_| spin.handle_none());
        }
        let mut elapsed = 2 * WAKING;
        for _ in 0..20 {
            let slept = spins.each_ref().map(|spin| !spin.goes_on(elapsed));
            for (spin, slept) in spins.iter_mut().zip(slept) {
                spin.handle_work(elapsed, slept);
            }
            let sleepers = slept.iter().filter(|slept| **slept).count() as u32;
            let awake = spins.iter().all(|spin| spin.goes_on(Duration::from_micros(2)));
            elapsed = if awake {
                Duration::from_micros(2)
            } else {
                sleepers * WAKING
            };
        }
        assert!(spins.iter().all(|spin| spin.goes_on(Spin::MAX)));
    }
}
