//! Messages that wait for others to the same peer, to go with them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::ConnectionId;

/// The connections on which one such message waits, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    /// When it is sent at the latest; `None` until somebody looks at the clock.
    due: BTreeMap<ConnectionId, Option<Instant>>,
}

impl Delayed {
    /// So long a message waits.
    const DELAY: Duration = Duration::from_millis(2);

    /// A message waits on a connection.
    pub(super) fn note(&mut self, id: ConnectionId) {
        self.due.insert(id, None);
    }

    /// A connection's message is sent, or will never be.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.due.remove(&id);
    }

    /// When the next message has waited for long enough, if it is this time now.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due.values_mut();
        due.map(|due| *due.get_or_insert(now + Self::DELAY)).min()
    }

    /// The connections on which a message has waited for long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ConnectionId> {
        let mut over = Vec::new();
        self.due.retain(|id, due| {
            let is_over = *due.get_or_insert(now + Self::DELAY) <= now;
            over.extend(is_over.then_some(*id));
            !is_over
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message waits for so long from the first look at the clock on.
    #[test]
    fn one_message_waits_for_so_long() {
        let (mut delayed, now) = (Delayed::default(), Instant::now());
        let [first, second] = [ConnectionId(1), ConnectionId(2)];
        delayed.note(first);
        assert_eq!(delayed.next_due(now), Some(now + Delayed::DELAY));
        let later = now + Delayed::DELAY / 2;
        delayed.note(second);
        assert_eq!(delayed.take_due(later), []);
        assert_eq!(delayed.take_due(now + Delayed::DELAY), [first]);
        assert_eq!(delayed.next_due(now), Some(later + Delayed::DELAY));
        delayed.forget(second);
        assert_eq!(delayed.next_due(now), None);
    }
}
