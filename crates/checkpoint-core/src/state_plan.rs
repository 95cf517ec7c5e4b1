//! Plans of restores: the saved files from which a rank reads each entry of its named state.
//!
//! A rank of a job with as many ranks as have saved reads its own entries. On another number of ranks it reads values
//! and arrays that are not partitioned from rank 0, if all saved ranks had the same. The rows of a partitioned array
//! may be distributed over the ranks in any way, also over as many as before.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    named_state::{StateEntry, StateHeader, StateMismatch},
    redistribution::{Transfer, redistribute},
};

/// The named state of a saved rank, as far as other ranks have to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPart {
    /// The header of its file.
    pub header: StateHeader,
    /// The hashes of the entries that are not partitioned, by name. Needed on another number of ranks only.
    pub copies: BTreeMap<String, [u8; 32]>,
}

/// The source of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySource {
    /// A saved rank and the index of its entry, which has the type and length of a value.
    pub like: (u32, usize),
    /// The bytes to read, in the order of the entry's own bytes. Offsets count from the beginning of the saved entry.
    pub parts: Vec<Transfer>,
}

/// A partitioned array that is another one on another rank.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{name} is {found} on rank {rank}, and {first} on rank 0: a partitioned array has to be named and marked on all \
     ranks, with the same elements and the same axes after the first"
)]
pub struct PartitionError {
    /// The array.
    pub name: String,
    /// The rank that differs from rank 0.
    pub rank: u32,
    /// The array of this rank.
    pub found: String,
    /// The array of rank 0.
    pub first: String,
}

/// Checks that the ranks of a job name the same partitioned arrays.
///
/// # Errors
/// If they do not.
pub fn check_partitions(of_ranks: &[StateHeader]) -> Result<(), PartitionError> {
    let Some((first, others)) = of_ranks.split_first() else {
        return Ok(());
    };
    let told = |entry: Option<&StateEntry>| entry.map_or_else(|| "missing".to_owned(), ToString::to_string);
    for (rank, other) in (1..).zip(others) {
        let both = first.entries().iter().chain(other.entries());
        for name in both.filter(|entry| entry.is_partitioned()).map(StateEntry::name) {
            let (one, two) = (first.entry(name), other.entry(name));
            let fit = one.zip(two).is_some_and(|(one, two)| {
                one.is_partitioned() && two.is_partitioned() && one.has_rows_of(two)
            });
            if !fit {
                return Err(PartitionError {
                    name: name.to_owned(),
                    rank,
                    found: told(two),
                    first: told(one),
                });
            }
        }
    }
    Ok(())
}

/// The sources of all entries of a rank, in their order. `wanted` are the states of all ranks of the job, `saved` those
/// of all ranks that saved.
///
/// # Errors
/// If the save holds another state, or one that cannot be distributed over these ranks.
///
/// # Examples
/// ```
/// use std::collections::BTreeMap;
///
/// use ropewalk_checkpoint_core::{SavedPart, StateEntry, StateHeader, plan_restore};
///
/// let part = |rows| {
///     let u = StateEntry::array("u", "float64", 8, &[rows, 10])?.partitioned()?;
///     StateHeader::new(vec![u])
/// };
/// let saved = [3, 3].map(|rows| part(rows).map(|header| SavedPart { header, copies: BTreeMap::new() }));
/// let saved = saved.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let plan = plan_restore(&[part(4)?, part(2)?], &saved, 0)?;
/// let bytes: Vec<_> = plan[0].parts.iter().map(|part| (part.saved_rank, part.from.clone())).collect();
/// assert_eq!(bytes, [(0, 0..240), (1, 0..80)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_restore(
    wanted: &[StateHeader],
    saved: &[SavedPart],
    rank: u32,
) -> Result<Vec<EntrySource>, StateMismatch> {
    let plan = Plan { wanted, saved, rank };
    let (Some(own), Some(like)) = (wanted.get(rank as usize), saved.get(plan.like() as usize)) else {
        return Err(StateMismatch::Ranks {
            saved: saved.len(),
            rank,
        });
    };
    let indices = own.matching_unless(&like.header, StateEntry::is_partitioned)?;
    own.entries()
        .iter()
        .zip(indices)
        .map(|(entry, index)| {
            let parts = match entry.rows() {
                Some((_, row_bytes)) => plan.rows(entry, row_bytes)?,
                None => plan.copy(entry, &like.header.entries()[index])?,
            };
            Ok(EntrySource {
                like: (plan.like(), index),
                parts,
            })
        })
        .collect()
}

struct Plan<'a> {
    wanted: &'a [StateHeader],
    saved: &'a [SavedPart],
    rank: u32,
}

