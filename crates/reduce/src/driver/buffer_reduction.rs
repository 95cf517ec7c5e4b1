//! A reduction of a buffer as its caller sees it: a future that gives the buffer back.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytemuck::Pod;
use ropewalk_fabric::memfd::ReadOnlyMemfd;

use super::reduction::{Outcome, ReduceError, Reduction, Waiter};
use crate::buffer::Buffer;

/// A reduction under way that has this rank's buffer; [`Group::reduce_buffer`](crate::Group::reduce_buffer) begins one.
///
/// Wait for it with [`get`](Self::get) or `.await`, or ask [`is_done`](Self::is_done) between other work. Dropping it
/// does not end it, since the other members need this rank's part; the buffer is then freed when nobody needs it any
/// more.
#[must_use = "whether the reduction worked is known only from its outcome, with which the buffer comes back"]
pub struct BufferReduction<T: Pod> {
    reduction: Reduction<Vec<T>>,
    /// `None` once it was given back.
    lent: Option<Lent<T>>,
}

/// The part of a reduction that the caller gets back.
enum Lent<T> {
    Memory(Arc<ReadOnlyMemfd>, usize),
    /// Nothing was lent: it is short, or the call went wrong before.
    Buffer(Buffer<T>),
}

impl<T: Pod> BufferReduction<T> {
    /// A reduction to which this memory of so many elements is lent.
    pub(super) fn lent(reduction: Reduction<Vec<T>>, memory: Arc<ReadOnlyMemfd>, elements: usize) -> Self {
        Self {
            reduction,
            lent: Some(Lent::Memory(memory, elements)),
        }
    }

    /// A reduction to which its buffer is not lent.
    pub(super) fn unlent(reduction: Reduction<Vec<T>>, buffer: Buffer<T>) -> Self {
        Self {
            reduction,
            lent: Some(Lent::Buffer(buffer)),
        }
    }

    /// Says if [`get`](Self::get) would return at once.
    pub fn is_done(&self) -> bool {
        self.reduction.is_done()
    }

    /// As [`Reduction::wait_for`].
    pub fn wait_for(&self, patience: Duration) -> bool {
        self.reduction.wait_for(patience)
    }

    /// As [`Reduction::waiter`].
    pub fn waiter(&self) -> Waiter {
        self.reduction.waiter()
    }

    /// As [`Reduction::is_protected`].
    pub fn is_protected(&self) -> bool {
        self.reduction.is_protected()
    }

    /// As [`Reduction::wait_until_protected`].
    pub fn wait_until_protected(&self) -> bool {
        self.reduction.wait_until_protected()
    }

    /// Waits for the end. Returns the outcome, and the buffer with its content, which can be written again.
    ///
    /// If some of the memory is still being sent 0.1 s after the end, to a rank that is stopped, the buffer that comes
    /// back is a copy; pointers into the old one are then of no use.
    ///
    /// # Errors
    /// As [`Reduction::get`], and what went wrong in the call. If there is no memory for that copy the error is
    /// [`ReduceError::Memory`], and the buffer has no elements.
    pub fn get(mut self) -> (Result<Outcome<Vec<T>>, ReduceError>, Buffer<T>) {
        let outcome = self.reduction.wait();
        self.give_back(outcome)
    }

    fn give_back(
        &mut self,
        outcome: Result<Outcome<Vec<T>>, ReduceError>,
    ) -> (Result<Outcome<Vec<T>>, ReduceError>, Buffer<T>) {
        match self.lent.take() {
            Some(Lent::Buffer(buffer)) => (outcome, buffer),
            Some(Lent::Memory(memory, elements)) => match Buffer::of_lent(memory, elements) {
                Ok(buffer) => (outcome, buffer),
                Err(error) => (outcome.and(Err(ReduceError::Memory(error))), Buffer::empty()),
            },
            // A future is not polled again once it is ready.
            None => (outcome, Buffer::empty()),
        }
    }
}

// Nothing in it is pinned.
impl<T: Pod> Unpin for BufferReduction<T> {}

impl<T: Pod> Future for BufferReduction<T> {
    type Output = (Result<Outcome<Vec<T>>, ReduceError>, Buffer<T>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.reduction).poll(context));
        Poll::Ready(self.give_back(outcome))
    }
}

impl<T: Pod> fmt::Debug for BufferReduction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferReduction")
            .field("reduction", &self.reduction)
            .finish_non_exhaustive()
    }
}
