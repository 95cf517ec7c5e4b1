//! The parts that every agent has to have, whatever its job is.

use std::io;

use rustix::process::Rlimit;

use super::{limits::raise_descriptor_limit, memory_kills::MemoryKills};
use crate::driver::{descendants, keeper::KeeperLine, process::Slots, signals::ChildSignals};

/// Made while the process that started the agent still prepares the bootstrap, unless the agent is a fork,
/// which knows its position.
pub(in crate::driver) struct Preparation {
    pub(super) slots: Slots,
    pub(super) keeper: KeeperLine,
    pub(super) descriptors: Rlimit,
    pub(super) children: ChildSignals,
    pub(super) memory_kills: MemoryKills,
}

impl Preparation {
    pub(in crate::driver) fn make(slots: Slots, keeper: KeeperLine) -> io::Result<Self> {
        descendants::adopt_orphans();
        Ok(Self {
            slots,
            keeper,
            descriptors: raise_descriptor_limit(),
            children: ChildSignals::listen()?,
            memory_kills: MemoryKills::watch(),
        })
    }
}
