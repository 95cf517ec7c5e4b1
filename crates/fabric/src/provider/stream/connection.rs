//! One connection: its handshake, then its frames.

use std::{collections::BTreeMap, io::IoSliceMut, os::fd::OwnedFd, time::Instant};

use rustix::{
    io::{Errno, readv},
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg},
};

use super::{ConnectionId, Transfer, outbox::Outbox, send_queue, sharing, socket};
use crate::{
    Address, Body, FrameError, HandshakeError, Limits, OperationId, Peer, PeerDeath, PeerId, SubmitError,
    frame::{Decoded, Decoder, HEADER_SIZE, Header, Kind},
    handshake::{HANDSHAKE_SIZE_MAX, Handshake},
    inbox::Around,
    noise::Records,
    peer_table::Activity,
    provider::shm::{Channel, OwnMemory, PeerMemory},
    region_table::{Access, RegionTable},
};

mod encryption;
mod patience;
mod transfers;

use transfers::place;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) socket: OwnedFd,
    /// Whom we called, or who has proven to be at the other end.
    pub(super) peer: Option<PeerId>,
    /// Where that is.
    called: Option<Address>,
    /// Whether the other end made the connection.
    pub(super) accepted: bool,
    pub(super) outbox: Outbox,
    /// Where messages go if both ends are on one host; frames carry the rest.
    pub(super) channel: Option<Channel>,
    /// Whether the poller tells of the channel's bell.
    pub(super) bell_watched: bool,
    /// What of the other end's memory is reached without its help.
    pub(super) memory: Option<PeerMemory>,
    /// Descriptors that came and belong to a frame to come.
    pub(super) descriptors: Vec<OwnedFd>,
    /// Whether the provider looks into the channel each time.
    pub(super) active: bool,
    /// When the channel was last of use.
    pub(super) used: Instant,
    /// Whether the other end has yet to say what memory it shares.
    pub(super) offer_awaited: bool,
    /// When it is given up if it is not open.
    pub(super) deadline: Instant,
    /// How often it was dialed anew.
    pub(super) redials: u32,
    /// Whether the process at the other end is known to be stopped, and may take any time to prove itself.
    pub(super) is_patient: bool,
    /// The socket takes no more, and the poller tells when it does.
    pub(super) blocked: bool,
    /// The peer has reset the connection. What it had sent before is still to be read; then comes the end.
    reset: bool,
    /// What went wrong with sending when there was nobody to be told of it.
    failed: Option<Errno>,
    state: State,
    received_bytes: u64,
    doorbell_bytes: u64,
    /// What frames go through, if the connection is encrypted.
    records: Option<Box<Records>>,
    decoder: Decoder,
    bulk: Bulk,
    puts: BTreeMap<u64, ServedPut>,
    served_max: usize,
    answers_max: usize,
    pub(super) message_size_max: usize,
}

#[derive(Debug)]
enum State {
    Greeting {
        handshake: Box<Handshake>,
        /// What we say first, until the connection is made.
        unsent: Option<Vec<u8>>,
    },
    Open(PeerId),
    /// The peer dropped it during its handshake, and it is made anew when its deadline comes.
    Paused,
}

/// Where the bulk frame that is being received belongs.
#[derive(Clone, Copy, Debug)]
enum Bulk {
    /// To nobody: its operation was cancelled or refused.
    Discard,
    /// To our own `get`.
    Get(OperationId),
    /// To a peer's `put`.
    Put(u64),
}

/// A peer's `put`: what is still to be written.
#[derive(Debug)]
struct ServedPut {
    rest: Access,
}

/// What a connection works on besides itself.
pub(super) struct Surroundings<'a, 'b> {
    pub(super) transfers: &'a mut BTreeMap<OperationId, Transfer>,
    pub(super) own_memory: Option<&'a OwnMemory>,
    pub(super) around: &'a mut Around<'b>,
}

/// What came of looking after a connection.
pub(super) enum Handled {
    /// Nothing but what the events say.
    Frames,
    /// The handshake is a step further.
    Greeted,
    /// The peer has proven itself; frames may be waiting in the connection.
    Proven(Peer),
}

impl Connection {
    /// How much is read before other connections have their turn, in bytes.
    const READ_PER_TURN: usize = 1 << 20;
    /// How much is sent before other connections have their turn, in bytes.
    const SENT_PER_TURN: usize = 4 << 20;
    /// How much less either is on an encrypted connection, so that a turn takes about as long.
    const ENCRYPTED_TURN: usize = 4;
    /// How much may be read beyond a bulk frame: enough to see the next header, little enough that most of
    /// the next frame's data still goes straight into place.
    const READ_BEYOND_BULK: usize = 1 << 10;