impl Plan<'_> {
    fn is_same_number(&self) -> bool {
        self.wanted.len() == self.saved.len()
    }

    /// The saved rank whose entries the own ones are like.
    fn like(&self) -> u32 {
        if self.is_same_number() { self.rank } else { 0 }
    }

    fn whole(&self, saved: &StateEntry) -> Vec<Transfer> {
        let whole = Transfer {
            saved_rank: self.like(),
            from: 0..saved.bytes(),
            to: 0,
        };
        Vec::from_iter((saved.bytes() > 0).then_some(whole))
    }

    /// An entry that is not partitioned.
    fn copy(&self, own: &StateEntry, first: &StateEntry) -> Result<Vec<Transfer>, StateMismatch> {
        let name = own.name();
        if !self.is_same_number() {
            let of = |part: &SavedPart| (part.header.entry(name).cloned(), part.copies.get(name).copied());
            let one = (Some(first.clone()), self.saved[0].copies.get(name).copied());
            let others = (0_u32..).zip(self.saved).filter(|(_, part)| of(part) != one);
            let others: Vec<u32> = others.map(|(rank, _)| rank).collect();
            if !others.is_empty() {
                return Err(StateMismatch::CopiesDiffer {
                    name: name.to_owned(),
                    others: listed(&others),
                    saved: self.saved.len(),
                    ranks: self.wanted.len(),
                });
            }
        }
        Ok(self.whole(first))
    }

    /// A partitioned array.
    fn rows(&self, own: &StateEntry, row_bytes: u64) -> Result<Vec<Transfer>, StateMismatch> {
        let name = own.name();
        let missing = |header: &StateHeader| StateMismatch::Missing {
            name: name.to_owned(),
            saved: header.names(),
        };
        let saved = self.saved.iter().map(|part| &part.header);
        let saved = saved.map(|header| header.entry(name).ok_or_else(|| missing(header)));
        let saved = saved.collect::<Result<Vec<_>, _>>()?;
        let wanted = self
            .wanted
            .iter()
            .map(|header| header.entry(name).ok_or_else(|| missing(header)));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = saved.iter().find(|entry| !own.has_rows_of(entry)) {
            return Err(own.differs(other));
        }
        if saved.iter().any(|entry| !entry.is_partitioned()) {
            let pairs = || wanted.iter().zip(&saved);
            let is_as_before =
                self.is_same_number() && pairs().all(|(wanted, saved)| wanted.unmarked() == saved.unmarked());
            return match is_as_before {
                true => Ok(self.whole(own)),
                false => Err(StateMismatch::NotPartitioned {
                    name: name.to_owned(),
                    saved: self.saved.len(),
                }),
            };
        }
        let counts = |entries: &[&StateEntry]| -> Vec<u64> {
            entries.iter().filter_map(|entry| Some(entry.rows()?.0)).collect()
        };
        redistribute(&counts(&saved), &counts(&wanted), row_bytes, self.rank).map_err(|why| {
            StateMismatch::Rows {
                name: name.to_owned(),
                why,
            }
        })
    }
}

