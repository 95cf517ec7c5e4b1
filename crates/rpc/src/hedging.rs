//! When which of several targets is called.

use std::time::{Duration, Instant};

/// Decides about the calls of one hedged call: the first target is called at once; the next when a delay has
/// passed without an answer, or at once when a call failed.
///
/// Tell what happened by [`handle_failure`](Self::handle_failure); then, and at
/// [`next_deadline`](Self::next_deadline), do what [`poll_action`](Self::poll_action) says until it says
/// nothing. An answer ends it all, and need not be told.
#[derive(Debug)]
pub(crate) struct Hedging {
    delay: Duration,
    targets: usize,
    /// The targets before this one were called.
    next: usize,
    in_progress: usize,
    /// When the next one is called; `None` at once.
    next_at: Option<Instant>,
    given_up: bool,
}

/// The next step of a hedged call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HedgingAction {
    /// Call the target of this number.
    Call(usize),
    /// All failed.
    GiveUp,
}

impl Hedging {
    pub(crate) fn new(targets: usize, delay: Duration) -> Self {
        Self {
            delay,
            targets,
            next: 0,
            in_progress: 0,
            next_at: None,
            given_up: false,
        }
    }

    /// One of the calls failed.
    pub(crate) fn handle_failure(&mut self) {
        self.in_progress -= 1;
        self.next_at = None;
    }

    pub(crate) fn poll_action(&mut self, now: Instant) -> Option<HedgingAction> {
        if self.next == self.targets {
            let all_failed = self.in_progress == 0 && !self.given_up;
            self.given_up |= all_failed;
            return all_failed.then_some(HedgingAction::GiveUp);
        }
        if self.next_at.is_some_and(|next_at| now < next_at) {
            return None;
        }
        let target = self.next;
        self.next += 1;
        self.in_progress += 1;
        self.next_at = now.checked_add(self.delay);
        if self.next_at.is_none() {
            // The delay is for ever: only a failure brings the next one.
            self.next_at = Some(now + NEVER);
        }
        Some(HedgingAction::Call(target))
    }

    /// When the next target is to be called, if nothing happens until then.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.next_at.filter(|_| self.next < self.targets)
    }
}

/// A century: longer than anybody waits, and not too long for a clock.
const NEVER: Duration = Duration::from_secs(3_155_760_000);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELAY: Duration = Duration::from_millis(10);

    fn actions(hedging: &mut Hedging, now: Instant) -> Vec<HedgingAction> {
        std::iter::from_fn(|| hedging.poll_action(now)).collect()
    }

    /// The next target is called when the delay has passed, or when a call fails, and then has the whole delay.
    #[test]
    fn the_next_target_is_called() {
        let start = Instant::now();
        let mut hedging = Hedging::new(3, DELAY);
        assert_eq!(actions(&mut hedging, start), [HedgingAction::Call(0)]);
        assert_eq!(hedging.next_deadline(), Some(start + DELAY));
        assert_eq!(actions(&mut hedging, start + DELAY / 2), []);
        hedging.handle_failure();
        let second = start + DELAY / 2;
        assert_eq!(actions(&mut hedging, second), [HedgingAction::Call(1)]);
        assert_eq!(actions(&mut hedging, start + DELAY), []);
        assert_eq!(actions(&mut hedging, second + DELAY), [HedgingAction::Call(2)]);
        assert_eq!(hedging.next_deadline(), None);
        hedging.handle_failure();
        assert_eq!(actions(&mut hedging, second + DELAY * 9), []);
        hedging.handle_failure();
        assert_eq!(actions(&mut hedging, second + DELAY * 9), [HedgingAction::GiveUp]);
        assert_eq!(actions(&mut hedging, second + DELAY * 9), []);
    }

    /// Without a target it gives up at once; a delay without end leaves the next to failures.
    #[test]
    fn edges() {
        let now = Instant::now();
        assert_eq!(actions(&mut Hedging::new(0, DELAY), now), [HedgingAction::GiveUp]);
        let mut hedging = Hedging::new(2, Duration::MAX);
        assert_eq!(actions(&mut hedging, now), [HedgingAction::Call(0)]);
        assert_eq!(actions(&mut hedging, now + Duration::from_secs(1 << 30)), []);
        hedging.handle_failure();
        assert_eq!(actions(&mut hedging, now), [HedgingAction::Call(1)]);
    }

    proptest! {
        /// Whatever happens when: each target is called at most once, in order; it gives up once, when all were
        /// called and failed; and until then a call is in progress or something is to be done.
        #[test]
        fn never_stuck(targets in 0_usize..6, steps in proptest::collection::vec((any::<bool>(), 0_u64..25), 0..40)) {
            let mut now = Instant::now();
            let mut hedging = Hedging::new(targets, DELAY);
            let (mut called, mut in_progress, mut given_up) = (0, 0, 0);
            for (fails, millis) in steps {
                for action in actions(&mut hedging, now) {
                    match action {
                        HedgingAction::Call(target) => {
                            prop_assert_eq!(target, called);
                            called += 1;
                            in_progress += 1;
                        }
                        HedgingAction::GiveUp => given_up += 1,
                    }
                }
                prop_assert_eq!(given_up == 1, called == targets && in_progress == 0);
                prop_assert!(given_up == 1 || in_progress > 0);
                prop_assert_eq!(hedging.next_deadline().is_some(), called < targets);
                if fails && in_progress > 0 {
                    in_progress -= 1;
                    hedging.handle_failure();
                }
                now += Duration::from_millis(millis);
            }
        }
    }
}
