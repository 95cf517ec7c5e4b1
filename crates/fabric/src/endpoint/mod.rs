//! The endpoint: one process's end of the fabric.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    Address, Buffer, Identity, Limits, OperationId, Peer, PeerId, ProviderStatus, RegionHandle, SubmitError,
    Withdrawn,
    fences::Fences,
    fork_guard::ForkGuard,
    inbox::Inbox,
    loopback::Loopback,
    operations::{Awaited, Operation},
    peer_table::PeerTable,
    provider::{Memory, Provider},
    region_table::{Access, RegionTable},
};

mod binding;
mod driving;
mod fencing;
mod heartbeat;
mod patience;
mod sending;
mod wakeup;

pub use binding::Binding;
use heartbeat::Heartbeat;
pub use heartbeat::HeartbeatCounts;
use wakeup::Wakeup;

/// One process's end of the fabric: it sends and receives messages, exposes memory, and reads and writes the
/// memory that others expose.
///
/// An endpoint has no thread: its owner drives it. Verbs ([`send_unexpected`](Self::send_unexpected),
/// [`get`](Self::get), ..) queue, although of many messages the first may be sent at once;
/// [`progress`](Self::progress) sends, receives and serves the peers' one-sided operations;
/// [`poll_event`](Self::poll_event) then tells what happened. With nothing to do, sleep in
/// [`wait`](Self::wait), or in a poll of [`as_fd`](AsFd::as_fd) until [`next_deadline`](Self::next_deadline).
///
/// Peers are connected to on first use and stay connected. Every operation ends: with its result, by its
/// deadline, or by the death of the peer. Its time-out begins with the first progress after it was started.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use bytes::Bytes;
/// use ropewalk_fabric::{Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Role};
/// use ropewalk_names::{Incarnation, JobId, Rank};
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
    fork_guard: ForkGuard,
    providers: Vec<Box<dyn Provider>>,
    statuses: Vec<ProviderStatus>,
    itself: Arc<Peer>,
    /// The name of this endpoint in its own peer table.
    itself_id: PeerId,
    limits: Limits,
    regions: RegionTable,
    peers: PeerTable,
    fences: Fences,
    inbox: Inbox,
    loopback: Loopback,
    heartbeat: Option<Heartbeat>,
    heartbeat_counts: HeartbeatCounts,
    /// When the clock was last looked at.
    now: Instant,
    wakeup: Wakeup,
}

/// A peer, by its name or by its address.
pub trait ToPeer: sealed::Sealed {
    /// Its name at this endpoint.
    ///
    /// # Errors
    /// None now; what cannot be reached is told by whatever is asked of it.
    fn to_peer(self, endpoint: &mut Endpoint) -> Result<PeerId, SubmitError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::PeerId {}
    impl Sealed for &crate::Address {}
}

impl ToPeer for PeerId {
    fn to_peer(self, _: &mut Endpoint) -> Result<PeerId, SubmitError> {
        Ok(self)
    }
}

impl ToPeer for &Address {
    fn to_peer(self, endpoint: &mut Endpoint) -> Result<PeerId, SubmitError> {
        endpoint.peer(self)
    }
}

