//! The endpoint: one process's end of the fabric.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::event::epoll;

use crate::{
    Address, BindError, Buffer, Completion, EndpointOptions, Event, Identity, Limits, OperationError,
    OperationId, Peer, PeerDeath, RegionHandle, SubmitError, Waker, Withdrawn,
    loopback::Loopback,
    provider::{MessageKind, Provider, ProviderEvent, TransferFailure, Transferred, tcp::TcpProvider},
    region_table::{Access, RegionTable},
};

/// One process's end of the fabric: it sends and receives messages, exposes memory, and reads and writes the
/// memory that others expose.
///
/// An endpoint has no thread: its owner drives it. Verbs ([`send_unexpected`](Self::send_unexpected),
/// [`get`](Self::get), ..) only queue; [`progress`](Self::progress) sends, receives and serves the peers'
/// one-sided operations; [`poll_event`](Self::poll_event) then tells what happened. With nothing to do, sleep
/// in [`wait`](Self::wait), or in a poll of [`as_fd`](AsFd::as_fd) until
/// [`next_deadline`](Self::next_deadline).
///
/// Peers are connected to on first use and stay connected. Every operation ends: with its result, by its
/// deadline, or by the death of the peer.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use bytes::Bytes;
/// use ropewalk_fabric::{Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Role};
/// use ropewalk_group::{Incarnation, JobId, Rank};
///
/// let key = JobKey::generate()?;
/// let mut endpoints = [0, 1].map(|rank| {
///     let identity = Identity { role: Role::Rank, rank: Rank(rank), incarnation: Incarnation(0) };
///     Endpoint::bind(EndpointOptions::new(JobId([7; 16]), key.clone(), identity)).unwrap()
/// });
/// let [origin, target] = &mut endpoints;
///
/// // The origin reads the middle of what the target exposes; the target only makes progress.
/// let handle = target.expose(Bytes::from_static(b"a rope walk"));
/// let get = origin.get(&handle, 2, Buffer::zeroed(4), Duration::from_secs(5))?;
/// loop {
///     origin.progress();
///     target.progress();
///     if let Some(Event::Completed { operation, result }) = origin.poll_event() {
///         assert_eq!(operation, get);
///         let Completion::Got(buffer) = result? else { unreachable!() };
///         assert_eq!(&*buffer, b"rope");
///         break;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    provider: Box<dyn Provider>,
    itself: Arc<Peer>,
    instance: u64,
    limits: Limits,
    regions: RegionTable,
    operations: BTreeMap<OperationId, Operation>,
    deadlines: BTreeSet<(Instant, OperationId)>,
    receives: BTreeMap<(u64, Address), OperationId>,
    loopback: Loopback,
    provider_events: Vec<ProviderEvent>,
    events: VecDeque<Event>,
    /// How many bytes of messages the events hold.
    events_bytes: usize,
    next_operation: u64,
    waker: Waker,
    poller: OwnedFd,
}

struct Operation {
    deadline: Instant,
    peer: Address,
    /// The tag, if it waits for an expected message; otherwise it is a transfer.
    receive: Option<u64>,
}

impl Endpoint {
    /// How many events one [`progress`](Self::progress) produces at most, about.
    const EVENTS_PER_PROGRESS: usize = 256;

