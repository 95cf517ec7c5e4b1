//! The processors of a host, and what they are part of.

use std::collections::BTreeMap;

use super::{CacheKind, Part};

/// A logical processor of a host, and what it is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The kernel's number of it.
    pub number: u32,
    /// The number of its socket.
    pub socket: u32,
    /// Unique in its socket; `None` if nothing is known of dies.
    pub die: Option<u32>,
    /// The memory node.
    pub numa: u32,
    /// Unique in its socket, die and memory node.
    pub core: u32,
    /// Each kind with the first of the processors that share it.
    pub caches: BTreeMap<CacheKind, u32>,
}

/// Which of its kind a part of a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity([u32; 4]);

impl Processor {
    /// Of which part of this kind it is; `None` if of none.
    pub(super) fn part(&self, part: Part) -> Option<Identity> {
        Some(Identity(match part {
            Part::Cache(kind) => [*self.caches.get(&kind)?, 0, 0, 0],
            Part::Core => [self.socket, self.die.unwrap_or(0), self.numa, self.core],
            Part::Die => [self.socket, self.die?, 0, 0],
            Part::HardwareThread => [self.number, 0, 0, 0],
            Part::Machine => [0; 4],
            Part::Numa => [self.numa, 0, 0, 0],
            Part::Socket => [self.socket, 0, 0, 0],
        }))
    }
}

/// In the order in which hwloc numbers them: what is in one part of the host is side by side, and of parts
/// the one with the lowest processor comes first.
pub(super) fn in_order(processors: &[Processor]) -> Vec<Processor> {
    let caches = (1..=CACHE_LEVELS).rev().map(|level| {
        Part::Cache(CacheKind {
            level,
            is_instruction: false,
        })
    });
    let outer_first = [Part::Socket, Part::Die, Part::Numa].into_iter();
    let outer_first: Vec<_> = outer_first.chain(caches).chain([Part::Core]).collect();
    let mut lowest = BTreeMap::new();
    for processor in processors {
        for (index, &part) in outer_first.iter().enumerate() {
            let number = lowest
                .entry((index, processor.part(part)))
                .or_insert(processor.number);
            *number = processor.number.min(*number);
        }
    }
    let mut processors = processors.to_vec();
    processors.sort_by_cached_key(|processor| {
        let parts = outer_first.iter().enumerate();
        let around: Vec<_> = parts
            .map(|(index, &part)| lowest.get(&(index, processor.part(part))).copied())
            .collect();
        (around, processor.number)
    });
    processors
}

const CACHE_LEVELS: u8 = 5;
