//! The memory of a contribution: not written while the reduction lasts, and kept by the agent too.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use ropewalk_fabric::{AgentLink, AgentLinkError, HoldId, LabelledMemfd, ToAgent, memfd::WritableMemfd};

use super::lent_memory::LentMemory;

/// Memory of earlier contributions that is free again. To write new pages takes several times as long as to write old
/// ones, and to have the agent hold memory anew wakes that.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareMemory(Arc<Spare>);

#[derive(Debug, Default)]
struct Spare {
    pieces: Mutex<Vec<Piece>>,
    /// The agent that holds short memory.
    link: Option<Arc<AgentLink>>,
    /// The names of short memory that is gone, and of which the agent had no room to hear.
    unreleased: Mutex<Vec<HoldId>>,
}

/// Memory that has room for a contribution.
#[derive(Debug)]
enum Piece {
    /// The agent holds it as long as it lives, and its label says which contribution is in it.
    Short(LabelledMemfd, Arc<StandingHold>),
    /// The agent is asked to hold each contribution.
    Long(WritableMemfd),
}

/// How the agent knows short memory.
#[derive(Debug, Default)]
pub(super) struct StandingHold {
    /// Its name, once it was offered.
    id: OnceLock<HoldId>,
    /// The agent was told of it.
    is_held: AtomicBool,
}

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
    piece: Option<Piece>,
    length: usize,
    spare: SpareMemory,
}

impl SpareMemory {
    /// How many bytes are kept for later.
    const BYTES_MAX: usize = 256 << 20;
    /// How many pieces of memory are kept for later.
    const PIECES_MAX: usize = 16;

    /// None yet; an agent at `link` holds what is short.
    pub(super) fn new(link: Option<Arc<AgentLink>>) -> Self {
        let mut spare = Spare::default();
        spare.link = link;
        Self(Arc::new(spare))
    }

    /// The smallest memory that has room for `length` bytes without wasting more than half of it.
    fn take(&self, length: usize) -> Option<Piece> {
        let mut spare = lock(&self.0.pieces);
        let fits = |piece: &Piece| (length..=capacity(length) * 2).contains(&piece.len());
        let fitting = spare.iter().enumerate().filter(|(_, piece)| fits(piece));
        let best = fitting.min_by_key(|(_, piece)| piece.len());
        let at = best.map(|(at, _)| at)?;
        Some(spare.remove(at))
    }

    /// Keeps memory for later, and lets go of the oldest that is too much.
    fn give_back(&self, piece: Piece) {
        let mut spare = lock(&self.0.pieces);
        spare.push(piece);
        let mut gone = Vec::new();
        while spare.len() > Self::PIECES_MAX
            || spare.iter().map(|piece| piece.len()).sum::<usize>() > Self::BYTES_MAX
        {
            gone.push(spare.remove(0));
        }
        drop(spare);
        self.0.release(&gone);
    }
}

impl Spare {
    /// Tells the agent that it need not hold these any more, and others of which it had no room to hear.
    fn release(&self, gone: &[Piece]) {
        let mut unreleased = lock(&self.unreleased);
        unreleased.extend(gone.iter().filter_map(Piece::held));
        let Some(link) = &self.link else { return };
        unreleased.retain(|id| {
            let sent = link.send(&ToAgent::Release(*id), None);
            matches!(sent, Err(AgentLinkError::Full))
        });
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut *lock(&self.pieces));
        self.release(&pieces);
    }
}

impl Piece {
    /// The largest contribution for which memory is held for good, in bytes.
    const SHORT_MAX: usize = 64 << 10;

    /// New memory, with a copy of the data.
    fn with(data: &[u8]) -> io::Result<Self> {
        let (name, capacity) = ("ropewalk-contribution", capacity(data.len()));
        Ok(match data.len() <= Self::SHORT_MAX {
            true => Self::Short(LabelledMemfd::with(name, data, capacity)?, Arc::default()),
            false => Self::Long(WritableMemfd::with(name, &[data], capacity)?),
        })
    }

    /// Its name, if the agent holds it for good.
    fn held(&self) -> Option<HoldId> {
        match self {
            Self::Short(_, hold) if hold.is_held() => hold.id.get().copied(),
            _ => None,
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(memory, _) => memory,
            Self::Long(memory) => memory,
        }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short(memory, _) => memory,
            Self::Long(memory) => memory,
        }
    }
}

impl StandingHold {
    /// The name of the memory, which is this one if it has none.
    pub(super) fn name(&self, name: impl FnOnce() -> HoldId) -> HoldId {
        *self.id.get_or_init(name)
    }

    /// The agent holds the memory.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// The agent was told of the memory.
    pub(super) fn note_held(&self) {
        self.is_held.store(true, Ordering::Release);
    }
}

impl ContributionMemory {
    /// Copies `data`.
    pub(super) fn new(spare: &SpareMemory, data: &[u8]) -> io::Result<Self> {
        let length = data.len();
        let piece = match spare.take(length) {
            Some(mut piece) => {
                piece[..length].copy_from_slice(data);
                piece
            }
            None => Piece::with(data)?,
        };
        Ok(Self::Copied(CopiedMemory {
            piece: Some(piece),
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
            Self::Copied(copied) => copied.piece.as_ref().map(|piece| match piece {
                Piece::Short(memory, _) => memory.as_fd(),
                Piece::Long(memory) => memory.as_fd(),
            }),
            Self::Lent(memory) => Some(memory.as_fd()),
        }
    }

    /// From now on short memory says that this contribution is in it. Returns how the agent knows the memory; `None` if
    /// it is not short.
    pub(super) fn set_label(&mut self, label: &[u8]) -> Option<&Arc<StandingHold>> {
        match self {
            Self::Copied(CopiedMemory {
                piece: Some(Piece::Short(memory, hold)),
                ..
            }) => {
                memory.set_label(label);
                Some(hold)
            }
            _ => None,
        }
    }
}

impl AsRef<[u8]> for CopiedMemory {
    fn as_ref(&self) -> &[u8] {
        let piece = self.piece.as_ref();
        piece.map_or(&[], |piece| &piece[..self.length])
    }
}

impl Drop for CopiedMemory {
    fn drop(&mut self) {
        if let Some(mut piece) = self.piece.take() {
            if let Piece::Short(memory, _) = &mut piece {
                memory.clear_label();
            }
            self.spare.give_back(piece);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(lock(&spare.0.pieces).len(), 2);
        let many: Vec<_> = (0..SpareMemory::PIECES_MAX + 5)
            .map(|_| contribute(&spare, &[1; 10]))
            .collect();
        drop(many);
        assert_eq!(lock(&spare.0.pieces).len(), SpareMemory::PIECES_MAX);
    }
}
