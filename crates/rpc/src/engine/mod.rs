//! The engine: procedures and calls over one endpoint.

mod batch;
mod bulk;
mod calls;
mod ground;
mod guests;
mod in_progress;
mod interface;
mod routing;
mod segments;
mod serving;

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, Endpoint, Identity, Messages, PeerDeath, PeerId, SubmitError, ToPeer, Waker};
use serde::Serialize;

pub use self::{batch::Batch, in_progress::InProgress};
use self::{bulk::Bulk, calls::Calls, ground::Ground, guests::Guests, serving::Serving};
use crate::{
    Caller, EngineOptions, Fault, Metrics, Responder, input::Input, promise::Work, responder::ReplyTo,
    spin::Spin,
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
/// use ropewalk_names::{Incarnation, JobId, Rank};
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
    ground: Ground,
    calls: Calls,
    serving: Serving<HandleLater>,
    bulk: Bulk,
    guests: Guests,
    spin: Spin,
    /// Taken from the endpoint and not handled yet: more than none only while it makes progress, or if a handler
    /// panicked.
    messages: Messages,
    lost_peers: VecDeque<LostPeer>,
}

/// A handler that uses the engine.
type HandleLater = Box<dyn FnMut(&mut Engine, Caller, Option<ReplyTo>, Input<'_>) + Send>;

/// A peer that is gone, or could not be reached.
#[derive(Clone, Debug)]
pub struct LostPeer {
    /// Where it was.
    pub address: Address,
    /// The cause that was seen.
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
        Self::with_options(endpoint, EngineOptions::default())
    }

    /// An engine over this endpoint, with these maxima.
    pub fn with_options(endpoint: Endpoint, options: EngineOptions) -> Self {
        Self {
            calls: Calls::new(),
            serving: Serving::new(&options, endpoint.waker()),
            bulk: Bulk::new(endpoint.waker()),
            guests: Guests::new(endpoint.address().clone(), endpoint.waker()),
            spin: Spin::new(),
            messages: Messages::new(),
            lost_peers: VecDeque::new(),
            ground: Ground::new(endpoint, options),
        }
    }

    /// A name for the engine at this address, to call it by: that spares a look-up on each call. It is valid until
    /// the peer is lost.
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn peer(&mut self, address: &Address) -> Result<PeerId, SubmitError> {
        self.ground.endpoint.peer(address)
    }

    /// The transport that carries the calls to this peer: `"shm"`, `"tcp"`, `"unix"`, `"ofi"` or
    /// `"loopback"`; `None` if there is no connection to it.
    pub fn provider_of(&self, peer: PeerId) -> Option<&'static str> {
        self.ground.endpoint.provider_of(peer)
    }

    /// Where peers reach this engine.
    pub fn address(&self) -> &Address {
        self.ground.endpoint.address()
    }

    /// Who this engine is to its peers.
    pub fn identity(&self) -> Identity {
        self.ground.endpoint.identity()
    }

    /// Keeps out a member that its job counts as gone, in this and all earlier incarnations: see
    /// [`Endpoint::fence`]. Calls and transfers with it end, and its calls are served no more.
    pub fn fence(&mut self, identity: Identity) {
        self.ground.endpoint.fence(identity);
    }

    /// Takes a peer for lost from now on when it gives no sign of life, even if nothing is asked of it: see
    /// [`Endpoint::watch`].
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn watch(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        self.ground.endpoint.watch(peer)
    }

    /// Ends [`watch`](Self::watch).
    pub fn unwatch(&mut self, peer: PeerId) {
        self.ground.endpoint.unwatch(peer);
    }

    /// Sends, receives, serves and completes what is possible at once. Never blocks. Returns how much
    /// happened: it is worth calling again before sleeping if that is not 0.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn progress(&mut self) -> usize {
        assert!(
            !self.ground.driving,
            "a handler must not drive the engine that runs it"
        );
        self.ground.driving = true;
        // First this, which takes the wish to be woken: what other threads leave from here on wakes again.
        let mut happened = self.ground.endpoint.prepare();
        for work in self.ground.abandoned.take() {
            match work {
                Work::Bulk(bulk) => self.bulk.cancel_bulk(&mut self.ground, bulk),
                Work::Operation(operation) => self.handle_abandoned(operation),
            }
        }
        happened += self.receive();
        happened += self.bulk.progress(&mut self.ground);
        // What handlers began above goes on here, and its answers leave below.
        happened += self.progress_guests();
        happened += self.serving.progress(&mut self.ground);
        if let Some(deadline) = self.calls_deadline() {
            let now = self.ground.now();
            if deadline <= now {
                self.serving.handle_deadlines(&mut self.ground, now);
                self.calls.handle_deadlines(&mut self.ground, now);
                happened += 1;
            }
        }
        if std::mem::take(&mut self.ground.told) {
            happened += self.ground.endpoint.prepare();
        }
        self.ground.driving = false;
        happened
    }

    /// Answers a call that this engine serves, as [`Responder::answer`] does in other threads: without waking the
    /// engine.
    pub fn answer<O: Serialize>(&mut self, mut responder: Responder<O>, result: Result<O, Fault>) {
        if let Some((to, body)) = responder.encode(&result) {
            self.serving.answer(&mut self.ground, to, body);
        }
    }

    /// Sends what was queued since the last [`progress`](Self::progress), as far as that is possible at once: the last
    /// thing to do before a sleep. It spares a round of progress that finds nothing.
    pub fn send_queued(&mut self) {
        self.ground.endpoint.send_queued();
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let deadlines = [self.own_deadline(), self.ground.endpoint.next_deadline()];
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
            .begin(start.saturating_duration_since(self.ground.endpoint.now()));
        let mut looked_since = start;
        let mut slept = false;
        loop {
            let transfer = self.ground.endpoint.is_transferring();
            let happened = self.progress();
            // When that began: another look at the clock would cost as much as the rest.
            let now = self.ground.endpoint.now();
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
            if self.ground.endpoint.has_moved() {
                // Who sleeps in the middle of a transfer has the other side wait for its waking, and sleep too.
                self.spin.handle_part(looked, slept, transfer);
                // What moved may have taken longer than it is worth to look for more.
                looked_since = Instant::now();
                slept = false;
            } else if slept || !self.spin.goes_on(looked, transfer) {
                slept = true;
                let left = timeout - elapsed;
                let deadline = self.own_deadline();
                self.ground.endpoint.wait(deadline.map_or(left, |deadline| {
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
            let to_pull = self.serving.has_outputs() || self.calls.notified() > 0;
            let flushed = self.ground.endpoint.flush(left) && self.serving.in_progress().unsent == 0;
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
        let (serving, bulk) = (self.serving.in_progress(), self.bulk.in_progress());
        InProgress {
            operations: self.calls.operations() + serving.operations + bulk.operations,
            retries: self.calls.retries(),
            overflow_regions: self.ground.overflow_regions,
            bulk_transfers: bulk.bulk_transfers,
            pipelines: bulk.pipelines,
            ..serving
        }
    }

    /// Counters of all that the engine has done and is doing.
    pub fn metrics(&self) -> Metrics {
        let serving = self.serving.in_progress();
        let mut metrics = self.ground.metrics.clone();
        metrics.calls.in_progress = metrics.calls.sent - self.calls.ended();
        metrics.requests.in_progress = serving.deferred as u64;
        metrics.requests.replies_waiting = serving.unsent as u64;
        metrics.heartbeats = self.ground.endpoint.heartbeat_counts();
        metrics.tasks = self.guests.tasks() as u64;
        metrics
    }

    /// A handle by which other threads end the [`wait`](Self::wait) of the one that drives this engine.
    pub fn waker(&self) -> Waker {
        self.ground.endpoint.waker()
    }

    /// When there is something to do that the endpoint knows nothing of.
    fn own_deadline(&self) -> Option<Instant> {
        // A handler panicked before these.
        if !self.messages.is_empty() {
            return Some(Instant::now());
        }
        let deadlines = [
            self.guests.next_deadline(),
            self.bulk.next_deadline(),
            self.calls_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// When a call that is made or served has to be attended to.
    fn calls_deadline(&self) -> Option<Instant> {
        let deadlines = [self.serving.next_deadline(), self.calls.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Wakes and polls the futures whose time has come, and runs what was submitted. Returns how much there
    /// was of that.
    ///
    /// # Panics
    /// With the panic of one of them; the engine is whole then.
    fn progress_guests(&mut self) -> usize {
        let mut happened = self.guests.wake();
        let guarded = catch_unwind(AssertUnwindSafe(|| {
            happened += self.guests.poll();
            // What these submit in turn has to wait, so that this ends.
            for _ in 0..self.guests.take_submissions() {
                let submission = self.guests.pop_submission();
                submission.expect("only here they are taken")(self);
                happened += 1;
            }
        }));
        if let Err(panic) = guarded {
            self.ground.driving = false;
            resume_unwind(panic);
        }
        happened
    }
}

impl AsFd for Engine {
    /// Readable when there is something to do; see [`Engine::next_deadline`] too.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ground.endpoint.as_fd()
    }
}

impl Drop for Engine {
    /// Calls and transfers in progress end with `Stopped`, so that nobody waits for them.
    fn drop(&mut self) {
        self.guests.stop();
        self.bulk.stop();
        self.calls.stop();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("endpoint", &self.ground.endpoint)
            .field("procedures", &self.serving.procedures())
            .finish_non_exhaustive()
    }
}
