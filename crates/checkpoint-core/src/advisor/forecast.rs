//! How long the steps to come will take.

use std::collections::VecDeque;

use crate::journal::STEPS_MAX;

/// A forecast of the steps to come. The next step is known if it is done again; else it is the long one of a
/// cycle, or as long as the last one. The rest of the run goes on as the last half of an interval between
/// saves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Forecast {
    /// The steps since the last save, those that were done before a failure included.
    steps: VecDeque<f64>,
    /// How many of them are done since the last save or restore.
    done: usize,
    /// How many of those are in a save that is still being written.
    copied: usize,
    last: f64,
    cycle: Cycle,
    /// How long a step took on average over about the last half of an interval between saves.
    mean: f64,
}

impl Forecast {
    /// Steps that will be done again, from the journal.
    pub(crate) fn new(known: &[f64]) -> Self {
        // Room for all, so that no step allocates.
        let mut steps = VecDeque::with_capacity(STEPS_MAX);
        steps.extend(known.iter().take(STEPS_MAX));
        Self {
            steps,
            done: 0,
            copied: 0,
            last: 0.0,
            cycle: Cycle::default(),
            mean: 0.0,
        }
    }

    /// A step is over; an interval between saves takes `interval` seconds.
    pub(crate) fn step(&mut self, seconds: f64, interval: f64) {
        if let Some(known) = self.steps.get_mut(self.done) {
            *known = seconds;
        } else if self.steps.len() < STEPS_MAX {
            self.steps.push_back(seconds);
        }
        self.mean = match self.mean {
            0.0 => seconds,
            mean => mean + (2.0 * mean / interval).min(WEIGHT_MAX) * (seconds - mean),
        };
        self.done += 1;
        self.last = seconds;
        self.cycle.step(seconds);
    }

    /// All until now is in a save, which does not protect yet.
    pub(crate) fn copied(&mut self) {
        self.copied = self.done;
    }

    /// That save protects from now on.
    pub(crate) fn committed(&mut self) {
        self.steps.drain(..self.copied.min(self.steps.len()));
        self.done -= self.copied;
        self.copied = 0;
    }

    /// The steps since the last save will be done again. Returns how many they are.
    pub(crate) fn lost(&mut self) -> usize {
        let done = std::mem::take(&mut self.done);
        self.copied = 0;
        self.cycle.back(done as u64);
        done
    }

    /// It is not known any more what comes: an older state was restored.
    pub(crate) fn forget(&mut self) {
        self.steps.clear();
        self.done = 0;
        self.copied = 0;
        self.cycle = Cycle::default();
        self.mean = 0.0;
    }

    /// How long the next step will take, in seconds.
    pub(crate) fn next(&self) -> f64 {
        match self.steps.get(self.done) {
            Some(&known) => known,
            None => self.cycle.next(self.last),
        }
    }

    /// How long a step that is left takes on average, in seconds.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }
}

/// Every so manieth step is longer than the others: it writes results, say.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cycle {
    /// How long the others take, smoothed.
    normal: f64,
    /// How long the long ones take, smoothed.
    long: f64,
    /// How many steps there were since the last long one.
    since: u64,
    /// The last two distances between long steps.
    distances: [u64; 2],
    /// The learned distance, or 0.
    period: u64,
}

impl Cycle {
    fn step(&mut self, seconds: f64) {
        if self.normal == 0.0 {
            self.normal = seconds;
        }
        self.since += 1;
        if seconds <= LONG * self.normal {
            self.normal += SMOOTHING * (seconds - self.normal);
            if self.period != 0 && self.since >= self.period {
                // The long step did not come.
                self.period = 0;
                self.distances = [0; 2];
            }
            return;
        }
        let distance = self.since;
        let [before_last, last] = self.distances;
        if distance == 1 && last == 1 {
            // What was long has become usual.
            *self = Self {
                normal: seconds,
                ..Self::default()
            };
            return;
        }
        self.since = 0;
        self.long = match self.long {
            0.0 => seconds,
            long => long + SMOOTHING * (seconds - long),
        };
        self.distances = [last, distance];
        self.period =
            if distance == last && distance > 1 || distance == before_last && distance == self.period {
                distance
            } else {
                0
            };
    }

    fn back(&mut self, steps: u64) {
        if self.period != 0 {
            self.since = (self.since + self.period - steps % self.period) % self.period;
        }
    }

    fn next(&self, last: f64) -> f64 {
        if self.period != 0 && self.since + 1 == self.period {
            self.long
        } else if self.normal > 0.0 && last > LONG * self.normal {
            self.normal
        } else {
            last
        }
    }
}

/// Longer than the usual by this factor is long.
const LONG: f64 = 1.5;

/// The weight of a new step.
const SMOOTHING: f64 = 0.2;

/// The weight of a step that is longer than an interval, in the mean.
const WEIGHT_MAX: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn step(forecast: &mut Forecast, seconds: f64) {
        forecast.step(seconds, 100.0);
    }

    /// A cycle is learned after three long steps, and forgotten when it stops.
    #[test]
    fn cycles_are_learned() {
        let mut forecast = Forecast::new(&[]);
        let length = |at: usize| if at % 10 == 9 { 5.0 } else { 1.0 };
        for at in 0..200 {
            if at >= 40 {
                assert_eq!(forecast.next(), length(at), "step {at}");
            }
            step(&mut forecast, length(at));
        }
        assert!((forecast.mean() - 1.4).abs() < 0.15, "{}", forecast.mean());
        for _ in 0..10 {
            step(&mut forecast, 1.0);
        }
        assert_eq!(forecast.next(), 1.0);
    }

    /// A change for good is no cycle.
    #[test]
    fn what_stays_long_becomes_usual() {
        let mut forecast = Forecast::new(&[]);
        for at in 0..40 {
            forecast.step(if at < 20 { 1.0 } else { 3.0 }, 10.0);
        }
        assert_eq!(forecast.next(), 3.0);
        assert!((forecast.mean() - 3.0).abs() < 0.01, "{}", forecast.mean());
    }

    /// After a failure the steps since the last save are known, the cycle goes back with them, and after a save those
    /// beyond it are still known.
    #[test]
    fn steps_done_again_are_known() {
        let mut forecast = Forecast::new(&[]);
        let length = |at: usize| 1.0 + at as f64 * 0.01;
        (0..5).for_each(|at| step(&mut forecast, length(at)));
        forecast.copied();
        forecast.committed();
        (5..12).for_each(|at| step(&mut forecast, length(at)));
        assert_eq!(forecast.lost(), 7);
        for at in 5..8 {
            assert_eq!(forecast.next(), length(at));
            step(&mut forecast, length(at));
        }
        forecast.copied();
        forecast.committed();
        for at in 8..12 {
            assert_eq!(forecast.next(), length(at));
            step(&mut forecast, length(at));
        }
        assert_eq!(
            forecast.next(),
            length(11),
            "beyond what is known the last one counts"
        );
        forecast.forget();
        assert_eq!(forecast.next(), length(11));
        assert_eq!(Forecast::new(&[2.0, 3.0]).next(), 2.0);
    }
}
