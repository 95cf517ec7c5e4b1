//! A barrier: a reduction of nothing.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    group::{Group, ReduceOptions},
    reduction::{ReduceError, Reduction, Waiter},
};
use crate::{
    operation::elementwise,
    outcome::Receipt,
    signature::{Order, RootFailure},
};

/// A barrier under way; [`Group::barrier`] begins one.
///
/// Wait for it with [`get`](Self::get) or `.await`, or ask [`is_done`](Self::is_done) between other work. Dropping it
/// does not end it.
#[derive(Debug)]
#[must_use = "whether all have come is known only when it has ended"]
pub struct Barrier(Reduction<Vec<u8>>);

impl Barrier {
    /// Says if [`get`](Self::get) would return at once.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// As [`Reduction::wait_for`].
    pub fn wait_for(&self, patience: Duration) -> bool {
        self.0.wait_for(patience)
    }

    /// As [`Reduction::waiter`].
    pub fn waiter(&self) -> Waiter {
        self.0.waiter()
    }

    /// Waits until all members have called. The receipt is the same on all of them, so that they agree on who was lost.
    ///
    /// # Errors
    /// If a member was lost before it called, unless the call said [`OnLoss::Exclude`](crate::OnLoss::Exclude); and as
    /// [`Reduction::get`].
    pub fn get(self) -> Result<Receipt, ReduceError> {
        self.0.get().map(|outcome| outcome.receipt)
    }
}

impl Future for Barrier {
    type Output = Result<Receipt, ReduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let poll = Pin::new(&mut self.0).poll(context);
        poll.map(|outcome| outcome.map(|outcome| outcome.receipt))
    }
}

impl Group {
    /// Begins a barrier, which ends when all members have called it (MPI standard 4.0, section 6.3, but asynchronous).
    ///
    /// A member that is lost after its call does not matter. One that is lost before is named in an error on all, or,
    /// with [`OnLoss::Exclude`](crate::OnLoss::Exclude), in all receipts, and the barrier is that of the others.
    /// `order` and `on_root_loss` of the options are of no account.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, OnLoss, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// let options = ReduceOptions { on_loss: OnLoss::Exclude, ..ReduceOptions::default() };
    /// let barrier = job.world().barrier(&options)?;
    /// // .. other work ..
    /// println!("{} ranks are here", barrier.get()?.contributions);
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn barrier(&self, options: &ReduceOptions) -> Result<Barrier, ReduceError> {
        let options = ReduceOptions {
            order: Order::Any,
            on_root_loss: RootFailure::MoveToLowest,
            ..options.clone()
        };
        let nothing = elementwise("barrier", |left: u8, _| left);
        let root = self.ranks()[0];
        self.reduce(Vec::new(), nothing, root, &options).map(Barrier)
    }
}
