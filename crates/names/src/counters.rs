//! The counters by which a reduction is steered, as a rank tells them to those who watch its job.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// The work of a rank for reductions since it joined its job.
///
/// Calls that end in the table of their host are not in it: they send nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReductionCounters {
    /// Reductions that have ended on the rank.
    pub reductions: u64,
    /// Chunks of the rank that have arrived at other ranks.
    pub chunks: u64,
    /// The bytes of these chunks.
    pub chunk_bytes: u64,
    /// The time from the beginning of each of these chunks to its answer, summed.
    pub send_time: Duration,
    /// The part of `send_time` in which chunks waited behind others.
    pub wait_time: Duration,
    /// The time from the beginning of the last chunk to its answer.
    pub last_send_time: Duration,
    /// The largest number of chunks that were on their way at once.
    pub queue_max: u32,
    /// The rate at which the rank sends while it has something to send, in bytes per second; 0 before it is known.
    pub send_rate: u64,
    /// The rate at which the rank receives, in bytes per second; 0 before it is known.
    pub receive_rate: u64,
    /// The messages of the scheduler, on the rank that has it.
    pub scheduler: SchedulerLoad,
}

/// Messages between a scheduler and the ranks of other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerLoad {
    /// Messages that the scheduler received.
    pub received: u64,
    /// The bytes of these messages, without the frames of the network.
    pub received_bytes: u64,
    /// Messages that the scheduler sent.
    pub sent: u64,
    /// The bytes of these messages, without the frames of the network.
    pub sent_bytes: u64,
}

/// The load of two times together.
impl Add for SchedulerLoad {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            received_bytes: self.received_bytes + other.received_bytes,
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }
}

/// The load since an earlier time.
impl Sub for SchedulerLoad {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            sent: self.sent.saturating_sub(earlier.sent),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
        }
    }
}
