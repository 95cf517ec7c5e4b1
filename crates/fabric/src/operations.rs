//! The operations in progress at one endpoint, and their deadlines.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{OperationId, PeerId};

/// The event that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The expected message with this tag.
    Expected(u64),
    /// The reply with the operation's own tag.
    Reply,
    /// The end of a `get` or `put`.
    Transfer,
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Too early by the time from the last look at the clock until the next, which begins it.
    pub(crate) deadline: Instant,
    pub(crate) peer: PeerId,
    pub(crate) awaited: Awaited,
}

/// A table whose every use takes the same short time, however many operations there are. Only the deadlines are
/// looked through one by one, when the earliest that there may be has come.
#[derive(Debug)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    live: usize,
    /// None of the deadlines is before this.
    earliest: Option<Instant>,
    /// The operations that were inserted since the clock was looked at.
    untimed: Vec<OperationId>,
    receives: BTreeMap<(PeerId, u64), OperationId>,
    first_generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    operation: Option<Operation>,
    /// The deadline of the one that ended last.
    ended: Option<Instant>,
}

impl Operations {
    /// `instance` should be random: a reply to an earlier endpoint at this address must not fit an operation of
    /// this one.
    pub(crate) fn new(instance: u64) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            live: 0,
            earliest: None,
            untimed: Vec::new(),
            receives: BTreeMap::new(),
            first_generation: instance as u32,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// None of the deadlines is before this.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// The name that the next operation gets.
    pub(crate) fn next_id(&mut self) -> OperationId {
        if self.vacant.is_empty() {
            let index = u32::try_from(self.slots.len()).expect("there are at most operations_max slots");
            self.slots.push(Slot {
                generation: self.first_generation,
                operation: None,
                ended: None,
            });
            self.vacant.push(index);
        }
        let index = *self.vacant.last().expect("one was added");
        OperationId::new(index, self.slots[index as usize].generation)
    }

    /// Adds an operation under the name that [`next_id`](Self::next_id) gave. Returns one whose place it took.
    pub(crate) fn insert(&mut self, operation: Operation) -> (OperationId, Option<OperationId>) {
        let id = self.next_id();
        self.vacant.pop();
        self.live += 1;
        self.slots[id.index()].operation = Some(operation);
        self.untimed.push(id);
        self.earliest = Some(match self.earliest {
            Some(earliest) => earliest.min(operation.deadline),
            None => operation.deadline,
        });
        let replaced = match operation.awaited {
            Awaited::Expected(tag) => self.receives.insert((operation.peer, tag), id),
            Awaited::Reply | Awaited::Transfer => None,
        };
        (id, replaced)
    }

    /// How many wait for [`begin`](Self::begin).
    pub(crate) fn untimed(&self) -> usize {
        self.untimed.len()
    }

    /// Moves the deadlines of what was inserted since this was last called. Returns whether there was anything.
    pub(crate) fn begin(&mut self, late: Duration) -> bool {
        let any = !self.untimed.is_empty();
        for id in self.untimed.drain(..) {
            if let Some(slot) = self.slots.get_mut(id.index())
                && slot.generation == id.generation()
                && let Some(operation) = &mut slot.operation
                && let Some(deadline) = operation.deadline.checked_add(late)
            {
                operation.deadline = deadline;
            }
        }
        any
    }

    /// The deadline of an operation, also of one that has ended, until another has its index.
    pub(crate) fn deadline(&self, id: OperationId) -> Option<Instant> {
        let slot = self.slots.get(id.index())?;
        match &slot.operation {
            Some(operation) => (slot.generation == id.generation()).then_some(operation.deadline),
            None => slot
                .ended
                .filter(|_| slot.generation == id.generation().wrapping_add(1)),
        }
    }

    pub(crate) fn get(&self, id: OperationId) -> Option<&Operation> {
        let slot = self.slots.get(id.index())?;
        slot.operation
            .as_ref()
            .filter(|_| slot.generation == id.generation())
    }

    /// The operation that waits for this message.
    pub(crate) fn receiver(&self, peer: PeerId, tag: u64) -> Option<OperationId> {
        self.receives.get(&(peer, tag)).copied()
    }

    pub(crate) fn remove(&mut self, id: OperationId) -> Option<Operation> {
        let removed = self.end(id)?;
        self.vacate(id);
        Some(removed)
    }

    /// Ends an operation whose index is not used again before [`vacate`](Self::vacate).
    pub(crate) fn end(&mut self, id: OperationId) -> Option<Operation> {
        let removed = *self.get(id)?;
        let slot = &mut self.slots[id.index()];
        slot.operation = None;
        slot.ended = Some(removed.deadline);
        slot.generation = slot.generation.wrapping_add(1);
        self.live -= 1;
        if self.live == 0 {
            self.earliest = None;
        }
        if let Awaited::Expected(tag) = removed.awaited {
            let key = (removed.peer, tag);
            if self.receives.get(&key) == Some(&id) {
                self.receives.remove(&key);
            }
        }
        Some(removed)
    }

