//! The futures that the caller holds while a call or a transfer is in progress.

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
    /// All there is, so that a call is moved in a register: to move more would have to wait for its being written.
    pending: Pending<Result<Answer, CallError>>,
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
    pub(crate) fn new(pending: Pending<Result<Answer, CallError>>) -> Self {
        Self {
            pending,
            output: PhantomData,
        }
    }

    /// The output or the error, once, if the call has ended.
    pub fn try_take(&mut self) -> Option<Result<O, CallError>> {
        let taken = self.pending.take(decode);
        taken.map(|decoded| self.end(decoded))
    }

    /// How long the target handled the call; `None` before its output was taken, or if
    /// [`CallOptions::timing`](crate::CallOptions::timing) was not set.
    pub fn handling(&self) -> Option<Duration> {
        self.timing().map(|timing| timing.handling)
    }

    /// Where the time of the call went; `None` before its output was taken, or if
    /// [`CallOptions::timing`](crate::CallOptions::timing) was not set.
    pub fn timing(&self) -> Option<CallTiming> {
        self.pending.timing()
    }

    #[inline]
    fn end(&self, decoded: Result<O, Undecoded<O>>) -> Result<O, CallError> {
        decoded.or_else(|undecoded| self.end_undecoded(undecoded))
    }

    #[cold]
    fn end_undecoded(&self, undecoded: Undecoded<O>) -> Result<O, CallError> {
        match undecoded {
            Undecoded::Failed(error) => Err(*error),
            Undecoded::Malformed => Err(self.malformed()),
            Undecoded::Timed(timed) => {
                let (output, timing) = *timed;
                self.pending.keep_timing(timing);
                output.map_err(|_| self.malformed())
            }
        }
    }

    fn malformed(&self) -> CallError {
        let procedure = self.pending.procedure();
        match self.pending.peer() {
            Some(peer) => CallError::OutputMalformed { procedure, peer },
            None => CallError::Stopped { procedure },
        }
    }
}

/// A result other than a plain output.
enum Undecoded<O> {
    Failed(Box<CallError>),
    Malformed,
    Timed(Box<(Result<O, postcard::Error>, CallTiming)>),
}

/// Takes the output out of a result, where that is: to move it would cost more.
#[inline]
fn decode<O: DeserializeOwned>(result: &mut Result<Answer, CallError>) -> Result<O, Undecoded<O>> {
    match result {
        Ok(answer) => {
            let Some(times) = &answer.times else {
                let output = postcard::from_bytes(&answer.message[answer.start..]);
                return output.map_err(|_| Undecoded::Malformed);
            };
            let taken = Instant::now();
            let output = postcard::from_bytes(&answer.message[answer.start..]);
            let timing = times.timing(taken, Instant::now());
            Err(Undecoded::Timed(Box::new((output, timing))))
        }
        Err(error) => {
            let procedure = "";
            let error = std::mem::replace(error, CallError::Stopped { procedure });
            Err(Undecoded::Failed(Box::new(error)))
        }
    }
}

impl<O: DeserializeOwned> Future for Call<O> {
    type Output = Result<O, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending
            .poll(context, decode)
            .map(|decoded| self.end(decoded))
    }
}

impl<O> fmt::Debug for Call<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("procedure", &self.pending.procedure())
            .finish_non_exhaustive()
    }
}

impl<T> Transfer<T> {
    pub(crate) fn new(pending: Pending<Result<T, TransferError>>) -> Self {
        Self(pending)
    }

    /// The value that the transfer gives back or the error, once, if it has ended.
    pub fn try_take(&mut self) -> Option<Result<T, TransferError>> {
        self.0.take(take)
    }
}

impl<T> Future for Transfer<T> {
    type Output = Result<T, TransferError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, take)
    }
}

fn take<T>(result: &mut Result<T, TransferError>) -> Result<T, TransferError> {
    std::mem::replace(result, Err(TransferError::Stopped))
}

impl<T> fmt::Debug for Transfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}
