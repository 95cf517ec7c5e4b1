//! Reasons for which an operand cannot be fetched.

use ropewalk_fabric::Address;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The reason for which a part of a reduction could not be fetched from its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[non_exhaustive]
pub enum PullFailure {
    /// The holder died, or could not be reached.
    #[error("{holder}, which holds the part, is gone: {reason}")]
    HolderGone {
        /// The address of the process that held the part.
        holder: Address,
        /// The sign of its death.
        reason: String,
    },
    /// The named source cannot be that of a part of the reduction.
    #[error("{length} bytes at {data_offset} of a region are no part, which has {length_max} at most")]
    NoPart {
        /// Where in the region the data was said to start.
        data_offset: u64,
        /// The length that the data was said to have, in bytes.
        length: u64,
        /// The greatest length of a part of the reduction, in bytes.
        length_max: u64,
    },
    /// The rank that has made the part did not say where it is.
    #[error("the rank reported a part without saying where it is")]
    NoSource,
    /// The holder exposes no such region any longer, or a shorter one.
    #[error("{holder} has no such region (any longer)")]
    NoSuchRegion {
        /// The address of the process that was to hold the part.
        holder: Address,
    },
    /// The rank that combines parts has lost one that it had.
    #[error("this rank has the part no longer")]
    NotHeld,
    /// The holder is alive and did not give the part in time.
    #[error("{holder} did not give the part in time")]
    TimedOut {
        /// The address of the process that holds the part.
        holder: Address,
    },
    /// The transfer failed in another way.
    #[error("the transfer from {holder} failed: {reason}")]
    Transfer {
        /// The address of the process that holds the part.
        holder: Address,
        /// The error of the transfer.
        reason: String,
    },
}
