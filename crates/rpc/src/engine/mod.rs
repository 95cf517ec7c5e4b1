//! The engine: procedures and calls over one endpoint.

mod arrived;
mod batch;
mod bulk;
mod bulk_transfers;
mod calls;
mod metrics;
mod overflow;
mod pipelines;
mod retries;
mod segments;
mod serving;
mod tasks;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    os::fd::{AsFd, BorrowedFd},
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use ropewalk_fabric::{
    Address, Buffer, Endpoint, Identity, Messages, OperationId, PeerDeath, PeerId, RegionHandle, SubmitError,
    ToPeer, Waker,
};

pub use self::batch::Batch;
use self::{
    batch::BatchReplies, bulk_transfers::BulkTransfers, calls::WaitingCall, overflow::WaitingOutput,
    pipelines::Pipelines, retries::Retries, serving::Procedures, tasks::Guests,
};
use crate::{
    CallError, Caller, EngineOptions, Metrics, TransferError,
    arrivals::Arrivals,
    bulk::{BulkId, Piece},
    call::Answer,
    deferred::Deferred,
    executed::Executed,
    once::Sequences,
    operations::Operations,
    outputs::Outputs,
    promise::{Abandoned, Places, Promise, Work},
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
    options: EngineOptions,
    spin: Spin,
    driving: bool,
    lost_peers: VecDeque<LostPeer>,
    /// Taken from the endpoint and not handled yet: more than none only while it makes progress, or if a handler
    /// panicked.
    messages: Messages,
    operations: Operations<Waiting>,
    abandoned: Abandoned,
    places: Places<Result<Answer, CallError>>,
    /// Whether a target was told something that it waits for, and that the owner may not wait for.
    told: bool,
    sequences: Sequences<Address>,
    retries: Retries,
    procedures: Procedures,
    /// The last one, who often calls again.
    caller: Option<Caller>,
    arrivals: Arrivals<PeerId, OperationId>,
    executed: Executed<ReplyTo>,
    deferred: Deferred<PeerId>,
    replies: Replies,
    batch_replies: Option<BatchReplies>,
    outputs: Outputs<PeerId>,
    /// Regions with inputs and outputs that others are to pull.
    overflow_regions: usize,
    /// Notifications whose inputs are among these.
    notified: usize,
    unsent: Unsent<PeerId>,
    bulk_transfers: BulkTransfers,
    pipelines: Pipelines,
    guests: Guests,
    metrics: Metrics,
    counts_procedures: bool,
    calls_ended: u64,
}

/// Whom to give the result of an operation.
enum Waiting {
    Call(WaitingCall),
    /// The request of this peer that the input is for.
    Input(PeerId),
    /// The target pulls the input of a notification.
    Notified(RegionHandle),
    Output(Box<WaitingOutput>),
    /// Part of a bulk transfer.
    Piece(BulkId, Piece),
    Pull(Promise<Result<Buffer, TransferError>>),
    /// With how many bytes are pushed.
    Push(Promise<Result<(), TransferError>>, u64),
}

