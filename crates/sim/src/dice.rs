use std::ops::Range;

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Random numbers that depend on a seed alone.
#[derive(Clone, Debug)]
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// The numbers of one seed.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: even for all limits that simulations use.
        let product = u128::from(self.0.next_u64()) * u128::from(limit);
        (product >> 64) as u64
    }

    /// A number of a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True once in `times` throws.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of some values, `None` of none.
    pub fn pick<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        values.get(self.below(values.len() as u64) as usize)
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Sixty-four random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }
}
