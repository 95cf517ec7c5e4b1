//! One connection: its handshake, then its frames.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use super::{
    ConnectionId,
    incoming::Incoming,
    send_queue,
    sharing::Sharing,
    socket::{self, Family},
    wire::Wire,
};
use crate::{
    Address, HandshakeError, Limits, Peer, PeerDeath, PeerId, SubmitError,
    handshake::{HANDSHAKE_SIZE_MAX, Handshake},
    inbox::Around,
    peer_table::Activity,
    provider::{frames::Frames, shm::OwnMemory},
    region_table::RegionTable,
};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    /// Whom we called, or who has proven to be at the other end.
    pub(super) peer: Option<PeerId>,
    /// Where that is.
    called: Option<Address>,
    /// True if the other end made the connection.
    pub(super) accepted: bool,
    /// When it is given up if it is not open.
    pub(super) deadline: Instant,
    /// How often it was dialed anew.
    pub(super) redials: u32,
    /// True if the process at the other end is known to be stopped, and may take any time to prove itself.
    pub(super) is_patient: bool,
    state: State,
    pub(super) wire: Wire,
    pub(super) frames: Frames,
    /// Where messages go if both ends are on one host; frames carry the rest.
    pub(super) sharing: Option<Sharing>,
}

#[derive(Debug)]
enum State {
    /// It is being made; this is said first.
    Connecting(Box<Handshake>, Vec<u8>),
    Greeting(Box<Handshake>),
    /// The peer has proven itself, and this came behind the handshake.
    Proven(Vec<u8>),
    Open,
    /// The peer dropped it during its handshake, and it is made anew when its deadline comes.
    Paused,
}

/// The state outside a connection that it works on.
pub(super) struct Surroundings<'a, 'b> {
    /// How many operations of ours go in frames, over all connections.
    pub(super) transfers: &'a mut usize,
    pub(super) own_memory: Option<&'a OwnMemory>,
    pub(super) around: &'a mut Around<'b>,
}

/// The outcome of looking after a connection.
pub(super) enum Handled {
    /// Nothing but what the events say.
    Frames,
    /// The handshake is a step further.
    Greeted,
    /// The peer has proven itself; frames may be waiting in the connection.
    Proven(Peer),
}

impl Connection {
    /// A connection that was accepted; `shares` says whether memory is shared with the other end.
    pub(super) fn accepted(
        id: ConnectionId,
        shares: bool,
        socket: OwnedFd,
        handshake: Handshake,
        now: Instant,
        limits: &Limits,
    ) -> Self {
        let state = State::Greeting(Box::new(handshake));
        let deadline = now + limits.handshake_timeout;
        Self::new(id, shares, socket, None, state, deadline, limits)
    }

    /// A connection that is being made; `handshake` is the initiator's side and what it says first.
    pub(super) fn dialed(
        id: ConnectionId,
        shares: bool,
        socket: OwnedFd,
        called: (PeerId, Address),
        (handshake, greeting): (Handshake, Vec<u8>),
        limits: &Limits,
    ) -> Self {
        let state = State::Connecting(Box::new(handshake), greeting);
        let deadline = Instant::now() + limits.connect_timeout;
        Self::new(id, shares, socket, Some(called), state, deadline, limits)
    }

    fn new(
        id: ConnectionId,
        shares: bool,
        socket: OwnedFd,
        called: Option<(PeerId, Address)>,
        state: State,
        deadline: Instant,
        limits: &Limits,
    ) -> Self {
        let (peer, called) = called.unzip();
        Self {
            id,
            accepted: peer.is_none(),
            peer,
            called,
            deadline,
            redials: 0,
            is_patient: false,
            state,
            wire: Wire::new(socket),
            frames: Frames::new(limits),
            sharing: shares.then(|| Sharing::new(deadline, limits)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Returns true if the outcome of dialing is still open.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(..))
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused)
    }

    /// Returns true if the system at the other end has taken the connection.
    pub(super) fn is_reached(&self) -> bool {
        !self.is_connecting() && !self.is_paused()
    }

