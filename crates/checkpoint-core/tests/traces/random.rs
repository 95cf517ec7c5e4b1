//! Runs as many kinds of programs might have them.

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_checkpoint_core::Costs;

use crate::cases::{Case, trace, uniform};

/// A run as some program might have it.
pub(crate) fn random_case(random: &mut Pcg64) -> Case {
    let count = 50 + (uniform(random) * 950.0) as usize;
    let total = 100.0 + uniform(random) * 900.0;
    let (noise, strength, length) = (
        0.05 * uniform(random),
        uniform(random),
        5.0 + 200.0 * uniform(random),
    );
    let (kind, seed) = (random.next_u32() % 4, random.next_u64());
    let steps = trace(total, count, noise, seed, |at| match kind {
        0 => 1.0,
        1 => 1.0 + 2.5 * strength * (-at / length).exp(),
        2 => 1.0 + strength * at / count as f64,
        _ => 1.0 + 0.5 * strength * (at / length).sin(),
    });
    Case {
        name: "random",
        steps,
        costs: costs_of(total, random),
    }
}

/// Costs at random for a run of `total` seconds, with at least a few saves.
pub(crate) fn costs_of(total: f64, random: &mut Pcg64) -> Costs {
    let mtbf = total * (0.1 + 0.4 * uniform(random));
    let save = mtbf * (0.002 + 0.03 * uniform(random));
    Costs::new(save, save, mtbf).expect("both are positive")
}
