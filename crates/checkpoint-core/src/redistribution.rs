//! Restarts on another number of ranks: the parts of saved arrays that each rank reads.
//!
//! An array that is partitioned along its first axis is a sequence of rows. Rank 0 has the first ones, rank 1 the next,
//! and so on; the ranks may have different numbers of rows, or none.

use std::ops::Range;

use thiserror::Error;

/// Consecutive rows that a rank reads from the file of one saved rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank that saved the rows.
    pub saved_rank: u32,
    /// The bytes of its array, counted from the array's beginning.
    pub from: Range<u64>,
    /// The offset in the array of the reading rank.
    pub to: u64,
}

/// Why saved rows cannot be distributed to the ranks of a job.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedistributionError {
    /// The ranks have room for more or fewer rows than were saved.
    #[error(
        "the save holds {saved} rows of all ranks together, and the ranks of this job have room for {wanted}"
    )]
    Rows {
        /// The rows of all saved ranks.
        saved: u128,
        /// The rows of all ranks of the job.
        wanted: u128,
    },
    /// The array has more bytes than a file can have.
    #[error("a partitioned array has at most 2**63 - 1 bytes on all ranks together")]
    TooLarge,
    /// There are fewer ranks than the number of the reading one.
    #[error("rank {rank} is not one of {ranks} ranks")]
    Rank {
        /// The reading rank.
        rank: u32,
        /// The number of ranks.
        ranks: usize,
    },
}

