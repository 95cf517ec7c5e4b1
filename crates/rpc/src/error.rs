//! How calls and transfers fail.

use std::fmt;

use ropewalk_fabric::{AccessError, Address, OperationError, PeerDeath, SubmitError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The message of a handler that cannot give the output. A failure that callers tell apart belongs into the
/// procedure's output type instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct Fault {
    message: String,
}

impl Fault {
    /// The longest message in bytes; longer ones are cut.
    pub const MESSAGE_SIZE_MAX: usize = 4 << 10;

    /// A fault with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        let mut message = message.to_string();
        if message.len() > Self::MESSAGE_SIZE_MAX {
            let mut ends = (0..=Self::MESSAGE_SIZE_MAX).rev();
            let end = ends.find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
        }
        Self { message }
    }
}

/// The reason why a target is busy: it has too many of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BusyReason {
    /// Calls that are not answered yet.
    #[error("too many calls are in progress there")]
    Calls,
    /// Calls of this engine that are not answered yet.
    #[error("too many calls of this engine are in progress there: make fewer at once")]
    CallsOfPeer,
    /// Calls at most once to remember.
    #[error("it has to remember too many calls: they end with the time-outs of their callers")]
    Executed,
    /// Inputs that are pulled, or wait for such.
    #[error("too many large inputs are on their way there")]
    Inputs,
    /// Outputs that their callers have not taken yet.
    #[error("too many outputs wait there: take them, or make fewer calls at once")]
    Outputs,
}

impl BusyReason {
    const ALL: [Self; 5] = [
        Self::Calls,
        Self::CallsOfPeer,
        Self::Executed,
        Self::Inputs,
        Self::Outputs,
    ];

    /// The inverse of `as u8`.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Why a call has no output.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The target has no room for the call, or for its output. Unless the reason is
    /// [`BusyReason::Outputs`], the call was not handled, and may be made again.
    #[error("{peer} is too busy for {procedure}")]
    Busy {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// The reason.
        #[source]
        reason: BusyReason,
    },
    /// The handler failed.
    #[error("{procedure} failed at {peer}")]
    Fault {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// The fault that the handler gave.
        #[source]
        source: Fault,
    },
    /// The target could not read the input: the two sides have different definitions of the procedure.
    #[error("{peer} cannot read the input of {procedure}: are both sides the same version?")]
    InputMalformed {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
    /// The input cannot be encoded.
    #[error("the input of {procedure} cannot be encoded")]
    InputUnencodable {
        /// The name of the procedure.
        procedure: &'static str,
        /// Why.
        #[source]
        source: postcard::Error,
    },
    /// The input is larger than the target accepts.
    #[error("{peer} accepts inputs of {size_max} bytes: pass a larger one to {procedure} as a region handle")]
    InputTooLarge {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// The largest input that the target accepts, in bytes.
        size_max: u64,
    },
    /// An earlier attempt of the call was handled, but its output was lost on the way and is gone by now.
    #[error("{peer} handled {procedure}, but has forgotten the output")]
    OutputForgotten {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
    /// The reply is no output of the procedure: the two sides have different definitions of it.
    #[error("what {peer} gave as output of {procedure} is none: are both sides the same version?")]
    OutputMalformed {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
    /// The target is gone, or could not be reached. Whether it handled the call is not known.
    #[error("{peer} died before it answered {procedure}")]
    PeerDied {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// How its death was seen.
        #[source]
        source: PeerDeath,
    },
    /// The output is larger than this engine accepts. The call was handled.
    #[error("the output of {size} bytes of {procedure} at {peer} is larger than accepted here, {size_max}")]
    OutputTooLarge {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// The size of the output in bytes.
        size: u64,
        /// [`EngineOptions::overflow_size_max`](crate::EngineOptions::overflow_size_max).
        size_max: u64,
    },
    /// The output is in the target's memory, and could not be pulled. The call was handled.
    #[error("the output of {procedure} could not be pulled from {peer}")]
    OutputUnreachable {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
        /// Why.
        #[source]
        source: Box<TransferError>,
    },
    /// The connection was lost, and another process serves at the target's address by now. Whether the first one
    /// handled the call is not known.
    #[error("{peer} is another process by now; whether {procedure} ran before is not known")]
    Replaced {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
    /// The engine was dropped before the answer came.
    #[error("the engine was dropped before {procedure} was answered")]
    Stopped {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// The call could not be sent.
    #[error("{procedure} could not be called")]
    Submit {
        /// The name of the procedure.
        procedure: &'static str,
        /// Why.
        #[source]
        source: SubmitError,
    },
    /// The deadline passed. Whether the target handled the call is not known.
    #[error("{peer} did not answer {procedure} in time")]
    TimedOut {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
    /// The batch that it was in was dropped without being sent.
    #[error("the batch with {procedure} was never sent")]
    Unsent {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// The target does not serve it.
    #[error("{peer} does not serve {procedure}")]
    UnknownProcedure {
        /// The name of the procedure.
        procedure: &'static str,
        /// Where.
        peer: Address,
    },
}

/// Why a transfer did not happen.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The peer refused access to its memory.
    #[error("{peer} refused access to its memory")]
    Access {
        /// Who refused.
        peer: Address,
        /// Why.
        #[source]
        source: AccessError,
    },
    /// The bytes of a segment are not those that were exposed.
    #[error(
        "segment {segment} of a bulk handle came from {peer} with checksum {found:08x} instead of {expected:08x}"
    )]
    ChecksumMismatch {
        /// Whose segment it is.
        peer: Address,
        /// Which, counted from 0.
        segment: usize,
        /// The CRC-32C of what was exposed.
        expected: u32,
        /// The CRC-32C of what came.
        found: u32,
    },
    /// The peer is gone, or could not be reached.
    #[error("{peer} died during a transfer")]
    PeerDied {
        /// Who.
        peer: Address,
        /// How its death was seen.
        #[source]
        source: PeerDeath,
    },
    /// The engine was dropped before the transfer ended.
    #[error("the engine was dropped before the transfer ended")]
    Stopped,
    /// The transfer could not be started.
    #[error("the transfer could not be started")]
    Submit(#[from] SubmitError),
    /// The deadline passed.
    #[error("the transfer with {peer} did not end in time")]
    TimedOut {
        /// With whom.
        peer: Address,
    },
    /// A chunk of a pipelined push was dropped instead of being pushed.
    #[error("the chunk at {offset} of a pipelined push was dropped before it was pushed")]
    Unfilled {
        /// Where the chunk was to go in what the handle shows.
        offset: u64,
    },
}

impl CallError {
    pub(crate) fn from_operation(procedure: &'static str, error: OperationError) -> Self {
        match error {
            OperationError::PeerDied { peer, source } => Self::PeerDied {
                procedure,
                peer,
                source,
            },
            OperationError::TimedOut { peer } => Self::TimedOut { procedure, peer },
            error => unreachable!("a receive ends otherwise: {error}"),
        }
    }
}

impl From<OperationError> for TransferError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Access { peer, source } => Self::Access { peer, source },
            OperationError::PeerDied { peer, source } => Self::PeerDied { peer, source },
            OperationError::TimedOut { peer } => Self::TimedOut { peer },
            error => unreachable!("the fabric knows no other failure: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reason comes back from the byte that stands for it.
    #[test]
    fn reasons_survive_the_wire() {
        for reason in BusyReason::ALL {
            assert_eq!(BusyReason::from_byte(reason as u8), Some(reason));
        }
        assert_eq!(BusyReason::from_byte(BusyReason::ALL.len() as u8), None);
    }
}
