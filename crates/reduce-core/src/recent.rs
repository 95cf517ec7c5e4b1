//! A memory of the last sessions.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Session;

/// Something of each of the last sessions; of those before it is forgotten.
#[derive(Clone, Debug)]
pub struct Recent<V> {
    values: BTreeMap<Session, V>,
    /// The sessions, the oldest first.
    order: VecDeque<Session>,
    most: usize,
}

impl<V> Recent<V> {
    /// Remembers so many sessions, and at least one.
    pub fn new(most: usize) -> Self {
        Self {
            values: BTreeMap::new(),
            order: VecDeque::new(),
            most: most.max(1),
        }
    }

    /// Remembers this of a session, if nothing is known of it. Returns what is known.
    pub fn insert(&mut self, session: Session, value: V) -> &mut V {
        if !self.values.contains_key(&session) {
            if self.order.len() == self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.values.remove(&oldest);
            }
            self.order.push_back(session);
        }
        self.values.entry(session).or_insert(value)
    }

    /// The value of a session that is remembered.
    pub fn get(&self, session: &Session) -> Option<&V> {
        self.values.get(session)
    }

    /// Says if something is known of a session.
    pub fn contains(&self, session: &Session) -> bool {
        self.values.contains_key(session)
    }

    /// All that is known, by sessions.
    pub fn iter(&self) -> impl Iterator<Item = (&Session, &V)> {
        self.values.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest is forgotten, whatever the groups are, and what came first stays.
    #[test]
    fn the_oldest_is_forgotten() {
        let session = |group, call| Session { group, call };
        let mut recent = Recent::new(2);
        recent.insert(session(9, 0), 'a');
        recent.insert(session(1, 7), 'b');
        assert_eq!(*recent.insert(session(9, 0), 'c'), 'a');
        recent.insert(session(1, 8), 'd');
        assert_eq!(recent.get(&session(9, 0)), None);
        assert!(recent.contains(&session(1, 7)) && recent.contains(&session(1, 8)));
        assert_eq!(recent.iter().count(), 2);
    }
}
