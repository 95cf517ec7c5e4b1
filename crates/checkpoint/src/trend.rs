//! How long the rest of a run will take, as foretold by how the run went on before.

/// How long the steps of a run took lately, and what follows from that for those to come.
///
/// Of moments of the past it is known what came after them. So what comes next is foretold by a linear regression over those
/// moments: by how much the steps after one differ from the last ones before it, given how long these are and by how much they are
/// longer than those before them. That is exact for steps of equal length, for steps that approach a length exponentially, and
/// for those that change steadily or in waves; and it tells itself how wrong it would have been.
///
/// Keeps a fixed number of sums of steps, and never allocates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trend {
    /// How long the last blocks took, each of the same number of steps, the oldest first.
    blocks: [f64; BLOCKS_MAX],
    count: usize,
    steps_per_block: u64,
    /// What there is of the next block.
    part: f64,
    steps_in_part: u64,
    foreseen: Option<f64>,
}

const BLOCKS_MAX: usize = 128;

/// At least so many intervals between saves are remembered.
const INTERVALS_KEPT: f64 = 32.0;

/// The part of an interval whose steps count as the last ones: fewer are noise, more are late.
const LEVEL: f64 = 0.5;

/// Of how many moments of the past it has to be known what came after them.
const MOMENTS_MIN: usize = 5;

/// What keeps the regression from explaining noise, in parts of the mean step squared.
const RIDGE: f64 = 1e-3;

/// By which part of an interval the rest would have been foretold wrongly, at most, by a regression that is believed.
const ERROR_MAX: f64 = 0.2;

/// The squared error of a regression that is believed, at most, as part of that if all stayed as it is; and that which is
/// small enough however little was seen.
const GAIN: f64 = 0.7;
const GAIN_OF_LITTLE: f64 = 0.02;

/// By how much more than ever before steps may have changed: what follows on changes never seen is not known.
const NOVELTY_MAX: f64 = 2.0;

impl Default for Trend {
    fn default() -> Self {
        Self {
            blocks: [0.0; BLOCKS_MAX],
            count: 0,
            steps_per_block: 1,
            part: 0.0,
            steps_in_part: 0,
            foreseen: None,
        }
    }
}

impl Trend {
    /// A step is over, after which so many are left, if somebody knows; an interval between saves takes `interval` seconds.
    pub(crate) fn step(&mut self, seconds: f64, left: Option<u64>, interval: f64) {
        if self.count == BLOCKS_MAX {
            self.make_room(interval);
        }
        self.part += seconds;
        self.steps_in_part += 1;
        if self.steps_in_part == self.steps_per_block {
            self.blocks[self.count] = std::mem::take(&mut self.part);
            self.count += 1;
            self.steps_in_part = 0;
            self.foreseen = left.and_then(|left| self.foretell(left as f64, interval));
        }
    }

    /// How long a step of the rest of the run takes on average, in seconds, if the past tells.
    pub(crate) fn foreseen(&self) -> Option<f64> {
        self.foreseen
    }

    /// Makes blocks longer, or forgets the oldest.
    fn make_room(&mut self, interval: f64) {
        let all: f64 = self.blocks.iter().sum();
        if all < INTERVALS_KEPT * interval {
            for at in 0..BLOCKS_MAX / 2 {
                self.blocks[at] = self.blocks[2 * at] + self.blocks[2 * at + 1];
            }
            self.count = BLOCKS_MAX / 2;
            self.steps_per_block *= 2;
        } else {
            self.blocks.copy_within(1.., 0);
            self.count -= 1;
        }
    }

