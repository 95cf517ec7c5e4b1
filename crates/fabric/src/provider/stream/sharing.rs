//! The memory beside the socket of a connection between two processes of one host: messages go through it, and each end
//! has a bell. Where there are no descriptors for those, the socket is the doorbell.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use bytes::Bytes;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};

use crate::{
    Body, FrameError, Limits, Messages, PeerDeath, PeerId,
    frame::{Header, Kind},
    inbox::Around,
    provider::{
        frames::Frames,
        shm::{Channel, Credentials, DESCRIPTORS_MAX, Offer, OwnMemory, PeerMemory, WritingWord},
    },
};

/// The memory that the two ends of a connection share.
#[derive(Debug)]
pub(super) struct Sharing {
    pub(super) channel: Channel,
    /// True if the poller tells of the channel's bell.
    pub(super) bell_watched: bool,
    /// The memory of the other end that is reached without its help.
    pub(super) memory: Option<PeerMemory>,
    /// True if the provider looks into the channel each time.
    pub(super) active: bool,
    /// When the channel was last of use.
    pub(super) used: Instant,
    /// How much of what came over the socket were doorbells, in bytes.
    pub(super) doorbell_bytes: u64,
    state: State,
    message_size_max: usize,
}

/// How far the two ends are.
#[derive(Debug)]
enum State {
    /// The other end has yet to say what memory it shares; these descriptors came and belong to that.
    Awaited(Vec<OwnedFd>),
    /// It has said it, and nothing was made of that yet.
    Offered(Offer, Vec<OwnedFd>),
    /// Nothing more of this is expected.
    Taken,
}

impl Sharing {
    /// Nothing is shared yet.
    pub(super) fn new(now: Instant, limits: &Limits) -> Self {
        Self {
            channel: Channel::default(),
            bell_watched: false,
            memory: None,
            active: false,
            used: now,
            doorbell_bytes: 0,
            state: State::Awaited(Vec::new()),
            message_size_max: limits.message_size_max,
        }
    }

    pub(super) fn is_joined(&self) -> bool {
        self.channel.is_joined()
    }

    /// The memory of the other end that is reached without its help, and the word that says who writes there.
    pub(super) fn reached(&mut self) -> Option<(&mut PeerMemory, &WritingWord)> {
        let [word, _] = self.channel.writing_words()?;
        Some((self.memory.as_mut()?, word))
    }

    /// The descriptors that came, while the other end's offer is awaited.
    pub(super) fn descriptors(&mut self) -> Option<&mut Vec<OwnedFd>> {
        match &mut self.state {
            State::Awaited(descriptors) => Some(descriptors),
            State::Offered(..) | State::Taken => None,
        }
    }

    /// Tells what memory is shared with the other end, as the first thing after the handshake.
    pub(super) fn offer(
        &mut self,
        socket: &OwnedFd,
        is_caller: bool,
        own: Option<&OwnMemory>,
    ) -> Result<(), PeerDeath> {
        let offered = self.channel.offer(is_caller, self.message_size_max, own);
        let (offer, descriptors) = offered.map_err(|error| PeerDeath::Io(error.into()))?;
        let body = offer.encode();
        let header = Header::new(Kind::Offer, 0).encode(&body);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let slices = [IoSlice::new(&header), IoSlice::new(&body)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A socket that has carried nothing but a handshake has room for it, or is of no use.
        match sendmsg(socket, &slices, &mut ancillary, flags)? {
            count if count == header.len() + body.len() => Ok(()),
            _ => Err(Errno::NOBUFS.into()),
        }
    }

    /// Takes what the other end says of the memory that it shares.
    pub(super) fn handle_offer(&mut self, body: &[u8]) -> Result<(), PeerDeath> {
        let offer = Offer::decode(body).map_err(PeerDeath::Protocol)?;
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Awaited(descriptors) => {
                self.state = State::Offered(offer, descriptors);
                Ok(())
            }
            State::Offered(..) | State::Taken => Err(PeerDeath::Protocol(FrameError::Unsolicited)),
        }
    }

