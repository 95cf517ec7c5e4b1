//! Which generation of checkpoints to restore and which to keep: what each rank has, weighed by all alike.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A checkpoint of one rank that was found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The number of the generation.
    pub generation: u64,
    /// The step that was saved.
    pub step: u64,
    /// How many ranks saved together.
    pub ranks: u32,
}

/// How often a job was started from a generation without getting as far as the next save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// The generation.
    pub generation: u64,
    /// How often.
    pub count: u32,
}

/// All that one rank has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Its whole checkpoints.
    pub held: Vec<Held>,
    /// The highest number that it has seen, also of checkpoints that are torn or in quarantine.
    pub highest: u64,
    /// The generation from which it last started.
    pub restarts: Option<Restarts>,
}

/// The choice of the generation to start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The newest generation that all ranks have whole; nothing if there is none.
    pub restore: Option<Held>,
    /// Generations that are whole and newer, but from which the job did not get anywhere.
    pub given_up: Vec<u64>,
    /// The number of the next generation, above all that were ever used.
    pub next: u64,
}

/// Chooses the generation from which all ranks start: the newest that is whole on all of them.
///
/// A generation from which `restarts_max` starts led to no newer one is passed over for the one before it, unless there
/// is none before it. Every rank that is given the same comes to the same choice.
pub fn choose(of_ranks: &[Holdings], restarts_max: u32) -> Choice {
    choose_of(complete(of_ranks, Some(of_ranks.len())), of_ranks, restarts_max)
}

/// [`choose`] for ranks that can read what any number of ranks has saved: `of_ranks` has the holdings of each number of
/// a rank, also of those that are none of the job. A generation is complete if all ranks that saved it have it whole.
pub fn choose_any(of_ranks: &[Holdings], restarts_max: u32) -> Choice {
    choose_of(complete(of_ranks, None), of_ranks, restarts_max)
}

fn choose_of(mut complete: Vec<Held>, of_ranks: &[Holdings], restarts_max: u32) -> Choice {
    let highest = of_ranks.iter().map(|rank| rank.highest).max().unwrap_or(0);
    let is_hopeless = |held: &Held| {
        let tried = of_ranks.iter().filter_map(|rank| rank.restarts);
        tried
            .filter(|restarts| restarts.generation == held.generation)
            .any(|restarts| restarts.count >= restarts_max)
    };
    let mut given_up = Vec::new();
    while complete.len() > 1
        && let Some(last) = complete.pop_if(|last| is_hopeless(last))
    {
        given_up.push(last.generation);
    }
    Choice {
        restore: complete.last().copied(),
        given_up,
        next: highest.saturating_add(1),
    }
}

/// The generations that all ranks that saved them have whole, in rising order: of the same step, and saved by so many.
fn complete(of_ranks: &[Holdings], ranks: Option<usize>) -> Vec<Held> {
    let Some(first) = of_ranks.first() else {
        return Vec::new();
    };
    let is_complete = |held: &Held| {
        let savers = of_ranks.get(..held.ranks as usize);
        savers.is_some_and(|savers| !savers.is_empty() && savers.iter().all(|rank| rank.held.contains(held)))
    };
    let mut complete: Vec<Held> = first
        .held
        .iter()
        .filter(|held| ranks.is_none_or(|ranks| held.ranks as usize == ranks))
        .filter(|held| is_complete(held))
        .copied()
        .collect();
    complete.sort_unstable_by_key(|held| held.generation);
    complete
}

/// The newest whole checkpoint of these, if it was saved by another number of ranks than a job has: the saves
/// of that job would not go on from it.
pub fn of_other_ranks(of_ranks: &[Holdings], ranks: u32) -> Option<Held> {
    let newest = of_ranks
        .iter()
        .flat_map(|rank| &rank.held)
        .max_by_key(|held| held.generation);
    newest.filter(|held| held.ranks != ranks).copied()
}

/// Which of a rank's own generations may go: those older than the `keep` newest (two at least) that are complete on all
/// ranks.
pub fn retirable(own: &BTreeSet<u64>, complete: &BTreeSet<u64>, keep: usize) -> Vec<u64> {
    let Some(&oldest_kept) = complete.iter().rev().nth(keep.max(KEEP_MIN) - 1) else {
        return Vec::new();
    };
    own.range(..oldest_kept).copied().collect()
}

