//! A fast way to save beside one that survives all failures, where one can save only at the ends of time steps.

use crate::{costs::Costs, two_levels::TwoLevels};

/// How two ways to save are best used together by a run that saves after every so manieth step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoLevelsInSteps {
    /// How many steps lie between two saves of either kind.
    pub fast_steps: usize,
    /// The number of steps between two full saves: a multiple of [`fast_steps`](Self::fast_steps), at least
    /// twice as many.
    pub full_steps: usize,
    /// How many saves of either kind the run makes. Its end needs none.
    pub saves: usize,
    /// How many of them are full ones.
    pub full_saves: usize,
    /// The expected time of the run in seconds: exact for these steps. Infinite if it cannot be expressed.
    pub expected_time: f64,
}

impl TwoLevelsInSteps {
    /// The best of the whole numbers beside those that `two` wants for steps of mean length. Steps longer
    /// than a period want one save of either kind after each, and a full one in the place of every second at
    /// most: else there were no fast ones.
    ///
    /// Nothing if the run would be over before its first save.
    pub(crate) fn new(full: &Costs, save: f64, covers: f64, two: &TwoLevels, steps: &[f64]) -> Option<Self> {
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        let candidates = beside(two.fast_interval / mean, 1)
            .into_iter()
            .flat_map(|fast_steps| {
                let rounds = beside(two.full_interval / mean / fast_steps as f64, 2);
                rounds.map(|segments| (fast_steps, fast_steps.saturating_mul(segments)))
            });
        candidates
            .filter(|&(fast_steps, _)| fast_steps < steps.len())
            .map(|(fast_steps, full_steps)| Self {
                fast_steps,
                full_steps,
                saves: (steps.len() - 1) / fast_steps,
                full_saves: (steps.len() - 1) / full_steps,
                expected_time: expected_time(full, save, covers, steps, (fast_steps, full_steps)),
            })
            .min_by(|a, b| a.expected_time.total_cmp(&b.expected_time))
    }
}

/// The whole numbers below and above, and none that is too small.
fn beside(number: f64, least: usize) -> [usize; 2] {
    [number.floor(), number.ceil()].map(|number| (number as usize).max(least))
}

/// The expected time of a run that saves after every so many steps, and in full after every so many.
fn expected_time(
    full: &Costs,
    save: f64,
    covers: f64,
    steps: &[f64],
    (fast_steps, full_steps): (usize, usize),
) -> f64 {
    let rounds = steps.chunks(full_steps);
    let last = rounds.len() - 1;
    let time: f64 = rounds
        .enumerate()
        .map(|(at, round)| {
            let saved_at_end = if at == last { 0.0 } else { full.save() };
            let segments = round.chunks(fast_steps);
            let end = segments.len() - 1;
            let lengths = segments.enumerate().rev().map(|(at, segment)| {
                let saved = if at == end { saved_at_end } else { save };
                segment.iter().sum::<f64>() + saved
            });
            expected_round(full, covers, lengths)
        })
        .sum();
    // What is beyond all numbers comes out as none.
    if time.is_nan() { f64::INFINITY } else { time }
}

/// The expected time from one full save to the end of the next, of segments of such lengths, the last of them
/// first. Each is done again after a failure that the fast way survives, and all of them after another.
///
/// The time from the begin of a segment on is a sum of a part that does not depend on the time from a
/// restore of the full save on, and a multiple of that time, as for segments that are equally long.
fn expected_round(full: &Costs, covers: f64, lengths_from_last: impl Iterator<Item = f64>) -> f64 {
    let mtbf = full.mtbf();
    let restore_fails = -(-full.restore() / mtbf).exp_m1();
    let restores = 1.0 - restore_fails;
    let restore_time = mtbf * restore_fails;
    let (stays, lost) = (1.0 - restore_fails * covers, restore_fails * (1.0 - covers));
    let (mut fixed, mut again) = (0.0, 0.0);
    for length in lengths_from_last {
        let fails = -(-length / mtbf).exp_m1();
        let share = 1.0 - fails * covers * restores / stays;
        fixed = (mtbf * fails + (1.0 - fails) * fixed + fails * covers * restore_time / stays) / share;
        again = ((1.0 - fails) * again + fails * (covers * lost / stays + 1.0 - covers)) / share;
    }
    let back = (restore_time + restores * fixed) / (stays - lost - restores * again);
    fixed + again * back
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FixedSteps, Plan, two_levels};

    proptest! {
        /// Where all segments are equally long, a round takes as long as its closed form says.
        #[test]
        fn equal_segments_are_a_round_of_the_closed_form(
            restore in 0.0f64..3.0, mtbf in 5.0f64..100.0, covers in 0.0f64..1.0, segments in 1usize..12,
            part in 0.01f64..0.5,
        ) {
            let full = Costs::new(0.6, restore, mtbf).unwrap();
            let found = expected_round(&full, covers, std::iter::repeat_n(part * mtbf, segments));
            let expected = two_levels::expected_round(&full, covers, segments as f64, part * mtbf);
            prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
        }

        /// Fast saves that take as long as full ones and survive all failures are those of one level.
        #[test]
        fn levels_that_are_alike_are_one(
            steps in proptest::collection::vec(0.1f64..9.0, 1..30), restore in 0.0f64..3.0, fast in 1usize..5,
            segments in 1usize..5,
        ) {
            let full = Costs::new(0.6, restore, 25.0).unwrap();
            let found = expected_time(&full, 0.6, 1.0, &steps, (fast, fast * segments));
            let expected = Plan::by(&FixedSteps(fast as u64), &full, &steps).expected_time(&full, &steps);
            prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
        }
    }

    /// Short steps are saved after as often as one would at any moment, at what that costs; long ones after each.
    #[test]
    fn periods_are_whole_steps() {
        let full = Costs::new(0.6, 0.6, 25.0).unwrap();
        let anytime = full.two_levels(0.06, 0.8).unwrap();
        let found = full.two_levels_in_steps(0.06, 0.8, &[0.01; 200_000]).unwrap();
        let overhead = found.expected_time / 2000.0 - 1.0;
        assert!(
            (overhead / anytime.overhead - 1.0).abs() < 0.01,
            "{found:?}, {anytime:?}"
        );
        assert_eq!(found.full_steps % found.fast_steps, 0);

        let found = full.two_levels_in_steps(0.06, 0.8, &[10.0; 21]).unwrap();
        assert_eq!((found.fast_steps, found.full_steps), (1, 2));
        assert_eq!((found.saves, found.full_saves), (20, 10));
        assert_eq!(full.two_levels_in_steps(0.06, 0.8, &[10.0]), None);
        let never = Costs::new(0.6, 1e6, 25.0).unwrap();
        let time = expected_time(&never, 0.06, 1.0, &[10.0; 21], (1, 2));
        assert_eq!(time, f64::INFINITY);
    }
}