    /// Returns true if the connection need not be given up though its time to open is over: all that was said
    /// has arrived, and the other end is stopped.
    pub(super) fn is_excused(&self, family: Family) -> bool {
        // Of a UNIX socket only what was read would count.
        let has_arrived = family == Family::Unix || send_queue::unacknowledged(&self.wire.socket) == 0;
        self.is_patient && !self.is_open() && self.is_reached() && has_arrived
    }

    /// Leaves it to the system to tell of the other end's from now on, which is asked each time that `interval` has
    /// passed.
    pub(super) fn await_answer(&self, family: Family, interval: Duration) {
        if family == Family::Tcp {
            // Otherwise it is asked more rarely.
            let _ = socket::probe_each(&self.wire.socket, interval);
        }
    }

    /// Why the connection is given up when its time to open is over.
    pub(super) fn overdue(&self) -> PeerDeath {
        match self.is_connecting() {
            true => PeerDeath::ConnectTimedOut,
            false => PeerDeath::Handshake(HandshakeError::Silent),
        }
    }

    /// Returns true if sending is of any use.
    pub(super) fn can_send(&self) -> bool {
        self.is_open() && self.wire.can_send() && self.sharing.as_ref().is_none_or(Sharing::is_joined)
    }

    /// Where its other end is.
    pub(super) fn called(&self) -> &Address {
        self.called
            .as_ref()
            .expect("a connection is in its peer's list once it is known whose it is")
    }

    /// How much of what was received were doorbells, in bytes.
    pub(super) fn doorbell_bytes(&self) -> u64 {
        self.sharing.as_ref().map_or(0, |sharing| sharing.doorbell_bytes)
    }

    /// The activity of the peer, in bytes and pieces of messages.
    pub(super) fn activity(&self) -> Activity {
        let sent = self.frames.sent_bytes();
        let socket = Activity {
            heard: self.wire.received_bytes(),
            taken: self.wire.taken(sent),
            queued: sent + self.frames.queued_bytes() as u64,
        };
        let channel = self.sharing.iter().map(|sharing| sharing.channel.activity());
        channel.chain([socket]).sum()
    }

    /// How much waits to be sent, besides bulk data.
    pub(super) fn queued_bytes(&self) -> usize {
        let sharing = self.sharing.as_ref();
        self.frames.queued_bytes() + sharing.map_or(0, |sharing| sharing.channel.unsent_bytes())
    }

    /// Why nothing more may wait to be sent.
    #[cold]
    pub(super) fn is_full(&self) -> SubmitError {
        SubmitError::Busy {
            peer: self.called().clone(),
            limit: "queued_bytes_max",
        }
    }

    /// True if frames wait to be sent.
    pub(super) fn has_frames(&self) -> bool {
        self.frames.has_unsent() || self.wire.unsent_records() > 0
    }

    pub(super) fn has_unsent(&self) -> bool {
        let sharing = self.sharing.as_ref();
        self.has_frames() || sharing.is_some_and(|sharing| sharing.channel.unsent_bytes() > 0)
    }

    /// Waits for the next attempt; what waits to be sent stays.
    pub(super) fn pause(&mut self, until: Instant) {
        self.state = State::Paused;
        self.deadline = until;
        self.redials += 1;
    }

    /// Starts over with a new socket.
    pub(super) fn redial(
        &mut self,
        socket: OwnedFd,
        (handshake, greeting): (Handshake, Vec<u8>),
        deadline: Instant,
    ) {
        self.wire.socket = socket;
        self.state = State::Connecting(Box::new(handshake), greeting);
        self.deadline = deadline;
    }

    /// Sends the greeting once the connection is made.
    pub(super) fn handle_writable(&mut self) -> Result<Handled, PeerDeath> {
        self.wire.blocked = false;
        if let State::Connecting(_, greeting) = &self.state
            && socket::is_connected(&self.wire.socket)?
        {
            send_handshake(&self.wire.socket, greeting)?;
            self.state = match std::mem::replace(&mut self.state, State::Paused) {
                State::Connecting(handshake, _) => State::Greeting(handshake),
                other => other,
            };
            return Ok(Handled::Greeted);
        }
        Ok(Handled::Frames)
    }

