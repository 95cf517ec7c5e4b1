//! The time of a run with failures, calculated from the times of its parts: no I/O, no clock.

use ropewalk_checkpoint::{Advisor, AdvisorOptions, Costs, CostsError, History, Level, Mtbf};

/// The times of the parts of a run, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parts {
    /// Each step, without failures and saves.
    pub(super) steps: Vec<f64>,
    pub(super) save: f64,
    /// From the start to the first step.
    pub(super) start: f64,
    /// From a failure to the first step after it.
    pub(super) restart: f64,
    /// From the last step to the end.
    pub(super) end: f64,
}

/// The steps after which a run saves, in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saves(Vec<usize>);

/// A run with failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) failures: u32,
}

impl Parts {
    /// The same on a machine that takes so many times as long for each step.
    pub(super) fn at_speed(&self, speed: f64) -> Self {
        Self {
            steps: self.steps.iter().map(|step| step * speed).collect(),
            ..self.clone()
        }
    }
}

impl Saves {
    /// Each time that so many steps are done, but not at the end.
    pub(super) fn every(count: usize, parts: &Parts) -> Self {
        Self(
            (1..)
                .map(|save| save * count)
                .take_while(|&save| save < parts.steps.len())
                .collect(),
        )
    }

    /// When the advisor says so, which knows the mean time between failures and learns all else.
    pub(super) fn advised(mtbf: f64, parts: &Parts) -> Self {
        let options = AdvisorOptions {
            mtbf: Mtbf::Known(mtbf),
            ..AdvisorOptions::default()
        };
        let mut advisor = Advisor::new(&options, &History::default(), 0.0);
        let steps = parts.steps.len();
        let mut now = 0.0;
        let mut saves = Vec::new();
        for (done, step) in (1..steps).zip(&parts.steps) {
            now += step;
            // As the function object counts, which is asked before the step is over.
            advisor.set_remaining_steps(Some((steps - done + 1) as u64));
            if advisor.step_end(now).decision.save {
                advisor.save_begin(Level::Full, now);
                now += parts.save;
                advisor.save_end(Level::Full, now);
                saves.push(done);
            }
        }
        Self(saves)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The expected time, with a failure after each `mtbf` seconds on average, whatever is done at that moment.
    ///
    /// # Errors
    /// If the parts take times that mean nothing.
    pub(super) fn expected(&self, parts: &Parts, mtbf: f64) -> Result<f64, CostsError> {
        let costs = Costs::new(parts.save, parts.restart, mtbf)?;
        let pieces = self.pieces(parts);
        // The first start takes another time than those after failures.
        let first = parts.start + pieces[0];
        let fails = -(-first / mtbf).exp_m1();
        let again = mtbf * ((parts.restart + pieces[0]) / mtbf).exp_m1();
        let rest = pieces[1..].iter().map(|&piece| costs.last_segment(piece));
        Ok(mtbf * fails + fails * again + rest.sum::<f64>())
    }

    /// The time and the failures of the run if it fails after these times, each counted from the failure
    /// before it.
    pub(super) fn replay(&self, parts: &Parts, gaps: impl IntoIterator<Item = f64>) -> Outcome {
        let mut outcome = Outcome {
            seconds: 0.0,
            failures: 0,
        };
        let mut gaps = gaps.into_iter();
        let mut left = gaps.next().unwrap_or(f64::INFINITY);
        let mut overhead = parts.start;
        for piece in self.pieces(parts) {
            loop {
                let need = overhead + piece;
                if need <= left {
                    outcome.seconds += need;
                    left -= need;
                    overhead = 0.0;
                    break;
                }
                outcome.seconds += left;
                outcome.failures += 1;
                overhead = parts.restart;
                left = gaps.next().unwrap_or(f64::INFINITY);
            }
        }
        outcome
    }

    /// The times of the pieces that have to be done without a failure in between: the steps up to a save, and
    /// the save or the end.
    fn pieces(&self, parts: &Parts) -> Vec<f64> {
        let mut from = 0;
        let mut pieces = Vec::with_capacity(self.0.len() + 1);
        for &save in &self.0 {
            pieces.push(parts.steps[from..save].iter().sum::<f64>() + parts.save);
            from = save;
        }
        pieces.push(parts.steps[from..].iter().sum::<f64>() + parts.end);
        pieces
    }
}

/// A number, and how far it is from the truth by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) mean: f64,
    /// Not a number for less than two values.
    pub(super) error: f64,
}

impl Mean {
    pub(super) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            error: (squares / (count - 1.0) / count).sqrt(),
        }
    }
}

/// The value in the middle.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 0 => (values[count / 2 - 1] + values[count / 2]) / 2.0,
        count => values[count / 2],
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg64;

    use super::super::gaps::uniform;
    use super::*;

    fn parts() -> Parts {
        Parts {
            steps: (0..60).map(|step| 1.0 + f64::from(step % 7) / 10.0).collect(),
            save: 0.4,
            start: 0.5,
            restart: 1.1,
            end: 0.3,
        }
    }

    /// The mean of many replays is the expected time.
    #[test]
    fn replays_come_to_the_expected_time() {
        let parts = parts();
        let mtbf = 15.0;
        let mut random = Pcg64::seed_from_u64(7);
        for saves in [
            Saves::advised(mtbf, &parts),
            Saves::every(3, &parts),
            Saves::every(10, &parts),
        ] {
            let expected = saves.expected(&parts, mtbf).unwrap();
            let totals: Vec<f64> = (0..20_000)
                .map(|_| {
                    let gaps = std::iter::repeat_with(|| -uniform(&mut random).ln() * mtbf);
                    saves.replay(&parts, gaps).seconds
                })
                .collect();
            let Mean { mean, error } = Mean::of(&totals);
            assert!(
                (mean - expected).abs() < 4.0 * error,
                "{mean} and not {expected}, +-{error}"
            );
            assert!(error < 0.01 * expected);
        }
    }

    /// A run without failures takes its parts; a failure costs what was not saved, and a restart.
    #[test]
    fn failures_cost_what_is_lost() {
        let parts = parts();
        let saves = Saves::every(10, &parts);
        assert_eq!(saves.len(), 5);
        let work: f64 = parts.steps.iter().sum();
        let quiet = saves.replay(&parts, []).seconds;
        assert!((quiet - (0.5 + work + 5.0 * 0.4 + 0.3)).abs() < 1e-9);
        // In the third step, which is begun anew with the first.
        let failed = saves.replay(&parts, [3.5]);
        assert_eq!(failed.failures, 1);
        assert!((failed.seconds - (quiet + 3.0 + 1.1)).abs() < 1e-9);
    }

    /// The first save tells how long one takes. The others are nearer to each other than to the best for
    /// another cost.
    #[test]
    fn the_advisor_is_followed() {
        let parts = parts();
        let saves = Saves::advised(15.0, &parts);
        assert_eq!(saves.0[0], 1);
        let best = saves.expected(&parts, 15.0).unwrap();
        for every in [1, 10, 20] {
            assert!(best < Saves::every(every, &parts).expected(&parts, 15.0).unwrap());
        }
    }

    /// The median is the middle, or the middle of the two there.
    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
    }
}
