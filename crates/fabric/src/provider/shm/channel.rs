//! The two rings between two processes, and what waits for them.

use std::{
    collections::VecDeque,
    io,
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use rustix::io::Errno;

use super::{
    bells::Bells,
    direct::{OwnMemory, WritingWord},
    layout::Layout,
    liveness::{PeerLiveness, own_page},
    offer::Offer,
    ring::{Consumer, Producer},
    ring_memory::Window,
};
use crate::{
    Body, FrameError, PeerDeath,
    frame::{HEADER_SIZE, Kind, MessageKind},
    memfd::SharedMapping,
    peer_table::Activity,
};

/// The way that the messages of one connection go, in both directions.
///
/// Until it has memory, and while the ring is full, what is sent waits here.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    rings: Option<Rings>,
    unsent: VecDeque<Unsent>,
    unsent_bytes: usize,
    liveness: Option<PeerLiveness>,
    /// Without them the socket is the doorbell.
    bells: Option<Bells>,
    /// The error by which the other end broke the ring.
    broken: Option<FrameError>,
}

#[derive(Debug)]
struct Rings {
    outgoing: Producer<Window>,
    incoming: Consumer<Window>,
    /// In which this end, and the other, says what it is writing of the other's memory.
    words: [WritingWord; 2],
}

#[derive(Debug)]
struct Unsent {
    kind: MessageKind,
    tag: u64,
    body: Body,
    sent: usize,
}

impl Channel {
    const LAYOUT: Layout = Layout::DEFAULT;
    /// The most messages that are in a ring.
    pub(crate) const MESSAGES_MAX: usize = Layout::SLOTS_MAX as usize;

