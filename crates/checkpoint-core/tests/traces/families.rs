//! Runs beyond the family that the rule was made for: steps that differ at random, in cycles, in phases and for good.

use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::{
    cases::{Case, normal, scaled, uniform},
    random::costs_of,
};

/// A way in which steps differ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    /// Each step has a lognormal length of its own.
    Lognormal,
    /// Every so many steps one writes results.
    Output,
    /// The mesh is refined or coarsened every so many steps.
    Refinement,
    /// The program changes between two phases at random.
    TwoPhases,
    /// A few steps are much longer: noise with a Pareto tail.
    Pareto,
    /// Steps become longer or shorter over the whole run, with noise that lasts.
    Drift,
}

pub(crate) const FAMILIES: [(&str, Family); 6] = [
    ("lognormal steps", Family::Lognormal),
    ("output cycles", Family::Output),
    ("mesh refinement", Family::Refinement),
    ("two phases", Family::TwoPhases),
    ("Pareto noise", Family::Pareto),
    ("drift", Family::Drift),
];

/// As many runs of each family: 1,050 in all.
pub(crate) const CASES_PER_FAMILY: u64 = 175;

/// Seeds of the runs by which rules are chosen, and of those by which they are judged.
pub(crate) const CHOICE_SEED: u64 = 1001;
pub(crate) const TEST_SEED: u64 = 2002;

/// A run of a family, as long and with as many saves as the random ones.
pub(crate) fn case_of_family(family: Family, random: &mut Pcg64) -> Case {
    let count = 50 + (uniform(random) * 950.0) as usize;
    let total = 100.0 + uniform(random) * 900.0;
    let strength = uniform(random);
    let noise = 0.05 * uniform(random);
    let period = (4.0 + 60.0 * uniform(random)).floor() as usize;
    let is_falling = random.next_u32().is_multiple_of(2);
    let mut level = 1.0;
    let step = |at: usize| {
        let near_one = (1.0 + noise * normal(random)).max(0.05);
        near_one
            * match family {
                Family::Lognormal => ((0.1 + 0.9 * strength) * normal(random)).exp(),
                Family::Output if (at + 1).is_multiple_of(period) => 2.0 + 8.0 * strength,
                Family::Output => 1.0,
                Family::Refinement => {
                    if at.is_multiple_of(period) {
                        level *= (0.4 * strength * normal(random)).exp();
                    }
                    level * (1.0 + 2.0 * at as f64 / count as f64)
                }
                Family::TwoPhases => {
                    if uniform(random) * (period as f64) < 1.0 {
                        level = if level == 1.0 { 2.0 + 4.0 * strength } else { 1.0 };
                    }
                    level
                }
                Family::Pareto => {
                    let exponent = 1.5 + 1.5 * strength;
                    0.5 + 0.5 * (1.0 - uniform(random)).powf(-1.0 / exponent).min(100.0)
                }
                Family::Drift => {
                    // Noise that lasts for some twenty steps.
                    level = 1.0 + 0.95 * (level - 1.0) + 0.05 * normal(random);
                    let factor = (1.0 + 9.0 * strength).powf(at as f64 / count as f64);
                    level.max(0.2) * if is_falling { 1.0 / factor } else { factor }
                }
            }
    };
    let steps = scaled((0..count).map(step).collect(), total);
    Case {
        name: "of a family",
        steps,
        costs: costs_of(total, random),
    }
}
