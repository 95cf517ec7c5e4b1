//! The messages that ranks have sent here: each is heard once, and after those before it, on whichever roads they came.

use std::collections::BTreeMap;

use ropewalk_fabric::Identity;
use ropewalk_names::{Incarnation, Rank};

use super::UNDER_WAY_MAX;
use crate::message::Batch;

/// The messages of one kind that each rank has sent.
pub(in crate::driver) struct InOrder<M>(BTreeMap<(Rank, Incarnation), Sender<M>>);

struct Sender<M> {
    /// The number of the last message that was taken.
    last: u64,
    /// Batches that have overtaken others, by the numbers of their first messages.
    early: BTreeMap<u64, Batch<M>>,
}

impl<M> InOrder<M> {
    /// Returns the messages that can be heard now: of several with one number the first counts.
    pub(in crate::driver) fn take(&mut self, from: Identity, batch: Batch<M>) -> Vec<M> {
        let Some(first) = batch.messages.first() else {
            return Vec::new();
        };
        let sender = self.0.entry((from.rank, from.incarnation)).or_default();
        sender.early.insert(first.number, batch);
        let mut fresh = Vec::new();
        let is_next = |last: u64| move |(_, batch): &(&u64, &Batch<M>)| batch.after <= last;
        while let Some((&at, _)) = sender.early.iter().find(is_next(sender.last)) {
            let next = sender.early.remove(&at).into_iter();
            for numbered in next.flat_map(|batch| batch.messages) {
                if numbered.number > sender.last {
                    sender.last = numbered.number;
                    fresh.push(numbered.message);
                }
            }
        }
        let last = sender.last;
        let is_late = |batch: &Batch<M>| batch.messages.last().is_none_or(|message| message.number <= last);
        sender.early.retain(|_, batch| !is_late(batch));
        // No rank has more under way.
        while sender.early.len() > UNDER_WAY_MAX {
            sender.early.pop_last();
        }
        fresh
    }
}

impl<M> Default for InOrder<M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<M> Default for Sender<M> {
    fn default() -> Self {
        Self {
            last: 0,
            early: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_fabric::Role;

    use super::*;
    use crate::message::Numbered;

    fn from(incarnation: u32) -> Identity {
        Identity {
            role: Role::Rank,
            rank: Rank(3),
            incarnation: Incarnation(incarnation),
        }
    }

    fn batch(after: u64, numbers: &[u64]) -> Batch<u64> {
        let numbered = numbers.iter().map(|&number| Numbered {
            number,
            message: number,
        });
        Batch {
            after,
            messages: numbered.collect(),
        }
    }

    /// A message that comes by two roads counts once, and none that is late gets before one that came after it.
    #[test]
    fn messages_are_taken_once() {
        let mut taken = InOrder::default();
        assert_eq!(taken.take(from(0), batch(0, &[2, 5])), [2, 5]);
        assert_eq!(taken.take(from(0), batch(0, &[2, 5, 6])), [6]);
        assert_eq!(taken.take(from(0), batch(0, &[5])), []);
        assert_eq!(taken.take(from(1), batch(0, &[1])), [1]);
    }

    /// A batch that has overtaken others waits for them.
    #[test]
    fn batches_wait_for_those_before() {
        let mut taken = InOrder::default();
        assert_eq!(taken.take(from(0), batch(4, &[6, 7])), []);
        assert_eq!(taken.take(from(0), batch(2, &[4])), []);
        assert_eq!(taken.take(from(0), batch(0, &[2])), [2, 4, 6, 7]);
        assert_eq!(taken.take(from(0), batch(9, &[12])), []);
        // The sender has called its batches back, and sends all again.
        assert_eq!(taken.take(from(0), batch(0, &[9, 12, 13])), [9, 12, 13]);
        assert_eq!(taken.take(from(0), batch(0, &[14])), [14]);
    }

    proptest! {
        /// In whatever order batches come, and however often, all messages are heard in their order.
        #[test]
        fn all_are_heard_in_their_order(
            sizes in prop::collection::vec(1_usize..4, 1..5),
            arrivals in prop::collection::vec(0_usize..5, 0..20),
        ) {
            let mut sent = Vec::new();
            let mut last = 0;
            for size in &sizes {
                let numbers: Vec<u64> = (last + 1..).take(*size).collect();
                sent.push((last, numbers.clone()));
                last += *size as u64;
            }
            let mut taken = InOrder::default();
            let all = arrivals.into_iter().map(|at| at % sent.len()).chain(0..sent.len());
            let mut heard = Vec::new();
            for at in all {
                let (after, numbers) = &sent[at];
                heard.extend(taken.take(from(0), batch(*after, numbers)));
            }
            prop_assert_eq!(heard, (1..=last).collect::<Vec<_>>());
        }
    }
}