    /// The offer to the other end, and the descriptors to go with it. The end that made the connection also
    /// makes the memory, with its offer; from then on it can send. The end that was called makes the bells:
    /// it may have many others.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub(crate) fn offer(
        &mut self,
        dialed: bool,
        message_size_max: usize,
        own: Option<&OwnMemory>,
    ) -> io::Result<(Offer, Vec<OwnedFd>)> {
        let mut offer = Offer::default();
        let mut descriptors = Vec::new();
        if dialed {
            let layout = Self::LAYOUT;
            let (descriptor, mapping) = SharedMapping::create("ropewalk-rings", size(layout))?;
            self.rings = Some(Rings::new(mapping, layout, [0, 1], message_size_max)?);
            offer.rings = Some(layout);
            descriptors.push(descriptor);
        }
        // Without it the peer sees this process' death by its socket, only later.
        if let Ok(page) = own_page() {
            offer.liveness = true;
            descriptors.push(page);
        }
        if !dialed && let Ok((bells, theirs)) = Bells::new() {
            self.bells = Some(bells);
            offer.bells = true;
            descriptors.extend(theirs);
        }
        // Without it one-sided operations go as frames.
        if let Some((memory, fds)) = own.and_then(|own| own.offer().ok()) {
            offer.memory = Some(memory);
            descriptors.extend(fds);
        }
        Ok((offer, descriptors))
    }

    /// Takes what the other end offers. `process` is the one at the other end, as this process sees it. Returns the
    /// descriptors that go with its memory.
    ///
    /// # Errors
    /// If the offer is not what it has to be, or what comes with it is not what it is said to be.
    pub(crate) fn take(
        &mut self,
        offer: &Offer,
        descriptors: Vec<OwnedFd>,
        process: Option<NonZeroU32>,
        message_size_max: usize,
    ) -> Result<Vec<OwnedFd>, PeerDeath> {
        // The memory comes once, from who made the connection. If descriptors are missing, this process has no room for
        // them.
        if offer.rings.is_some() == self.is_joined() || (offer.bells && offer.rings.is_some()) {
            return Err(PeerDeath::Protocol(FrameError::Unsolicited));
        }
        if descriptors.len() != offer.descriptors() {
            return Err(Errno::MFILE.into());
        }
        let mut descriptors = descriptors.into_iter();
        if let Some(layout) = offer.rings
            && let Some(descriptor) = descriptors.next()
        {
            let mapping = SharedMapping::of(descriptor.as_fd(), size(layout), true).map_err(io_death)?;
            self.rings = Some(Rings::new(mapping, layout, [1, 0], message_size_max).map_err(io_death)?);
        }
        if offer.liveness
            && let Some(page) = descriptors.next()
            && let Some(process) = process
        {
            self.liveness = PeerLiveness::new(page.as_fd(), process).map_err(io_death)?;
        }
        if offer.bells
            && let Some(bells) = descriptors.next().zip(descriptors.next())
        {
            self.bells = Some(Bells::of(bells.into())?);
        }
        Ok(descriptors.collect())
    }

    /// The words in which this end, and the other, says what it is writing of the other's memory.
    pub(crate) fn writing_words(&self) -> Option<&[WritingWord; 2]> {
        self.rings.as_ref().map(|rings| &rings.words)
    }

    /// Returns true if the channel has memory.
    pub(crate) fn is_joined(&self) -> bool {
        self.rings.is_some()
    }

    /// Returns true if the process at the other end is certain to be dead.
    #[inline]
    pub(crate) fn is_peer_dead(&mut self, now: Instant) -> bool {
        self.liveness
            .as_mut()
            .is_some_and(|liveness| liveness.is_dead(now))
    }

    /// Sends a message, or keeps it if there is no space.
    #[inline]
    pub(crate) fn send(&mut self, kind: MessageKind, tag: u64, body: &Body) {
        let mut sent = 0;
        if self.unsent.is_empty()
            && let Some(rings) = &mut self.rings
        {
            match rings
                .outgoing
                .push(Kind::from_message(kind) as u8, tag, body, &mut sent)
            {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => self.broken = Some(error),
            }
        }
        self.unsent_bytes += HEADER_SIZE + body.len();
        self.unsent.push_back(Unsent {
            kind,
            tag,
            body: body.clone(),
            sent,
        });
    }

    /// How much waits, in bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Takes over what waits in a channel that never had memory.
    pub(crate) fn append(&mut self, mut other: Self) {
        assert!(
            other.rings.is_none(),
            "a connection that is not open has been used"
        );
        self.unsent.append(&mut other.unsent);
        self.unsent_bytes += other.unsent_bytes;
    }

    /// Sends what there is space for. Returns whether the doorbell is to be rung.
    ///
    /// # Errors
    /// If the other end broke the ring.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<bool, FrameError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some(rings) = &mut self.rings else {
            return Ok(false);
        };
        while let Some(first) = self.unsent.front_mut() {
            let kind = Kind::from_message(first.kind) as u8;
            if !rings
                .outgoing
                .push(kind, first.tag, &first.body, &mut first.sent)?
            {
                break;
            }
            self.unsent_bytes -= HEADER_SIZE + first.body.len();
            self.unsent.pop_front();
        }
        Ok(rings.outgoing.announce() | rings.incoming.take_space_awaited())
    }

    /// Takes the next message, if it is there: returns its kind and tag, and puts what it says into `body`.
    ///
    /// # Errors
    /// If the other end broke the ring.
    #[inline(always)]
    pub(crate) fn receive(&mut self, body: &mut Body) -> Result<Option<(MessageKind, u64)>, FrameError> {
        let Some(rings) = &mut self.rings else {
            return Ok(None);
        };
        let Some((kind, tag)) = rings.incoming.receive(body)? else {
            return Ok(None);
        };
        const REPLY: u8 = Kind::Reply as u8;
        const UNEXPECTED: u8 = Kind::Unexpected as u8;
        let known = match kind {
            REPLY => MessageKind::Reply,
            UNEXPECTED => MessageKind::Unexpected,
            _ => {
                let known = Kind::from_byte(kind)?.message();
                known.ok_or(FrameError::Kind { kind })?
            }
        };
        Ok(Some((known, tag)))
    }

    /// The bell that the other end rings, if there is one.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(Bells::own)
    }

    /// Rings the other end's bell. Returns false if there is none.
    pub(crate) fn ring(&self) -> bool {
        self.bells.as_ref().is_some_and(Bells::ring)
    }

    /// Returns true if there is something to receive.
    pub(crate) fn is_ready(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.incoming.is_ready())
    }

    /// How many pieces of messages came.
    #[inline]
    pub(crate) fn pieces_received(&self) -> u64 {
        self.rings.as_ref().map_or(0, |rings| rings.incoming.pieces())
    }

    /// Asks for the doorbell to be rung as soon as there is something to do. Returns false if there is already.
    ///
    /// # Errors
    /// If the other end broke the ring.
    pub(crate) fn sleep(&mut self) -> Result<bool, FrameError> {
        let Some(rings) = &mut self.rings else {
            return Ok(true);
        };
        // Whoever left this channel alone now would leave the other end asleep before its messages.
        if rings.outgoing.is_unannounced() {
            return Ok(false);
        }
        if !self.unsent.is_empty() && !rings.outgoing.await_space()? {
            return Ok(false);
        }
        Ok(rings.incoming.sleep())
    }

    /// Wants no doorbell any more: it was rung, or there is something to do anyway.
    pub(crate) fn wake(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.incoming.wake();
        }
    }

    /// The activity of the other end, in pieces of messages.
    pub(crate) fn activity(&self) -> Activity {
        let Some(rings) = &self.rings else {
            return Activity::default();
        };
        let piece_max = rings.outgoing.layout().piece_max();
        let unsent = self.unsent.iter().map(|message| {
            let rest = message.body.len() - message.sent;
            rest.div_ceil(piece_max).max(1) as u64
        });
        Activity {
            heard: rings.incoming.pieces(),
            taken: rings.outgoing.pieces_taken(),
            queued: rings.outgoing.pieces() + unsent.sum::<u64>(),
        }
    }
}

