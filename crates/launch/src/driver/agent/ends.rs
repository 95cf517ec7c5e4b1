//! The ends of a host's ranks.

use std::time::{Duration, Instant};

use ropewalk_launch_core::{MemoryShortage, mpi::open_mpi_job};
use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use rustix::process::Pid;

use super::{memory_kills::MemoryKills, starting::StartKit, sweep::Sweep};
use crate::driver::{mpi_programs, shared_memory::Killed, signals::ChildSignals};

const SIGKILL: i32 = 9;
/// A process that dies closes its descriptors first. What others do when they hear of that, such as giving up too, is
/// not to be seen before its death, or they would be blamed for it: so it is waited for that long.
const DEATH: Duration = Duration::from_millis(20);

/// The ends of processes, and what they leave behind.
pub(super) struct Ends {
    pub(super) children: ChildSignals,
    /// Ranks that have closed their PMI connections, and until when it is waited for their deaths.
    closing: Vec<(Rank, Instant)>,
    memory_kills: MemoryKills,
    killed: Killed,
    pub(super) sweep: Sweep,
}

impl Ends {
    pub(super) fn new(children: ChildSignals, memory_kills: MemoryKills) -> Self {
        Self {
            children,
            closing: Vec::new(),
            memory_kills,
            killed: Killed::new(),
            sweep: Sweep::default(),
        }
    }

    /// When something is due.
    pub(super) fn deadline(&self, are_outputs_read: bool) -> Option<Instant> {
        let closing = self.closing.iter().map(|(_, due)| *due);
        closing.chain(self.sweep.deadline(are_outputs_read)).min()
    }

    /// Looks whether the kernel has killed processes, now and then.
    pub(super) fn handle_time(&mut self, now: Instant) {
        self.memory_kills.handle_time(now);
    }

    /// A rank has closed its PMI connection: it is dead soon, or lives on.
    pub(super) fn handle_closing(&mut self, rank: Rank, now: Instant) {
        self.closing.push((rank, now + DEATH));
    }

    /// The ranks whose connections were closed long ago, and the one that is gone.
    pub(super) fn take_closed(&mut self, gone: Option<Rank>, now: Instant) -> impl Iterator<Item = Rank> {
        let is_due = move |(rank, due): &mut (Rank, Instant)| Some(*rank) == gone || *due <= now;
        self.closing.extract_if(.., is_due).map(|(rank, _)| rank)
    }

    /// A process of a rank is gone.
    pub(super) fn handle_gone(&mut self, pid: Pid, cause: Cause) {
        if cause != Cause::Exited(0) {
            self.killed.add(pid.as_raw_nonzero().get());
        }
    }

    /// The shortage of memory by which a rank ended that nobody here has killed, if it was one.
    pub(super) fn shortage(&mut self, cause: Cause) -> Option<MemoryShortage> {
        match cause {
            Cause::Signalled(SIGKILL) => self.memory_kills.claim(),
            _ => None,
        }
    }

    /// Removes what the ranks have left in shared memory and in files.
    pub(super) fn remove_leftovers(&self, kit: &StartKit) {
        let programs = kit.groups.programs();
        let environments: Vec<_> = programs.map(|started| started.environment.as_slice()).collect();
        mpi_programs::remove_leftovers(open_mpi_job(kit.plan.job), &environments);
        self.killed.remove_leftovers();
    }
}
