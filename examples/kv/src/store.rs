//! The server's store of keys and values.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use ropewalk_rpc::RegionHandle;

use crate::{ListPage, Listed, Refusal, protocol::KEY_SIZE_MAX};

/// Keys and values, and how much room is left.
pub(crate) struct Store {
    entries: BTreeMap<String, Entry>,
    /// Bytes of keys and values that are here or on their way.
    used: u64,
    limit: u64,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Exposed, so that clients pull it from where it lies.
    Exposed(RegionHandle),
    Inline(Bytes),
}

impl Store {
    /// The approximate overhead of each key, in bytes, beside its own bytes and those of its value.
    const ENTRY_SIZE: u64 = 128;

    pub(crate) fn new(limit: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            used: 0,
            limit,
        }
    }

    /// Makes room for a value before it comes; [`give_up`](Self::give_up) takes that back.
    pub(crate) fn reserve(&mut self, key: &str, length: u64) -> Result<(), Refusal> {
        if key.len() > KEY_SIZE_MAX {
            let length = key.len() as u64;
            return Err(Refusal::KeyTooLong { length });
        }
        let free = self.limit.saturating_sub(self.used);
        let needed = size(key, length);
        if needed > free {
            return Err(Refusal::Full { needed, free });
        }
        self.used += needed;
        Ok(())
    }

    /// The value that room was made for does not come.
    pub(crate) fn give_up(&mut self, key: &str, length: u64) {
        self.used -= size(key, length);
    }

    /// Stores a value that room was made for. Returns what it replaces.
    pub(crate) fn insert(&mut self, key: String, entry: Entry) -> Option<Entry> {
        let replaced = self.remove(&key);
        self.entries.insert(key, entry);
        replaced
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let removed = self.entries.remove(key)?;
        self.used -= size(key, removed.length());
        Some(removed)
    }

    pub(crate) fn list(&self, page: &ListPage) -> Vec<Listed> {
        let first = match &page.after {
            Some(after) if *after >= page.prefix => Bound::Excluded(after),
            _ => Bound::Included(&page.prefix),
        };
        let entries = self.entries.range::<String, _>((first, Bound::Unbounded));
        entries
            .take_while(|(key, _)| key.starts_with(&page.prefix))
            .take(ListPage::LENGTH_MAX)
            .map(|(key, entry)| Listed {
                key: key.clone(),
                length: entry.length(),
            })
            .collect()
    }
}

impl Entry {
    fn length(&self) -> u64 {
        match self {
            Self::Exposed(handle) => handle.length,
            Self::Inline(value) => value.len() as u64,
        }
    }
}

fn size(key: &str, length: u64) -> u64 {
    (key.len() as u64)
        .saturating_add(length)
        .saturating_add(Store::ENTRY_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut Store, key: &str, length: usize) -> Result<Option<Entry>, Refusal> {
        store.reserve(key, length as u64)?;
        Ok(store.insert(key.to_owned(), Entry::Inline(vec![0; length].into())))
    }

    /// Room is that of the values that are there or on their way; what is replaced or removed gives its back.
    #[test]
    fn room_is_counted() {
        let mut store = Store::new(1000);
        assert_eq!(put(&mut store, "a", 500), Ok(None));
        assert!(matches!(
            put(&mut store, "b", 500),
            Err(Refusal::Full { free: 371, .. })
        ));
        assert!(put(&mut store, "a", 100).unwrap().is_some());
        assert!(store.reserve("c", 500).is_ok());
        assert!(put(&mut store, "b", 100).is_err());
        store.give_up("c", 500);
        assert_eq!(put(&mut store, "b", 100), Ok(None));
        assert!(store.remove("a").is_some() && store.remove("b").is_some() && store.remove("b").is_none());
        assert_eq!(store.used, 0);
        let long = "k".repeat(KEY_SIZE_MAX + 1);
        assert!(matches!(store.reserve(&long, 0), Err(Refusal::KeyTooLong { .. })));
        assert!(matches!(store.reserve("a", u64::MAX), Err(Refusal::Full { .. })));
    }

    /// Pages put together are all keys with the prefix, in order.
    #[test]
    fn pages_are_all_keys() {
        let mut store = Store::new(u64::MAX);
        for number in 0..2500 {
            put(&mut store, &format!("x{number:04}"), 1).unwrap();
        }
        put(&mut store, "w", 1).unwrap();
        put(&mut store, "y", 1).unwrap();
        let mut page = ListPage {
            prefix: "x".to_owned(),
            after: Some("a".to_owned()),
        };
        let mut keys = Vec::new();
        loop {
            let listed = store.list(&page);
            let is_last = listed.len() < ListPage::LENGTH_MAX;
            keys.extend(listed.into_iter().map(|listed| listed.key));
            page.after = keys.last().cloned();
            if is_last {
                break;
            }
        }
        assert!(
            keys.into_iter()
                .eq((0..2500).map(|number| format!("x{number:04}")))
        );
    }
}