    /// An endpoint that listens for its peers, close-on-exec.
    ///
    /// # Errors
    /// If the address cannot be listened on, names no single interface, or the system is out of descriptors.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        let address = options.bind;
        let failed = |source: std::io::Error| BindError::Io { address, source };
        let mut token_secret = [0; 32];
        let mut instance = [0; 8];
        for random in [&mut token_secret[..], &mut instance[..]] {
            getrandom::fill(random).map_err(|error| failed(std::io::Error::other(error)))?;
        }
        let instance = u64::from_le_bytes(instance);
        let provider = Box::new(TcpProvider::bind(&options, instance)?);
        let waker = Waker::new().map_err(failed)?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        for source in [provider.as_fd(), waker.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&poller, source, data, epoll::EventFlags::IN).map_err(|errno| failed(errno.into()))?;
        }
        let itself = Arc::new(Peer {
            address: provider.address().clone(),
            identity: options.identity,
        });
        Ok(Self {
            provider,
            itself,
            instance,
            limits: options.limits,
            regions: RegionTable::new(token_secret),
            operations: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            receives: BTreeMap::new(),
            loopback: Loopback::default(),
            provider_events: Vec::new(),
            events: VecDeque::new(),
            events_bytes: 0,
            next_operation: 0,
            waker,
            poller,
        })
    }

    /// Where peers reach this endpoint.
    pub fn address(&self) -> &Address {
        &self.itself.address
    }

    /// Who this endpoint is to its peers.
    pub fn identity(&self) -> Identity {
        self.itself.identity
    }

    /// Random bits that tell this endpoint from an earlier or later one at its address.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// The maxima of this endpoint.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sends a message that `peer` need not wait for. Messages to one peer arrive in order, or
    /// [`Event::PeerDied`] tells that some did not.
    ///
    /// # Errors
    /// If too much waits for the peer already, the message is too large, or the address is unusable.
    pub fn send_unexpected(&mut self, peer: &Address, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        self.send(peer, MessageKind::Unexpected, tag, body)
    }

    /// Sends a message that `peer` posted a [`receive_expected`](Self::receive_expected) for; without one it
    /// is dropped there.
    ///
    /// # Errors
    /// As for [`send_unexpected`](Self::send_unexpected).
    pub fn send_expected(&mut self, peer: &Address, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        self.send(peer, MessageKind::Expected, tag, body)
    }

    /// Sends an expected message to a peer that asked for it. Unlike with
    /// [`send_expected`](Self::send_expected), a peer with which there is no connection any more is not called
    /// back: it does not wait.
    ///
    /// # Errors
    /// [`SubmitError::NotConnected`] in that case, and otherwise as for
    /// [`send_unexpected`](Self::send_unexpected).
    pub fn answer_expected(&mut self, peer: &Address, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        if *peer != self.itself.address && !self.provider.is_connected(peer) {
            return Err(SubmitError::NotConnected { peer: peer.clone() });
        }
        self.send_expected(peer, tag, body)
    }

    /// Waits for one message from `peer` with this tag; the operation brings [`Completion::Received`]. A
    /// second receive for the same peer and tag replaces the first, which ends as timed out.
    ///
    /// # Errors
    /// If too many operations are in progress, or the address is unusable.
    pub fn receive_expected(
        &mut self,
        peer: &Address,
        tag: u64,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        self.check_operations(peer)?;
        if *peer != self.itself.address {
            self.provider.connect(peer)?;
        }
        let operation = self.start(peer, Some(tag), timeout);
        if let Some(replaced) = self.receives.insert((tag, peer.clone()), operation) {
            self.forget(replaced);
            self.complete(replaced, Err(OperationError::TimedOut { peer: peer.clone() }));
        }
        Ok(operation)
    }

    /// Lets peers that are given the handle read `memory`, until it is withdrawn.
    pub fn expose(&mut self, memory: Bytes) -> RegionHandle {
        self.regions.expose(&self.itself.address, memory)
    }

    /// Lets peers that are given the handle read and write `memory`, until it is withdrawn.
    pub fn expose_writable(&mut self, memory: Buffer) -> RegionHandle {
        self.regions.expose_writable(&self.itself.address, memory)
    }

    /// Ends the exposure and gives the memory back; `None` if the handle is of no region exposed here.
    /// Transfers in progress end with [`AccessError::Unknown`](crate::AccessError::Unknown) at the peer.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        self.regions.withdraw(handle)
    }

    /// Fills `into` from the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Got`]. Unlike messages the bytes go without a checksum of
    /// their own; where TCP's is not enough, let the region carry one.
    ///
    /// # Errors
    /// If the range is not inside the region, too many operations are in progress, or the address is unusable.
    pub fn get(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let access = self.access(region, offset, into.len())?;
        let operation = OperationId(self.next_operation);
        if region.address == self.itself.address {
            self.loopback.get(operation, access, into);
        } else {
            self.provider.get(operation, region, offset, into)?;
        }
        Ok(self.start(&region.address, None, timeout))
    }

    /// Writes `from` into the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Put`]. If it fails, part of the bytes may have been
    /// written. As with [`get`](Self::get) the bytes go without a checksum of their own.
    ///
    /// # Errors
    /// If the handle does not allow it, the range is not inside the region, too many operations are in progress,
    /// or the address is unusable.
    pub fn put(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        if !region.writable {
            return Err(SubmitError::ReadOnly);
        }
        let access = self.access(region, offset, from.len())?;
        let operation = OperationId(self.next_operation);
        if region.address == self.itself.address {
            self.loopback.put(operation, access, from);
        } else {
            self.provider.put(operation, region, offset, from)?;
        }
        Ok(self.start(&region.address, None, timeout))
    }

    /// Forgets an operation: no event will tell of it. Nothing happens if it ended already.
    pub fn cancel(&mut self, operation: OperationId) {
        if let Some(cancelled) = self.forget(operation)
            && cancelled.receive.is_none()
        {
            self.provider.cancel(operation);
        }
    }

    /// Sends and receives what is possible at once, serves the peers' one-sided operations, and ends what is
    /// overdue. Never blocks. Returns how many events were added, and one more if a [`Waker`] asked for it.
    pub fn progress(&mut self) -> usize {
        let woken = self.waker.take();
        let before = self.events.len();
        let now = Instant::now();
        let mut provider_events = std::mem::take(&mut self.provider_events);
        self.loopback.progress(
            &self.itself,
            self.events_room(),
            &mut self.regions,
            &mut provider_events,
        );
        self.handle_provider_events(&mut provider_events);
        let budget = self.events_room().min(Self::EVENTS_PER_PROGRESS);
        self.provider
            .progress(now, budget, &mut self.regions, &mut provider_events);
        self.handle_provider_events(&mut provider_events);
        self.provider_events = provider_events;
        self.handle_deadlines(now);
        self.events.len() - before + usize::from(woken)
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.events_bytes -= event.message_bytes();
        Some(event)
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.loopback.is_empty() || !self.events.is_empty() || self.provider.has_sendable() {
            return Some(Instant::now());
        }
        let operations = self.deadlines.first().map(|&(deadline, _)| deadline);
        operations.into_iter().chain(self.provider.next_deadline()).min()
    }

    /// Sleeps until there is something to do, but not longer than `timeout`. An interrupting signal may end
    /// it early.
    pub fn wait(&self, timeout: Duration) {
        let until_deadline = self
            .next_deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let sleep = until_deadline.map_or(timeout, |until| until.min(timeout));
        if !sleep.is_zero() {
            self.sleep(sleep);
        }
    }

    fn sleep(&self, sleep: Duration) {
        // A duration that does not fit is more than 290 billion years.
        let sleep = sleep.try_into().ok();
        let mut ready = [rustix::event::PollFd::new(
            &self.poller,
            rustix::event::PollFlags::IN,
        )];
        // An interruption is for the caller's next look at the world.
        let _ = rustix::event::poll(&mut ready, sleep.as_ref());
    }

    /// Drives the endpoint until everything queued was handed to the operating system. Events that come
    /// meanwhile wait for [`poll_event`](Self::poll_event). Returns whether all was sent within `timeout`.
    ///
    /// That is not yet delivery: if the endpoint is then dropped while input of a peer is unread, the system
    /// resets that connection and forgets what it had not sent. Where a last message counts, wait for its answer.
    pub fn flush(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            self.progress();
            if !self.has_unsent() {
                return true;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            // Not `wait`, which returns at once while events wait for the owner.
            if !self.provider.has_sendable() {
                self.sleep(Duration::from_millis(1));
            }
        }
    }

    /// Whether something queued was not handed to the operating system yet.
    pub fn has_unsent(&self) -> bool {
        !self.loopback.is_empty() || self.provider.has_unsent()
    }

    /// A handle by which other threads wake the one that drives this endpoint.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn send(&mut self, peer: &Address, kind: MessageKind, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        let (size, size_max) = (body.len(), self.limits.message_size_max);
        if size > size_max {
            return Err(SubmitError::TooLarge { size, size_max });
        }
        if *peer != self.itself.address {
            return self.provider.send(peer, kind, tag, body);
        }
        if self.loopback.message_bytes() + size > self.limits.queued_bytes_max
            || self.loopback.len() >= self.limits.events_max
        {
            return Err(self.busy(peer, "queued_bytes_max"));
        }
        self.loopback.send(kind, tag, body);
        Ok(())
    }

    fn access(&self, region: &RegionHandle, offset: u64, length: usize) -> Result<Access, SubmitError> {
        self.check_operations(&region.address)?;
        let length = length as u64;
        match offset.checked_add(length) {
            Some(end) if end <= region.length => Ok(Access {
                region: region.region,
                token: region.token,
                offset,
                length,
            }),
            _ => Err(SubmitError::OutOfRange {
                offset,
                length,
                region_length: region.length,
            }),
        }
    }

    fn check_operations(&self, peer: &Address) -> Result<(), SubmitError> {
        if self.operations.len() >= self.limits.operations_max {
            return Err(self.busy(peer, "operations_max"));
        }
        Ok(())
    }

    fn busy(&self, peer: &Address, limit: &'static str) -> SubmitError {
        SubmitError::Busy {
            peer: peer.clone(),
            limit,
        }
    }

    fn start(&mut self, peer: &Address, receive: Option<u64>, timeout: Duration) -> OperationId {
        let operation = OperationId(self.next_operation);
        self.next_operation += 1;
        let now = Instant::now();
        // A time-out that no clock can show is one that nobody can wait for.
        let deadline = now.checked_add(timeout).unwrap_or(now + Self::TIMEOUT_MAX);
        self.deadlines.insert((deadline, operation));
        let peer = peer.clone();
        self.operations.insert(
            operation,
            Operation {
                deadline,
                peer,
                receive,
            },
        );
        operation
    }

    const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// Takes an operation out of all tables.
    fn forget(&mut self, operation: OperationId) -> Option<Operation> {
        let forgotten = self.operations.remove(&operation)?;
        self.deadlines.remove(&(forgotten.deadline, operation));
        if let Some(tag) = forgotten.receive {
            let key = (tag, forgotten.peer.clone());
            if self.receives.get(&key) == Some(&operation) {
                self.receives.remove(&key);
            }
        }
        Some(forgotten)
    }

    fn complete(&mut self, operation: OperationId, result: Result<Completion, OperationError>) {
        self.push_event(Event::Completed { operation, result });
    }

    fn push_event(&mut self, event: Event) {
        self.events_bytes += event.message_bytes();
        self.events.push_back(event);
    }

    /// How many more events may wait for the owner.
    fn events_room(&self) -> usize {
        if self.events_bytes >= self.limits.events_bytes_max {
            return 0;
        }
        self.limits.events_max.saturating_sub(self.events.len())
    }

    fn handle_provider_events(&mut self, events: &mut Vec<ProviderEvent>) {
        for event in events.drain(..) {
            self.handle_provider_event(event);
        }
    }

    fn handle_provider_event(&mut self, event: ProviderEvent) {
        match event {
            ProviderEvent::Message {
                kind,
                from,
                tag,
                body,
            } => self.handle_message(kind, from, tag, body),
            ProviderEvent::PeerDied { peer, cause } => self.handle_peer_death(peer, cause),
            ProviderEvent::Transferred { operation, result } => self.handle_transferred(operation, result),
        }
    }

    fn handle_message(&mut self, kind: MessageKind, from: Arc<Peer>, tag: u64, body: Bytes) {
        match kind {
            MessageKind::Unexpected => self.push_event(Event::Unexpected { from, tag, body }),
            MessageKind::Expected => {
                if let Some(&operation) = self.receives.get(&(tag, from.address.clone())) {
                    self.forget(operation);
                    self.complete(operation, Ok(Completion::Received(body)));
                }
            }
        }
    }

    fn handle_transferred(&mut self, operation: OperationId, result: Result<Transferred, TransferFailure>) {
        let Some(Operation { peer, .. }) = self.forget(operation) else {
            return;
        };
        let result = match result {
            Ok(Transferred::Got(buffer)) => Ok(Completion::Got(buffer)),
            Ok(Transferred::Put) => Ok(Completion::Put),
            Err(TransferFailure::Access(source)) => Err(OperationError::Access { peer, source }),
            Err(TransferFailure::PeerDied(source)) => Err(OperationError::PeerDied { peer, source }),
        };
        self.complete(operation, result);
    }

    fn handle_peer_death(&mut self, peer: Address, cause: PeerDeath) {
        let waiting: Vec<_> = self
            .receives
            .iter()
            .filter(|((_, from), _)| *from == peer)
            .map(|(_, &operation)| operation)
            .collect();
        for operation in waiting {
            self.forget(operation);
            let (peer, source) = (peer.clone(), cause.clone());
            self.complete(operation, Err(OperationError::PeerDied { peer, source }));
        }
        self.push_event(Event::PeerDied { peer, cause });
    }

    fn handle_deadlines(&mut self, now: Instant) {
        while let Some(&(deadline, operation)) = self.deadlines.first()
            && deadline <= now
        {
            let Some(overdue) = self.forget(operation) else {
                self.deadlines.pop_first();
                continue;
            };
            if overdue.receive.is_none() {
                self.provider.cancel(operation);
            }
            self.complete(operation, Err(OperationError::TimedOut { peer: overdue.peer }));
        }
    }
}

impl AsFd for Endpoint {
    /// Readable when there is something to do; see [`Endpoint::next_deadline`] too.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("itself", &self.itself)
            .field("operations", &self.operations.len())
            .finish_non_exhaustive()
    }
}
