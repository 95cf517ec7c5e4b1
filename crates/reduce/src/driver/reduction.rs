//! A reduction as its caller sees it: a future.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use ropewalk_fabric::AgentLinkError;
use ropewalk_membership::GroupError;
use ropewalk_names::Rank;
use thiserror::Error;

#[cfg(doc)]
use super::group::Protection;
use super::{
    job::{Shared, Wish},
    lent_memory::Loan,
    sites::Sites,
    table_calls::Waiting,
};
use crate::{
    operation::{Codec, DecodeError, Elements, ResultMemory},
    outcome::{Receipt, ReductionError},
};

/// A reduction under way; the paper's future `f` (figure 2).
///
/// Wait for it with [`get`](Self::get) or `.await`, or ask [`is_done`](Self::is_done) between other work: it
/// goes on meanwhile. Dropping it does not end it, since the other members need this rank's part.
#[must_use = "whether the reduction worked is known only from its outcome"]
pub struct Reduction<V> {
    codec: Box<dyn Codec<V>>,
    waiter: Waiter,
}

/// Waits for the end of a reduction, from any thread, and leaves the outcome to the [`Reduction`].
#[derive(Clone, Debug)]
pub struct Waiter {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    /// Of a call of the table, which its caller ends.
    waiting: Option<Arc<Waiting>>,
}

impl Waiter {
    /// Waits so long at most, and says if the end has come and its outcome was not taken.
    pub fn wait_for(&self, patience: Duration) -> bool {
        self.wait_until(Instant::now().checked_add(patience));
        self.slot.is_full()
    }

    /// Ends the reduction as [`Reduction::cancel`] does.
    pub fn cancel(&self) {
        let is_new = {
            let mut state = self.slot.lock();
            !state.has_ended && !std::mem::replace(&mut state.is_cancelled, true)
        };
        if is_new {
            self.shared.wish(Wish::Cancel);
        }
    }

    /// As [`Reduction::is_protected`].
    pub fn is_protected(&self) -> bool {
        matches!(self.slot.lock().exposure, Exposure::Over(_))
    }

    /// Waits until the end is here, or the time has come.
    fn wait_until(&self, until: Option<Instant>) {
        let until = until.unwrap_or_else(|| Instant::now() + Self::LONG);
        if let Some(waiting) = &self.waiting {
            waiting.wait(&self.slot, until);
        }
        let has_ended = || self.slot.has_ended();
        if self.slot.lock().is_driven_by_caller {
            while !has_ended() && Instant::now() < until && self.shared.turns.drive_until(until, has_ended) {}
        }
        self.slot.wait_until(until);
    }

    /// Who waits without an end looks at the time after this.
    const LONG: Duration = Duration::from_secs(3600);
}

/// The outcome of a reduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<V> {
    /// The result: at the root, or at all if all get it; nothing elsewhere.
    pub value: Option<V>,
    /// The members of the result, and the proof that each contribution was counted exactly once.
    pub receipt: Receipt,
    /// The time from this rank's call until its contribution was protected as [`Protection`] says; `None` if the
    /// reduction ended before, or there is nobody to protect it.
    pub exposure: Option<Duration>,
}

impl<V> Reduction<V> {
    pub(super) fn new(slot: Arc<Slot>, codec: Box<dyn Codec<V>>, shared: &Arc<Shared>) -> Self {
        let waiter = Waiter {
            slot,
            shared: Arc::clone(shared),
            waiting: None,
        };
        Self { codec, waiter }
    }

    /// Its end is looked for in this way first.
    pub(super) fn by(self, waiting: Option<Waiting>) -> Self {
        let waiting = waiting.map(Arc::new);
        let waiter = Waiter {
            waiting,
            ..self.waiter
        };
        Self { waiter, ..self }
    }

    /// Says if [`get`](Self::get) would return at once.
    pub fn is_done(&self) -> bool {
        if let Some(waiting) = &self.waiter.waiting {
            waiting.look();
        }
        self.waiter.slot.is_full()
    }

    /// Says if this rank's contribution is protected as [`Protection`] says. Before that, the loss that it is to
    /// survive ends the reduction with an error.
    pub fn is_protected(&self) -> bool {
        self.waiter.is_protected()
    }

    /// Waits until this rank's contribution is protected, and returns true; or until it is known that it will not be,
    /// since the reduction has ended or there is nobody to protect it.
    pub fn wait_until_protected(&self) -> bool {
        let mut state = self.waiter.slot.lock();
        while state.result.is_none() && state.exposure == Exposure::Lasts {
            state = self.waiter.slot.wait(state);
        }
        matches!(state.exposure, Exposure::Over(_))
    }