    fn foretell(&self, left: f64, interval: f64) -> Option<f64> {
        // From here on all is counted in blocks.
        let ahead = (left / self.steps_per_block as f64).round().max(1.0);
        if ahead + (MOMENTS_MIN + 1) as f64 > self.count as f64 {
            return None;
        }
        let past = Past::of(&self.blocks[..self.count], interval)?;
        let ahead = ahead as usize;
        let latest = self.count - ahead;
        if 2 * past.level + MOMENTS_MIN > latest + 1 {
            return None;
        }
        let known = || (2 * past.level..=latest).map(|at| (past.before(at), past.after(at, ahead)));
        let regression = Regression::of(known())?;
        let (mut squares, mut squares_without, mut change) = (0.0, 0.0, 0.0f64);
        for (before, after) in known() {
            squares += (after - regression.value(before)).powi(2);
            squares_without += after * after;
            change = change.max(before[CHANGE].abs());
        }
        let now = past.before(self.count);
        let foreseen = past.mean * (past.level(self.count) + regression.value(now));
        let error = (squares / known().count() as f64).sqrt() * past.mean * ahead as f64;
        // What came after two moments overlaps unless they are so far apart, and so many weights fit as many moments whatever
        // came.
        let independent = (known().count() + ahead) as f64 / ahead as f64;
        let gain = (GAIN * (1.0 - regression.0.len() as f64 / independent)).max(GAIN_OF_LITTLE);
        let is_believed = error < ERROR_MAX * interval
            && squares < gain * squares_without
            && now[CHANGE].abs() <= NOVELTY_MAX * change
            && foreseen > 0.0;
        is_believed.then_some(foreseen / self.steps_per_block as f64)
    }
}

/// What is known of the past.
struct Past {
    /// How much time had passed after each block, relative to the mean of all blocks.
    ends: [f64; BLOCKS_MAX + 1],
    /// How long a block took on average, in seconds.
    mean: f64,
    /// How many blocks count as the last ones.
    level: usize,
}

/// Where [`Past::before`] says by how much steps have become longer.
const CHANGE: usize = 2;

impl Past {
    /// Nothing if that is too little, or all of it took no time.
    fn of(blocks: &[f64], interval: f64) -> Option<Self> {
        let mean = blocks.iter().sum::<f64>() / blocks.len() as f64;
        let level = (LEVEL * interval / mean).round().max(1.0);
        if !(level < BLOCKS_MAX as f64 && mean > 0.0) {
            return None;
        }
        let mut ends = [0.0; BLOCKS_MAX + 1];
        for (at, block) in blocks.iter().enumerate() {
            ends[at + 1] = ends[at] + block / mean;
        }
        Some(Self {
            ends,
            mean,
            level: level as usize,
        })
    }

    fn mean_of(&self, from: usize, to: usize) -> f64 {
        (self.ends[to] - self.ends[from]) / (to - from) as f64
    }

    /// How long the last blocks before a moment took on average.
    fn level(&self, at: usize) -> f64 {
        self.mean_of(at - self.level, at)
    }

    /// What was known at a moment: that steps take time, by how much more the last ones took than all, and by how much more
    /// than those before them.
    fn before(&self, at: usize) -> [f64; 3] {
        let level = self.level(at);
        [1.0, level - 1.0, level - self.level(at - self.level)]
    }

    /// By how much more the blocks after a moment took than the last ones before it.
    fn after(&self, at: usize, ahead: usize) -> f64 {
        self.mean_of(at, at + ahead) - self.level(at)
    }
}

/// A linear function of what was known that comes near to what came after it.
struct Regression([f64; 3]);

