//! The task of the ranks, and the times that they find.

use ropewalk_reduce::{Protection, ReduceOptions};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::call::{Call, ELEMENT};

/// The calls and lengths that are measured, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Task {
    /// Calls, each with the bytes of a rank's vector.
    pub(super) cases: Vec<(Call, u64)>,
    pub(super) rounds: u32,
    pub(super) order: Order,
    pub(super) protection: Safety,
}

/// The times of one case, in seconds: of each round the longest of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) call: Call,
    pub(super) bytes: u64,
    pub(super) seconds: Vec<f64>,
}

/// The order in which contributions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// As they come
    Any,
    /// The same in each run, for equal results bit for bit
    Ordered,
}

/// The losses that a contribution survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Safety {
    /// None: a contribution is lost with its process
    None,
    /// That of its process: the agent of the host has a copy
    Process,
    /// That of its host: another host has a copy, made meanwhile
    Host,
    /// That of its host, from the moment on when it counts: it waits for the copy
    HostAcknowledged,
}

impl Task {
    /// The options of all its calls.
    pub(super) fn options(&self) -> ReduceOptions {
        ReduceOptions {
            order: match self.order {
                Order::Any => ropewalk_reduce::Order::Any,
                Order::Ordered => ropewalk_reduce::Order::Ordered,
            },
            protection: match self.protection {
                Safety::None => Protection::None,
                Safety::Process => Protection::Process,
                Safety::Host | Safety::HostAcknowledged => Protection::Hosts {
                    copies: 1,
                    acknowledged: self.protection == Safety::HostAcknowledged,
                },
            },
            ..ReduceOptions::default()
        }
    }
}

/// The cases of these calls with these lengths. If there are no lengths, each call has the usual ones, rounded up to
/// those that it can have.
///
/// # Errors
/// If a call cannot have one of the lengths.
pub(super) fn cases(calls: &[Call], lengths: &[u64], ranks: u32) -> Result<Vec<(Call, u64)>, BadLength> {
    let mut cases = Vec::new();
    for &call in calls {
        let unit = call.unit(ranks);
        let mut of_call = match lengths {
            [] => USUAL_LENGTHS.map(|bytes| bytes.next_multiple_of(unit)).to_vec(),
            lengths => lengths.to_vec(),
        };
        of_call.dedup();
        for bytes in of_call {
            match (call, bytes.is_multiple_of(unit) && bytes > 0) {
                (_, true) => cases.push((call, bytes)),
                (Call::ReduceScatter, false) => return Err(BadLength::Blocks { bytes, ranks, unit }),
                (_, false) => return Err(BadLength::Elements { bytes }),
            }
        }
    }
    Ok(cases)
}

/// A call cannot have vectors of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum BadLength {
    /// The vector is not one of equal blocks.
    #[error(
        "--bytes {bytes}: reduce-scatter gives equal blocks of {ELEMENT}-byte numbers to {ranks} ranks, so a length \
         is a positive multiple of {unit}"
    )]
    Blocks {
        /// The length.
        bytes: u64,
        /// The number of ranks.
        ranks: u32,
        /// The shortest length.
        unit: u64,
    },
    /// The vector is not one of numbers.
    #[error(
        "--bytes {bytes}: vectors have numbers of {ELEMENT} bytes, so a length is a positive multiple of {ELEMENT}"
    )]
    Elements {
        /// The length.
        bytes: u64,
    },
}

/// The lengths that are measured if none are given.
const USUAL_LENGTHS: [u64; 5] = [8, 1 << 10, 1 << 16, 1 << 20, 8 << 20];

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths that are given are taken or refused; the usual ones are rounded up.
    #[test]
    fn lengths_fit_their_calls() {
        use Call::{Reduce, ReduceScatter};
        let given = cases(&[Reduce, ReduceScatter], &[24, 48], 3);
        let expected = [
            (Reduce, 24),
            (Reduce, 48),
            (ReduceScatter, 24),
            (ReduceScatter, 48),
        ];
        assert_eq!(given.unwrap(), expected);
        let usual = cases(&[ReduceScatter], &[], 3).unwrap();
        assert_eq!(usual.len(), USUAL_LENGTHS.len());
        assert!(usual.iter().all(|(_, bytes)| bytes.is_multiple_of(24)));
        for bytes in [0, 12] {
            assert_eq!(cases(&[Reduce], &[bytes], 3), Err(BadLength::Elements { bytes }));
        }
        let error = cases(&[Reduce, ReduceScatter], &[8], 3).unwrap_err();
        let (bytes, ranks, unit) = (8, 3, 24);
        assert_eq!(error, BadLength::Blocks { bytes, ranks, unit });
        assert!(
            error.to_string().ends_with("a positive multiple of 24"),
            "{error}"
        );
    }
}