    /// Ends the reduction for all its members with [`ReductionError::Cancelled`], unless its end is decided already.
    /// This call does not wait; [`get`](Self::get) tells how the reduction ended.
    ///
    /// On one host, members whose contributions are all there end it with its result: nobody is asked any more.
    pub fn cancel(&self) {
        self.waiter.cancel();
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// If there is no result. Except for local trouble all members get the same error.
    pub fn get(self) -> Result<Outcome<V>, ReduceError> {
        self.wait()
    }

    /// Waits for the end, so long at most, and says if it has come: if [`get`](Self::get) would return at once.
    pub fn wait_for(&self, patience: Duration) -> bool {
        self.waiter.wait_for(patience)
    }

    /// By which other threads wait too.
    pub fn waiter(&self) -> Waiter {
        self.waiter.clone()
    }

    pub(super) fn wait(&self) -> Result<Outcome<V>, ReduceError> {
        loop {
            self.waiter.wait_until(None);
            let mut state = self.waiter.slot.lock();
            if let Some(result) = state.result.take() {
                let exposure = state.exposure;
                drop(state);
                return self.decode(result, exposure);
            }
            // It was polled before, and has told its outcome.
            if state.has_ended {
                return Err(ReduceError::JobEnded);
            }
        }
    }

    fn decode(&self, result: SlotResult, exposure: Exposure) -> Result<Outcome<V>, ReduceError> {
        let (receipt, memory) = result?;
        let value = memory.map(|memory| self.codec.take(memory)).transpose()?;
        let exposure = match exposure {
            Exposure::Over(time) => Some(time),
            Exposure::Lasts | Exposure::Endless => None,
        };
        Ok(Outcome {
            value,
            receipt,
            exposure,
        })
    }
}

impl<V> Future for Reduction<V> {
    type Output = Result<Outcome<V>, ReduceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(waiting) = &self.waiter.waiting {
            waiting.look();
        }
        let mut state = self.waiter.slot.lock();
        match state.result.take() {
            Some(result) => {
                let exposure = state.exposure;
                drop(state);
                Poll::Ready(self.decode(result, exposure))
            }
            None => {
                state.waker = Some(context.waker().clone());
                drop(state);
                if let Some(waiting) = &self.waiter.waiting {
                    waiting.watch();
                }
                Poll::Pending
            }
        }
    }
}

impl<V> fmt::Debug for Reduction<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction")
            .field("rank", &self.waiter.shared.rank)
            .field("is_done", &self.is_done())
            .finish()
    }
}

/// Where the end of a reduction is left for its caller.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

/// The receipt and the result, where it is.
pub(super) type SlotResult = Result<(Receipt, Option<ResultMemory>), ReduceError>;

#[derive(Debug, Default)]
struct State {
    result: Option<SlotResult>,
    /// The end was left here; somebody may have taken it.
    has_ended: bool,
    /// The caller does not want it any more.
    is_cancelled: bool,
    exposure: Exposure,
    waker: Option<Waker>,
    /// A caller that waits drives the machines.
    is_driven_by_caller: bool,
    /// Threads that wait for a change.
    waiting: u32,
}

/// The time in which the loss that a contribution is to be protected from would be fatal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Exposure {
    #[default]
    Lasts,
    Over(Duration),
    /// Nobody protects it.
    Endless,
}

