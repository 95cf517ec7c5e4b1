//! The engine: procedures and calls over one endpoint.

mod bulk;
mod bulk_transfers;
mod calls;
mod pipelines;
mod segments;
mod serving;
mod tasks;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    os::fd::{AsFd, BorrowedFd},
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, Buffer, Completion, Endpoint, Event, Identity, OperationError, OperationId, PeerDeath,
    SubmitError, Waker,
};

use self::{bulk_transfers::BulkTransfers, pipelines::Pipelines, tasks::Guests};
use crate::{
    CallError, Caller, TransferError,
    bulk::{BulkId, Piece},
    call::{Abandoned, InProgress, Promise},
    responder::{Replies, ReplyTo},
    spin::Spin,
    unsent::Unsent,
};

/// Serves procedures to peers and calls theirs.
///
/// An engine has no thread and no runtime: its owner drives it with [`progress`](Self::progress), from an
/// event loop over [`as_fd`](AsFd::as_fd) and [`next_deadline`](Self::next_deadline), or with
/// [`wait`](Self::wait) or [`block_on`](Self::block_on). Calls and transfers are futures for any executor,
/// and may be polled from other threads than the one that drives.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use ropewalk_group::{Incarnation, JobId, Rank};
/// use ropewalk_rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role};
///
/// struct Add;
///
/// impl Procedure for Add {
///     const NAME: &'static str = "example.add";
///     type Input = (u32, u32);
///     type Output = u32;
/// }
///
/// let key = JobKey::generate()?;
/// let mut engines = [0, 1].map(|rank| {
///     let identity = Identity { role: Role::Rank, rank: Rank(rank), incarnation: Incarnation(0) };
///     Engine::new(Endpoint::bind(EndpointOptions::new(JobId([7; 16]), key.clone(), identity)).unwrap())
/// });
/// let [origin, target] = &mut engines;
///
/// target.serve::<Add>(|_caller, (a, b)| Ok(a + b));
/// let mut call = origin.call::<Add>(target.address(), &(2, 3), Duration::from_secs(5))?;
/// let sum = loop {
///     origin.progress();
///     target.progress();
///     if let Some(result) = call.try_take() {
///         break result?;
///     }
/// };
/// assert_eq!(sum, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    endpoint: Endpoint,
    procedures: HashMap<u64, Served>,
    waiting: BTreeMap<OperationId, Waiting>,
    bulk_transfers: BulkTransfers,
    pipelines: Pipelines,
    abandoned: Abandoned,
    replies: Replies,
    lost_peers: VecDeque<LostPeer>,
    next_call: u64,
    unsent: Unsent,
    spin: Spin,
    driving: bool,
    guests: Guests,
}

struct Served {
    name: &'static str,
    /// Not here while it runs.
    handler: Option<Handler>,
}

type Handler = Box<dyn FnMut(&mut Engine, Caller, Option<ReplyTo>, Bytes) + Send>;

/// Whom to give the result of an operation.
enum Waiting {
    Call(&'static str, Promise<Result<Bytes, CallError>>),
    /// Part of a bulk transfer.
    Piece(BulkId, Piece),
    Pull(Promise<Result<Buffer, TransferError>>),
    Push(Promise<Result<(), TransferError>>),
}

/// A peer that is gone, or could not be reached.
#[derive(Clone, Debug)]
pub struct LostPeer {
    /// Where it was.
    pub address: Address,
    /// What was seen.
    pub cause: PeerDeath,
}

impl Engine {
    /// The longest that [`wait`](Self::wait) looks for work before it sleeps: about what it costs to be
    /// woken.
    pub const SPIN_MAX: Duration = Spin::MAX;
    /// How many lost peers are remembered until they are asked for; the oldest go first.
    pub const LOST_PEERS_MAX: usize = 1024;

    /// An engine over this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        let guests = Guests::new(endpoint.address().clone(), endpoint.waker());
        let pipelines = Pipelines::new(endpoint.waker());
        Self {
            abandoned: Abandoned::new(endpoint.waker()),
            replies: Replies::new(endpoint.waker()),
            // An answer to an earlier engine at this address, late, must not pass for one to this.
            next_call: endpoint.instance(),
            endpoint,
            procedures: HashMap::new(),
            waiting: BTreeMap::new(),
            bulk_transfers: BulkTransfers::default(),
            pipelines,
            lost_peers: VecDeque::new(),
            unsent: Unsent::default(),
            spin: Spin::new(),
            driving: false,
            guests,
        }
    }

    /// Where peers reach this engine.
    pub fn address(&self) -> &Address {
        self.endpoint.address()
    }

    /// Who this engine is to its peers.
    pub fn identity(&self) -> Identity {
        self.endpoint.identity()
    }

