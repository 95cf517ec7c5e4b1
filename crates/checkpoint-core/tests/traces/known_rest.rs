//! The default rule where somebody knows how long the rest of the run takes.

use std::cell::Cell;

use ropewalk_checkpoint_core::{Costs, Decision, Moment, Policy, Rate};

/// The default rule for one run. It is told the true rest of the run, not the rest if all steps take as long
/// as the last.
#[derive(Debug)]
pub(crate) struct KnownRest<'a> {
    steps: &'a [f64],
    done: Cell<usize>,
}

impl<'a> KnownRest<'a> {
    pub(crate) fn new(steps: &'a [f64]) -> Self {
        Self {
            steps,
            done: Cell::new(0),
        }
    }
}

impl Policy for KnownRest<'_> {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        let done = self.done.get() + 1;
        self.done.set(done);
        let remaining = Some(self.steps[done..].iter().sum());
        Rate.decide(costs, &Moment { remaining, ..*moment })
    }
}
