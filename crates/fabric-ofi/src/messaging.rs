//! Connections where the network has none: over a transport that carries messages of bounded size between
//! endpoints that need no connection (the paper's emulation of one-sided operations over two-sided
//! ones).
//!
//! An [`Association`] is what two endpoints know of each other there. Each of its two directions is a stream of
//! bytes, cut into messages: first the handshake, then frames, as over TCP. Each message has an [`Envelope`],
//! which says to which association it belongs; the number of an association is random and known to its two
//! sides only. Messages may pass each other on the way: each then waits for those before it. At most
//! [`WINDOW`] of them are under way unacknowledged, so that no peer fills another's memory however much the
//! network would buffer.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use ropewalk_fabric::{
    Address, FrameError, HandshakeError, Limits, Peer, PeerDeath,
    provider::{Activity, Frames, Handshake, Introduction, Receiver, RegionTable},
};

pub(crate) use self::envelope::{ENVELOPE_SIZE, Envelope, EnvelopeKind, Opening};

mod envelope;
#[cfg(test)]
mod tests;

/// How many messages may be under way in one direction without having been acknowledged.
pub(crate) const WINDOW: u32 = 32;

const UNSOLICITED: PeerDeath = PeerDeath::Protocol(FrameError::Unsolicited);

/// One side of an association: a machine without input or output.
///
/// Give it what comes with [`handle`](Self::handle), once [`Handled::Proven`] was returned and the peer is
/// welcome call [`open`](Self::open), and send what [`fill`](Self::fill) makes while it
/// [`is_sendable`](Self::is_sendable). An error ends it, and what was in progress.
#[derive(Debug)]
pub(crate) struct Association {
    /// How the peer numbers it, once we know.
    remote: Option<u64>,
    /// True if the peer's opening came.
    heard: bool,
    /// The first bytes of our stream that are not sent: the opening and the handshake.
    unsent: Vec<u8>,
    /// True if `unsent` says why the peer is not let in.
    refuses: bool,
    state: State,
    pub(crate) frames: Frames,
    /// The contents of data messages that came before their turn, by sequence number.
    early: BTreeMap<u32, Vec<u8>>,
    /// How many messages came that brought the stream in either direction further. One that waits for another which
    /// the network has lost is no sign that things go on.
    messages: u64,
    /// Where in our stream of frames each message ends that is not acknowledged.
    under_way: VecDeque<u64>,
    /// Up to where the peer has our stream of frames.
    taken: u64,
    sent: u32,
    /// How many of those the peer has received.
    acknowledged: u32,
    received: u32,
    /// How many of those the peer knows that we have received.
    told: u32,
}

#[derive(Debug)]
enum State {
    Greeting(Box<Handshake>),
    /// The bytes that came behind the handshake.
    Proven(Vec<u8>),
    Open,
}

/// The outcome of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// Nothing but what the happenings say.
    Frames,
    /// The handshake is a step further.
    Greeted,
    /// The peer has proven itself.
    Proven(Peer),
}

impl Association {
    /// The side that calls `peer`. `own` is how it is answered, `nonce` is random.
    pub(crate) fn call(
        introduction: Introduction,
        peer: Address,
        own: &Opening<'_>,
        nonce: [u8; 32],
        limits: &Limits,
    ) -> Self {
        let (handshake, greeting) = Handshake::initiate(introduction, peer, nonce);
        let mut unsent = own.encode();
        unsent.extend(greeting);
        Self::new(None, unsent, handshake, limits)
    }

    /// Calls again, with what waits to be sent, one who has not answered yet.
    pub(crate) fn call_again(
        &mut self,
        introduction: Introduction,
        peer: Address,
        own: &Opening<'_>,
        nonce: [u8; 32],
    ) {
        assert!(!self.heard, "who has answered is not called again");
        let (handshake, greeting) = Handshake::initiate(introduction, peer, nonce);
        self.state = State::Greeting(Box::new(handshake));
        self.unsent = own.encode();
        self.unsent.extend(greeting);
        self.under_way.clear();
        (self.sent, self.acknowledged) = (0, 0);
    }

