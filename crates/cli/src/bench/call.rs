//! The collective calls that are measured, and the results that they should have.

use ropewalk_reduce::{Group, Rank, ReduceError, ReduceOptions, Reduction, Sum};
use serde::{Deserialize, Serialize};

/// A collective call, on vectors of `f64`. Its root is rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Call {
    Allgather,
    Allreduce,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
}

impl Call {
    /// The name as it stands in options and tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allgather => "allgather",
            Self::Allreduce => "allreduce",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce-scatter",
        }
    }

    /// The lengths of its vectors are multiples of this.
    pub(super) fn unit(self, ranks: u32) -> u64 {
        match self {
            Self::ReduceScatter => ELEMENT * u64::from(ranks),
            _ => ELEMENT,
        }
    }

    /// Begins the call.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) fn begin(
        self,
        world: &Group,
        data: Vec<f64>,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<f64>>, ReduceError> {
        match self {
            Self::Allgather => world.allgather(data, options),
            Self::Allreduce => world.allreduce(data, Sum, options),
            Self::Broadcast => world.broadcast(data, ROOT, options),
            Self::Gather => world.gather(data, ROOT, options),
            Self::Reduce => world.reduce(data, Sum, ROOT, options),
            Self::ReduceScatter => world.reduce_scatter(data, Sum, options),
        }
    }

    /// The number of elements that a rank gets, `None` if it gets nothing, when every rank calls with so many.
    pub(super) fn result_length(self, rank: u32, ranks: u32, elements: usize) -> Option<usize> {
        match self {
            Self::Gather | Self::Reduce if rank != ROOT.0 => None,
            Self::Allgather | Self::Gather => Some(elements * ranks as usize),
            Self::Allreduce | Self::Broadcast | Self::Reduce => Some(elements),
            Self::ReduceScatter => Some(elements / ranks as usize),
        }
    }

    /// The element at a place of the result of a rank.
    pub(super) fn result(self, rank: u32, ranks: u32, elements: usize, at: usize) -> f64 {
        let sum = |at| f64::from(ranks) * f64::from(ranks + 1) / 2.0 * contributed(0, at);
        match self {
            Self::Allgather | Self::Gather => contributed((at / elements) as u32, at % elements),
            Self::Allreduce | Self::Reduce => sum(at),
            Self::Broadcast => contributed(ROOT.0, at),
            Self::ReduceScatter => sum(rank as usize * (elements / ranks as usize) + at),
        }
    }
}

/// The element at a place of the vector of a rank. Sums of these are exact.
pub(super) fn contributed(rank: u32, at: usize) -> f64 {
    f64::from(rank + 1) * (at % 7) as f64
}

/// The bytes of an element.
pub(super) const ELEMENT: u64 = size_of::<f64>() as u64;

const ROOT: Rank = Rank(0);

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    /// The expected results are those of a serial computation.
    #[test]
    fn results_are_those_of_a_serial_computation() {
        let (ranks, elements) = (3, 6);
        let vectors: Vec<Vec<f64>> = (0..ranks)
            .map(|rank| (0..elements).map(|at| contributed(rank, at)).collect())
            .collect();
        let sum: Vec<f64> = (0..elements)
            .map(|at| vectors.iter().map(|vector| vector[at]).sum())
            .collect();
        for call in Call::value_variants() {
            for rank in 0..ranks {
                let expected = match call {
                    Call::Gather | Call::Reduce if rank != 0 => None,
                    Call::Allgather | Call::Gather => Some(vectors.concat()),
                    Call::Allreduce | Call::Reduce => Some(sum.clone()),
                    Call::Broadcast => Some(vectors[0].clone()),
                    Call::ReduceScatter => Some(sum[rank as usize * 2..][..2].to_vec()),
                };
                let length = call.result_length(rank, ranks, elements);
                let found = length.map(|length| {
                    let places = 0..length;
                    places.map(|at| call.result(rank, ranks, elements, at)).collect()
                });
                assert_eq!(found, expected, "{call:?} on rank {rank}");
            }
        }
    }

    /// Names in tables are the words of the option.
    #[test]
    fn names_are_those_of_the_option() {
        for call in Call::value_variants() {
            let word = call.to_possible_value().unwrap();
            assert_eq!(word.get_name(), call.name());
            assert_eq!(serde_json::to_value(call).unwrap(), call.name());
        }
    }
}