/// The first of some ranks, and how many more there are.
fn listed(ranks: &[u32]) -> String {
    let first: Vec<String> = ranks.iter().take(LISTED_MAX).map(u32::to_string).collect();
    let text = format!(
        "{} {}",
        if ranks.len() == 1 { "rank" } else { "ranks" },
        first.join(", ")
    );
    match ranks.len().saturating_sub(LISTED_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

const LISTED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str, rows: u64) -> StateEntry {
        plain(name, rows).partitioned().unwrap()
    }

    fn plain(name: &str, rows: u64) -> StateEntry {
        StateEntry::array(name, "float64", 8, &[rows, 2]).unwrap()
    }

    fn header(entries: &[StateEntry]) -> StateHeader {
        StateHeader::new(entries.to_vec()).unwrap()
    }

    fn saved(entries: &[StateEntry], copy: u8) -> SavedPart {
        let unmarked = entries.iter().filter(|entry| !entry.is_partitioned());
        SavedPart {
            header: header(entries),
            copies: unmarked
                .map(|entry| (entry.name().to_owned(), [copy; 32]))
                .collect(),
        }
    }

    fn transfer(saved_rank: u32, from: std::ops::Range<u64>, to: u64) -> Transfer {
        Transfer { saved_rank, from, to }
    }

    /// Rows come from all ranks that had them, other entries from the own rank or from rank 0.
    #[test]
    fn each_entry_has_its_source() {
        let t = StateEntry::value("t", "int", 3).unwrap();
        // The order of the names may differ between ranks.
        let parts = [
            saved(&[rows("u", 3), t.clone()], 1),
            saved(&[t.clone(), rows("u", 1)], 1),
        ];
        let wanted = |counts: &[u64]| -> Vec<StateHeader> {
            counts
                .iter()
                .map(|&count| header(&[t.clone(), rows("u", count)]))
                .collect()
        };
        let three = wanted(&[2, 0, 2]);
        let like = |rank, index, parts: &[Transfer]| EntrySource {
            like: (rank, index),
            parts: parts.to_vec(),
        };
        let whole = |rank| transfer(rank, 0..3, 0);
        assert_eq!(
            plan_restore(&three, &parts, 2),
            Ok(vec![
                like(0, 1, &[whole(0)]),
                like(0, 0, &[transfer(0, 32..48, 0), transfer(1, 0..16, 16)])
            ])
        );
        assert_eq!(plan_restore(&three, &parts, 1).unwrap()[1], like(0, 0, &[]));
        // As many ranks as before read their own values, whatever others had.
        let other = [parts[0].clone(), saved(&[t.clone(), rows("u", 1)], 9)];
        assert_eq!(
            plan_restore(&wanted(&[1, 3]), &other, 1),
            Ok(vec![
                like(1, 0, &[whole(1)]),
                like(1, 1, &[transfer(0, 16..48, 0), transfer(1, 0..16, 32)])
            ])
        );
        let error = plan_restore(&three, &other, 1).unwrap_err().to_string();
        assert!(
            error.contains("t is not partitioned, and rank 1 of the 2 ranks"),
            "{error}"
        );
        assert_eq!(
            plan_restore(&wanted(&[1, 3]), &parts, 2),
            Err(StateMismatch::Ranks { saved: 2, rank: 2 })
        );
    }

    /// Numbers of rows, names, elements and marks that do not fit are told apart.
    #[test]
    fn what_cannot_be_distributed_is_named() {
        let before = [3, 1].map(|count| saved(&[rows("u", count)], 0));
        let said = |wanted: &[StateHeader], saved: &[SavedPart], rank| {
            plan_restore(wanted, saved, rank).map_err(|error| error.to_string())
        };
        let of = |entries: &[StateEntry]| -> Vec<StateHeader> {
            entries
                .iter()
                .map(|entry| header(std::slice::from_ref(entry)))
                .collect()
        };
        let error = said(&of(&[rows("u", 2), rows("u", 1)]), &before, 0).unwrap_err();
        assert!(
            error.starts_with("the rows of u cannot be distributed: the save holds 4 rows"),
            "{error}"
        );
        let error = said(&of(&[plain("u", 3), plain("u", 1)]), &before, 0).unwrap_err();
        assert!(
            error.contains("shape 3x2, partitioned, and this program has float64"),
            "{error}"
        );
        let narrow = StateEntry::array("u", "float64", 8, &[2])
            .unwrap()
            .partitioned()
            .unwrap();
        let error = said(&of(&[narrow.clone(), narrow.clone()]), &before, 1).unwrap_err();
        assert!(
            error.contains("has float64 of 8 bytes, shape 2, partitioned"),
            "{error}"
        );
        let error = said(&of(&[rows("w", 4)]), &before, 0).unwrap_err();
        assert!(error.contains("nothing named w"), "{error}");

        // An array that gets its mark keeps its rows for now.
        let unmarked = [3, 1].map(|count| saved(&[plain("u", count)], 0));
        let marked = of(&[rows("u", 3), rows("u", 1)]);
        let found = plan_restore(&marked, &unmarked, 1).unwrap();
        assert_eq!(found[0].parts, [transfer(1, 0..16, 0)]);
        for wanted in [of(&[rows("u", 2), rows("u", 2)]), of(&[rows("u", 4)])] {
            let error = said(&wanted, &unmarked, 0).unwrap_err();
            assert!(
                error.starts_with("u was saved on 2 ranks without the mark"),
                "{error}"
            );
        }

        assert_eq!(check_partitions(&marked), Ok(()));
        assert_eq!(check_partitions(&[]), Ok(()));
        for other in [plain("u", 1), narrow, rows("w", 1)] {
            let error = check_partitions(&of(&[rows("u", 3), rows("u", 1), other])).unwrap_err();
            assert_eq!((error.name.as_str(), error.rank), ("u", 2));
        }
        let error = check_partitions(&of(&[plain("u", 3), rows("u", 1)])).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("on rank 1, and float64 of 8 bytes, shape 3x2 on rank 0"),
            "{error}"
        );
    }
}
