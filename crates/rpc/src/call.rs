//! What the caller holds while a call or a transfer is in progress.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{self, Context, Poll},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, OperationId, Waker};
use serde::de::DeserializeOwned;

use crate::{CallError, TransferError, bulk::BulkId, wire::Reply};

/// A call in progress: a future of its output. The engine that made it has to be driven meanwhile. Dropping
/// it cancels the call: the answer is ignored.
#[must_use = "dropping a call cancels it"]
pub struct Call<O> {
    pending: Pending<Result<Bytes, CallError>>,
    procedure: &'static str,
    peer: Address,
    output: PhantomData<fn() -> O>,
}

/// A transfer in progress: a future of what it gives back. The engine that made it has to be driven
/// meanwhile. Dropping it cancels the transfer; a push may by then have written some of its bytes.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer<T>(Pending<Result<T, TransferError>>);

impl<O: DeserializeOwned> Call<O> {
    pub(crate) fn new(
        pending: Pending<Result<Bytes, CallError>>,
        procedure: &'static str,
        peer: Address,
    ) -> Self {
        Self {
            pending,
            procedure,
            peer,
            output: PhantomData,
        }
    }

    /// The output or the error, once, if the call has ended.
    pub fn try_take(&mut self) -> Option<Result<O, CallError>> {
        self.pending.take().map(|result| self.decode(result))
    }

    fn decode(&self, result: Result<Bytes, CallError>) -> Result<O, CallError> {
        let (procedure, peer) = (self.procedure, self.peer.clone());
        match Reply::decode(&result?) {
            Some(Reply::Output(output)) => Ok(output),
            Some(Reply::Busy) => Err(CallError::Busy { procedure, peer }),
            Some(Reply::Fault(source)) => Err(CallError::Fault {
                procedure,
                peer,
                source,
            }),
            Some(Reply::UnknownProcedure) => Err(CallError::UnknownProcedure { procedure, peer }),
            Some(Reply::InputMalformed) => Err(CallError::InputMalformed { procedure, peer }),
            None => Err(CallError::OutputMalformed { procedure, peer }),
        }
    }
}

impl<O: DeserializeOwned> Future for Call<O> {
    type Output = Result<O, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map(|result| self.decode(result))
    }
}

impl<O> fmt::Debug for Call<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("procedure", &self.procedure)
            .field("peer", &self.peer)
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

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

impl<T> fmt::Debug for Transfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}

/// The receiving end of one result.
pub(crate) struct Pending<T> {
    slot: Arc<Mutex<Slot<T>>>,
    of: InProgress,
    abandoned: Abandoned,
}

/// What of the engine's work brings a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InProgress {
    Bulk(BulkId),
    Operation(OperationId),
}

/// What brings results that nobody wants any longer, for the engine to cancel: each at most once, so no more
/// than it may have in progress.
#[derive(Clone)]
pub(crate) struct Abandoned {
    queue: Arc<Mutex<Vec<InProgress>>>,
    waker: Waker,
}

/// The giving end of one result.
pub(crate) struct Promise<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    state: SlotState<T>,
    waker: Option<task::Waker>,
}

enum SlotState<T> {
    Waiting,
    Given(T),
    Taken,
}

impl<T> Pending<T> {
    pub(crate) fn new(of: impl Into<InProgress>, abandoned: &Abandoned) -> (Promise<T>, Self) {
        let slot = Arc::new(Mutex::new(Slot {
            state: SlotState::Waiting,
            waker: None,
        }));
        let pending = Self {
            slot: slot.clone(),
            of: of.into(),
            abandoned: abandoned.clone(),
        };
        (Promise(slot), pending)
    }

    fn take(&self) -> Option<T> {
        lock(&self.slot).take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = lock(&self.slot);
        match slot.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if matches!(lock(&self.slot).state, SlotState::Waiting) {
            self.abandoned.push(self.of);
        }
    }
}

impl From<BulkId> for InProgress {
    fn from(bulk: BulkId) -> Self {
        Self::Bulk(bulk)
    }
}

impl From<OperationId> for InProgress {
    fn from(operation: OperationId) -> Self {
        Self::Operation(operation)
    }
}

impl Abandoned {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            queue: Arc::default(),
            waker,
        }
    }

    pub(crate) fn take(&self) -> Vec<InProgress> {
        std::mem::take(&mut *lock(&self.queue))
    }

    fn push(&self, abandoned: InProgress) {
        lock(&self.queue).push(abandoned);
        self.waker.wake();
    }
}

impl<T> Promise<T> {
    pub(crate) fn fulfil(self, result: T) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.state = SlotState::Given(result);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Slot<T> {
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(&mut self.state, SlotState::Taken) {
            SlotState::Given(result) => Some(result),
            other => {
                self.state = other;
                None
            }
        }
    }
}

/// No code of ours panics while it holds one of these locks, so what they guard is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
