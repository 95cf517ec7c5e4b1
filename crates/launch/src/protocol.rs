//! What the launcher and the agent of a host say to each other: frames of a 32-bit little-endian length and
//! that many bytes of postcard, over the agent's standard input, a socket that only these two have.

use std::ffi::OsString;

use ropewalk_fabric::{JobKey, TraceEvent};
use ropewalk_group::{Departure, HostId, JobId, Rank};
use serde::{Deserialize, Serialize};

use crate::event::OutputStream;

/// The largest frame, in bytes: an environment or a line of output fits.
pub(crate) const FRAME_SIZE_MAX: usize = 16 << 20;
/// How many bytes of input may be under way to rank 0.
pub(crate) const STDIN_WINDOW: usize = 256 << 10;
/// How many bytes of output may be under way from a host.
pub(crate) const OUTPUT_WINDOW: usize = 4 << 20;

/// From the launcher to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// This many bytes of output were taken.
    OutputTaken(u32),
    /// Send a signal to the process group of one rank or of all.
    Signal {
        /// To whom; to all if `None`.
        rank: Option<Rank>,
        /// The signal's number.
        signal: i32,
    },
    /// Start the ranks. The first order.
    Start(Box<Start>),
    /// Rank 0 reads this next.
    Stdin(Vec<u8>),
    /// Rank 0 has read all.
    StdinEnd,
}

/// All that an agent must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) job: JobId,
    pub(crate) key: JobKey,
    pub(crate) host: HostId,
    /// How many ranks the job has.
    pub(crate) size: u32,
    /// Those of this host.
    pub(crate) ranks: Vec<Rank>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// The whole environment of the ranks but for the variables of each.
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) working_directory: Option<OsString>,
    /// Whether the job goes on without those that fail.
    pub(crate) continues: bool,
    /// Whether rank 0 will be sent input.
    pub(crate) has_stdin: bool,
}

/// From an agent to the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A rank asked by PMI for the end of the job.
    Aborted {
        rank: Rank,
        exit_code: i32,
        message: String,
    },
    /// A rank is gone.
    Departed {
        departure: Departure,
        /// It began with PMI and did not finalize it.
        unfinished: bool,
        at_ns: u64,
    },
    /// All ranks are gone and all they wrote was sent. The last report.
    Finished,
    /// Something odd about a rank.
    Notice { rank: Rank, text: String },
    /// A rank could not be started; those after it were not tried.
    NotStarted { rank: Rank, error: StartError },
    /// Whole lines that a rank wrote.
    Output {
        rank: Rank,
        stream: OutputStream,
        lines: Vec<u8>,
    },
    /// The first report.
    Ready { host_name: String },
    /// A rank runs.
    Started { rank: Rank, pid: u32 },
    /// Rank 0 took this many bytes of input.
    StdinTaken(u32),
    /// A rank says what it does.
    Trace { rank: Rank, event: TraceEvent },
}

/// Why a rank could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartError {
    pub(crate) kind: StartErrorKind,
    pub(crate) reason: String,
}

/// What the user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StartErrorKind {
    /// The program is not there.
    NotFound,
    /// The program cannot be executed.
    NotExecutable,
    /// The host lacks something, such as descriptors or memory.
    System,
}