impl Regression {
    /// The one with the least sum of squared errors.
    fn of(known: impl Iterator<Item = ([f64; 3], f64)>) -> Option<Self> {
        // The normal equations, each with its right side behind it.
        let mut rows = [[0.0; 4]; 3];
        for (before, after) in known {
            let [first, second, third] = before;
            for (row, factor) in rows.iter_mut().zip(before) {
                for (sum, value) in row.iter_mut().zip([first, second, third, after]) {
                    *sum += factor * value;
                }
            }
        }
        for (at, row) in rows.iter_mut().enumerate() {
            row[at] += RIDGE;
        }
        // They are positive definite, so that no pivot is zero but by rounding.
        for at in 0..rows.len() {
            let pivot = rows[at];
            if pivot[at].is_nan() || pivot[at] <= 0.0 {
                return None;
            }
            for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                let factor = row[at] / pivot[at];
                for (value, pivot) in row.iter_mut().zip(pivot) {
                    *value -= factor * pivot;
                }
            }
        }
        Some(Self([0, 1, 2].map(|at| rows[at][3] / rows[at][at])))
    }

    fn value(&self, before: [f64; 3]) -> f64 {
        self.0
            .iter()
            .zip(before)
            .map(|(weight, value)| weight * value)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    /// A number from -1 up to 1.
    fn uniform(random: &mut Pcg64) -> f64 {
        f64::from(random.next_u32()) / f64::from(1u32 << 31) - 1.0
    }

    /// How long a step of the last `left` is foreseen to take, and how long it takes in truth.
    fn foreseen(steps: &[f64], left: usize, interval: f64) -> (Option<f64>, f64) {
        let (done, rest) = steps.split_at(steps.len() - left);
        let mut trend = Trend::default();
        for (at, &step) in done.iter().enumerate() {
            trend.step(step, Some((steps.len() - at - 1) as u64), interval);
        }
        (trend.foreseen(), rest.iter().sum::<f64>() / left as f64)
    }

    /// Steps of each shape are foretold by what was seen of it, also where it turns.
    #[test]
    fn shapes_go_on() {
        type Shape = fn(f64) -> f64;
        let shapes: [(&str, Shape); 5] = [
            ("rising", |at| 1.0 + at / 300.0),
            ("falling", |at| 3.0 - at / 200.0),
            ("settling", |at| 1.0 + 2.5 * (-at / 80.0).exp()),
            ("waves", |at| 1.0 + 0.4 * (at / 30.0).sin()),
            ("long waves", |at| 1.0 + 0.4 * (at / 50.0).cos()),
        ];
        for (name, shape) in shapes {
            let mut random = Pcg64::seed_from_u64(7);
            let steps: Vec<f64> = (0..400)
                .map(|at| shape(f64::from(at)) * (1.0 + 0.02 * uniform(&mut random)))
                .collect();
            for left in [120, 90, 60, 30] {
                let last = steps[steps.len() - left - 1];
                let (told, truth) = foreseen(&steps, left, 40.0);
                let told = told.unwrap_or(last);
                let (wrong, wrong_without) = ((told / truth - 1.0).abs(), (last / truth - 1.0).abs());
                assert!(
                    wrong < 0.04 || wrong < wrong_without / 3.0,
                    "{name}, {left} left: {told}, not {truth}, and {last} last"
                );
            }
        }
    }

    /// Where steps change by chance little is foretold, and so that it is hardly worse than to take all to stay as it is.
    #[test]
    fn chance_is_not_foretold() {
        let mut random = Pcg64::seed_from_u64(1);
        let (mut wrong, mut wrong_without) = (0.0, 0.0);
        for _ in 0..300 {
            let mut step = 1.0f64;
            let walk: Vec<f64> = (0..400)
                .map(|_| {
                    step *= 1.0 + 0.02 * uniform(&mut random);
                    step
                })
                .collect();
            let (told, truth) = foreseen(&walk, 80, 40.0);
            let last = walk[319];
            wrong += (told.unwrap_or(last) / truth - 1.0).abs();
            wrong_without += (last / truth - 1.0).abs();
        }
        assert!(wrong < 1.2 * wrong_without, "{wrong}, {wrong_without}");
    }

    /// Of what follows on a change that was never seen, and of what was hardly seen, nothing is foretold.
    #[test]
    fn the_unknown_is_not_foretold() {
        let jump: Vec<f64> = (0..400).map(|at| if at < 330 { 1.0 } else { 3.0 }).collect();
        assert_eq!(foreseen(&jump, 65, 40.0).0, None);
        assert_eq!(foreseen(&[1.0; 8], 4, 3.0).0, None, "too little was seen");
        assert_eq!(Trend::default().foreseen(), None);
    }

    proptest! {
        /// However long steps are, what is foretold is a time, and what is kept are the last ones.
        #[test]
        fn any_steps_can_come(
            steps in proptest::collection::vec(prop_oneof![Just(0.0), 0.0f64..10.0, 1e-300f64..1e300], 0..600),
            interval in prop_oneof![0.01f64..1000.0, Just(1e-9), Just(1e12)],
        ) {
            let mut trend = Trend::default();
            for (at, &step) in steps.iter().enumerate() {
                trend.step(step, Some((steps.len() - at - 1) as u64), interval);
                let foreseen = trend.foreseen();
                prop_assert!(foreseen.is_none_or(|step| step > 0.0 && step.is_finite()), "{foreseen:?}");
            }
            let kept = trend.count * trend.steps_per_block as usize + trend.steps_in_part as usize;
            prop_assert!(kept >= steps.len().min(BLOCKS_MAX - 1) && kept <= steps.len());
            let all: f64 = trend.blocks[..trend.count].iter().sum::<f64>() + trend.part;
            let last: f64 = steps[steps.len() - kept..].iter().sum();
            prop_assert!((all - last).abs() <= 1e-9 * last);
        }
    }
}
