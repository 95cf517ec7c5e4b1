//! The remote procedures that carry the messages of scheduler and workers.

use ropewalk_rpc::Procedure;

use crate::message::{ToScheduler, ToWorker};

/// Brings messages to the scheduler.
pub(super) struct TellScheduler;

impl Procedure for TellScheduler {
    const NAME: &'static str = "ropewalk.reduce.tell-scheduler";
    type Input = Vec<ToScheduler>;
    type Output = ();
}

/// Brings messages to a worker.
pub(super) struct TellWorker;

impl Procedure for TellWorker {
    const NAME: &'static str = "ropewalk.reduce.tell-worker";
    type Input = Vec<ToWorker>;
    type Output = ();
}

/// The most messages in one notification.
pub(super) const MESSAGES_MAX: usize = 64;