    /// Begins the exchange of frames with a peer that has proven itself, with those that came already.
    pub(super) fn open(
        &mut self,
        peer: PeerId,
        address: Option<Address>,
        surroundings: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        self.peer = Some(peer);
        self.called = address;
        let before = std::mem::replace(&mut self.state, State::Open);
        // Who was called offers when it has been offered something.
        if let Some(sharing) = self.sharing.as_mut().filter(|_| !self.accepted) {
            sharing.offer(&self.wire.socket, true, surroundings.own_memory)?;
        }
        match before {
            State::Proven(beyond) if !beyond.is_empty() => self
                .receive_with(surroundings, |wire, frames, incoming| {
                    wire.handle_beyond_handshake(&beyond, frames, incoming)
                }),
            _ => Ok(()),
        }
    }

    /// Sends as much as the socket takes, up to this connection's turn.
    pub(super) fn flush(&mut self, regions: &RegionTable) -> Result<(), PeerDeath> {
        self.wire.check()?;
        match self.can_send() {
            true => self.wire.flush(&mut self.frames, regions),
            false => Ok(()),
        }
    }

    /// As [`Wire::send_early`], if sending is of any use.
    pub(super) fn send_early(&mut self) -> bool {
        self.can_send() && self.wire.send_early(&mut self.frames)
    }

    /// Reads what has come.
    pub(super) fn receive(&mut self, surroundings: &mut Surroundings<'_, '_>) -> Result<Handled, PeerDeath> {
        if !self.is_open() {
            return self.receive_handshake();
        }
        self.receive_with(surroundings, Wire::receive)?;
        Ok(Handled::Frames)
    }

    /// Receives what the other end left in the channel when it died.
    pub(super) fn receive_last(&mut self, around: &mut Around<'_>) {
        if let Some((peer, sharing)) = self.peer.zip(self.sharing.as_mut()) {
            sharing.receive_last(peer, around);
        }
    }

    /// Receives frames, and joins the memory that they offer to share.
    fn receive_with(
        &mut self,
        surroundings: &mut Surroundings<'_, '_>,
        receive: impl FnOnce(&mut Wire, &mut Frames, &mut Incoming<'_, '_>) -> Result<(), PeerDeath>,
    ) -> Result<(), PeerDeath> {
        let mut incoming = Incoming {
            from: self.peer.expect("frames come once the connection is open"),
            sharing: self.sharing.as_mut(),
            around: surroundings.around,
            transfers: surroundings.transfers,
        };
        let received = receive(&mut self.wire, &mut self.frames, &mut incoming);
        let joined = match &mut self.sharing {
            Some(sharing) => sharing.join(&self.wire.socket, self.accepted, surroundings.own_memory),
            None => Ok(()),
        };
        received.and(joined)
    }

    fn receive_handshake(&mut self) -> Result<Handled, PeerDeath> {
        let State::Greeting(handshake) = &mut self.state else {
            return Ok(Handled::Frames);
        };
        let mut bytes = [0; HANDSHAKE_SIZE_MAX];
        // What comes after the handshake may have descriptors with it, and these are lost if its bytes are read here.
        let wanted = match self.sharing {
            Some(_) => handshake.wanted(),
            None => HANDSHAKE_SIZE_MAX,
        };
        let socket = &self.wire.socket;
        let (count, _) = match recv(socket, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Handled::Frames),
            other => other?,
        };
        if count == 0 {
            return Err(PeerDeath::Handshake(HandshakeError::Refused));
        }
        let step = handshake.handle_bytes(&bytes[..count]).map_err(|error| {
            if let Some(farewell) = handshake.farewell(&error) {
                // It is dropped anyway.
                let _ = send_handshake(socket, farewell);
            }
            PeerDeath::Handshake(error)
        })?;
        send_handshake(socket, &step.reply)?;
        if let Some(peer) = step.proven {
            self.wire.records = handshake.take_records();
            assert!(
                self.wire.records.is_none() || self.sharing.is_none(),
                "what is shared through memory stays on this host"
            );
            self.state = State::Proven(bytes[step.consumed..count].to_vec());
            return Ok(Handled::Proven(peer));
        }
        match step.reply.is_empty() {
            true if self.sharing.is_some() => self.receive_handshake(),
            true => Ok(Handled::Frames),
            false => Ok(Handled::Greeted),
        }
    }
}

/// A socket that has carried nothing yet has room for a handshake, or is of no use.
fn send_handshake(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    match send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}
