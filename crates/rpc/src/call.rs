//! What the caller holds while a call or a transfer is in progress.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use crate::{CallError, CallTiming, TransferError, promise::Pending, timing::CallTimes, wire::Body};

/// A call in progress: a future of its output. The engine that made it has to be driven meanwhile. Dropping
/// it cancels the call: the target is told, and the answer is ignored.
#[must_use = "dropping a call cancels it"]
pub struct Call<O> {
    pending: Pending<Result<Answer, CallError>>,
    procedure: &'static str,
    timing: Option<CallTiming>,
    output: PhantomData<fn() -> O>,
}

/// A transfer in progress: a future of what it gives back. The engine that made it has to be driven
/// meanwhile. Dropping it cancels the transfer; a push may by then have written some of its bytes.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer<T>(Pending<Result<T, TransferError>>);

/// The output of a call, not decoded yet.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) message: Body,
    /// Where the output begins in the message.
    pub(crate) start: usize,
    /// How long the target handled the call, if that was asked for.
    pub(crate) handling: Option<Duration>,
    /// When what happened, if it was asked for.
    pub(crate) times: Option<Box<CallTimes>>,
}

impl<O: DeserializeOwned> Call<O> {
    pub(crate) fn new(pending: Pending<Result<Answer, CallError>>, procedure: &'static str) -> Self {
        Self {
            pending,
            procedure,
            timing: None,
            output: PhantomData,
        }
    }

    /// The output or the error, once, if the call has ended.
    pub fn try_take(&mut self) -> Option<Result<O, CallError>> {
        self.pending.take().map(|result| self.decode(result))
    }

    /// How long the target handled the call; `None` before its output was taken, or if
    /// [`CallOptions::timing`](crate::CallOptions::timing) was not set.
    pub fn handling(&self) -> Option<Duration> {
        self.timing.map(|timing| timing.handling)
    }

    /// Where the time of the call went; `None` before its output was taken, or if
    /// [`CallOptions::timing`](crate::CallOptions::timing) was not set.
    pub fn timing(&self) -> Option<CallTiming> {
        self.timing
    }

    fn decode(&mut self, result: Result<Answer, CallError>) -> Result<O, CallError> {
        let answer = result?;
        let taken = answer.times.as_ref().map(|_| Instant::now());
        let output = postcard::from_bytes(&answer.message[answer.start..]);
        if let (Some(times), Some(taken)) = (answer.times, taken) {
            self.timing = Some(times.timing(taken, Instant::now()));
        }
        output.map_err(|_| match self.pending.peer() {
            Some(peer) => CallError::OutputMalformed {
                procedure: self.procedure,
                peer,
            },
            None => CallError::Stopped {
                procedure: self.procedure,
            },
        })
    }
}

impl<O: DeserializeOwned> Future for Call<O> {
    type Output = Result<O, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map(|result| self.decode(result))
    }
}

impl<O> fmt::Debug for Call<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("procedure", &self.procedure)
            .finish_non_exhaustive()
    }
}

impl<T> Transfer<T> {
    pub(crate) fn new(pending: Pending<Result<T, TransferError>>) -> Self {
        Self(pending)
    }

    /// What the transfer gives back or the error, once, if it has ended.
    pub fn try_take(&mut self) -> Option<Result<T, TransferError>> {
        self.0.take()
    }
}

impl<T> Future for Transfer<T> {
    type Output = Result<T, TransferError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

impl<T> fmt::Debug for Transfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}
