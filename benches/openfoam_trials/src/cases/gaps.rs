//! When runs fail.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// The times between failures, in seconds: exponential, the same for each policy, and without end.
///
/// They are stratified: of each [`BLOCK`](Self::BLOCK) gaps that follow each other, one comes from each of as
/// many equally likely parts of the distribution. Runs one after the other then show nearly as many failures,
/// as far apart, as very many do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    pub(super) seed: u64,
    pub(super) mtbf: f64,
}

/// Where a policy is in the sequence: what is left of the gap that has begun, and how many began before it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    pub(super) left: f64,
    pub(super) begun: usize,
}

impl Gaps {
    const BLOCK: usize = 8;

    fn all(self) -> impl Iterator<Item = f64> {
        (0_u64..).flat_map(move |block| {
            let mut random = Pcg64::seed_from_u64(self.seed.wrapping_mul(1_000_003).wrapping_add(block));
            let mut parts: Vec<usize> = (0..Self::BLOCK).collect();
            for last in (1..parts.len()).rev() {
                parts.swap(
                    last,
                    (uniform(&mut random) * (last + 1) as f64) as usize % (last + 1),
                );
            }
            let gap = |part| -((part as f64 + uniform(&mut random)) / Self::BLOCK as f64).ln() * self.mtbf;
            parts.into_iter().map(gap).collect::<Vec<_>>()
        })
    }

    /// Where all policies begin.
    pub(super) fn start(self) -> Moment {
        let left = self.all().next().unwrap_or(f64::INFINITY);
        Moment { left, begun: 1 }
    }

    /// The times until the failures from a moment on: until the first, and then from each to the next.
    pub(super) fn from(self, moment: Moment) -> impl Iterator<Item = f64> {
        std::iter::once(moment.left).chain(self.all().skip(moment.begun))
    }
}

/// A number above 0 and up to 1.
pub(super) fn uniform(random: &mut Pcg64) -> f64 {
    (f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gaps of a block are from all parts of the distribution, and come to the mean more closely than chance would.
    #[test]
    fn gaps_are_spread() {
        let gaps = Gaps { seed: 5, mtbf: 20.0 };
        let all: Vec<f64> = gaps.all().take(500 * Gaps::BLOCK).collect();
        for block in all.chunks(Gaps::BLOCK) {
            let mut parts: Vec<usize> = block
                .iter()
                .map(|gap| ((-gap / 20.0).exp() * Gaps::BLOCK as f64 - 1e-9) as usize)
                .collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..Gaps::BLOCK).collect::<Vec<_>>());
        }
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 20.0).abs() < 0.3, "{mean}");
    }

    /// A sequence that goes on from a moment has the same failures as one that never stopped.
    #[test]
    fn a_sequence_goes_on() {
        let gaps = Gaps { seed: 7, mtbf: 3.0 };
        let all: Vec<f64> = gaps.from(gaps.start()).take(20).collect();
        let moment = Moment {
            left: all[4] - 0.1,
            begun: 5,
        };
        let rest: Vec<f64> = gaps.from(moment).take(16).collect();
        assert_eq!(rest[0], all[4] - 0.1);
        assert_eq!(rest[1..], all[5..]);
    }
}