/// How much an engine has in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Calls, notifications and transfers that it has begun and that have not ended.
    pub operations: usize,
    /// Calls that wait for their next attempt.
    pub retries: usize,
    /// Calls that handlers here have taken and not answered.
    pub deferred: usize,
    /// Requests that wait for an input to be pulled.
    pub arrivals: usize,
    /// Replies that wait for room.
    pub unsent: usize,
    /// Inputs and outputs that are exposed for their receivers to pull.
    pub overflow_regions: usize,
    /// Transfers of ranges of bulk handles, chunks of pipelines among them.
    pub bulk_transfers: usize,
    /// Pipelined transfers.
    pub pipelines: usize,
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
    /// How much that has come is handled in one round of progress, about.
    const ARRIVALS_PER_PROGRESS: usize = 256;
    /// How many lost peers are remembered until they are asked for; the oldest go first.
    pub const LOST_PEERS_MAX: usize = 1024;

    /// An engine over this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Self::with_options(endpoint, EngineOptions::default())
    }

    /// An engine over this endpoint, with these maxima.
    pub fn with_options(endpoint: Endpoint, options: EngineOptions) -> Self {
        Self {
            options,
            spin: Spin::new(),
            driving: false,
            lost_peers: VecDeque::new(),
            messages: Messages::new(),
            operations: Operations::new(),
            abandoned: Abandoned::new(endpoint.waker()),
            places: Places::new(),
            told: false,
            sequences: Sequences::new(),
            retries: Retries::new(),
            procedures: HashMap::default(),
            caller: None,
            arrivals: Arrivals::new(options.arrivals_max, options.overflow_bytes_max),
            executed: Executed::new(options.executed_max, options.executed_bytes_max),
            deferred: Deferred::new(options.calls_max, options.calls_per_peer_max),
            replies: Replies::new(endpoint.waker()),
            batch_replies: None,
            outputs: Outputs::new(options.overflow_bytes_max),
            overflow_regions: 0,
            notified: 0,
            unsent: Unsent::new(),
            bulk_transfers: BulkTransfers::default(),
            pipelines: Pipelines::new(endpoint.waker()),
            guests: Guests::new(endpoint.address().clone(), endpoint.waker()),
            metrics: Metrics::default(),
            counts_procedures: false,
            calls_ended: 0,
            endpoint,
        }
    }

    /// A name for the engine at this address, to call it by: that spares a look-up on each call. It is valid until
    /// the peer is lost.
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn peer(&mut self, address: &Address) -> Result<PeerId, SubmitError> {
        self.endpoint.peer(address)
    }

    /// What carries the calls to this peer: `"shm"`, `"tcp"`, `"unix"`, `"ofi"` or `"loopback"`; `None` if there is no
    /// connection to it.
    pub fn provider_of(&self, peer: PeerId) -> Option<&'static str> {
        self.endpoint.provider_of(peer)
    }

    /// Where peers reach this engine.
    pub fn address(&self) -> &Address {
        self.endpoint.address()
    }

    /// Who this engine is to its peers.
    pub fn identity(&self) -> Identity {
        self.endpoint.identity()
    }

    /// Keeps out a member that its job counts as gone, in this and all earlier incarnations: see [`Endpoint::fence`]. Calls
    /// and transfers with it end, and its calls are served no more.
    pub fn fence(&mut self, identity: Identity) {
        self.endpoint.fence(identity);
    }

    /// Takes a peer for lost from now on when it gives no sign of life, even if nothing is asked of it: see
    /// [`Endpoint::watch`].
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn watch(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        self.endpoint.watch(peer)
    }

    /// Ends [`watch`](Self::watch).
    pub fn unwatch(&mut self, peer: PeerId) {
        self.endpoint.unwatch(peer);
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
        let mut happened = self.endpoint.prepare();
        for work in self.abandoned.take() {
            match work {
                Work::Bulk(bulk) => self.cancel_bulk(bulk),
                Work::Operation(operation) => self.handle_abandoned(operation),
            }
        }
        happened += self.receive();
        happened += self.progress_pipelines();
        self.progress_bulk();
        // What handlers began above goes on here, and its answers leave below.
        happened += self.progress_guests();
        for (to, body) in self.replies.take() {
            happened += 1;
            if self.deferred.end(to.peer, to.tag) {
                self.metrics.request_failures.cancelled += 1;
                // Nobody waits for it, unless it may be asked for again.
                if to.once.is_none() {
                    continue;
                }
            }
            self.reply(to, body);
        }
        if !self.unsent.is_empty() {
            let now = self.now();
            let endpoint = &mut self.endpoint;
            happened += self.unsent.send(now, |caller, tag, body| {
                let sent = endpoint.send_reply(caller, tag, body);
                !matches!(sent, Err(SubmitError::Busy { .. }))
            });
        }
        if let Some(deadline) = self.calls_deadline() {
            let now = self.now();
            if deadline <= now {
                self.handle_deadlines(now);
                happened += 1;
            }
        }
        if std::mem::take(&mut self.told) {
            happened += self.endpoint.prepare();
        }
        self.driving = false;
        happened
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let deadlines = [self.own_deadline(), self.endpoint.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Drives the engine until something happened, but not longer than `timeout`: for a short time without
    /// sleeping, which is shorter the less that has paid. Returns how much happened.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn wait(&mut self, timeout: Duration) -> usize {
        let start = Instant::now();
        self.spin
            .begin(start.saturating_duration_since(self.endpoint.now()));
        let mut looked_since = start;
        let mut slept = false;
        loop {
            let transfer = self.endpoint.is_transferring();
            let happened = self.progress();
            // When that began: another look at the clock would cost as much as the rest.
            let now = self.endpoint.now();
            let looked = now.saturating_duration_since(looked_since);
            if happened > 0 {
                self.spin.handle_work(looked, slept, transfer);
                return happened;
            }
            let elapsed = now.saturating_duration_since(start);
            if elapsed >= timeout {
                self.spin.handle_none();
                return 0;
            }
            if self.endpoint.has_moved() {
                // Who sleeps in the middle of a transfer has the other side wait for its waking, and sleep too.
                self.spin.handle_part(looked, slept, transfer);
                // What moved may have taken longer than it is worth to look for more.
                looked_since = Instant::now();
                slept = false;
            } else if slept || !self.spin.goes_on(looked, transfer) {
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

    /// Drives the engine until everything queued was handed to the operating system, and outputs and one-way inputs
    /// that are too large for a message were pulled: the last thing to do before dropping it. Returns whether that
    /// was so within `timeout`. For what goes in messages it is not yet delivery; see [`Endpoint::flush`].
    pub fn flush(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            self.progress();
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let to_pull = self.outputs.len() + self.notified > 0;
            let flushed = self.endpoint.flush(left) && self.unsent.is_empty();
            if flushed && !to_pull || left.is_zero() {
                return flushed && !to_pull;
            }
            if flushed {
                self.wait(left.min(Duration::from_millis(1)));
            }
        }
    }

    /// The next peer that was lost. Calls and transfers with it have ended by then.
    pub fn poll_lost_peer(&mut self) -> Option<LostPeer> {
        self.lost_peers.pop_front()
    }

    /// How much is in progress.
    pub fn in_progress(&self) -> InProgress {
        InProgress {
            operations: self.operations.len(),
            retries: self.retries.len(),
            deferred: self.deferred.len(),
            arrivals: self.arrivals.len(),
            unsent: self.unsent.len(),
            overflow_regions: self.overflow_regions,
            bulk_transfers: self.bulk_transfers.len(),
            pipelines: self.pipelines.len(),
        }
    }

    /// A handle by which other threads end the [`wait`](Self::wait) of the one that drives this engine.
    pub fn waker(&self) -> Waker {
        self.endpoint.waker()
    }

    /// The time, looked at once in each round of progress.
    fn now(&self) -> Instant {
        match self.driving {
            true => self.endpoint.now(),
            false => Instant::now(),
        }
    }

    /// When there is something to do that the endpoint knows nothing of.
    fn own_deadline(&self) -> Option<Instant> {
        // A handler panicked before these.
        if !self.messages.is_empty() {
            return Some(Instant::now());
        }
        let deadlines = [
            self.guests.next_deadline(),
            self.bulk_transfers.next_deadline(),
            self.pipelines.next_deadline(),
            self.calls_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// When [`handle_deadlines`](Self::handle_deadlines) has something to do.
    fn calls_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.deferred.next_deadline(),
            self.outputs.next_deadline(),
            self.retries.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn handle_deadlines(&mut self, now: Instant) {
        for cancellation in self.deferred.handle_deadlines(now) {
            cancellation.cancel();
        }
        for region in self.outputs.handle_deadlines(now) {
            self.withdraw_overflow(&region);
        }
        while let Some(call) = self.retries.pop_due(now) {
            self.retry(now, call);
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
        for waiting in self.operations.drain() {
            match waiting {
                Waiting::Piece(..) => {}
                Waiting::Call(call) => call.stop(),
                Waiting::Output(output) => output.call.stop(),
                Waiting::Pull(promise) => promise.fulfil(Err(TransferError::Stopped)),
                Waiting::Push(promise, _) => promise.fulfil(Err(TransferError::Stopped)),
                Waiting::Input(_) | Waiting::Notified(_) => {}
            }
        }
        self.retries.drain().for_each(WaitingCall::stop);
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
