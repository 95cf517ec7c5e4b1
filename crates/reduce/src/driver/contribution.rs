//! The memory of a contribution: made once, never written again, and kept by the agent too.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{AgentLink, AgentLinkError, Held, HoldId, ToAgent, memfd::WritableMemfd};

use crate::{
    ids::Token,
    message::{Contribution, PART_HEADER_SIZE},
};

/// A contribution's header and data, in a frozen memfd.
#[derive(Debug)]
pub(super) struct ContributionMemory {
    descriptor: OwnedFd,
    pub(super) bytes: Bytes,
}

impl ContributionMemory {
    /// Copies `data` behind a header with `token`.
    pub(super) fn new(token: Token, data: &[u8]) -> io::Result<Self> {
        let header_size = PART_HEADER_SIZE as usize;
        let mut memory = WritableMemfd::create("ropewalk-contribution", header_size + data.len())?;
        write_header(&mut memory, token);
        memory[header_size..].copy_from_slice(data);
        let (descriptor, mapping) = memory.freeze()?;
        Ok(Self {
            descriptor,
            bytes: Bytes::from_owner(mapping),
        })
    }

    /// Hands the memory to the agent. When this returns the contribution outlives its process.
    pub(super) fn protect(
        &self,
        link: &AgentLink,
        id: HoldId,
        contribution: &Contribution,
    ) -> Result<(), AgentLinkError> {
        let label = postcard::to_allocvec(contribution).map_err(AgentLinkError::Encoding)?;
        if label.len() > AgentLink::LABEL_SIZE_MAX {
            return Err(AgentLinkError::TooLarge { size: label.len() });
        }
        let message = ToAgent::Hold(Held { id, label });
        let deadline = Instant::now() + AGENT_PATIENCE;
        loop {
            match link.send(&message, Some(self.descriptor.as_fd())) {
                Err(AgentLinkError::Full) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => return result,
            }
        }
    }
}

/// Writes the header of a part.
pub(super) fn write_header(part: &mut [u8], token: Token) {
    part[..size_of::<u128>()].copy_from_slice(&token.0.to_le_bytes());
}

/// Reads the token from the header of a part, which is at least [`PART_HEADER_SIZE`] long.
pub(super) fn read_header(part: &[u8]) -> Token {
    let mut bytes = [0; size_of::<u128>()];
    bytes.copy_from_slice(&part[..size_of::<u128>()]);
    Token(u128::from_le_bytes(bytes))
}

/// How long the agent may leave its end of the link unread before a contribution counts as unprotected.
const AGENT_PATIENCE: Duration = Duration::from_secs(10);
