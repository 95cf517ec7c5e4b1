//! The endpoint: one process's end of the fabric.

use std::{
    error::Error,
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::event::epoll::EventFlags;

use crate::{
    Address, BindError, Buffer, EndpointOptions, Identity, Limits, Peer, PeerDeath, PeerId, ProviderStatus,
    RegionHandle, SubmitError, Waker, Withdrawn,
    fences::Fences,
    fork_guard::ForkGuard,
    inbox::Inbox,
    loopback::Loopback,
    peer_table::PeerTable,
    poller::{Poller, Source},
    provider::Provider,
    region_table::RegionTable,
};

mod binding;
mod driving;
mod heartbeat;
mod submitting;
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

    /// An endpoint that listens for its peers, close-on-exec.
    ///
    /// # Errors
    /// If the address cannot be listened on, names no single interface, none of the transports is available, the
    /// options ask for a provider of another crate, or the system is out of descriptors.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        if let Some(provider) = options.transports.external {
            return Err(BindError::Unknown { provider });
        }
        Self::bind_by(&options, |binding| {
            if binding.options.transports.unix {
                return binding.bind_unix();
            }
            binding.bind_tcp()?;
            binding.bind_shm()
        })
    }

    /// As [`bind`](Self::bind), with the provider `name` of another crate for endpoints that
    /// [ask for it](crate::Transports::external). `open` is given the choice behind the name; it returns the provider
    /// and the address at which peers reach it. Such an endpoint has no other provider.
    ///
    /// # Errors
    /// As for that, and if `open` fails.
    pub fn bind_with<E: Into<Box<dyn Error + Send + Sync>>>(
        options: EndpointOptions,
        name: &'static str,
        open: impl FnOnce(&str, &Binding<'_>) -> Result<(Box<dyn Provider>, Address), E>,
    ) -> Result<Self, BindError> {
        let Some(provider) = options.transports.external.clone() else {
            return Self::bind(options);
        };
        let choice = match provider.split_once(':') {
            Some((asked, choice)) if asked == name => choice,
            _ => return Err(BindError::Unknown { provider }),
        };
        if options.encrypt {
            return Err(BindError::Unencrypted { provider });
        }
        Self::bind_by(&options, |binding| {
            for other in ["tcp", "shm"] {
                binding.leave_out(other, &format!("{provider} is used instead"));
            }
            let (opened, address) = open(choice, binding).map_err(|source| BindError::External {
                provider: provider.clone(),
                source: source.into(),
            })?;
            binding.add(name, opened, address);
            Ok(())
        })
    }

    fn bind_by(
        options: &EndpointOptions,
        open: impl FnOnce(&mut Binding<'_>) -> Result<(), BindError>,
    ) -> Result<Self, BindError> {
        let address = options.bind;
        let failed = |source: io::Error| BindError::Io { address, source };
        let mut token_secret = [0; 32];
        let mut instance = [0; 8];
        for random in [&mut token_secret[..], &mut instance[..]] {
            getrandom::fill(random).map_err(|error| failed(io::Error::other(error)))?;
        }
        let instance = u64::from_le_bytes(instance);
        let poller = Poller::new(Source::Waker).map_err(|errno| failed(errno.into()))?;
        let fences = Fences::default();
        let mut binding = Binding {
            options,
            key: Arc::new(options.key.clone()),
            fences: &fences,
            poller: &poller,
            instance,
            address: None,
            providers: Vec::new(),
            statuses: Vec::new(),
        };
        open(&mut binding)?;
        let Binding {
            address: Some(own),
            providers,
            statuses,
            ..
        } = binding
        else {
            return Err(BindError::NoTransport);
        };
        let waker = Waker::new().map_err(failed)?;
        poller
            .add(0, &waker, EventFlags::IN)
            .map_err(|errno| failed(errno.into()))?;
        let itself = Peer {
            address: own,
            identity: options.key.identity(),
            instance,
        };
        let mut peers = PeerTable::default();
        let itself_id = peers.intern(&itself.address);
        let itself = Arc::new(itself);
        if let Some(known) = peers.get_mut(itself_id) {
            known.proven = Some(itself.clone());
        }
        Ok(Self {
            fork_guard: ForkGuard::new().map_err(failed)?,
            providers,
            statuses,
            itself,
            itself_id,
            limits: options.limits,
            regions: RegionTable::new(token_secret),
            peers,
            fences,
            inbox: Inbox::new(instance),
            loopback: Loopback::default(),
            heartbeat: options.limits.heartbeat.map(Heartbeat::new),
            heartbeat_counts: HeartbeatCounts::default(),
            now: Instant::now(),
            wakeup: Wakeup::new(waker, poller),
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

    /// As [`connect`](Self::connect), with a peer whose process is known to be stopped: its system still has
    /// [`Limits::connect_timeout`](crate::Limits::connect_timeout) to take the connection, but the peer may
    /// then take any time to prove itself. So a caller that waits for it has one place in the queue of its
    /// system, where those who give up and try again leave one behind each time. That the system is gone is
    /// told all the same, over TCP after a few times that time-out.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_patiently(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        match (self.route(peer)?, self.peers.get(peer)) {
            (Some(provider), Some(known)) => self.providers[provider].connect(peer, &known.address, true),
            _ => Ok(()),
        }
    }

    /// Returns true if there is a connection with a peer, if only in the making.
    pub fn is_connected(&self, peer: PeerId) -> bool {
        let known = self.peers.get(peer);
        peer == self.itself_id || known.is_some_and(|known| known.provider.is_some())
    }

    /// Returns true if the peer's system has taken a connection that lives, whatever the peer does.
    pub fn is_reached(&self, peer: PeerId) -> bool {
        self.peers.get(peer).is_some_and(|known| {
            let link = || self.providers[known.provider?].link(peer);
            known.proven.is_some() || link().is_some_and(|link| link.is_reached)
        })
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

    /// From now on a member of the job is not let in, in this and all its earlier incarnations: its job
    /// counts it as gone, whatever may still run of it. Connections with it end with [`PeerDeath::Fenced`],
    /// and anything that came over them and waits to be taken is dropped. If the member connects again it is
    /// told, and so it is if it is connected to. Memory on this host that it shares already stays shared
    /// until the region is withdrawn.
    pub fn fence(&mut self, identity: Identity) {
        self.fences.raise(identity);
        if self.fork_guard.is_forked() {
            return;
        }
        let now = Instant::now();
        let fences = &self.fences;
        let fenced = self.peers.iter_mut().filter_map(|(peer, known)| {
            let proven = known.proven.as_ref()?;
            Some((peer, known.provider?)).filter(|_| fences.has(proven.identity))
        });
        for (peer, provider) in fenced.collect::<Vec<_>>() {
            self.inbox.drop_messages_from(peer);
            let (_, providers, mut around) = self.around(now, provider, true);
            providers[provider].disconnect(peer, PeerDeath::Fenced, &mut around);
        }
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
