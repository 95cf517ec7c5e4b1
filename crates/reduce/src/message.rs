//! What scheduler and workers say to each other. All messages are small; data never travels in them.

use std::time::Duration;

use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{PartId, ReductionId, TaskId, Token},
    outcome::{Receipt, ReductionError},
    pull_failure::PullFailure,
    signature::Signature,
};

/// From a worker to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToScheduler {
    /// A member's contribution is ready (the paper's first reduce message, step 1).
    Announce(Announcement),
    /// A task is done (the paper's reduce message of step 5).
    Done {
        /// Of which reduction.
        reduction: ReductionId,
        /// Which task.
        task: TaskId,
        /// Where the partial result is read; nothing if the task was a commit at the root.
        source: Option<Source>,
        /// How long the task took.
        elapsed: Duration,
    },
    /// A task failed.
    Failed {
        /// Of which reduction.
        reduction: ReductionId,
        /// Which task.
        task: TaskId,
        /// Why.
        failure: TaskFailure,
    },
    /// The sender takes part in no reduction any more, neither in those under way nor in later ones.
    Leave {
        /// Why.
        message: String,
    },
    /// A member called, yet cannot contribute, or has given this one reduction up.
    Withdraw {
        /// To which reduction.
        reduction: ReductionId,
        /// Who takes part, if not all ranks of the job.
        members: Option<ProcessGroup>,
        /// Why.
        message: String,
    },
}

/// A member's contribution, and where it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// What it is.
    pub contribution: Contribution,
    /// The region with a header and then the whole of the data.
    pub handle: RegionHandle,
}

/// What is known of a contribution wherever its memory is; the label under which an agent holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// To which reduction.
    pub reduction: ReductionId,
    /// Who takes part, if not all ranks of the job.
    pub members: Option<ProcessGroup>,
    /// What is asked for.
    pub signature: Signature,
    /// The random token.
    pub token: Token,
    /// The length of the data in bytes.
    pub length: u64,
    /// After what time since the first announcement the reduction is given up.
    pub timeout: Option<Duration>,
}

/// Where a part is read. The first [`PART_HEADER_SIZE`] bytes of its region are a header with its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The region.
    pub handle: RegionHandle,
    /// Where in the region the part's data starts, at least [`PART_HEADER_SIZE`].
    pub data_offset: u64,
    /// The length of the data in bytes.
    pub length: u64,
}

/// The size of the header before a part's data, in bytes: the token, then zeros up to the next cache line.
pub const PART_HEADER_SIZE: u64 = 64;

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskFailure {
    /// The operation failed or panicked.
    Operation {
        /// What it said.
        message: String,
    },
    /// An operand could not be fetched.
    Pull {
        /// Which.
        part: PartId,
        /// Why.
        failure: PullFailure,
    },
    /// The token of a finished stripe is not the sum of the tokens that were announced.
    Receipt,
}

/// From the scheduler to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Forget a task.
    Cancel {
        /// Of which reduction.
        reduction: ReductionId,
        /// Which task.
        task: TaskId,
    },
    /// A reduction has ended (the paper's end broadcast, step 3).
    Finished {
        /// Which.
        reduction: ReductionId,
        /// How.
        result: Result<Receipt, ReductionError>,
    },
    /// The partial results of a stripe are needed no longer.
    Release {
        /// Of which reduction.
        reduction: ReductionId,
        /// Which stripe.
        stripe: u32,
    },
    /// Combine two parts, or commit one.
    Task(Task),
}

/// Work for one worker (the paper's definition 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Which task.
    pub id: TaskId,
    /// The left operand.
    pub left: Operand,
    /// The right operand; `None` if the left one is only to be committed.
    pub right: Option<Operand>,
    /// What to do with the outcome.
    pub outcome: TaskOutcome,
}

/// A part to work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    /// Its name; a worker that has it need not fetch it.
    pub part: PartId,
    /// Where it is read.
    pub source: Source,
}

/// What becomes of what a task made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// It is the final content of a stripe at the root, and its token must be this.
    Commit {
        /// Which stripe.
        stripe: u32,
        /// The sum of the announced tokens.
        token: Token,
    },
    /// Keep it under this name and serve it.
    Keep(PartId),
}

/// A message on its way to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// To whom.
    pub to: Rank,
    /// What.
    pub message: ToWorker,
}
