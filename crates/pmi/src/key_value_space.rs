//! The key-value space of a process group: the pairs that its processes tell each other.

use std::collections::BTreeMap;

use bstr::BString;
use thiserror::Error;

use crate::VALUE_SIZE_MAX;

/// The key-value space of one process group, of bounded size.
#[derive(Clone, Debug)]
pub struct KeyValueSpace {
    pairs: BTreeMap<BString, BString>,
    size: usize,
    key_size_max: usize,
}

impl KeyValueSpace {
    /// The most bytes of keys and values together.
    pub const SIZE_MAX: usize = 64 << 20;
    /// The longest value. In a line of PMI-1 there is less room; who asks there for what does not fit is told so.
    pub const VALUE_SIZE_MAX: usize = VALUE_SIZE_MAX;

    /// An empty space for keys of at most `key_size_max` bytes.
    pub fn new(key_size_max: usize) -> Self {
        Self {
            pairs: BTreeMap::new(),
            size: 0,
            key_size_max,
        }
    }

    /// Keeps `value` under `key`; a value that was there before is replaced.
    ///
    /// # Errors
    /// If key, value or the whole would be larger than their limits.
    pub fn put(&mut self, key: BString, value: BString) -> Result<(), PutError> {
        if key.is_empty() || key.len() > self.key_size_max {
            return Err(PutError::KeySize);
        }
        if value.len() > Self::VALUE_SIZE_MAX {
            return Err(PutError::ValueSize);
        }
        let old = self.pairs.get(&key).map_or(0, |old| key.len() + old.len());
        let size = self.size - old + key.len() + value.len();
        if size > Self::SIZE_MAX {
            return Err(PutError::Full);
        }
        self.size = size;
        self.pairs.insert(key, value);
        Ok(())
    }

    /// The value under `key`.
    pub fn value(&self, key: &[u8]) -> Option<&BString> {
        self.pairs.get(bstr::BStr::new(key))
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.pairs.remove_entry(bstr::BStr::new(key));
        self.size -= removed.as_ref().map_or(0, |(key, value)| key.len() + value.len());
        removed.is_some()
    }
}

/// Why a pair was not taken. The texts travel in PMI-1 messages and so hold no spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PutError {
    /// The space has [`KeyValueSpace::SIZE_MAX`] bytes.
    #[error("key_value_space_is_full")]
    Full,
    /// The key is empty or longer than the space allows.
    #[error("key_has_a_wrong_length")]
    KeySize,
    /// The value is longer than [`KeyValueSpace::VALUE_SIZE_MAX`].
    #[error("value_is_too_long")]
    ValueSize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Ours: last write wins"; sizes are kept right across replacement and removal.
    #[test]
    fn the_last_put_wins() {
        let mut space = KeyValueSpace::new(64);
        space.put("k".into(), "first".into()).unwrap();
        space.put("k".into(), "2".into()).unwrap();
        assert_eq!(space.value(b"k"), Some(&"2".into()));
        assert_eq!(space.size, 2);
        assert!(space.remove(b"k") && !space.remove(b"k"));
        assert_eq!(space.size, 0);
    }

    /// A pair that is too large is refused before it takes memory.
    #[test]
    fn sizes_are_bounded() {
        let mut space = KeyValueSpace::new(64);
        let text = |length: usize| BString::from(vec![b'x'; length]);
        assert_eq!(space.put(text(65), text(1)), Err(PutError::KeySize));
        assert_eq!(space.put(text(0), text(1)), Err(PutError::KeySize));
        assert_eq!(space.put(text(64), text(1025)), Err(PutError::ValueSize));
        space.size = KeyValueSpace::SIZE_MAX - 4;
        assert_eq!(space.put("abc".into(), "de".into()), Err(PutError::Full));
        assert_eq!(space.put("abc".into(), "d".into()), Ok(()));
    }
}