impl Rings {
    /// `[outgoing, incoming]`: which of the two rings in the memory is which.
    fn new(
        mapping: SharedMapping,
        layout: Layout,
        directions: [usize; 2],
        message_size_max: usize,
    ) -> io::Result<Self> {
        let mapping = Arc::new(mapping);
        let [outgoing, incoming] = directions.map(|index| {
            Window::new(mapping.clone(), index * layout.size(), layout.size())
                .ok_or_else(|| io::Error::other("the memory is too small for two rings"))
        });
        let words = directions.map(|index| {
            let offset = 2 * layout.size() + index * WRITING_WORD_SIZE;
            WritingWord::new(mapping.clone(), offset)
                .ok_or_else(|| io::Error::other("the memory is too small for two words"))
        });
        let [own, peers] = words;
        Ok(Self {
            outgoing: Producer::new(outgoing?, layout),
            incoming: Consumer::new(incoming?, layout, message_size_max),
            words: [own?, peers?],
        })
    }
}

/// The size of a channel's memory in bytes.
fn size(layout: Layout) -> usize {
    2 * layout.size() + 2 * WRITING_WORD_SIZE
}

/// Each word has cache lines of its own (two, because processors fetch them in pairs).
const WRITING_WORD_SIZE: usize = 128;

fn io_death(error: io::Error) -> PeerDeath {
    PeerDeath::Io(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> [Channel; 2] {
        let [mut dialed, mut accepted] = [Channel::default(), Channel::default()];
        let (offer, descriptors) = dialed.offer(true, 1 << 20, None).unwrap();
        accepted.take(&offer, descriptors, None, 1 << 20).unwrap();
        [dialed, accepted]
    }

    /// A channel with a message of which the sleeping other end was not told is not left alone.
    #[test]
    fn what_was_sent_is_announced_before_the_sender_sleeps() {
        let [mut here, mut there] = joined();
        assert_eq!(there.sleep(), Ok(true));
        here.send(MessageKind::Unexpected, 1, &Body::from(&b"for a sleeper"[..]));
        assert_eq!(here.sleep(), Ok(false));
        assert_eq!(here.flush(), Ok(true), "the doorbell is rung");
        assert_eq!(here.sleep(), Ok(true));
    }
}
