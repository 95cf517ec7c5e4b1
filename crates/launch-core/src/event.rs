//! The events of a job.

mod json;

use core::time::Duration;

use ropewalk_membership::Departure;
use ropewalk_names::{Rank, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::{
    outcome::JobOutcome,
    restart::Attempt,
    verdict::{Ending, Failure},
};

/// Something that happened in a job, as the launcher's `next_event` tells it.
///
/// Serialized, an event is a map: `event` holds its name, the other keys its data. Times are in seconds, and their keys
/// end with `_s`. [`Output`](Self::Output) and [`Trace`](Self::Trace) have no such form: serializing them is an error.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobEvent {
    /// A rank is about to run on these processors ([`Placement::tells_bindings`](crate::Placement::tells_bindings)).
    Bound {
        /// Who.
        rank: Rank,
        /// The name of its host.
        host: String,
        /// It is bound to them; else the system chooses among them.
        is_bound: bool,
        /// The processors, by the kernel's numbers; none if they are not known.
        processors: Vec<u32>,
    },
    /// A rank that was [`Stopped`](Self::Stopped) goes on.
    Continued {
        /// Who.
        rank: Rank,
        /// The name of its host.
        host: String,
    },
    /// A rank is gone.
    Departed {
        /// Who, and why.
        #[serde(flatten, serialize_with = "json::departure")]
        departure: Departure,
        /// The name of its host.
        host: String,
        /// Its process on its host; `None` if it had none.
        pid: Option<u32>,
        /// When, in nanoseconds of the host's `CLOCK_MONOTONIC`; 0 if its agent was lost.
        #[serde(skip)]
        at_ns: u64,
    },
    /// The job will be ended, and was asked to save before.
    EndAnnounced {
        /// Why.
        #[serde(skip)]
        ending: Ending,
        /// How long it has for that; as long as it needs if `None`.
        #[serde(rename = "left_s", serialize_with = "json::seconds_if_any")]
        left: Option<Duration>,
    },
    /// The first rank waits in a fence (PMI) of more than one host's ranks, or of all.
    FenceBegan {
        /// The process group: 0 is the job's own, others were spawned.
        group: u32,
        /// Which fence: `WORLD`, or the ranks that take part; with a colon and a word if the program gave one.
        fence: String,
    },
    /// All who waited in a fence go on.
    FenceEnded {
        /// The process group.
        group: u32,
        /// Which fence.
        fence: String,
        /// How many ranks were in it.
        members: u32,
        /// A rank that is gone, so that the fence failed.
        failed: Option<Rank>,
    },
    /// The job is over. The last event.
    #[serde(serialize_with = "json::outcome")]
    Finished(JobOutcome),
    /// The agent of a host has not come up for as long as agents may be silent later. It has more time to start, and is
    /// lost after that.
    HostLate {
        /// The name of the host.
        host: String,
        /// For how long.
        #[serde(rename = "after_s", serialize_with = "json::seconds")]
        after: Duration,
    },
    /// The agent of a host is there.
    HostReady {
        /// The name of the host.
        host: String,
        /// How many are.
        ready: u32,
        /// How many the job has.
        hosts: u32,
    },
    /// A rank was killed on purpose ([`JobSpec::injection`](crate::JobSpec::injection)).
    Injected {
        /// Who.
        rank: Rank,
        /// The name of its host.
        host: String,
    },
    /// A rank or a host was lost, and the others go on without it.
    Lost {
        /// Who, and what happened: a clause.
        what: String,
        /// After how long without progress the job ends, if it does ([`Reactions::stall`](crate::Reactions::stall)).
        #[serde(rename = "stall_s", serialize_with = "json::seconds_if_any")]
        stall: Option<Duration>,
    },
    /// A name server did not do what a program asked of it
    /// ([`PmiOptions::name_server`](crate::PmiOptions::name_server)), or does not take back what it lost; what MPI
    /// libraries tell the program of that is little. Told once until something goes well.
    NameServerFailed {
        /// A sentence that says what was not done with which name, and why.
        reason: String,
    },
    /// Something odd that does not end the job.
    Notice {
        /// The rank that it is about.
        rank: Rank,
        /// What.
        text: String,
    },
    /// A rank wrote a line.
    #[serde(skip)]
    Output {
        /// Who.
        rank: Rank,
        /// Where to.
        stream: OutputStream,
        /// The line with its end; without one if the rank ended its output so, or if this is a piece of a
        /// line that is longer than [`OUTPUT_LINE_SIZE_MAX`](crate::OUTPUT_LINE_SIZE_MAX).
        line: Vec<u8>,
    },
    /// A rank put another value under a key of PMI that had one; the last counts. Programs seldom mean that.
    /// Of a rank the first such keys are told only.
    Overwritten {
        /// Who.
        rank: Rank,
        /// The key.
        key: String,
    },
    /// A rank failed, and gets another process ([`OnFailure::Respawn`](crate::OnFailure::Respawn)).
    Respawning {
        /// The failure of the process before.
        #[serde(flatten, serialize_with = "json::failure")]
        failure: Failure,
        /// How long it is waited before.
        #[serde(rename = "pause_s", serialize_with = "json::seconds")]
        pause: Duration,
        /// After how long without progress the job ends, if it does ([`Reactions::stall`](crate::Reactions::stall)).
        #[serde(rename = "stall_s", serialize_with = "json::seconds_if_any")]
        stall: Option<Duration>,
    },
    /// An attempt failed, and there will be another; all that follows is about that. See
    /// [`restart`](crate::restart).
    Restarting {
        /// The failed attempt.
        #[serde(flatten, serialize_with = "json::attempt")]
        failed: Box<Attempt>,
        /// How long it is waited before the next.
        #[serde(rename = "pause_s", serialize_with = "json::seconds")]
        pause: Duration,
    },
    /// A rank had further processes started: a process group of their own, with the ranks of the job that follow all
    /// others so far.
    Spawned {
        /// The number of the group, from 1.
        group: u32,
        /// The rank in the job of its rank 0.
        #[serde(rename = "first_rank")]
        first: Rank,
        /// How many processes it has.
        size: u32,
        /// Who spawned it.
        by: Rank,
    },
    /// No rank made progress for half of the time that counts as a stall
    /// ([`Reactions::stall`](crate::Reactions::stall)), in a job that goes on when a rank fails. It ends unless
    /// one does.
    Stalled {
        /// For how long.
        #[serde(rename = "after_s", serialize_with = "json::seconds")]
        after: Duration,
        /// Who is left, and where they wait.
        who: String,
        /// After how long it ends.
        #[serde(rename = "ends_after_s", serialize_with = "json::seconds")]
        ends_after: Duration,
    },
    /// A rank runs.
    Started {
        /// Who.
        rank: Rank,
        /// Its process, and its process group, on its host.
        pid: u32,
    },
    /// A signal stopped a rank, and it has not gone on for as long as an agent may be silent.
    Stopped {
        /// Who.
        rank: Rank,
        /// The name of its host.
        host: String,
        /// Its process on its host.
        pid: u32,
        /// Which signal.
        signal: i32,
    },
    /// A rank says what it does.
    #[serde(skip)]
    Trace {
        /// Who.
        rank: Rank,
        /// What.
        event: TraceEvent,
    },
}

/// Where a rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutputStream {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}