    /// A connection that was accepted; `shares` says whether memory is shared with the other end.
    pub(super) fn accepted(
        id: ConnectionId,
        shares: bool,
        socket: OwnedFd,
        handshake: Handshake,
        now: Instant,
        limits: &Limits,
    ) -> Self {
        let state = State::Greeting {
            handshake: Box::new(handshake),
            unsent: None,
        };
        let deadline = now + limits.handshake_timeout;
        Self::new(id, shares, socket, None, state, deadline, limits)
    }

    /// A connection that is being made; `handshake` is the initiator's side and what it says first.
    pub(super) fn dialed(
        id: ConnectionId,
        shares: bool,
        socket: OwnedFd,
        called: (PeerId, Address),
        handshake: (Handshake, Vec<u8>),
        limits: &Limits,
    ) -> Self {
        let state = State::Greeting {
            handshake: Box::new(handshake.0),
            unsent: Some(handshake.1),
        };
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
            socket,
            accepted: peer.is_none(),
            peer,
            called,
            deadline,
            redials: 0,
            is_patient: false,
            outbox: Outbox::default(),
            channel: shares.then(Channel::default),
            bell_watched: false,
            memory: None,
            descriptors: Vec::new(),
            active: false,
            used: deadline,
            offer_awaited: shares,
            blocked: false,
            reset: false,
            failed: None,
            received_bytes: 0,
            doorbell_bytes: 0,
            state,
            records: None,
            decoder: Decoder::new(limits.message_size_max),
            bulk: Bulk::Discard,
            puts: BTreeMap::new(),
            served_max: limits.served_transfers_max,
            message_size_max: limits.message_size_max,
            answers_max: limits.answers_max,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether the outcome of dialing is still open.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Greeting { unsent: Some(_), .. })
    }

    /// Whether sending is of any use.
    pub(super) fn can_send(&self) -> bool {
        self.is_open() && !self.reset && self.channel.as_ref().is_none_or(Channel::is_joined)
    }

    /// Why the connection is given up when its time to open is over.
    pub(super) fn overdue(&self) -> PeerDeath {
        match self.state {
            State::Greeting { unsent: Some(_), .. } => PeerDeath::ConnectTimedOut,
            _ => PeerDeath::Handshake(HandshakeError::Silent),
        }
    }

    /// Where its other end is.
    pub(super) fn called(&self) -> &Address {
        self.called
            .as_ref()
            .expect("a connection is in its peer's list once it is known whose it is")
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// How much of that were doorbells.
    pub(super) fn doorbell_bytes(&self) -> u64 {
        self.doorbell_bytes
    }

    /// What was seen of the peer, in bytes and pieces of messages.
    pub(super) fn activity(&self) -> Activity {
        let sent = self.outbox.sent_bytes();
        let channel = self.channel.as_ref().map(Channel::activity).unwrap_or_default();
        Activity {
            heard: self.received_bytes + channel.heard,
            taken: sent
                .saturating_sub(self.unsent_records() as u64 + send_queue::unacknowledged(&self.socket))
                + channel.taken,
            queued: sent + self.outbox.queued_bytes() as u64 + channel.queued,
        }
    }

    /// How much waits to be sent, besides bulk data.
    pub(super) fn queued_bytes(&self) -> usize {
        let unsent = self.channel.as_ref().map_or(0, Channel::unsent_bytes);
        self.outbox.queued_bytes() + unsent
    }

    /// Why nothing more may wait to be sent.
    #[cold]
    pub(super) fn is_full(&self) -> SubmitError {
        SubmitError::Busy {
            peer: self.called().clone(),
            limit: "queued_bytes_max",
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.has_frames()
            || self
                .channel
                .as_ref()
                .is_some_and(|channel| channel.unsent_bytes() > 0)
    }

    /// Begins the exchange of frames.
    pub(super) fn open(&mut self, peer: PeerId, address: Option<Address>) {
        self.peer = Some(peer);
        self.called = address;
        self.state = State::Open(peer);
    }

    /// Asks for a transfer of ours.
    pub(super) fn request(&mut self, header: Header, access: &Access) {
        let body = Body::from(&access.encode()[..]);
        self.outbox.push_message(header, &body);
    }

    /// Waits for the next attempt; what waits to be sent stays.
    pub(super) fn pause(&mut self, until: Instant) {
        self.state = State::Paused;
        self.deadline = until;
        self.redials += 1;
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused)
    }

    /// Starts over with a new socket.
    pub(super) fn redial(
        &mut self,
        socket: OwnedFd,
        (handshake, greeting): (Handshake, Vec<u8>),
        deadline: Instant,
    ) {
        self.socket = socket;
        self.state = State::Greeting {
            handshake: Box::new(handshake),
            unsent: Some(greeting),
        };
        self.deadline = deadline;
    }

    /// Sends the greeting once the connection is made.
    pub(super) fn handle_writable(&mut self) -> Result<Handled, PeerDeath> {
        self.blocked = false;
        if let State::Greeting { unsent, .. } = &mut self.state
            && unsent.is_some()
            && socket::is_connected(&self.socket)?
            && let Some(greeting) = unsent.take()
        {
            send_handshake(&self.socket, &greeting)?;
            return Ok(Handled::Greeted);
        }
        Ok(Handled::Frames)
    }

    /// Sends as much as the socket takes, up to this connection's turn.
    pub(super) fn flush(&mut self, regions: &RegionTable) -> Result<(), PeerDeath> {
        if let Some(errno) = self.failed {
            return Err(errno.into());
        }
        let mut sent = 0;
        let turn = match self.records {
            Some(_) => Self::SENT_PER_TURN / Self::ENCRYPTED_TURN,
            None => Self::SENT_PER_TURN,
        };
        while self.can_send() && !self.blocked && sent < turn {
            self.outbox.fill(regions);
            let Some(result) = self.send_next() else {
                break;
            };
            match result {
                Ok(count) => sent += count,
                Err(Errno::AGAIN) => self.blocked = true,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET | Errno::PIPE) => self.reset = true,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Gives the next bytes to the socket, and returns how many it took; `None` if there are none.
    fn send_next(&mut self) -> Option<Result<usize, Errno>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Some(records) = &mut self.records {
            encryption::encrypt(&mut self.outbox, records);
            if records.unsent().is_empty() {
                return None;
            }
            let result = send(&self.socket, records.unsent(), flags);
            return Some(result.inspect(|&count| records.handle_sent(count)));
        }
        let result = match self.outbox.piece() {
            Some([]) => return None,
            Some(piece) => send(&self.socket, piece, flags),
            None => {
                let slices = self.outbox.slices();
                sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), flags)
            }
        };
        Some(result.inspect(|&count| self.outbox.handle_sent(count)))
    }

    /// Sends what waits before it is all there is to send, so that the peer works on it meanwhile. Returns whether nothing
    /// is left: what is, and what went wrong, is for the next [`flush`](Self::flush).
    pub(super) fn send_early(&mut self) -> bool {
        if !self.can_send() || self.blocked || self.outbox.piece().is_none() {
            return false;
        }
        match self.send_next() {
            None | Some(Ok(_)) => !self.has_frames(),
            Some(Err(Errno::CONNRESET | Errno::PIPE)) => {
                self.reset = true;
                false
            }
            Some(Err(Errno::AGAIN | Errno::INTR)) => false,
            Some(Err(errno)) => {
                // The system tells of it once.
                self.failed = Some(errno);
                false
            }
        }
    }

    /// Reads what has come, straight into place where it belongs to a transfer.
    pub(super) fn receive(&mut self, around: &mut Surroundings<'_, '_>) -> Result<Handled, PeerDeath> {
        if !self.is_open() {
            return self.receive_handshake();
        }
        if self.records.is_some() {
            return self.receive_records(around);
        }
        let mut read = 0;
        self.handle_decoded(around)?;
        // Beside a channel there come only offers, doorbells and what we asked for: messages in other channels, which
        // may take all the room there is again and again, must not keep that out.
        while read < Self::READ_PER_TURN && (self.channel.is_some() || around.around.has_room()) {
            let count = match self.read(around) {
                Ok(Err(error)) => return Err(PeerDeath::Protocol(error)),
                Ok(Ok((0, _))) => return Err(PeerDeath::Closed),
                Ok(Ok((count, space))) => {
                    self.received_bytes += count as u64;
                    self.handle_decoded(around)?;
                    if count < space {
                        break;
                    }
                    count
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            read += count;
        }
        Ok(Handled::Frames)
    }

    /// Handles the frames that are in the decoder's buffer.
    fn handle_decoded(&mut self, around: &mut Surroundings<'_, '_>) -> Result<(), PeerDeath> {
        loop {
            let (header, body) = match self.decoder.poll().map_err(PeerDeath::Protocol)? {
                None => return Ok(()),
                Some(Decoded::Frame(header, body)) => (header, body),
                Some(Decoded::Bulk(header)) => {
                    self.bulk = self.begin_bulk(header, around)?;
                    continue;
                }
                Some(Decoded::BulkBytes(bytes)) => {
                    let count = bytes.len();
                    if let Some(place) = place(self.bulk, &self.puts, around) {
                        place[..count].copy_from_slice(bytes);
                    }
                    self.advance_bulk(count, around);
                    continue;
                }
            };
            self.handle_frame(header, body, around)?;
        }
    }

    fn receive_handshake(&mut self) -> Result<Handled, PeerDeath> {
        let State::Greeting {
            handshake,
            unsent: None,
        } = &mut self.state
        else {
            return Ok(Handled::Frames);
        };
        let mut bytes = [0; HANDSHAKE_SIZE_MAX];
        // What comes after the handshake may have descriptors with it, and these are lost if its bytes are read here.
        let wanted = match self.channel {
            Some(_) => handshake.wanted(),
            None => HANDSHAKE_SIZE_MAX,
        };
        let (count, _) = match recv(&self.socket, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Handled::Frames),
            other => other?,
        };
        if count == 0 {
            return Err(PeerDeath::Handshake(HandshakeError::Refused));
        }
        let step = handshake.handle_bytes(&bytes[..count]).map_err(|error| {
            if let Some(farewell) = handshake.farewell(&error) {
                // It is dropped anyway.
                let _ = send_handshake(&self.socket, farewell);
            }
            PeerDeath::Handshake(error)
        })?;
        send_handshake(&self.socket, &step.reply)?;
        if step.proven.is_some() {
            self.records = handshake.take_records();
            assert!(
                self.records.is_none() || self.channel.is_none(),
                "what is shared through memory stays on this host"
            );
        }
        self.keep_beyond_handshake(&bytes[step.consumed..count]);
        if step.proven.is_none() && step.reply.is_empty() && self.channel.is_some() {
            return self.receive_handshake();
        }
        Ok(match step.proven {
            Some(peer) => Handled::Proven(peer),
            None if step.reply.is_empty() => Handled::Frames,
            None => Handled::Greeted,
        })
    }

    /// One read: how much, and how much there was space for, unless checked data came wrong.
    fn read(
        &mut self,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<Result<(usize, usize), FrameError>, Errno> {
        let remaining = self.decoder.bulk_remaining();
        let place = match remaining {
            0 => None,
            _ => place(self.bulk, &self.puts, around),
        };
        let Some(place) = place else {
            let space = self.decoder.space();
            let size = space.len();
            let count = if self.offer_awaited {
                sharing::receive(&self.socket, space, &mut self.descriptors)?
            } else {
                recv(&self.socket, &mut *space, RecvFlags::DONTWAIT)?.0
            };
            self.decoder.handle_read(count);
            return Ok(Ok((count, size)));
        };
        let place = &mut place[..remaining];
        let beyond = &mut self.decoder.space()[..Self::READ_BEYOND_BULK];
        let size = remaining + beyond.len();
        let count = readv(
            &self.socket,
            &mut [IoSliceMut::new(place), IoSliceMut::new(beyond)],
        )?;
        let in_place = count.min(remaining);
        if let Err(error) = self.decoder.handle_bulk_read(&place[..in_place]) {
            return Ok(Err(error));
        }
        self.decoder.handle_read(count - in_place);
        self.advance_bulk(in_place, around);
        Ok(Ok((count, size)))
    }

    fn handle_frame(
        &mut self,
        header: Header,
        body: Body,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        if let Some(kind) = header.kind.message() {
            let State::Open(from) = self.state else {
                unreachable!("frames are decoded once the connection is open");
            };
            if self.channel.is_some() {
                return Err(PeerDeath::Protocol(FrameError::Unsolicited));
            }
            around.around.handle_message(kind, from, header.id, body);
            return Ok(());
        }
        match header.kind {
            Kind::Get | Kind::Put => {
                let access = Access::decode(&body).map_err(PeerDeath::Protocol)?;
                self.handle_request(header, access, around)?;
            }
            Kind::Done => self.handle_done(header, around)?,
            Kind::Offer => self.handle_offer(&body, around.own_memory)?,
            // Whatever is read has the provider look into the channel.
            Kind::Doorbell if self.channel.is_some() => self.doorbell_bytes += HEADER_SIZE as u64,
            Kind::Doorbell => return Err(PeerDeath::Protocol(FrameError::Unsolicited)),
            Kind::Cancel => {
                self.puts.remove(&header.id);
                self.outbox.cancel_served(header.id);
            }
            _ => unreachable!("the decoder gives bulk frames in pieces, and messages were handled"),
        }
        Ok(())
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