    /// Lets the index of an operation that has ended be used again.
    pub(crate) fn vacate(&mut self, id: OperationId) {
        self.vacant.push(id.index);
    }

    /// All operations that `wanted` says.
    pub(crate) fn filter(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<OperationId> {
        let slots = self.slots.iter().enumerate();
        let found = slots.filter(|(_, slot)| slot.operation.as_ref().is_some_and(&wanted));
        found
            .map(|(index, slot)| OperationId::new(index as u32, slot.generation))
            .collect()
    }

    /// The operations whose deadline has come.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<OperationId> {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return Vec::new();
        }
        let overdue = self.filter(|operation| operation.deadline <= now);
        let later = self.slots.iter().filter_map(|slot| slot.operation);
        self.earliest = later
            .map(|operation| operation.deadline)
            .filter(|&deadline| deadline > now)
            .min();
        overdue
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::peer_table::PeerTable;

    fn peer() -> PeerId {
        PeerTable::default().intern(&"tcp://127.0.0.1:1".parse().unwrap())
    }

    proptest! {
        /// Operations end once, by their removal or their deadline, whatever the order; a name that was used is
        /// of no use again.
        #[test]
        fn operations_end_once(steps in vec((0..3u8, 0..50u64), 1..100)) {
            let start = Instant::now();
            let mut operations = Operations::new(7);
            let mut live: Vec<(OperationId, u64)> = Vec::new();
            let mut gone = Vec::new();
            let mut now = 0;
            for (step, number) in steps {
                match step {
                    0 => {
                        let at = now + number;
                        let awaited = if number % 2 == 0 { Awaited::Reply } else { Awaited::Transfer };
                        let deadline = start + Duration::from_millis(at);
                        let expected = operations.next_id();
                        let (id, _) = operations.insert(Operation { deadline, peer: peer(), awaited });
                        prop_assert_eq!(id, expected);
                        live.push((id, at));
                    }
                    1 if !live.is_empty() => {
                        let (id, _) = live.remove(number as usize % live.len());
                        prop_assert!(operations.remove(id).is_some());
                        gone.push(id);
                    }
                    _ => {
                        now += number;
                        let mut overdue = operations.overdue(start + Duration::from_millis(now));
                        overdue.sort();
                        let mut expected: Vec<_> =
                            live.iter().filter(|(_, at)| *at <= now).map(|(id, _)| *id).collect();
                        expected.sort();
                        prop_assert_eq!(&overdue, &expected);
                        for id in overdue {
                            operations.remove(id);
                            gone.push(id);
                        }
                        live.retain(|(_, at)| *at > now);
                    }
                }
                prop_assert_eq!(operations.len(), live.len());
                let earliest = live.iter().map(|(_, at)| start + Duration::from_millis(*at)).min();
                match (operations.earliest(), earliest) {
                    (Some(bound), Some(earliest)) => prop_assert!(bound <= earliest),
                    (bound, earliest) => prop_assert_eq!(bound, earliest),
                }
            }
            for id in gone {
                prop_assert!(operations.get(id).is_none());
            }
        }
    }

    /// The time of an operation begins with the next look at the clock, once; its deadline is known until its index is
    /// used again.
    #[test]
    fn deadlines_follow_the_clock() {
        let start = Instant::now();
        let millis = Duration::from_millis;
        let mut operations = Operations::new(3);
        let operation = Operation {
            deadline: start + millis(10),
            peer: peer(),
            awaited: Awaited::Reply,
        };
        let (first, _) = operations.insert(operation);
        let (second, _) = operations.insert(operation);
        assert!(operations.remove(second).is_some());
        assert_eq!(operations.untimed(), 2);
        assert!(operations.begin(millis(5)) && !operations.begin(millis(7)));
        assert_eq!(operations.deadline(first), Some(start + millis(15)));
        assert_eq!(operations.deadline(second), Some(start + millis(10)));
        assert!(operations.overdue(start + millis(14)).is_empty());
        assert_eq!(operations.overdue(start + millis(15)), [first]);
        let (third, _) = operations.insert(operation);
        assert_eq!(third.index(), second.index());
        assert_eq!(operations.deadline(second), None);
    }

    /// A second receive for the same message takes the place of the first.
    #[test]
    fn the_latest_receive_counts() {
        let mut operations = Operations::new(0);
        let receive = Operation {
            deadline: Instant::now(),
            peer: peer(),
            awaited: Awaited::Expected(5),
        };
        let (first, _) = operations.insert(receive);
        let (second, replaced) = operations.insert(receive);
        assert_eq!(replaced, Some(first));
        assert!(operations.remove(first).is_some());
        assert_eq!(operations.receiver(peer(), 5), Some(second));
        assert!(operations.remove(second).is_some());
        assert_eq!(operations.receiver(peer(), 5), None);
    }
}
