//! A fast way to save beside one that survives all failures.

use crate::{costs::Costs, interval::optimal_interval};

/// How two ways to save are best used together.
///
/// Between two full saves lie some fast ones, all at equal distances. A failure that the fast way survives
/// costs the work since the last save of either kind, any other the work since the last full one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoLevels {
    /// The best compute time between two saves of either kind, in seconds.
    pub fast_interval: f64,
    /// The best time from one full save to the next, fast saves included, in seconds.
    pub full_interval: f64,
    /// By which part of its compute time a run becomes longer: exact for these intervals.
    pub overhead: f64,
}

impl TwoLevels {
    /// The best use of two ways to save: full saves that cost `full`, and fast ones that take `save` seconds
    /// and survive the part `covers` of the failures. `None` if it is best to do without fast ones.
    ///
    /// A full save stands where a fast one would have been, so that its own cost is only the difference. With
    /// that, and each level facing the failures that are its own, the intervals of equation 5 come within
    /// half a point of the best that one finds by trying all.
    pub(crate) fn new(full: &Costs, save: f64, covers: f64) -> Option<Self> {
        let more = full.save() - save;
        if !(save > 0.0 && more > 0.0 && covers > 0.0) {
            return None;
        }
        let full_interval = match covers < 1.0 {
            true => optimal_interval(more, full.mtbf() / (1.0 - covers)),
            false => LONG * full.mtbf(),
        };
        let fast_interval = optimal_interval(save, full.mtbf() / covers);
        let segments = ((full_interval + full.save()) / (fast_interval + save)).round();
        if !(2.0..SEGMENTS_MAX).contains(&segments) {
            return None;
        }
        let compute = full_interval - (segments - 1.0) * save;
        let round = (full_interval + full.save()) / segments;
        let overhead = expected_round(full, covers, segments, round) / compute - 1.0;
        (overhead < full.overhead()).then_some(Self {
            fast_interval: round - save,
            full_interval,
            overhead,
        })
    }
}

/// The expected time from one full save to the end of the next: so many segments of `length` seconds, each of which is
/// done again after a failure that the fast way survives, and all of them after another.
///
/// `to_go(i)` is the time from the begin of segment i on, and `back(i)` the time from the begin of a restore
/// to that segment on; the restore may fail too. Both are sums of a part that does not depend on `back(1)`
/// and a multiple of it. The recursion over the segments is a geometric series, since all are equally long.
pub(crate) fn expected_round(full: &Costs, covers: f64, segments: f64, length: f64) -> f64 {
    let mtbf = full.mtbf();
    let fails = -(-length / mtbf).exp_m1();
    let restore_fails = -(-full.restore() / mtbf).exp_m1();
    let restores = 1.0 - restore_fails;
    // back = (restore_time + restores * to_go + lost * back(1)) / stays
    let (restore_time, stays, lost) = (
        mtbf * restore_fails,
        1.0 - restore_fails * covers,
        restore_fails * (1.0 - covers),
    );
    // to_go(i) = fixed + passes * to_go(i + 1) + again * back(1)
    let share = 1.0 - fails * covers * restores / stays;
    let passes = (1.0 - fails) / share;
    let fixed = (mtbf * fails + fails * covers * restore_time / stays) / share;
    let again = fails * (covers * lost / stays + 1.0 - covers) / share;
    // 1 - passes, without the loss of digits for short segments.
    let rest = fails * (1.0 - covers * restores / stays) / share;
    let series = match rest > f64::EPSILON {
        true => (1.0 - passes.powf(segments)) / rest,
        false => segments,
    };
    let (fixed, again) = (fixed * series, again * series);
    let back = (restore_time + restores * fixed) / (stays - lost - restores * again);
    fixed + again * back
}

/// Where the fast way survives all failures, full saves are this many times the MTBF apart.
const LONG: f64 = 100.0;

/// More fast saves between two full ones are nothing that one could work out in floating point.
const SEGMENTS_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The expected time of a round by the recursion itself, which is solved by going over it until nothing changes.
    fn by_iteration(full: &Costs, covers: f64, segments: usize, length: f64) -> f64 {
        let mtbf = full.mtbf();
        let [fails, restore_fails] = [length, full.restore()].map(|seconds| -(-seconds / mtbf).exp_m1());
        let (mut to_go, mut back) = (vec![0.0; segments + 1], vec![0.0; segments]);
        for _ in 0..200_000 {
            let last = (to_go[0], back[0]);
            for at in (0..segments).rev() {
                back[at] = mtbf * restore_fails
                    + (1.0 - restore_fails) * to_go[at]
                    + restore_fails * (covers * back[at] + (1.0 - covers) * back[0]);
                to_go[at] = mtbf * fails
                    + (1.0 - fails) * to_go[at + 1]
                    + fails * (covers * back[at] + (1.0 - covers) * back[0]);
            }
            if last == (to_go[0], back[0]) {
                break;
            }
        }
        to_go[0]
    }

    proptest! {
        /// The closed form is what the recursion comes to.
        #[test]
        fn the_closed_form_is_exact(
            save in 0.1f64..3.0, restore in 0.0f64..3.0, mtbf in 5.0f64..100.0, covers in 0.0f64..1.0,
            segments in 1usize..12, part in 0.01f64..0.5,
        ) {
            let full = Costs::new(save, restore, mtbf).unwrap();
            let found = expected_round(&full, covers, segments as f64, part * mtbf);
            let expected = by_iteration(&full, covers, segments, part * mtbf);
            prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
        }
    }

    /// Without failures that the fast way survives, a round is a segment of the one-level model.
    #[test]
    fn one_segment_is_that_of_one_level() {
        let full = Costs::new(0.6, 1.5, 25.0).unwrap();
        for covers in [0.0, 0.5, 1.0] {
            let found = expected_round(&full, covers, 1.0, 7.0);
            assert!((found / full.last_segment(7.0) - 1.0).abs() < 1e-12, "{found}");
        }
    }

    /// A fast way that is not fast, or survives nothing, is not used.
    #[test]
    fn what_does_not_pay_is_left_out() {
        let full = Costs::new(0.6, 0.6, 25.0).unwrap();
        for (save, covers) in [(0.6, 0.9), (0.3, 0.5), (0.1, 0.0), (f64::NAN, 0.5), (0.0, 0.9)] {
            assert_eq!(TwoLevels::new(&full, save, covers), None, "{save} {covers}");
        }
        for (save, covers) in [(0.01, 1.0), (0.1, 0.8), (1e-9, 0.999)] {
            let found = TwoLevels::new(&full, save, covers).unwrap();
            assert!(
                found.overhead > 0.0 && found.overhead < full.overhead(),
                "{found:?}"
            );
        }
    }
}
