//! How long things took, in buckets.

use std::{fmt, time::Duration};

/// Counts of times by how long they were, in 1.4 KB: the upper bound of a bucket is at most a quarter above its
/// lower one, from 16 nanoseconds to 68 hours; what is longer counts as that.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Box<[u64; Self::BUCKETS]>,
    count: u64,
    sum: Duration,
}

impl LatencyHistogram {
    /// Four for each power of two of nanoseconds.
    const BUCKETS: usize = 4 * 44;
    /// The power of two below which all is one bucket.
    const FIRST: u32 = 3;

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long they took together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The time that the given part of all did not exceed, rounded up to the end of a bucket; `None` if there
    /// were none. `part` is between 0 and 1.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let wanted = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        self.buckets()
            .find(|&(_, count)| {
                below += count;
                below >= wanted
            })
            .map(|(end, _)| end)
    }

    /// The end of each bucket that is not empty, itself not in it, and what it counts; in order.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counted = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        counted.map(|(bucket, &count)| (Self::end(bucket), count))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.counts[Self::bucket(time)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Halves what was counted, so that what comes weighs more.
    pub(crate) fn fade(&mut self) {
        for count in self.counts.iter_mut() {
            *count /= 2;
        }
        self.count = self.counts.iter().sum();
        self.sum /= 2;
    }

    fn bucket(time: Duration) -> usize {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let power = nanos.max(1).ilog2();
        if power <= Self::FIRST {
            return 0;
        }
        let quarter = (nanos >> (power - 2)) & 3;
        let bucket = (power - Self::FIRST - 1) as usize * 4 + quarter as usize + 1;
        bucket.min(Self::BUCKETS - 1)
    }

    fn end(bucket: usize) -> Duration {
        let power = bucket / 4 + Self::FIRST as usize + 1;
        let quarter = (bucket % 4) as u64;
        Duration::from_nanos((4 + quarter) << (power - 2))
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; Self::BUCKETS]),
            count: 0,
            sum: Duration::ZERO,
        }
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every time is in a bucket that begins at most a quarter below its end, and counts once.
        #[test]
        fn buckets_hold_what_they_say(nanos in prop_oneof![0_u64..1000, 0_u64..140_000_000_000_000]) {
            let time = Duration::from_nanos(nanos);
            let bucket = LatencyHistogram::bucket(time);
            prop_assert!(time < LatencyHistogram::end(bucket));
            if let Some(before) = bucket.checked_sub(1) {
                let begin = LatencyHistogram::end(before);
                prop_assert!(begin <= time);
                prop_assert!(LatencyHistogram::end(bucket) <= begin + begin / 4);
            }
        }

        /// A quantile is at least what sorting gives, and less than a quarter more.
        #[test]
        fn quantiles_are_near(mut micros in proptest::collection::vec(1_u64..1_000_000, 1..200), part in 0.0..1.0_f64) {
            let mut histogram = LatencyHistogram::default();
            for &micros in &micros {
                histogram.record(Duration::from_micros(micros));
            }
            micros.sort_unstable();
            let rank = ((micros.len() as f64 * part).ceil() as usize).max(1);
            let exact = Duration::from_micros(micros[rank - 1]);
            let found = histogram.quantile(part).unwrap();
            prop_assert!(exact < found && found <= exact + exact / 4, "{exact:?} {found:?}");
        }
    }

    /// The longest and the shortest have a place; fading keeps the shape; of nothing there is no quantile.
    #[test]
    fn edges() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for time in [Duration::ZERO, Duration::MAX, Duration::ZERO, Duration::MAX] {
            histogram.record(time);
        }
        histogram.fade();
        let counts: Vec<_> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!((histogram.count(), counts), (2, vec![1, 1]));
        assert_eq!(histogram.quantile(0.0), Some(Duration::from_nanos(16)));
    }
}
