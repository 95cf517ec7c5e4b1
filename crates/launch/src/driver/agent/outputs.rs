//! Reading the output of a host's ranks.

use std::{io, time::Duration};

use ropewalk_launch_core::protocol::OUTPUT_WINDOW;
use rustix::event::epoll::EventFlags;

use super::{
    poller::{Channel, Poller, Source},
    rank_io::RankIo,
    rank_table::RankTable,
};
use crate::driver::branch::Branch;

/// The pipes that ranks write to.
pub(super) struct Outputs {
    /// Waits for these pipes alone, so that one change stops them all when output is not taken.
    poller: Poller,
    are_read: bool,
}

impl Outputs {
    /// No pipes yet; the agent's poller tells when there is something to read.
    pub(super) fn new(agent: &Poller) -> io::Result<Self> {
        let poller = Poller::new()?;
        agent.add(&poller, Source::Outputs, EventFlags::IN)?;
        let are_read = true;
        Ok(Self { poller, are_read })
    }

    /// Returns true unless output waits for those before it to be taken.
    pub(super) fn are_read(&self) -> bool {
        self.are_read
    }

    /// Waits for what a rank writes.
    pub(super) fn watch(&self, index: usize, io: &RankIo) -> io::Result<()> {
        for (output, channel) in io.outputs.iter().zip(Channel::OUTPUTS) {
            if let Some(output) = output {
                let source = Source::Rank(index, channel);
                self.poller.add(&output.pipe, source, EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Reads and reports what ranks have written, while it is taken. Returns true if one has written or ended a stream.
    pub(super) fn read(&self, ranks: &mut RankTable, branch: &mut Branch) -> bool {
        let mut is_something_read = false;
        for (source, _) in self.poller.wait(Some(Duration::ZERO)).unwrap_or_default() {
            if branch.own_output() >= OUTPUT_WINDOW {
                break;
            }
            if let Source::Rank(index, channel) = source {
                is_something_read |= ranks.read_output(index, channel, |report| branch.report(report));
            }
        }
        is_something_read
    }

    /// Output that nobody takes makes the ranks wait. Returns true if it is read again from now on.
    pub(super) fn stop_or_go_on(&mut self, agent: &Poller, branch: &Branch) -> bool {
        let are_read = branch.own_output() < OUTPUT_WINDOW;
        if are_read == self.are_read {
            return false;
        }
        let flags = match are_read {
            true => EventFlags::IN,
            false => EventFlags::empty(),
        };
        if agent.modify(&self.poller, Source::Outputs, flags).is_ok() {
            self.are_read = are_read;
        }
        are_read
    }
}
