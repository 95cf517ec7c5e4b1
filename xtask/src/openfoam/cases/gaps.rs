//! When runs fail.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// The times between the failures of a run, in seconds: exponential, the same for each policy.
///
/// They are stratified: of `runs` runs, one has its first failure in each `runs`-th part of the distribution, and so on for
/// the later ones. Few runs then show nearly as many failures, as far apart, as very many do.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    pub(super) seed: u64,
    pub(super) run: usize,
    pub(super) runs: usize,
    pub(super) mtbf: f64,
}

impl Gaps {
    /// Without end.
    pub(super) fn iter(&self) -> impl Iterator<Item = f64> {
        let this = self.clone();
        (0_u64..).map(move |at| {
            // For all runs, of which this is one, so that each has another part.
            let mut random = Pcg64::seed_from_u64(this.seed.wrapping_mul(1_000_003).wrapping_add(at));
            let mut parts: Vec<usize> = (0..this.runs).collect();
            for last in (1..parts.len()).rev() {
                parts.swap(
                    last,
                    (uniform(&mut random) * (last + 1) as f64) as usize % (last + 1),
                );
            }
            let within = (0..=this.run).map(|_| uniform(&mut random)).last().unwrap_or(1.0);
            let share = (parts[this.run] as f64 + within) / this.runs as f64;
            -share.ln() * this.mtbf
        })
    }
}

/// A number above 0 and up to 1.
pub(super) fn uniform(random: &mut Pcg64) -> f64 {
    (f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run has failures of its own, and all together come to the mean more closely than chance would.
    #[test]
    fn gaps_are_spread() {
        let runs = 10;
        let all: Vec<Vec<f64>> = (0..runs)
            .map(|run| {
                let gaps = Gaps {
                    seed: 5,
                    run,
                    runs,
                    mtbf: 20.0,
                };
                gaps.iter().take(50).collect()
            })
            .collect();
        for at in 0..50 {
            let mut parts: Vec<usize> = all
                .iter()
                .map(|gaps| ((-gaps[at] / 20.0).exp() * 10.0 - 1e-9) as usize)
                .collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..runs).collect::<Vec<_>>());
        }
        let mean = all.iter().flatten().sum::<f64>() / 500.0;
        assert!((mean - 20.0).abs() < 0.5, "{mean}");
    }
}
