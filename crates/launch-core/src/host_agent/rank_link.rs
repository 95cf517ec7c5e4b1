//! The messages between a rank and the agent of its host, without the descriptors and the keys that go with them.

use std::time::Duration;

use ropewalk_membership::Departure;
use ropewalk_names::{Address, Held, HoldId, Identity, Incarnation, JobId, Rank, RegionHandle, TraceEvent};

/// A message from a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRank {
    /// The rank reads its link: tell it of departures, now and later.
    Attach,
    /// Keep the memory that came with this message. Its label may be in the memory, which says later if it counts.
    Hold(Held),
    /// A program of the rank asks who it is.
    Join,
    /// The memory is needed no longer.
    Release(HoldId),
    /// News for the observers of the job.
    Trace(TraceEvent),
    /// Nobody needs any more what earlier lives of the rank have left.
    Admitted,
}

/// A message to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// A rank is gone.
    Departed(Departure),
    /// The memory of a rank that is gone is served under this handle from now on.
    Inherited {
        /// The rank whose memory it was.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
        /// The rank's name for the memory.
        held: Held,
        /// The right to read it.
        handle: RegionHandle,
    },
    /// The refusal of [`FromRank::Join`]: a program of this rank has attached before.
    Taken,
    /// The answer to [`FromRank::Join`].
    Welcome(Welcome),
}

/// The facts by which a program of a rank joins the job. The driver adds the key of `identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The job.
    pub job: JobId,
    /// The rank and its life.
    pub identity: Identity,
    /// How many ranks the job has.
    pub size: u32,
    /// The agent's endpoint, which serves the memory of ranks that are gone.
    pub agent: Address,
    /// The job encrypts what goes from host to host.
    pub encrypt: bool,
    /// How long a silent process or host of the job is waited for.
    pub detect: Duration,
}