impl Endpoint {
    /// How many events one [`progress`](Self::progress) produces at most, about.
    const EVENTS_PER_PROGRESS: usize = 256;
    /// The longest sleep while a peer that may die is waited for: if the death of a process is told only when
    /// its memory is gone, the endpoint looks for it.
    const PROCESS_INTERVAL: Duration = Duration::from_millis(5);
    /// How many operations may wait for a look at the clock.
    const UNTIMED_MAX: usize = 1024;
    const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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
        self.itself.instance
    }

    /// The maxima of this endpoint.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The ways to reach peers, those that this endpoint has and those that it has not.
    pub fn providers(&self) -> &[ProviderStatus] {
        &self.statuses
    }

    /// The name of the peer at this address. No connection is made yet. It costs next to nothing if `address` is
    /// a clone of the one that was named last.
    ///
    /// # Errors
    /// If this process was forked off the one that the endpoint belongs to.
    pub fn peer(&mut self, address: &Address) -> Result<PeerId, SubmitError> {
        if self.fork_guard.is_forked() {
            return Err(SubmitError::Forked);
        }
        Ok(self.peers.intern(address))
    }

    /// Where a peer is reached; `None` once [`Event::PeerDied`](crate::Event::PeerDied) was taken.
    pub fn peer_address(&self, peer: PeerId) -> Option<&Address> {
        self.peers.address(peer)
    }

    /// The peer as it has proven itself; `None` if it has not, or once
    /// [`Event::PeerDied`](crate::Event::PeerDied) was taken.
    pub fn peer_info(&self, peer: PeerId) -> Option<&Arc<Peer>> {
        self.peers.proven(peer)
    }

    /// Sees to a connection with a peer, so that its death will be told.
    ///
    /// # Errors
    /// If the address is unusable, or the limit of connections is reached.
    pub fn connect(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        self.route(peer).map(drop)
    }

    /// Returns true if there is a connection with a peer, if only in the making.
    pub fn is_connected(&self, peer: PeerId) -> bool {
        let known = self.peers.get(peer);
        peer == self.itself_id || known.is_some_and(|known| known.provider.is_some())
    }

    /// The name of the provider that reaches a peer: `"shm"`, `"tcp"`, `"unix"`, `"loopback"` or that of
    /// another crate; `None` if there is no connection.
    pub fn provider_of(&self, peer: PeerId) -> Option<&'static str> {
        if peer == self.itself_id {
            return Some("loopback");
        }
        let provider = self.peers.get(peer)?.provider?;
        Some(self.providers[provider].link(peer)?.name)
    }

    /// The largest message in bytes.
    pub fn message_size_max(&self) -> usize {
        self.limits.message_size_max
    }

    /// From now on a peer that gives no sign of life for longer than [`Limits::heartbeat`] is taken for dead even
    /// if no operation waits for it.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), which it does.
    pub fn watch(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        self.route(peer)?;
        self.peers.watch(peer);
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.begin(Instant::now());
        }
        Ok(())
    }

    /// From now on a peer may be silent, as long as no operation waits for it: the reason is known. The end
    /// of its connection is told as before.
    pub fn unwatch(&mut self, peer: PeerId) {
        self.peers.unwatch(peer);
    }

    /// Waits for one message from `peer` with this tag; the operation brings
    /// [`Completion::Received`](crate::Completion::Received). A second receive for the same peer and tag replaces
    /// the first, which ends as timed out.
    ///
    /// # Errors
    /// If too many operations are in progress, or the address is unusable.
    pub fn receive_expected(
        &mut self,
        peer: impl ToPeer,
        tag: u64,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let peer = peer.to_peer(self)?;
        self.check_operations(peer)?;
        self.route(peer)?;
        Ok(self.start(peer, Awaited::Expected(tag), timeout))
    }

    /// Waits for one message from `peer` that bears the operation's own [tag](OperationId::tag), which has to be
    /// told to it; the operation brings [`Completion::Received`](crate::Completion::Received).
    ///
    /// # Errors
    /// If too many operations are in progress, or the peer is gone.
    pub fn receive_reply(
        &mut self,
        peer: impl ToPeer,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let peer = peer.to_peer(self)?;
        self.check_operations(peer)?;
        if self.peers.get(peer).is_none() {
            return Err(SubmitError::NotConnected);
        }
        Ok(self.start(peer, Awaited::Reply, timeout))
    }

    /// Lets peers that are given the handle read `memory`, until it is withdrawn.
    pub fn expose(&mut self, memory: Bytes) -> RegionHandle {
        let handle = self.regions.expose(&self.itself.address, memory);
        self.handle_exposed(&handle);
        handle
    }

    /// Lets peers that are given the handle read and write `memory`, until it is withdrawn.
    pub fn expose_writable(&mut self, memory: Buffer) -> RegionHandle {
        let handle = self.regions.expose_writable(&self.itself.address, memory);
        self.handle_exposed(&handle);
        handle
    }

    fn handle_exposed(&mut self, handle: &RegionHandle) {
        if self.fork_guard.is_forked() {
            // Peers are not to find a child's memory in the place of its parent's.
            return;
        }
        for provider in &mut self.providers {
            if let Some(memory) = self.regions.memory(handle.region)
                && let Some(shared) = provider.shared_memory()
            {
                shared.handle_exposed(handle, memory);
            }
        }
    }

    /// Ends the exposure and gives the memory back; `None` if the handle is of no region exposed here.
    /// Transfers in progress end with [`AccessError::Unknown`](crate::AccessError::Unknown) at the peer. If one is
    /// just writing without this side's help, what comes back is a copy.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        let memory = self.regions.withdraw(handle)?;
        Some(self.handle_withdrawn(handle.region, memory))
    }

    fn handle_withdrawn(&mut self, region: u64, mut memory: Withdrawn) -> Withdrawn {
        if !self.fork_guard.is_forked() {
            for provider in &mut self.providers {
                if let Some(shared) = provider.shared_memory() {
                    memory = shared.handle_withdrawn(region, memory);
                }
            }
        }
        memory
    }

    /// A buffer of `length` bytes in memory that peers on this host reach directly, if there is such memory
    /// and enough of it is left; otherwise an ordinary one. It is full of zeros, or of what an earlier buffer left
    /// there: to clear it would cost as much as to send it.
    pub fn allocate(&mut self, length: usize) -> Buffer {
        let mut providers = self.providers.iter_mut();
        let shared = providers.find_map(|provider| provider.shared_memory()?.allocate(length));
        shared.unwrap_or_else(|| Buffer::zeroed(length))
    }

    /// Fills `into` from the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Got`](crate::Completion::Got). The bytes go without a
    /// checksum of ours, unless this endpoint's
    /// [`EndpointOptions::bulk_checksum`](crate::EndpointOptions::bulk_checksum) asks for one: then they are
    /// verified before the operation completes, and wrong ones are never handed out. The option says with
    /// which transports.
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
        self.transfer(region, offset, Memory::Into(into), timeout)
    }

    /// Writes `from` into the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Put`](crate::Completion::Put). If it fails, part of the
    /// bytes may have been written. As to checksums see [`get`](Self::get).
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
        self.transfer(region, offset, Memory::From(from), timeout)
    }

    fn transfer(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        memory: Memory,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let (peer, access) = self.access(region, offset, memory.size())?;
        let operation = self.inbox.operations.next_id();
        match self.route(peer)? {
            None => self.loopback.transfer(operation, access, memory),
            Some(provider) => self.providers[provider].transfer(operation, peer, access, memory)?,
        }
        Ok(self.start(peer, Awaited::Transfer, timeout))
    }

    /// Forgets an operation: no event will tell of it. Nothing happens if it ended already.
    pub fn cancel(&mut self, operation: OperationId) {
        if let Some(cancelled) = self.inbox.forget(operation, &mut self.peers) {
            self.stop_transfer(operation, &cancelled);
        }
    }

    /// Which provider reaches a peer; `None` for this endpoint itself.
    #[inline]
    fn route(&mut self, peer: PeerId) -> Result<Option<usize>, SubmitError> {
        match self.peers.get(peer).and_then(|known| known.provider) {
            Some(provider) if !self.fork_guard.is_forked() => Ok(Some(provider)),
            _ => self.find_route(peer),
        }
    }

    #[cold]
    fn find_route(&mut self, peer: PeerId) -> Result<Option<usize>, SubmitError> {
        if self.fork_guard.is_forked() {
            return Err(SubmitError::Forked);
        }
        if peer == self.itself_id {
            return Ok(None);
        }
        let Some(known) = self.peers.get_mut(peer) else {
            return Err(SubmitError::NotConnected);
        };
        let mut unreachable = Err(SubmitError::NotConnected);
        for (index, provider) in self.providers.iter_mut().enumerate() {
            match provider.connect(peer, &known.address, false) {
                Ok(()) => {
                    known.provider = Some(index);
                    return Ok(Some(index));
                }
                // The last one reaches the most.
                Err(error @ SubmitError::Unreachable { .. }) => unreachable = Err(error),
                Err(error) => return Err(error),
            }
        }
        unreachable
    }

    fn access(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        length: usize,
    ) -> Result<(PeerId, Access), SubmitError> {
        let peer = self.peer(&region.address)?;
        self.check_operations(peer)?;
        let length = length as u64;
        match offset.checked_add(length) {
            Some(end) if end <= region.length => {
                let access = Access {
                    region: region.region,
                    token: region.token,
                    offset,
                    length,
                };
                Ok((peer, access))
            }
            _ => Err(SubmitError::OutOfRange {
                offset,
                length,
                region_length: region.length,
            }),
        }
    }

    fn check_operations(&self, peer: PeerId) -> Result<(), SubmitError> {
        if self.inbox.operations.len() >= self.limits.operations_max {
            return Err(self.busy(peer, "operations_max"));
        }
        Ok(())
    }

    fn busy(&self, peer: PeerId, limit: &'static str) -> SubmitError {
        match self.peer_address(peer).cloned() {
            Some(peer) => SubmitError::Busy { peer, limit },
            None => SubmitError::NotConnected,
        }
    }

    fn start(&mut self, peer: PeerId, awaited: Awaited, timeout: Duration) -> OperationId {
        // A look at the clock for each operation would cost as much as sending a message: its time begins with the
        // next progress, without which nothing happens anyway.
        if self.inbox.operations.untimed() >= Self::UNTIMED_MAX {
            self.look_at_clock();
        }
        // A time-out that no clock can show is one that nobody can wait for.
        let deadline = self
            .now
            .checked_add(timeout)
            .unwrap_or_else(|| self.now + Self::TIMEOUT_MAX);
        if let Some(known) = self.peers.get_mut(peer) {
            known.operations += 1;
        }
        let (operation, replaced) = self.inbox.operations.insert(Operation {
            deadline,
            peer,
            awaited,
        });
        if let Some(replaced) = replaced {
            self.end_overdue(replaced);
        }
        operation
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Peers may be writing what is exposed without this side's help: that memory must outlive them.
        for (region, memory) in self.regions.withdraw_all() {
            self.handle_withdrawn(region, memory);
        }
    }
}

impl AsFd for Endpoint {
    /// Readable when there is something to do; see [`Endpoint::next_deadline`] too.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.poller.as_fd()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("itself", &self.itself)
            .field("operations", &self.inbox.operations.len())
            .finish_non_exhaustive()
    }
}