    /// The side that was called by one who numbers the association `remote`; `own` is how this side does.
    pub(crate) fn answer(
        introduction: Introduction,
        remote: u64,
        own: u64,
        nonce: [u8; 32],
        limits: &Limits,
    ) -> Self {
        let handshake = Handshake::respond(introduction, nonce);
        let own = Opening {
            association: own,
            name: &[],
        };
        Self::new(Some(remote), own.encode(), handshake, limits)
    }

    fn new(remote: Option<u64>, unsent: Vec<u8>, handshake: Handshake, limits: &Limits) -> Self {
        Self {
            remote,
            heard: false,
            unsent,
            refuses: false,
            state: State::Greeting(Box::new(handshake)),
            frames: Frames::new(limits),
            early: BTreeMap::new(),
            messages: 0,
            under_way: VecDeque::new(),
            taken: 0,
            sent: 0,
            acknowledged: 0,
            received: 0,
            told: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Returns true if anything came from the peer.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard
    }

    /// The activity of the peer: messages that came, bytes that it took.
    pub(crate) fn activity(&self) -> Activity {
        Activity {
            heard: self.messages,
            taken: self.taken,
            queued: self.frames.sent_bytes() + self.frames.queued_bytes() as u64,
        }
    }

    /// Takes a message whose envelope names this association.
    ///
    /// # Errors
    /// If the peer closes it or broke the protocol.
    pub(crate) fn handle(
        &mut self,
        envelope: &Envelope,
        content: &[u8],
        receiver: &mut impl Receiver,
    ) -> Result<Handled, PeerDeath> {
        self.handle_acknowledged(envelope.acknowledged)?;
        let Envelope { sequence, kind, .. } = *envelope;
        if kind == EnvelopeKind::Acknowledgement {
            return Ok(Handled::Frames);
        }
        // The sender has to wait for acknowledgements, and sends nothing twice.
        let untold = sequence.wrapping_sub(self.told);
        if untold < self.received.wrapping_sub(self.told) || untold > WINDOW {
            return Err(UNSOLICITED);
        }
        // One that closes may have dropped what it had sent before.
        if sequence != self.received && kind == EnvelopeKind::Data {
            return match self.early.insert(sequence, content.to_vec()) {
                None => Ok(Handled::Frames),
                Some(_) => Err(UNSOLICITED),
            };
        }
        match self.handle_next(kind, content, receiver)? {
            Handled::Frames => self.handle_early(receiver),
            handled => Ok(handled),
        }
    }

    /// Messages may pass each other on the way, so this may be older than what is known.
    fn handle_acknowledged(&mut self, acknowledged: u32) -> Result<(), PeerDeath> {
        let newly = acknowledged.wrapping_sub(self.acknowledged);
        if newly <= self.sent.wrapping_sub(self.acknowledged) {
            self.messages += u64::from(newly > 0);
            self.acknowledged = acknowledged;
            if let Some(end) = self.under_way.drain(..newly as usize).next_back() {
                self.taken = end;
            }
        } else if newly < 1 << 31 {
            return Err(UNSOLICITED);
        }
        Ok(())
    }

    /// Goes on with what came before its turn.
    fn handle_early(&mut self, receiver: &mut impl Receiver) -> Result<Handled, PeerDeath> {
        while let Some(content) = self.early.remove(&self.received) {
            match self.handle_next(EnvelopeKind::Data, &content, receiver)? {
                Handled::Frames => {}
                handled => return Ok(handled),
            }
        }
        Ok(Handled::Frames)
    }

    fn handle_next(
        &mut self,
        kind: EnvelopeKind,
        content: &[u8],
        receiver: &mut impl Receiver,
    ) -> Result<Handled, PeerDeath> {
        if kind == EnvelopeKind::Close {
            return Err(match self.is_open() {
                true => PeerDeath::Closed,
                false => PeerDeath::Handshake(HandshakeError::Refused),
            });
        }
        let mut stream = content;
        if !self.heard {
            self.heard = true;
            let (opening, rest) = Opening::decode(content).map_err(PeerDeath::Protocol)?;
            self.remote = Some(opening.association);
            stream = rest;
        }
        self.received = self.received.wrapping_add(1);
        self.messages += 1;
        match &mut self.state {
            State::Greeting(handshake) => {
                let step = handshake.handle_bytes(stream).map_err(|error| {
                    if let Some(farewell) = handshake.farewell(&error) {
                        self.unsent.extend_from_slice(farewell);
                        self.refuses = true;
                    }
                    PeerDeath::Handshake(error)
                })?;
                self.unsent.extend_from_slice(&step.reply);
                match step.proven {
                    Some(peer) => {
                        self.state = State::Proven(stream[step.consumed..].to_vec());
                        Ok(Handled::Proven(peer))
                    }
                    None if step.reply.is_empty() => Ok(Handled::Frames),
                    None => Ok(Handled::Greeted),
                }
            }
            State::Proven(_) => Err(UNSOLICITED),
            State::Open => {
                self.frames.handle_bytes(stream, receiver)?;
                Ok(Handled::Frames)
            }
        }
    }

    /// Begins the exchange of frames with a peer that has proven itself, with those that came already.
    ///
    /// # Errors
    /// If the peer broke the protocol.
    pub(crate) fn open(&mut self, receiver: &mut impl Receiver) -> Result<(), PeerDeath> {
        match mem::replace(&mut self.state, State::Open) {
            State::Proven(stream) => {
                self.frames.handle_bytes(&stream, receiver)?;
                self.handle_early(receiver).map(drop)
            }
            State::Open => Ok(()),
            State::Greeting(_) => unreachable!("it is opened after its peer has proven itself"),
        }
    }

    /// Returns true if [`fill`](Self::fill) would make a message.
    pub(crate) fn is_sendable(&self) -> bool {
        self.owes_acknowledgement() || (self.may_send() && self.has_stream())
    }

    fn has_stream(&self) -> bool {
        !self.unsent.is_empty() || (self.is_open() && self.frames.has_unsent())
    }

    /// Only the first message goes without having been answered.
    fn may_send(&self) -> bool {
        let under_way = self.sent.wrapping_sub(self.acknowledged);
        under_way < WINDOW && (self.remote.is_some() || self.sent == 0)
    }

    fn owes_acknowledgement(&self) -> bool {
        self.remote.is_some() && self.received.wrapping_sub(self.told) >= WINDOW / 2
    }

    /// Writes the next message and returns its length. `message` has room for an envelope and a handshake.
    pub(crate) fn fill(&mut self, message: &mut [u8], regions: &RegionTable) -> Option<usize> {
        let (envelope, content) = message.split_at_mut(ENVELOPE_SIZE);
        let mut length = 0;
        if self.may_send() {
            length = self.unsent.len();
            content[..length].copy_from_slice(&self.unsent);
            self.unsent.clear();
            if self.is_open() {
                length += self.frames.fill(&mut content[length..], regions);
            }
        }
        let kind = match length {
            0 if !self.owes_acknowledgement() => return None,
            0 => EnvelopeKind::Acknowledgement,
            _ => EnvelopeKind::Data,
        };
        envelope.copy_from_slice(&self.envelope(kind).encode());
        self.told = self.received;
        if kind == EnvelopeKind::Data {
            self.sent = self.sent.wrapping_add(1);
            self.under_way.push_back(self.frames.sent_bytes());
        }
        Some(ENVELOPE_SIZE + length)
    }

    /// Writes the message that tells a peer why it is not let in, and returns its length; `None` if there is
    /// nothing to tell.
    pub(crate) fn fill_refusal(&mut self, message: &mut [u8]) -> Option<usize> {
        if !self.refuses || !self.may_send() {
            return None;
        }
        let (envelope, content) = message.split_at_mut(ENVELOPE_SIZE);
        let length = self.unsent.len();
        content[..length].copy_from_slice(&self.unsent);
        envelope.copy_from_slice(&self.envelope(EnvelopeKind::Data).encode());
        self.sent = self.sent.wrapping_add(1);
        self.refuses = false;
        Some(ENVELOPE_SIZE + length)
    }

    /// The message that tells the peer that this side has ended the association, if the peer can be told.
    pub(crate) fn farewell(&self) -> Option<[u8; ENVELOPE_SIZE]> {
        self.remote?;
        Some(self.envelope(EnvelopeKind::Close).encode())
    }

    fn envelope(&self, kind: EnvelopeKind) -> Envelope {
        Envelope {
            association: self.remote.unwrap_or(0),
            sequence: self.sent,
            acknowledged: self.received,
            kind,
        }
    }
}