impl Slot {
    /// The slot of a reduction that has failed in its call.
    pub(super) fn failed(error: ReduceError) -> Arc<Self> {
        let state = State {
            result: Some(Err(error)),
            has_ended: true,
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Says if the end has been left here, and not been taken.
    pub(super) fn is_full(&self) -> bool {
        self.lock().result.is_some()
    }

    /// Says if the end has been left here, also if somebody has taken it.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// The end, if it has been left here.
    pub(super) fn take(&self) -> Option<SlotResult> {
        self.lock().result.take()
    }

    /// Waits until the end has been left here, or the time has come.
    fn wait_until(&self, until: Instant) {
        let mut state = self.lock();
        while !state.has_ended {
            let pause = until.saturating_duration_since(Instant::now());
            if pause.is_zero() {
                return;
            }
            state.waiting += 1;
            let woken = self.changed.wait_timeout(state, pause);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A waiter that panicked left a state that is whole all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to fill a [`Slot`]; dropped without that, as by a panic, it tells the caller so.
pub(super) struct Completion {
    slot: Option<Arc<Slot>>,
    /// The memory that the caller gets back.
    loan: Option<Loan>,
    /// Memory of the caller for the result.
    memory: Option<Box<dyn Elements>>,
}

impl Completion {
    pub(super) fn new(loan: Option<Loan>) -> (Self, Arc<Slot>) {
        let slot = Arc::new(Slot::default());
        let completion = Self {
            slot: Some(Arc::clone(&slot)),
            loan,
            memory: None,
        };
        (completion, slot)
    }

    /// A caller that waits drives the machines.
    pub(super) fn let_caller_drive(&self) {
        if let Some(slot) = &self.slot {
            slot.lock().is_driven_by_caller = true;
        }
    }

    /// Takes memory that the caller has no use for, for the result. To write new pages takes several times as long as
    /// to write these.
    pub(super) fn lend(&mut self, memory: Option<Box<dyn Elements>>) {
        self.memory = memory;
    }

    /// The memory that was lent, if it is for a result of so many bytes.
    pub(super) fn take_memory(&mut self, bytes: usize) -> Option<Box<dyn Elements>> {
        let mut memory = self.memory.take()?;
        (memory.bytes_mut().len() == bytes).then_some(memory)
    }

    /// Says if nobody needs what the caller gets back.
    pub(super) fn is_free(&self) -> bool {
        self.loan.as_ref().is_none_or(Loan::is_over)
    }

    /// Says if the caller does not want the result any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.lock().is_cancelled)
    }

    /// The contribution is not protected yet after all.
    pub(super) fn unsettle(&self) {
        if let Some(slot) = &self.slot {
            slot.lock().exposure = Exposure::Lasts;
        }
    }

    /// The contribution is protected since so long after the call, or will not be.
    pub(super) fn settle(&self, exposure: Option<Duration>) {
        if let Some(slot) = &self.slot {
            let mut state = slot.lock();
            state.exposure = exposure.map_or(Exposure::Endless, Exposure::Over);
            if state.waiting > 0 {
                slot.changed.notify_all();
            }
        }
    }

    pub(super) fn complete(mut self, result: SlotResult) {
        self.fill(result);
    }

    fn fill(&mut self, result: SlotResult) {
        let Some(slot) = self.slot.take() else { return };
        let mut state = slot.lock();
        state.result = Some(result);
        state.has_ended = true;
        let waker = state.waker.take();
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            slot.changed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.fill(Err(ReduceError::JobEnded));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("slot", &self.slot)
            .field("loan", &self.loan)
            .finish_non_exhaustive()
    }
}

/// Why a call of reduce brought no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// A vector is to be dealt in equal blocks, and cannot be cut into so many.
    #[error(
        "a vector of {elements} elements, or an object, cannot be dealt in {ranks} equal blocks, one for each rank"
    )]
    Blocks {
        /// The elements of the vector.
        elements: usize,
        /// The ranks of the group.
        ranks: usize,
    },
    /// The bytes of the result are no value.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The group cannot be made.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The job was finalized, or its progress thread failed, or the group was made before ranks were
    /// [admitted](super::job::Job::admit).
    #[error(
        "the job has ended on this rank, or ranks were admitted since this group was made; reduce before the job is \
         finalized, and make groups again after each admission"
    )]
    JobEnded,
    /// The memory for the contribution could not be had.
    #[error("no memory for the contribution")]
    Memory(#[source] io::Error),
    /// A buffer is reduced by an operation on objects.
    #[error("{operation} combines whole objects, and a buffer is reduced element by element; use `reduce`")]
    NotElementwise {
        /// The operation.
        operation: String,
    },
    /// This rank is not in the group that reduces.
    #[error("rank {rank} is not a member of the group; only members call reduce")]
    NotMember {
        /// This rank.
        rank: Rank,
    },
    /// The rank to which the root would move is not in the group.
    #[error("the rank that takes the result if the root is lost is not a member of the group")]
    NextRootNotMember,
    /// The contribution could not be handed to the agent.
    #[error("the agent of this host does not take the contribution")]
    Protection(#[source] AgentLinkError),
    /// The reduction ended without a result on all members.
    #[error(transparent)]
    Reduction(#[from] ReductionError),
    /// The sources are none or too many, are numbered wrongly, or do not hold whole elements.
    #[error(
        "cannot reduce {members} sources of {bytes} bytes; from 1 to {} are allowed, with numbers below that, of whole \
         elements",
        crate::Sources::MEMBERS_MAX
    )]
    Sources {
        /// The number of contributions.
        members: u32,
        /// Bytes of each.
        bytes: u64,
    },
    /// The job has too few hosts for the copies that were asked for, or too many ranks.
    #[error(
        "copies on {copies} other hosts need {copies} more hosts than this one and at most {} ranks; the job has \
         {hosts} hosts",
        Sites::COPIES_SIZE_MAX
    )]
    NoHostForCopies {
        /// The number of copies.
        copies: u32,
        /// Hosts of the job.
        hosts: usize,
    },
    /// The root is not in the group.
    #[error("root {root} is not a member of the group")]
    RootNotMember {
        /// The root asked for.
        root: Rank,
    },
}
