//! When to kill a rank on purpose, and which: drawn from a seed.

use std::time::Duration;

use crate::job::Injection;

/// Draws failures with exponential gaps: the next is as likely at any moment, whatever happened before.
#[derive(Clone, Debug)]
pub(crate) struct Injector {
    mtbf: Duration,
    random: SplitMix64,
    next: Duration,
}

impl Injector {
    /// Of each attempt of a job, other failures from the same seed.
    pub(crate) fn new(injection: Injection, attempt: u32) -> Self {
        let mut seeds = SplitMix64(injection.seed);
        let seed = (0..attempt).fold(0, |_, _| seeds.draw());
        let mut injector = Self {
            mtbf: injection.mtbf,
            random: SplitMix64(seed),
            next: Duration::ZERO,
        };
        injector.next = injector.gap();
        injector
    }

    /// When the next failure is due.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// The failure that is due: which of so many. None if there are none.
    pub(crate) fn draw(&mut self, now: Duration, count: usize) -> Option<usize> {
        self.next = now.saturating_add(self.gap());
        let drawn = self.random.draw();
        (count > 0).then(|| ((u128::from(drawn) * count as u128) >> 64) as usize)
    }

    fn gap(&mut self) -> Duration {
        // 53 bits, as many as a number has, and never 0.
        let uniform = ((self.random.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let gap = -uniform.ln() * self.mtbf.as_secs_f64();
        Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX)
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(seed: u64, attempt: u32, count: usize) -> Vec<(Duration, usize)> {
        let mtbf = Duration::from_secs(25);
        let mut injector = Injector::new(Injection { mtbf, seed }, attempt);
        let mut before = Duration::ZERO;
        (0..count)
            .map(|_| {
                let at = injector.next();
                let victim = injector.draw(at, 4).unwrap();
                let gap = at - std::mem::replace(&mut before, at);
                (gap, victim)
            })
            .collect()
    }

    /// Gaps have the mean that was asked for and are exponential: as many below the median as above; every rank has its
    /// turn. Equal seeds draw equal failures, other attempts others.
    #[test]
    fn failures_are_a_poisson_process() {
        let drawn = gaps(7, 1, 20_000);
        let sum: Duration = drawn.iter().map(|(gap, _)| *gap).sum();
        let mean = sum.as_secs_f64() / 20_000.0;
        assert!((mean - 25.0).abs() < 0.75, "{mean}");
        let median = 25.0 * std::f64::consts::LN_2;
        let below = drawn.iter().filter(|(gap, _)| gap.as_secs_f64() < median).count();
        assert!((9_700..10_300).contains(&below), "{below}");
        for rank in 0..4 {
            let hits = drawn.iter().filter(|(_, victim)| *victim == rank).count();
            assert!((4_700..5_300).contains(&hits), "{rank}: {hits}");
        }
        assert_eq!(drawn[..5], gaps(7, 1, 5));
        assert_ne!(drawn[..5], gaps(8, 1, 5));
        assert_ne!(drawn[..5], gaps(7, 2, 5));
    }

    /// With nobody to kill nobody is, and the next failure is due later.
    #[test]
    fn nobody_may_be_left() {
        let mtbf = Duration::from_secs(1);
        let mut injector = Injector::new(Injection { mtbf, seed: 1 }, 1);
        let at = injector.next();
        assert_eq!(injector.draw(at, 0), None);
        assert!(injector.next() > at);
    }
}
