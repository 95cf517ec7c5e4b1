//! How long it is worth looking for work before sleeping.

use std::time::Duration;

/// The time to look for work: longer while looking would have paid, shorter while it does not.
///
/// Two sides that both sleep wake each other in turns, and each finds that the other takes longer to answer than it
/// is worth to look for it. So now and then one looks for as long as it takes to be woken twice: if the answers come
/// soon from then on, both are awake; if not, that is tried ever more seldom.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// For how many more waits it is tried whether both sides can be kept awake.
    trials: u32,
    /// How many more waits end before it is tried again.
    until_trials: u32,
    /// How many waits were to end before it was tried last.
    pause: u32,
}

impl Spin {
    /// About what it costs to be woken: looking for longer costs more than sleeping.
    pub(crate) const MAX: Duration = Duration::from_micros(20);
    const MIN: Duration = Duration::from_micros(1);
    /// What comes so soon although both sides slept would have come within [`MAX`](Self::MAX) if nobody had: a call
    /// and its answer each wake one side, which takes up to 60 us.
    const SLEPT_MAX: Duration = Duration::from_micros(140);
    /// How much longer it is looked for data, which the other side's system has to copy before it comes.
    const TRANSFER_FACTOR: u32 = 3;
    /// How many waits are tried at once: the first only wakes the other side.
    const TRIALS: u32 = 4;
    const PAUSE_MAX: u32 = 4096;

    pub(crate) fn new() -> Self {
        Self {
            limit: Self::MAX,
            trials: 0,
            until_trials: 0,
            pause: 1,
        }
    }

    /// Whether to go on looking after this long. What is waited for takes longer if it is data of a `transfer`.
    pub(crate) fn goes_on(&self, elapsed: Duration, transfer: bool) -> bool {
        let limit = if self.trials > 0 {
            Self::SLEPT_MAX
        } else {
            self.limit * Self::factor(transfer)
        };
        elapsed <= limit
    }

    /// Tells that there was work after `elapsed`, which includes being woken if it `slept`. What was waited for may
    /// have been data of a `transfer`.
    pub(crate) fn handle_work(&mut self, elapsed: Duration, slept: bool, transfer: bool) {
        self.trials = self.trials.saturating_sub(1);
        let paid_max = if slept {
            Self::SLEPT_MAX
        } else {
            Self::MAX * Self::factor(transfer)
        };
        if elapsed > paid_max {
            self.shorten();
            return;
        }
        self.limit = (self.limit * 2).min(Self::MAX);
        if !slept {
            (self.until_trials, self.pause) = (0, 1);
        } else if self.until_trials > 0 {
            self.until_trials -= 1;
        } else {
            self.trials = Self::TRIALS;
            self.pause = (self.pause * 2).min(Self::PAUSE_MAX);
            self.until_trials = self.pause;
        }
    }

    /// Tells that looking did not pay.
    pub(crate) fn handle_none(&mut self) {
        self.trials = 0;
        self.shorten();
    }

    fn factor(transfer: bool) -> u32 {
        if transfer { Self::TRANSFER_FACTOR } else { 1 }
    }

    fn shorten(&mut self) {
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
            spin.handle_work(Duration::from_secs(1), true, false);
        }
        assert!(!spin.goes_on(Spin::MIN * 2, false));
        for _ in 0..10 {
            let elapsed = Duration::from_micros(5);
            let slept = !spin.goes_on(elapsed, false);
            spin.handle_work(elapsed, slept, false);
        }
        assert!(spin.goes_on(Spin::MAX, false) && !spin.goes_on(Spin::MAX * 2, false));
        spin.handle_none();
        assert!(!spin.goes_on(Spin::MAX, false));
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
            let slept = spins.each_ref().map(|spin| !spin.goes_on(elapsed, false));
            for (spin, slept) in spins.iter_mut().zip(slept) {
                spin.handle_work(elapsed, slept, false);
            }
            let sleepers = slept.iter().filter(|slept| **slept).count() as u32;
            let awake = spins
                .iter()
                .all(|spin| spin.goes_on(Duration::from_micros(2), false));
            elapsed = if awake {
                Duration::from_micros(2)
            } else {
                sleepers * WAKING
            };
        }
        assert!(spins.iter().all(|spin| spin.goes_on(Spin::MAX, false)));
    }

    /// Where work comes too seldom for looking to pay, but as soon as if both sides slept, it is tried ever more seldom.
    #[test]
    fn trials_that_fail_become_rare() {
        let mut spin = Spin::new();
        let gap = Duration::from_micros(100);
        let mut looked = 0;
        for _ in 0..10_000 {
            let slept = !spin.goes_on(gap, false);
            looked += u32::from(!slept);
            spin.handle_work(gap, slept, false);
        }
        assert!(looked < 100, "{looked}");
    }

    /// Data that takes somewhat longer than an answer is waited for awake, and does not spoil the wait for answers.
    #[test]
    fn transfers_are_given_longer() {
        let mut spin = Spin::new();
        let gap = Spin::MAX * 2;
        for _ in 0..10 {
            assert!(!spin.goes_on(gap, false) && spin.goes_on(gap, true));
            spin.handle_work(gap, false, true);
        }
        assert!(spin.goes_on(Spin::MAX, false) && !spin.goes_on(Spin::MAX * 4, true));
    }
}
