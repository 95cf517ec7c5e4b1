//! The memory that is kept for ranks.

use std::collections::BTreeMap;

use ropewalk_names::{Held, HoldId, Rank, RegionHandle};
use thiserror::Error;

/// The memory that the ranks of a host have handed over.
#[derive(Debug)]
pub(super) struct Holdings {
    held: BTreeMap<(Rank, HoldId), Holding>,
    /// The bytes that earlier lives of ranks have left, and where they are served.
    left: BTreeMap<Rank, u64>,
    served: BTreeMap<Rank, Vec<RegionHandle>>,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct Holding {
    label: Vec<u8>,
    size: u64,
}

/// Why memory is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum HoldRefusal {
    #[error("memory is held already under the number {}", id.0)]
    IdTaken { id: HoldId },
    #[error("a label of {size} bytes for held memory is too long")]
    LabelTooLong { size: usize },
    #[error("asked to hold memory without handing over a memfd that only its rank writes")]
    NoMemory,
    #[error("{size} bytes more than the {held} held already would be over the limit of {max}")]
    TooLarge { size: u64, held: u64, max: u64 },
    #[error("{} pieces of memory are held already", Holdings::PIECES_MAX)]
    TooMany,
}

impl Holdings {
    /// How many pieces of memory are kept for the ranks of one host: the kernel lets a process map 65,530.
    const PIECES_MAX: usize = 1 << 15;

    /// Nothing yet, and at most `bytes_max` bytes later.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            held: BTreeMap::new(),
            left: BTreeMap::new(),
            served: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Keeps memory for a rank. `memory` is its size, if some came that nobody else can write.
    pub(super) fn hold(&mut self, rank: Rank, held: Held, memory: Option<u64>) -> Result<(), HoldRefusal> {
        let Held { id, label } = held;
        let size = memory.ok_or(HoldRefusal::NoMemory)?;
        if self.held.len() >= Self::PIECES_MAX {
            return Err(HoldRefusal::TooMany);
        }
        if size > self.bytes_max - self.bytes {
            return Err(HoldRefusal::TooLarge {
                size,
                held: self.bytes,
                max: self.bytes_max,
            });
        }
        if label.len() > Held::LABEL_SIZE_MAX {
            return Err(HoldRefusal::LabelTooLong { size: label.len() });
        }
        if self.held.contains_key(&(rank, id)) {
            return Err(HoldRefusal::IdTaken { id });
        }
        self.held.insert((rank, id), Holding { label, size });
        self.bytes += size;
        Ok(())
    }

    /// Lets go of a piece. Whether there was one.
    pub(super) fn release(&mut self, rank: Rank, id: HoldId) -> bool {
        let released = self.held.remove(&(rank, id));
        self.bytes -= released.as_ref().map_or(0, |holding| holding.size);
        released.is_some()
    }

    /// All that a rank has handed over.
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = Held> {
        let all_of_rank = (rank, HoldId(u64::MIN))..=(rank, HoldId(u64::MAX));
        self.held.range(all_of_rank).map(|(&(_, id), holding)| {
            let label = holding.label.clone();
            Held { id, label }
        })
    }

    /// Frees the numbers of a rank that is gone for its next life. The memory is served, and counts, as before.
    pub(super) fn disown(&mut self, rank: Rank) {
        let left = self.left.entry(rank).or_default();
        self.held.retain(|&(owner, _), holding| {
            *left += if owner == rank { holding.size } else { 0 };
            owner != rank
        });
    }

    /// Memory of a rank that is gone is served under this handle.
    pub(super) fn note_served(&mut self, rank: Rank, handle: RegionHandle) {
        self.served.entry(rank).or_default().push(handle);
    }

    /// Nobody needs any more what earlier lives of a rank have left. Returns where that is served.
    pub(super) fn forget_left(&mut self, rank: Rank) -> Vec<RegionHandle> {
        self.bytes -= self.left.remove(&rank).unwrap_or_default();
        self.served.remove(&rank).unwrap_or_default()
    }
}
