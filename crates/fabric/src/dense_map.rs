//! A map by keys that are small numbers.

/// A key with a small number of its own, which another key may get once this one is gone.
pub(crate) trait DenseKey: Copy + Eq {
    /// No two keys that are in one map at the same time have the same.
    fn index(self) -> usize;
}

/// A map in which to look something up is one look into a vector: what is done for every message needs that.
#[derive(Debug)]
pub(crate) struct DenseMap<K, V> {
    places: Vec<Option<(K, V)>>,
    count: usize,
}

impl<K: DenseKey, V> DenseMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            count: 0,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// An index that no key of the map has. It takes time in proportion to the map.
    pub(crate) fn vacant_index(&self) -> usize {
        let vacant = self.places.iter().position(Option::is_none);
        vacant.unwrap_or(self.places.len())
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (known, value) = self.places.get(key.index())?.as_ref()?;
        (known == key).then_some(value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (known, value) = self.places.get_mut(key.index())?.as_mut()?;
        (known == key).then_some(value)
    }

    /// Adds a value, or replaces that of the same key.
    ///
    /// # Panics
    /// If another key has the same index.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let index = key.index();
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        match self.places[index].replace((key, value)) {
            Some((replaced, _)) => assert!(replaced == key, "an index is free before another key has it"),
            None => self.count += 1,
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.get_mut(key.index())?;
        let (_, value) = place.take_if(|(known, _)| known == key)?;
        self.count -= 1;
        Some(value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.places.iter().flatten().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.places.iter_mut().flatten().map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// An index and a generation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(u8, u8);

    impl DenseKey for Key {
        fn index(self) -> usize {
            self.0.into()
        }
    }

    proptest! {
        /// It holds what an ordinary map holds, and an old key finds nothing of the new one with its index.
        #[test]
        fn is_a_map(steps in vec((any::<bool>(), 0..8u8, 0..3u8), 1..100)) {
            let mut dense = DenseMap::new();
            let mut map = BTreeMap::new();
            for (number, (insert, index, generation)) in steps.into_iter().enumerate() {
                let key = Key(index, generation);
                let taken = map.keys().any(|other: &Key| other.0 == index && *other != key);
                if insert && !taken {
                    dense.insert(key, number);
                    map.insert(key, number);
                } else {
                    prop_assert_eq!(dense.remove(&key), map.remove(&key));
                }
                prop_assert_eq!(dense.get(&key), map.get(&key));
                prop_assert_eq!(dense.get_mut(&key).copied(), map.get(&key).copied());
                prop_assert_eq!(dense.contains_key(&key), map.contains_key(&key));
                prop_assert_eq!(dense.len(), map.len());
                prop_assert!(map.keys().all(|key| key.index() != dense.vacant_index()));
                prop_assert!(dense.values().eq(map.values()));
                prop_assert!(dense.iter_mut().map(|(key, value)| (key, *value)).eq(map.clone()));
            }
        }
    }
}
