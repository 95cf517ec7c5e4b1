//! The word by which the owner of memory knows that a peer is writing it.

use std::sync::{Arc, atomic::AtomicU64};

use crate::memfd::SharedMapping;

/// One word of what the two ends of a connection share: one end says there which region it is writing, the other
/// looks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WritingWord {
    mapping: Arc<SharedMapping>,
    offset: usize,
}

impl WritingWord {
    /// The word at `offset` of a mapping that is mapped for writing. Nothing if it is not inside it, or not at a
    /// multiple of 8.
    pub(crate) fn new(mapping: Arc<SharedMapping>, offset: usize) -> Option<Self> {
        let end = offset.checked_add(size_of::<AtomicU64>())?;
        (end <= mapping.length() && offset.is_multiple_of(align_of::<AtomicU64>()))
            .then_some(Self { mapping, offset })
    }

    pub(super) fn word(&self) -> &AtomicU64 {
        // SAFETY: `new` has checked that the word is inside the mapping and aligned, and `self` keeps it mapped. It is
        // accessed by atomics only.
        unsafe { AtomicU64::from_ptr(self.mapping.start().as_ptr().add(self.offset).cast()) }
    }
}
