//! How long it is worth looking for work before sleeping.

use std::time::Duration;

/// The time to look for work: longer while looking would have paid, shorter while it does not.
///
/// Two sides that both sleep wake each other in turns, and each finds that the other takes longer to answer than it
/// is worth to look for it. So now and then one looks for as long as it takes to be woken twice: if the answers come
/// soon from then on, both are awake; if not, that is tried ever more seldom.
///
/// A caller that calls after a pause calls a side that sleeps by now. The system likes to wake that side on
/// the processor of the caller, where it cannot run before the caller sleeps: each microsecond of looking
/// then makes the answer one later. So after a pause nobody looks, unless that has turned out to pay: a side
/// that has other callers may be awake.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// True if this wait came after a pause.
    paused: bool,
    after_pause: AfterPause,
    /// For how many more waits it is tried whether both sides can be kept awake.
    trials: u32,
    /// How many more waits end before it is tried again.
    until_trials: u32,
    /// How many waits were to end before it was tried last.
    pause: u32,
}

/// The decision to look after a pause.
#[derive(Debug)]
struct AfterPause {
    looks: bool,
    /// How many more such waits end before looking is tried, and how many were to end before it was tried last.
    until_trial: u32,
    interval: u32,
}

impl Spin {
    /// About what it costs to be woken: looking for longer costs more than sleeping.
    pub(crate) const MAX: Duration = Duration::from_micros(20);
    const MIN: Duration = Duration::from_micros(1);
    /// The longest wait with both sides asleep that would have ended within [`MAX`](Self::MAX) if neither had
    /// slept: a call and its answer each wake one side, which takes up to 60 us.
    const SLEPT_MAX: Duration = Duration::from_micros(140);
    /// How much longer it is looked for data, which the other side's system has to copy before it comes.
    const TRANSFER_FACTOR: u32 = 3;
    /// How many waits are tried at once: the first only wakes the other side.
    const TRIALS: u32 = 4;
    const PAUSE_MAX: u32 = 4096;

    pub(crate) fn new() -> Self {
        Self {
            limit: Self::MAX,
            paused: false,
            after_pause: AfterPause {
                looks: true,
                until_trial: 0,
                interval: 1,
            },
            trials: 0,
            until_trials: 0,
            pause: 1,
        }
    }

    /// Tells that a wait begins, so long after it was last looked for work.
    pub(crate) fn begin(&mut self, pause: Duration) {
        // Who looks at most for `MAX` sleeps by then.
        self.paused = pause > Self::SLEPT_MAX;
    }

    /// Returns true if looking is to go on after this long. Data of a `transfer` takes longer to come.
    pub(crate) fn goes_on(&self, elapsed: Duration, transfer: bool) -> bool {
        let limit = if self.paused && !transfer {
            match self.after_pause.looks {
                true => Self::MAX,
                false => return false,
            }
        } else if self.trials > 0 {
            Self::SLEPT_MAX
        } else {
            self.limit * Self::factor(transfer)
        };
        elapsed <= limit
    }

    /// Tells that there was work after `elapsed`, which includes being woken if it `slept`. What was waited for may
    /// have been data of a `transfer`.
    pub(crate) fn handle_work(&mut self, elapsed: Duration, slept: bool, transfer: bool) {
        if std::mem::take(&mut self.paused) && !transfer {
            // What it says of the next wait is said by the pause before that.
            return self.after_pause.handle_work(slept);
        }
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

    /// As [`handle_work`](Self::handle_work), for a part of something that is not work for the owner yet: the
    /// other side is awake.
    pub(crate) fn handle_part(&mut self, elapsed: Duration, slept: bool, transfer: bool) {
        self.paused = false;
        self.handle_work(elapsed, slept, transfer);
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

impl AfterPause {
    fn handle_work(&mut self, slept: bool) {
        if !slept {
            (self.looks, self.interval) = (true, 1);
        } else if self.looks {
            self.looks = false;
            self.interval = (self.interval * 2).min(Spin::PAUSE_MAX);
            self.until_trial = self.interval;
        } else {
            self.until_trial = self.until_trial.saturating_sub(1);
            self.looks = self.until_trial == 0;
        }
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

    /// If work comes too seldom for looking to pay, but as soon as if both sides slept, looking is tried ever
    /// more seldom.
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

    /// After pauses it is looked for an answer as long as that pays, and tried ever more seldom while it does not.
    #[test]
    fn looking_after_pauses_has_to_pay() {
        const PAUSE: Duration = Duration::from_millis(1);
        let mut spin = Spin::new();
        let call = |spin: &mut Spin, answered_after| {
            spin.begin(PAUSE);
            let slept = !spin.goes_on(answered_after, false);
            spin.handle_work(answered_after, slept, false);
            slept
        };
        // The other side sleeps: whoever looks does so in vain.
        let looked = |spin: &mut Spin| {
            spin.begin(PAUSE);
            let looked = spin.goes_on(Duration::ZERO, false);
            spin.handle_work(Duration::from_micros(40), true, false);
            looked
        };
        let vain = (0..10_000).filter(|_| looked(&mut spin)).count();
        assert!((1..20).contains(&vain), "{vain}");
        assert!(
            spin.limit == Spin::MAX,
            "waits without a pause are another matter"
        );
        // It is awake, which is found out in time and heeded from then on.
        let awake = Duration::from_micros(5);
        let found = (0..Spin::PAUSE_MAX).position(|_| !call(&mut spin, awake));
        assert!(found.is_some() && (0..100).all(|_| !call(&mut spin, awake)));
        // Without a pause, and for data, it is looked anyway.
        assert!(looked(&mut spin) && !looked(&mut spin));
        assert!(spin.goes_on(Duration::ZERO, true));
        spin.begin(Duration::ZERO);
        assert!(spin.goes_on(awake, false));
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