/// The parts that a rank reads, in the order of its own rows.
///
/// `saved` and `wanted` are the numbers of rows that each saved rank had and that each rank of the job has; a row has
/// `row_bytes` bytes.
///
/// # Errors
/// If the numbers of rows differ, the array is too large, or there is no such rank.
///
/// # Examples
/// ```
/// use ropewalk_checkpoint_core::{Transfer, redistribute};
///
/// // Two ranks have saved 3 rows each; three ranks go on with 2 each. Rank 1 needs a row of both.
/// let parts = redistribute(&[3, 3], &[2, 2, 2], 8, 1)?;
/// let part = |saved_rank, from, to| Transfer { saved_rank, from, to };
/// assert_eq!(parts, [part(0, 16..24, 0), part(1, 0..8, 8)]);
/// # Ok::<(), ropewalk_checkpoint_core::RedistributionError>(())
/// ```
pub fn redistribute(
    saved: &[u64],
    wanted: &[u64],
    row_bytes: u64,
    rank: u32,
) -> Result<Vec<Transfer>, RedistributionError> {
    let rows = |counts: &[u64]| counts.iter().map(|&count| u128::from(count)).sum::<u128>();
    let own = *wanted.get(rank as usize).ok_or(RedistributionError::Rank {
        rank,
        ranks: wanted.len(),
    })?;
    let all = rows(saved);
    if all != rows(wanted) {
        return Err(RedistributionError::Rows {
            saved: all,
            wanted: rows(wanted),
        });
    }
    // No sum or product below overflows, as each is at most one of these.
    let bytes = all.checked_mul(u128::from(row_bytes));
    if all > i64::MAX as u128 || bytes.is_none_or(|bytes| bytes > i64::MAX as u128) {
        return Err(RedistributionError::TooLarge);
    }
    let first: u64 = wanted[..rank as usize].iter().sum();
    let mut transfers = Vec::new();
    let mut begin = 0;
    for (saved_rank, &count) in (0..).zip(saved) {
        let (start, end) = (first.max(begin), (first + own).min(begin + count));
        if start < end && row_bytes > 0 {
            transfers.push(Transfer {
                saved_rank,
                from: (start - begin) * row_bytes..(end - begin) * row_bytes,
                to: (start - first) * row_bytes,
            });
        }
        begin += count;
    }
    Ok(transfers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Distributes bytes by the plans of all ranks.
    fn distributed(saved: &[Vec<u8>], wanted: &[u64], row: usize) -> Vec<Vec<u8>> {
        let counts: Vec<u64> = saved.iter().map(|part| (part.len() / row) as u64).collect();
        let rank = |rank: usize| {
            let mut own = Vec::new();
            for part in redistribute(&counts, wanted, row as u64, rank as u32).unwrap() {
                // The parts leave no gap and do not overlap.
                assert_eq!(part.to, own.len() as u64);
                let range = part.from.start as usize..part.from.end as usize;
                own.extend(&saved[part.saved_rank as usize][range]);
            }
            own
        };
        (0..wanted.len()).map(rank).collect()
    }

    /// Cuts so many rows at these places, which may coincide.
    fn cut(rows: u64, places: &[u64]) -> Vec<u64> {
        let mut places: Vec<u64> = places.iter().map(|place| place % (rows + 1)).collect();
        places.sort_unstable();
        places.push(rows);
        let mut last = 0;
        places
            .into_iter()
            .map(|place| place - std::mem::replace(&mut last, place))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// All ranks together hold the same bytes in the same order, each as many as it has room for, and a way back
        /// restores the first distribution.
        #[test]
        fn no_byte_is_lost_or_moved(
            rows in 0_u64..60,
            row in 1_usize..9,
            before in prop::collection::vec(any::<u64>(), 0..8),
            after in prop::collection::vec(any::<u64>(), 0..8),
        ) {
            let whole: Vec<u8> = (0..rows as usize * row).map(|index| index as u8).collect();
            let (before, after) = (cut(rows, &before), cut(rows, &after));
            let mut rest = whole.as_slice();
            let saved: Vec<Vec<u8>> = before
                .iter()
                .map(|&count| rest.split_off(..count as usize * row).unwrap().to_vec())
                .collect();
            let held = distributed(&saved, &after, row);
            for (part, count) in held.iter().zip(&after) {
                prop_assert_eq!(part.len(), *count as usize * row);
            }
            prop_assert_eq!(held.concat(), whole);
            prop_assert_eq!(distributed(&held, &before, row), saved);
        }

        /// Any numbers give a plan or an error, and a plan stays within the arrays.
        #[test]
        fn any_numbers_are_safe(
            saved in prop::collection::vec(prop_oneof![4 => 0_u64..9, 1 => any::<u64>()], 0..4),
            wanted in prop::collection::vec(prop_oneof![4 => 0_u64..9, 1 => any::<u64>()], 0..4),
            swap in any::<bool>(),
            row in prop_oneof![0_u64..3, any::<u64>()],
            rank in 0_u32..5,
        ) {
            // Otherwise hardly any case has equal sums.
            let wanted = if swap { saved.iter().rev().copied().collect() } else { wanted };
            if let Ok(parts) = redistribute(&saved, &wanted, row, rank) {
                for part in parts {
                    let length = part.from.end - part.from.start;
                    prop_assert!(length > 0);
                    prop_assert!(part.from.end <= saved[part.saved_rank as usize] * row);
                    prop_assert!(part.to + length <= wanted[rank as usize] * row);
                }
            }
        }
    }

    /// Shapes that do not fit are told apart.
    #[test]
    fn errors_say_which_number_is_wrong() {
        let error = redistribute(&[4, 4], &[4, 3], 8, 0).unwrap_err();
        assert_eq!(error, RedistributionError::Rows { saved: 8, wanted: 7 });
        assert!(error.to_string().contains("holds 8 rows"), "{error}");
        let error = redistribute(&[4], &[4], 8, 1).unwrap_err();
        assert_eq!(error, RedistributionError::Rank { rank: 1, ranks: 1 });
        for (rows, row) in [(1 << 62, 2), (u64::MAX, 0), (1, u64::MAX)] {
            let error = redistribute(&[rows], &[rows], row, 0).unwrap_err();
            assert_eq!(error, RedistributionError::TooLarge);
        }
    }
}