    /// Sends, receives, serves and completes what is possible at once. Never blocks. Returns how much
    /// happened: it is worth calling again before sleeping if that is not 0.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn progress(&mut self) -> usize {
        assert!(!self.driving, "a handler must not drive the engine that runs it");
        self.driving = true;
        // First this, which takes the wish to be woken: what other threads leave from here on wakes again.
        let mut happened = self.endpoint.progress();
        for abandoned in self.abandoned.take() {
            match abandoned {
                InProgress::Bulk(bulk) => self.cancel_bulk(bulk),
                InProgress::Operation(operation) => {
                    if self.waiting.remove(&operation).is_some() {
                        self.endpoint.cancel(operation);
                    }
                }
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(event);
        }
        happened += self.progress_pipelines();
        self.progress_bulk();
        // What handlers began above goes on here, and its answers leave below.
        happened += self.progress_guests();
        let replies = self.replies.take();
        happened += replies.len();
        for (to, body) in replies {
            self.reply(to, body);
        }
        if !self.unsent.is_empty() {
            let endpoint = &mut self.endpoint;
            happened += self.unsent.send(Instant::now(), |to, body| {
                let sent = endpoint.answer_expected(&to.peer, to.tag, body.clone());
                !matches!(sent, Err(SubmitError::Busy { .. }))
            });
        }
        self.driving = false;
        happened
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.endpoint.next_deadline(), self.own_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Drives the engine until something happened, but not longer than `timeout`: for a short time without
    /// sleeping, which is shorter the less that has paid. Returns how much happened.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn wait(&mut self, timeout: Duration) -> usize {
        let start = Instant::now();
        let mut slept = false;
        loop {
            let happened = self.progress();
            let elapsed = start.elapsed();
            if happened > 0 {
                self.spin.handle_work(elapsed, slept);
                return happened;
            }
            if elapsed >= timeout {
                self.spin.handle_none();
                return 0;
            }
            if slept || !self.spin.goes_on(elapsed) {
                slept = true;
                let left = timeout - elapsed;
                let deadline = self.own_deadline();
                self.endpoint.wait(deadline.map_or(left, |deadline| {
                    left.min(deadline.saturating_duration_since(Instant::now()))
                }));
            }
        }
    }

    /// Drives the engine until a call or transfer of this engine, or a future made of such, has ended.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        // All that can make the future ready happens in `progress`, after which it is polled: nobody has to
        // be woken.
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.wait(Duration::from_secs(1));
        }
    }

    /// Drives the engine until everything queued was handed to the operating system: the last thing to do
    /// before dropping it. Returns whether that was so within `timeout`. It is not yet delivery; see
    /// [`Endpoint::flush`].
    pub fn flush(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            self.progress();
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let flushed = self.endpoint.flush(left);
            if !flushed || self.unsent.is_empty() || left.is_zero() {
                return flushed && self.unsent.is_empty();
            }
        }
    }

    /// The next peer that was lost. Calls and transfers with it have ended by then.
    pub fn poll_lost_peer(&mut self) -> Option<LostPeer> {
        self.lost_peers.pop_front()
    }

    /// A handle by which other threads end the [`wait`](Self::wait) of the one that drives this engine.
    pub fn waker(&self) -> Waker {
        self.endpoint.waker()
    }

    /// The deadline of what the endpoint knows nothing of.
    fn own_deadline(&self) -> Option<Instant> {
        let deadlines = [self.guests.next_deadline(), self.bulk_transfers.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Completed { operation, result } => self.handle_completed(operation, result),
            Event::PeerDied { peer, cause } => {
                self.unsent.forget(&peer);
                if self.lost_peers.len() == Self::LOST_PEERS_MAX {
                    self.lost_peers.pop_front();
                }
                self.lost_peers.push_back(LostPeer { address: peer, cause });
            }
            Event::Unexpected { from, tag, body } => self.handle_request(from, tag, body),
        }
    }

    fn handle_completed(&mut self, operation: OperationId, result: Result<Completion, OperationError>) {
        match (self.waiting.remove(&operation), result) {
            (Some(Waiting::Call(_, promise)), Ok(Completion::Received(reply))) => promise.fulfil(Ok(reply)),
            (Some(Waiting::Call(procedure, promise)), Err(error)) => {
                promise.fulfil(Err(CallError::from_operation(procedure, error)));
            }
            (Some(Waiting::Pull(promise)), Ok(Completion::Got(buffer))) => promise.fulfil(Ok(buffer)),
            (Some(Waiting::Pull(promise)), Err(error)) => promise.fulfil(Err(error.into())),
            (Some(Waiting::Push(promise)), Ok(Completion::Put)) => promise.fulfil(Ok(())),
            (Some(Waiting::Push(promise)), Err(error)) => promise.fulfil(Err(error.into())),
            (Some(Waiting::Piece(bulk, piece)), result) => self.handle_piece(operation, bulk, piece, result),
            // It was abandoned meanwhile.
            (None, _) => {}
            (Some(_), Ok(completion)) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
    }
}

impl AsFd for Engine {
    /// Readable when there is something to do; see [`Engine::next_deadline`] too.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl Drop for Engine {
    /// What is in progress ends with `Stopped`, so that nobody waits for it.
    fn drop(&mut self) {
        self.guests.stop();
        self.bulk_transfers.stop();
        self.pipelines.stop();
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            match waiting {
                Waiting::Call(procedure, promise) => promise.fulfil(Err(CallError::Stopped { procedure })),
                Waiting::Piece(..) => {}
                Waiting::Pull(promise) => promise.fulfil(Err(TransferError::Stopped)),
                Waiting::Push(promise) => promise.fulfil(Err(TransferError::Stopped)),
            }
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("endpoint", &self.endpoint)
            .field("procedures", &self.procedures.len())
            .finish_non_exhaustive()
    }
}
