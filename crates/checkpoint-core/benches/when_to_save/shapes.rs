//! Runs of shapes that no rule was made for.

use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::{
    cases::{Case, trace, uniform},
    random::costs_of,
};

/// How the length of steps goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Each step is a little longer or shorter than the one before, by chance.
    Walk,
    /// As a walk that is drawn back to the same length.
    Noise,
    /// At some moment steps become longer.
    JumpUp,
    /// At some moment they become shorter.
    JumpDown,
    /// Ever faster longer.
    Cubic,
    /// Two waves, of which neither fits the other.
    TwoWaves,
    /// Each so manieth step is longer.
    Cycle,
    /// Some steps are much longer, by chance.
    Spikes,
}

pub(crate) const SHAPES: [(&str, Shape); 8] = [
    ("a random walk", Shape::Walk),
    ("a walk around a mean", Shape::Noise),
    ("longer from some step on", Shape::JumpUp),
    ("shorter from some step on", Shape::JumpDown),
    ("longer and longer", Shape::Cubic),
    ("two waves", Shape::TwoWaves),
    ("a cycle of long steps", Shape::Cycle),
    ("long steps by chance", Shape::Spikes),
];

/// A run of a shape, with as much noise and as many saves as the random ones have.
pub(crate) fn case_of(shape: Shape, random: &mut Pcg64) -> Case {
    let count = 50 + (uniform(random) * 950.0) as usize;
    let total = 100.0 + uniform(random) * 900.0;
    let (noise, strength) = (0.05 * uniform(random), uniform(random));
    let (turn, period) = (
        uniform(random) * count as f64,
        (3.0 + 20.0 * uniform(random)).floor(),
    );
    let memory = 1.0 - 5.0 / count as f64;
    let walk: Vec<f64> = (0..count)
        .scan(0.0, |at, _| {
            let step = (uniform(random) - 0.5) * strength;
            *at = match shape {
                Shape::Noise => memory * *at + step * 1.5 * (1.0 - memory * memory).sqrt(),
                _ => *at + step * 0.15 * (200.0 / count as f64).sqrt(),
            };
            Some(*at)
        })
        .collect();
    let spikes: Vec<bool> = (0..count).map(|_| uniform(random) < 0.03).collect();
    let steps = trace(total, count, noise, random.next_u64(), |at| match shape {
        Shape::Walk | Shape::Noise => walk[at as usize].exp(),
        Shape::JumpUp if at < turn => 1.0,
        Shape::JumpDown if at >= turn => 1.0,
        Shape::JumpUp | Shape::JumpDown => 1.0 + 2.0 * strength,
        Shape::Cubic => 1.0 + 2.0 * strength * (at / count as f64).powi(3),
        Shape::TwoWaves => 1.0 + 0.4 * strength * ((at / 17.0).sin() + (at / 60.0).cos()),
        Shape::Cycle if at % period < 1.0 => 1.0 + 3.0 * strength,
        Shape::Spikes if spikes[at as usize] => 1.0 + 8.0 * strength,
        Shape::Cycle | Shape::Spikes => 1.0,
    });
    Case {
        name: "of a shape",
        steps,
        costs: costs_of(total, random),
    }
}
