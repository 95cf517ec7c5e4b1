//! The engine: procedures and calls over one endpoint.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, Buffer, Completion, Endpoint, Event, Identity, OperationError, OperationId, Peer, PeerDeath,
    RegionHandle, SubmitError, Waker, Withdrawn,
};

use crate::{
    Call, CallError, Caller, Fault, Procedure, Responder, Transfer, TransferError,
    call::{Abandoned, Pending, Promise},
    procedure::procedure_id,
    responder::{Replies, ReplyTo},
    spin::Spin,
    unsent::Unsent,
    wire::{Reply, RequestHeader},
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
    abandoned: Abandoned,
    replies: Replies,
    lost_peers: VecDeque<LostPeer>,
    next_call: u64,
    unsent: Unsent,
    spin: Spin,
    driving: bool,
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
        Self {
            abandoned: Abandoned::new(endpoint.waker()),
            replies: Replies::new(endpoint.waker()),
            // An answer to an earlier engine at this address, late, must not pass for one to this.
            next_call: endpoint.instance(),
            endpoint,
            procedures: HashMap::new(),
            waiting: BTreeMap::new(),
            lost_peers: VecDeque::new(),
            unsent: Unsent::default(),
            spin: Spin::new(),
            driving: false,
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

    /// Serves a procedure; a handler that it had before is replaced. The handler runs inside
    /// [`progress`](Self::progress), so it should be short; see [`serve_later`](Self::serve_later) for
    /// others. What comes by [`notify`](Self::notify) is handled the same, and its output dropped.
    ///
    /// # Panics
    /// If another procedure's name has the same hash: one of the two needs another name.
    pub fn serve<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&Caller, P::Input) -> Result<P::Output, Fault> + Send + 'static,
    ) {
        self.insert(P::NAME, move |engine, caller, reply, input| {
            let result = match postcard::from_bytes(&input) {
                Ok(input) => handler(&caller, input).map_or_else(Reply::Fault, Reply::Output),
                Err(_) => Reply::InputMalformed,
            };
            if let Some(reply) = reply {
                engine.reply(reply, result.encode());
            }
        });
    }

    /// Serves a procedure whose answer may be given after the handler has returned, by the [`Responder`]. The
    /// handler may start calls and transfers on the engine, but must not drive it.
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_later<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&mut Engine, Caller, P::Input, Responder<P::Output>) + Send + 'static,
    ) {
        self.insert(
            P::NAME,
            move |engine, caller, reply, input| match postcard::from_bytes(&input) {
                Ok(input) => {
                    let responder = Responder::new(reply, &engine.replies);
                    handler(engine, caller, input, responder);
                }
                Err(_) => {
                    if let Some(reply) = reply {
                        engine.reply(reply, Reply::<()>::InputMalformed.encode());
                    }
                }
            },
        );
    }

    /// Serves the procedure no longer. Returns whether it was served.
    pub fn stop_serving<P: Procedure>(&mut self) -> bool {
        self.procedures.remove(&procedure_id(P::NAME)).is_some()
    }

    /// Calls a procedure of the engine at `target`, which may be this one. The call ends by its time-out at
    /// the latest, and at once if the target dies.
    ///
    /// # Errors
    /// If it cannot even be sent; see [`CallError::Submit`].
    pub fn call<P: Procedure>(
        &mut self,
        target: &Address,
        input: &P::Input,
        timeout: Duration,
    ) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let request = Self::encode_request::<P>(input, Some(timeout))?;
        let tag = self.next_call;
        self.next_call = self.next_call.wrapping_add(1);
        // The answer cannot be early: it is waited for before the request is sent.
        let operation = self
            .endpoint
            .receive_expected(target, tag, timeout)
            .map_err(failed)?;
        if let Err(error) = self.endpoint.send_unexpected(target, tag, request) {
            self.endpoint.cancel(operation);
            return Err(failed(error));
        }
        let (promise, pending) = Pending::new(operation, &self.abandoned);
        self.waiting.insert(operation, Waiting::Call(procedure, promise));
        Ok(Call::new(pending, procedure, target.clone()))
    }

    /// Calls a procedure of the engine at `target` without waiting for an answer. Calls and notifications
    /// from one engine to another are handled in the order they were made.
    ///
    /// # Errors
    /// If it cannot be sent; see [`CallError::Submit`]. That it was lost with the target is seen in
    /// [`poll_lost_peer`](Self::poll_lost_peer) only.
    pub fn notify<P: Procedure>(&mut self, target: &Address, input: &P::Input) -> Result<(), CallError> {
        let procedure = P::NAME;
        let request = Self::encode_request::<P>(input, None)?;
        let sent = self.endpoint.send_unexpected(target, 0, request);
        sent.map_err(|source| CallError::Submit { procedure, source })
    }

    /// Lets peers that are given the handle pull `memory`, until it is withdrawn.
    pub fn expose(&mut self, memory: Bytes) -> RegionHandle {
        self.endpoint.expose(memory)
    }

    /// Lets peers that are given the handle pull from and push into `memory`, until it is withdrawn.
    pub fn expose_writable(&mut self, memory: Buffer) -> RegionHandle {
        self.endpoint.expose_writable(memory)
    }

    /// Ends the exposure and gives the memory back; `None` if the handle is of no region exposed here.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        self.endpoint.withdraw(handle)
    }

    /// Fills `into` from the region, from `offset` on, and gives it back.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        let operation = self.endpoint.get(region, offset, into, timeout)?;
        let (promise, pending) = Pending::new(operation, &self.abandoned);
        self.waiting.insert(operation, Waiting::Pull(promise));
        Ok(Transfer::new(pending))
    }

    /// Writes `from` into the region, from `offset` on.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn push(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        let operation = self.endpoint.put(region, offset, from, timeout)?;
        let (promise, pending) = Pending::new(operation, &self.abandoned);
        self.waiting.insert(operation, Waiting::Push(promise));
        Ok(Transfer::new(pending))
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
        for operation in self.abandoned.take() {
            if self.waiting.remove(&operation).is_some() {
                self.endpoint.cancel(operation);
            }
        }
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
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(event);
        }
        self.driving = false;
        happened
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.endpoint.next_deadline()
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
                self.endpoint.wait(timeout - elapsed);
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

    fn encode_request<P: Procedure>(input: &P::Input, timeout: Option<Duration>) -> Result<Bytes, CallError> {
        let header = RequestHeader {
            procedure: const { procedure_id(P::NAME) },
            timeout,
        };
        header
            .encode(input)
            .map_err(|source| CallError::InputUnencodable {
                procedure: P::NAME,
                source,
            })
    }

    fn insert(
        &mut self,
        name: &'static str,
        handler: impl FnMut(&mut Engine, Caller, Option<ReplyTo>, Bytes) + Send + 'static,
    ) {
        let served = Served {
            name,
            handler: Some(Box::new(handler)),
        };
        if let Some(replaced) = self.procedures.insert(procedure_id(name), served) {
            assert!(
                replaced.name == name,
                "the names {:?} and {name:?} have the same hash: rename one",
                replaced.name
            );
        }
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
            // It was abandoned meanwhile.
            (None, _) => {}
            (Some(_), Ok(completion)) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
    }

    fn handle_request(&mut self, from: Arc<Peer>, tag: u64, message: Bytes) {
        // A member of the job that sends something else speaks another protocol; there is nobody to tell.
        let Some((header, input)) = RequestHeader::decode(message) else {
            return;
        };
        let deadline = header
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let reply = header.timeout.map(|_| ReplyTo {
            peer: from.address.clone(),
            tag,
            deadline,
        });
        let served = self.procedures.get_mut(&header.procedure);
        let Some(mut handler) = served.and_then(|served| served.handler.take()) else {
            if let Some(reply) = reply {
                self.reply(reply, Reply::<()>::UnknownProcedure.encode());
            }
            return;
        };
        let caller = Caller { peer: from, deadline };
        let handled = catch_unwind(AssertUnwindSafe(|| handler(self, caller, reply, input)));
        // Unless the handler stopped or replaced its own procedure.
        if let Some(served) = self.procedures.get_mut(&header.procedure)
            && served.handler.is_none()
        {
            served.handler = Some(handler);
        }
        // The engine is whole; whether its owner goes on is for the owner to decide.
        if let Err(panic) = handled {
            self.driving = false;
            resume_unwind(panic);
        }
    }

    /// Sends a reply, or keeps it until there is room for it. A caller that cannot be reached is gone.
    fn reply(&mut self, to: ReplyTo, mut body: Bytes) {
        let (size, size_max) = (body.len(), self.endpoint.limits().message_size_max);
        if size > size_max {
            let fault = Fault::new(format_args!(
                "the output of {size} bytes is larger than a message may be, {size_max}; pass a region handle"
            ));
            body = Reply::<()>::Fault(fault).encode();
        }
        if !self.unsent.holds(&to.peer) {
            let sent = self.endpoint.answer_expected(&to.peer, to.tag, body.clone());
            if !matches!(sent, Err(SubmitError::Busy { .. })) {
                return;
            }
        }
        self.unsent.push(to, body);
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
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            match waiting {
                Waiting::Call(procedure, promise) => promise.fulfil(Err(CallError::Stopped { procedure })),
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
