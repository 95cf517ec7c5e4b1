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

    pub(crate) fn new() -> Self {
        Self { limit: Self::MAX }
    }

    /// Whether to go on looking after this long.
    pub(crate) fn goes_on(&self, elapsed: Duration) -> bool {
        elapsed <= self.limit
    }

    /// Tells that there was work after `elapsed`, which includes being woken if it `slept`.
    pub(crate) fn handle_work(&mut self, elapsed: Duration, slept: bool) {
        let paid_max = if slept { Self::MAX * 2 } else { Self::MAX };
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
}
