//! The memory of a contribution: not written while the reduction lasts, and kept by the agent too.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use ropewalk_fabric::memfd::WritableMemfd;

use super::lent_memory::LentMemory;

/// Memory of earlier contributions that is free again. To write new pages takes several times as long as to write old
/// ones.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareMemory(Arc<Mutex<Vec<WritableMemfd>>>);

/// A contribution's data, in memory that outlives its process.
#[derive(Debug)]
pub(super) enum ContributionMemory {
    /// A copy of the caller's data.
    Copied(CopiedMemory),
    /// The caller's [buffer](crate::Buffer) itself.
    Lent(LentMemory),
}

/// A copy of a contribution's data.
#[derive(Debug)]
pub(super) struct CopiedMemory {
    /// `None` once it was given back.
    memory: Option<WritableMemfd>,
    length: usize,
    spare: SpareMemory,
}

impl SpareMemory {
    /// How many bytes are kept for later.
    const BYTES_MAX: usize = 256 << 20;
    /// How many pieces of memory are kept for later.
    const PIECES_MAX: usize = 16;

    /// The smallest memory that has room for `length` bytes without wasting more than half of it.
    fn take(&self, length: usize) -> Option<WritableMemfd> {
        let mut spare = self.lock();
        let fits = |memory: &WritableMemfd| (length..=capacity(length) * 2).contains(&memory.len());
        let fitting = spare.iter().enumerate().filter(|(_, memory)| fits(memory));
        let best = fitting.min_by_key(|(_, memory)| memory.len());
        let at = best.map(|(at, _)| at)?;
        Some(spare.remove(at))
    }

    /// Keeps memory for later, and lets go of the oldest that is too much.
    fn give_back(&self, memory: WritableMemfd) {
        let mut spare = self.lock();
        spare.push(memory);
        while spare.len() > Self::PIECES_MAX
            || spare.iter().map(|memory| memory.len()).sum::<usize>() > Self::BYTES_MAX
        {
            spare.remove(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WritableMemfd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContributionMemory {
    /// Copies `data`.
    pub(super) fn new(spare: &SpareMemory, data: &[u8]) -> io::Result<Self> {
        let length = data.len();
        let memory = match spare.take(length) {
            Some(mut memory) => {
                memory[..length].copy_from_slice(data);
                memory
            }
            None => WritableMemfd::with("ropewalk-contribution", &[data], capacity(length))?,
        };
        Ok(Self::Copied(CopiedMemory {
            memory: Some(memory),
            length,
            spare: spare.clone(),
        }))
    }

    /// The data. When nobody needs them any more the memory takes another contribution, or goes back to the caller.
    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Copied(memory) => Bytes::from_owner(memory),
            Self::Lent(memory) => Bytes::from_owner(memory),
        }
    }

    /// Bytes of the data.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Copied(memory) => memory.length,
            Self::Lent(memory) => memory.as_ref().len(),
        }
    }

    /// The memory, for the agent.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Copied(copied) => copied.memory.as_ref().map(AsFd::as_fd),
            Self::Lent(memory) => Some(memory.as_fd()),
        }
    }
}

impl AsRef<[u8]> for CopiedMemory {
    fn as_ref(&self) -> &[u8] {
        let memory = self.memory.as_ref();
        memory.map_or(&[], |memory| &memory[..self.length])
    }
}

impl Drop for CopiedMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.spare.give_back(memory);
        }
    }
}

/// The length of the memory for a contribution: whole pages, so that one of about the same length can use it again.
fn capacity(length: usize) -> usize {
    length.max(1).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contribute(spare: &SpareMemory, data: &[u8]) -> Bytes {
        ContributionMemory::new(spare, data).unwrap().into_bytes()
    }

    /// Memory is used again once nobody needs what was in it, and not before.
    #[test]
    fn memory_is_used_again_when_it_is_free() {
        let spare = SpareMemory::default();
        let first = contribute(&spare, &[1; 10_000]);
        let part = first.slice(5000..);
        drop(first);
        let second = contribute(&spare, &[2; 10_000]);
        assert_ne!(second.as_ptr(), part.as_ptr().wrapping_sub(5000));
        assert!(part.iter().all(|&byte| byte == 1));
        let place = second.as_ptr();
        drop(second);
        let third = contribute(&spare, &[3; 9_000]);
        assert_eq!((third.as_ptr(), third.len()), (place, 9_000));
        assert!(third.iter().all(|&byte| byte == 3));
    }

    /// Little is not put where much has room, and only so much is kept.
    #[test]
    fn what_is_kept_is_bounded() {
        let spare = SpareMemory::default();
        drop(contribute(&spare, &[1; 100_000]));
        drop(contribute(&spare, &[1; 10]));
        assert_eq!(spare.lock().len(), 2);
        let many: Vec<_> = (0..SpareMemory::PIECES_MAX + 5)
            .map(|_| contribute(&spare, &[1; 10]))
            .collect();
        drop(many);
        assert_eq!(spare.lock().len(), SpareMemory::PIECES_MAX);
    }
}