/// With one alone, a fault that shows only when it is read would leave nothing.
pub const KEEP_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(ranks: u32, generations: &[u64]) -> Holdings {
        Holdings {
            held: generations
                .iter()
                .map(|&generation| Held {
                    generation,
                    step: generation * 10,
                    ranks,
                })
                .collect(),
            highest: generations.iter().copied().max().unwrap_or(0),
            restarts: None,
        }
    }

    fn restored(of_ranks: &[Holdings]) -> Option<u64> {
        choose(of_ranks, 3).restore.map(|held| held.generation)
    }

    /// The newest that all have is taken, not the newest of anyone.
    #[test]
    fn the_newest_of_all_is_chosen() {
        assert_eq!(restored(&[rank(2, &[3, 4, 5]), rank(2, &[3, 4])]), Some(4));
        assert_eq!(restored(&[rank(2, &[3, 5]), rank(2, &[4, 5])]), Some(5));
        assert_eq!(restored(&[rank(2, &[3]), rank(2, &[4])]), None);
        assert_eq!(restored(&[rank(1, &[7])]), Some(7));
        assert_eq!(restored(&[]), None);
        assert_eq!(choose(&[rank(2, &[3]), rank(2, &[9])], 3).next, 10);
    }

    /// Ranks that saved different steps, or in another number, did not save together.
    #[test]
    fn what_does_not_belong_together_is_not_restored() {
        let mut other = rank(2, &[4, 5]);
        other.held[1].step += 1;
        assert_eq!(restored(&[rank(2, &[4, 5]), other]), Some(4));
        assert_eq!(restored(&[rank(4, &[4, 5]), rank(4, &[4, 5])]), None);
    }

    /// Ranks that can read any save take the newest of which no part is missing, whatever the number that saved it.
    #[test]
    fn any_number_may_have_saved() {
        let both = |four: &[u64], two: &[u64]| {
            let (mut all, other) = (rank(4, four), rank(2, two));
            all.held.extend(other.held);
            all.highest = all.highest.max(other.highest);
            all
        };
        let newest = |of_ranks: &[Holdings]| {
            choose_any(of_ranks, 3)
                .restore
                .map(|held| (held.generation, held.ranks))
        };
        let four = [3, 4].as_slice();
        let others = [rank(4, four), rank(4, four)];
        let all = |first, second| [[first, second].as_slice(), &others].concat();
        assert_eq!(newest(&all(both(four, &[5]), both(four, &[5]))), Some((5, 2)));
        // The second of two ranks has not saved the fifth, or the fourth of four lacks its part.
        assert_eq!(newest(&all(both(four, &[5]), both(four, &[]))), Some((4, 4)));
        assert_eq!(
            newest(&[rank(4, four), rank(4, four), rank(4, four), rank(4, &[3])]),
            Some((3, 4))
        );
        assert_eq!(newest(&[rank(4, four), rank(4, four), rank(4, four)]), None);
        // New ranks have saved nothing yet.
        assert_eq!(
            newest(&[rank(1, &[2]), Holdings::default(), Holdings::default()]),
            Some((2, 1))
        );
        assert_eq!(choose_any(&all(both(four, &[5]), both(four, &[])), 3).next, 6);
        assert_eq!(newest(&[rank(0, &[2])]), None);
        assert_eq!(newest(&[]), None);
    }

    /// A generation from which nobody gets anywhere is given up, but never the last one.
    #[test]
    fn a_generation_that_only_fails_is_given_up() {
        let tried = |generation, count| {
            let restarts = Some(Restarts { generation, count });
            [
                rank(2, &[4, 5]),
                Holdings {
                    restarts,
                    ..rank(2, &[4, 5])
                },
            ]
        };
        assert_eq!(restored(&tried(5, 2)), Some(5));
        let choice = choose(&tried(5, 3), 3);
        assert_eq!(choice.restore.map(|held| held.generation), Some(4));
        assert_eq!(choice.given_up, [5]);
        assert_eq!(restored(&tried(4, 9)), Some(5));
        let alone = Holdings {
            restarts: Some(Restarts {
                generation: 5,
                count: 9,
            }),
            ..rank(1, &[5])
        };
        assert_eq!(restored(&[alone]), Some(5));
    }

    /// Two complete generations are kept whatever is asked, and one that others lack does not count.
    #[test]
    fn retention_counts_complete_generations() {
        let set = |generations: &[u64]| generations.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(retirable(&set(&[1, 2, 3]), &set(&[1, 2, 3]), 0), [1]);
        assert_eq!(retirable(&set(&[1, 2, 3, 4]), &set(&[1, 2]), 2), [0; 0]);
        assert_eq!(retirable(&set(&[1, 2, 3, 4]), &set(&[1, 2, 4]), 2), [1]);
        assert_eq!(retirable(&set(&[1, 2, 3, 4]), &set(&[1, 2, 3, 4]), 3), [1]);
        assert_eq!(retirable(&set(&[]), &set(&[]), 2), [0; 0]);
    }
}