    /// Shares what the other end has offered, and answers if it is the one that made the connection.
    pub(super) fn join(
        &mut self,
        socket: &OwnedFd,
        accepted: bool,
        own: Option<&OwnMemory>,
    ) -> Result<(), PeerDeath> {
        if !matches!(self.state, State::Offered(..)) {
            return Ok(());
        }
        let State::Offered(offer, descriptors) = std::mem::replace(&mut self.state, State::Taken) else {
            return Ok(());
        };
        let process = Credentials::of_peer(socket).map_err(|error| PeerDeath::Io(error.into()))?;
        let rest = self
            .channel
            .take(&offer, descriptors, process.process, self.message_size_max)?;
        // What cannot be mapped is reached by frames.
        self.memory = (offer.memory).and_then(|memory| PeerMemory::new(&memory, &rest, process.process).ok());
        match accepted {
            true => self.offer(socket, false, own),
            false => Ok(()),
        }
    }

    /// Sends and receives what is possible over the channel.
    pub(super) fn exchange(
        &mut self,
        peer: PeerId,
        frames: &mut Frames,
        around: &mut Around<'_>,
    ) -> Result<(), PeerDeath> {
        let channel = &mut self.channel;
        let mut doorbell = channel.flush().map_err(PeerDeath::Protocol)?;
        let before = channel.pieces_received();
        if around.takes_messages {
            receive_messages(channel, peer, around, usize::MAX)?;
        }
        // Even of a message of which only a part has come, the other end may wait for the space.
        if channel.pieces_received() != before {
            self.used = around.now;
            doorbell |= channel.flush().map_err(PeerDeath::Protocol)?;
        }
        // Whatever is sent anyway is a doorbell too.
        if doorbell && !frames.has_unsent() && !channel.ring() {
            frames
                .outbox
                .push_frame(Header::new(Kind::Doorbell, 0), Bytes::new());
        }
        match channel.is_peer_dead(around.now) {
            true => Err(PeerDeath::Killed),
            false => Ok(()),
        }
    }

    /// Receives from the channel as far as there is room.
    pub(super) fn receive_messages(
        &mut self,
        peer: PeerId,
        around: &mut Around<'_>,
        messages: &mut Messages,
    ) -> Result<(), PeerDeath> {
        while let Some(body) = messages.room() {
            let Some((kind, tag)) = self.channel.receive(body).map_err(PeerDeath::Protocol)? else {
                return Ok(());
            };
            self.used = around.now;
            around.take_message(kind, peer, tag, messages);
        }
        Ok(())
    }

    /// Receives what the other end left in the channel when it died.
    pub(super) fn receive_last(&mut self, peer: PeerId, around: &mut Around<'_>) {
        // If it broke the ring at its end, that is how far it got.
        let _ = receive_messages(&mut self.channel, peer, around, Channel::MESSAGES_MAX);
    }

    /// Asks for the channel's doorbell. Returns whether the channel may be left alone until then.
    pub(super) fn sleep(&mut self) -> bool {
        // An error will be found when it is next looked into.
        let asleep = self.channel.sleep() == Ok(true);
        self.active = !asleep;
        asleep
    }
}

/// Receives messages while there is room for them. `messages_max` is for when room does not count.
fn receive_messages(
    channel: &mut Channel,
    peer: PeerId,
    around: &mut Around<'_>,
    messages_max: usize,
) -> Result<(), PeerDeath> {
    let mut count = 0;
    while count < messages_max && (messages_max < usize::MAX || around.has_room()) {
        let mut body = Body::new();
        let Some((kind, tag)) = channel.receive(&mut body).map_err(PeerDeath::Protocol)? else {
            break;
        };
        around.handle_message(kind, peer, tag, body);
        count += 1;
    }
    Ok(())
}

/// Receives bytes, and descriptors that come with them. Those that are too many are closed.
pub(super) fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            for descriptor in came {
                if descriptors.len() < DESCRIPTORS_MAX {
                    descriptors.push(descriptor);
                }
            }
        }
    }
    Ok(received.bytes)
}
