//! The frames of one connection, whatever carries them.

use std::collections::BTreeMap;

use bytes::Bytes;

use self::outbox::{Outbox, Source, Stream};
use super::{Memory, Transferred};
use crate::{
    AccessError, Body, Buffer, FrameError, Limits, OperationId, PeerDeath,
    frame::{Decoded, Decoder, Header, Kind, MessageKind},
    outgoing_message::OutgoingMessage,
    region_table::{Access, RegionTable},
};

pub(super) mod outbox;

const UNSOLICITED: PeerDeath = PeerDeath::Protocol(FrameError::Unsolicited);

/// The frames that one side of a connection sends and receives: messages, and the one-sided operations of both sides. A
/// machine without input or output.
///
/// Bytes for the peer come out of [`fill`](Self::fill), those of the peer go into [`handle_bytes`](Self::handle_bytes).
/// After an error it is of no use.
#[derive(Debug)]
pub struct Frames {
    pub(super) outbox: Outbox,
    decoder: Decoder,
    bulk: Bulk,
    /// Our operations.
    transfers: BTreeMap<OperationId, Transfer>,
    /// The rest of each `put` of the peer.
    puts: BTreeMap<u64, Access>,
    served_max: usize,
    answers_max: usize,
}

/// Takes what comes in frames.
pub trait Receiver {
    /// The memory that the peer may access.
    fn regions(&mut self) -> &mut RegionTable;

    /// Takes a message.
    ///
    /// # Errors
    /// If it does not fit what came before.
    fn handle_message(&mut self, kind: MessageKind, tag: u64, body: Body) -> Result<(), FrameError>;

    /// Learns that an operation of ours has ended.
    fn handle_transferred(&mut self, operation: OperationId, result: Result<Transferred, AccessError>);

    /// Takes the peer's description of the memory that it shares.
    ///
    /// # Errors
    /// If no memory is shared.
    fn handle_offer(&mut self, _body: &[u8]) -> Result<(), PeerDeath> {
        Err(UNSOLICITED)
    }

    /// Learns that there is something in the shared memory.
    ///
    /// # Errors
    /// If no memory is shared.
    fn handle_doorbell(&mut self) -> Result<(), PeerDeath> {
        Err(UNSOLICITED)
    }
}

/// The owner of the bulk frame that is being received.
#[derive(Clone, Copy, Debug)]
enum Bulk {
    /// Nobody: its operation was cancelled or refused.
    Discard,
    /// Our own `get`.
    Get(OperationId),
    /// A peer's `put`.
    Put(u64),
}

/// A one-sided operation of ours.
#[derive(Debug)]
enum Transfer {
    Get {
        into: Buffer,
        received: usize,
        /// True if checksums were asked for.
        checked: bool,
    },
    Put,
}

impl Frames {
    /// How much of [`handle_bytes`](Self::handle_bytes) is decoded at once: enough for small frames, little enough that
    /// most of a bulk frame goes straight into place.
    const DECODED_SIZE: usize = 4 << 10;
    /// How much may be read beyond what goes in place: enough to see the next header, little enough that most of
    /// the next frame's data still goes straight into place.
    const READ_BEYOND_BULK: usize = 1 << 10;

    /// Frames of a connection over which nothing has gone.
    pub fn new(limits: &Limits) -> Self {
        Self {
            outbox: Outbox::default(),
            decoder: Decoder::new(limits.message_size_max),
            bulk: Bulk::Discard,
            transfers: BTreeMap::new(),
            puts: BTreeMap::new(),
            served_max: limits.served_transfers_max,
            answers_max: limits.answers_max,
        }
    }

    /// Queues a message.
    pub fn send(&mut self, message: OutgoingMessage<'_>) {
        let OutgoingMessage {
            kind,
            tag,
            body,
            data,
            may_wait: _,
        } = message;
        let header = Header::new(Kind::from_message(kind), tag);
        self.outbox.push_message(header, body, data);
    }

    /// Starts an operation of ours, with checksums of its data if `checked`. `memory` is as long as the access.
    pub fn transfer(&mut self, operation: OperationId, access: &Access, memory: Memory, checked: bool) {
        let id = operation.tag();
        let (kind, checks_answer) = match memory {
            Memory::Into(_) => (Kind::Get, checked),
            Memory::From(_) => (Kind::Put, false),
        };
        let header = Header {
            checked: checks_answer,
            ..Header::new(kind, id)
        };
        let body = Body::from(&access.encode()[..]);
        self.outbox.push_message(header, &body, None);
        let transfer = match memory {
            Memory::Into(into) => Transfer::Get {
                into,
                received: 0,
                checked,
            },
            Memory::From(from) => {
                if !from.is_empty() {
                    let source = Source::Put(from);
                    self.outbox.push_stream(Stream { id, checked, source });
                }
                Transfer::Put
            }
        };
        self.transfers.insert(operation, transfer);
    }

    /// Forgets an operation of ours. Returns false if it is none, or none any more.
    pub fn cancel(&mut self, operation: OperationId) -> bool {
        let is_known = self.transfers.remove(&operation).is_some();
        if is_known {
            self.outbox.cancel_put(operation.tag());
            let header = Header::new(Kind::Cancel, operation.tag());
            self.outbox.push_frame(header, Bytes::new());
        }
        is_known
    }

    /// Takes our operations out, of a connection that is lost.
    pub fn take_transfers(&mut self) -> impl Iterator<Item = OperationId> + use<> {
        std::mem::take(&mut self.transfers).into_keys()
    }

    /// Takes over what waits in another connection, over which nothing has gone.
    pub(super) fn append(&mut self, mut other: Self) {
        self.outbox.append(other.outbox);
        self.transfers.append(&mut other.transfers);
    }

    /// True if something waits to be sent, even if the peer has to read first.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// How many bytes wait to be sent; bulk data counts once it is in frames.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.queued_bytes()
    }

    /// How many bytes were sent in all.
    pub fn sent_bytes(&self) -> u64 {
        self.outbox.sent_bytes()
    }

    /// Writes the next bytes for the peer, which counts as sending them. Returns how many.
    pub fn fill(&mut self, mut place: &mut [u8], regions: &RegionTable) -> usize {
        let size = place.len();
        while !place.is_empty() {
            self.outbox.fill(regions);
            let mut filled = 0;
            for slice in self.outbox.slices() {
                let count = slice.len().min(place.len() - filled);
                place[filled..filled + count].copy_from_slice(&slice[..count]);
                filled += count;
            }
            if filled == 0 {
                break;
            }
            self.outbox.handle_sent(filled);
            place = &mut place[filled..];
        }
        size - place.len()
    }

    /// Takes the next bytes of the peer.
    ///
    /// # Errors
    /// If the peer breaks the protocol, or asks for more than it reads.
    pub fn handle_bytes(&mut self, mut bytes: &[u8], receiver: &mut impl Receiver) -> Result<(), PeerDeath> {
        while !bytes.is_empty() {
            let space = match self.space(receiver) {
                ([], beyond) => {
                    let size = beyond.len().min(Self::DECODED_SIZE);
                    &mut beyond[..size]
                }
                (place, _) => place,
            };
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.handle_read(count, receiver)?;
            self.handle_decoded(receiver)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Where the next bytes may be read to: in place as far as they belong to a transfer or a long message, and behind
    /// that for the decoder.
    #[inline]
    pub(super) fn space<'a>(&'a mut self, receiver: &'a mut impl Receiver) -> (&'a mut [u8], &'a mut [u8]) {
        let remaining = self.decoder.bulk_remaining();
        match place(remaining, self.bulk, &mut self.transfers, &self.puts, receiver) {
            Some(place) => (place, &mut self.decoder.space()[..Self::READ_BEYOND_BULK]),
            None => self.decoder.spaces(Self::READ_BEYOND_BULK),
        }
    }

    /// Takes `count` bytes that were read into [`space`](Self::space). What they are, is for
    /// [`handle_decoded`](Self::handle_decoded).
    #[inline]
    pub(super) fn handle_read(
        &mut self,
        count: usize,
        receiver: &mut impl Receiver,
    ) -> Result<(), PeerDeath> {
        let remaining = self.decoder.bulk_remaining();
        let placed = place(remaining, self.bulk, &mut self.transfers, &self.puts, receiver);
        let Some(place) = placed else {
            self.decoder.handle_read_to_spaces(count);
            return Ok(());
        };
        let in_place = count.min(remaining);
        let checked = self.decoder.handle_bulk_read(&place[..in_place]);
        checked.map_err(PeerDeath::Protocol)?;
        self.decoder.handle_read(count - in_place);
        self.advance_bulk(in_place, receiver);
        Ok(())
    }

    /// Handles the frames that have come.
    pub(super) fn handle_decoded(&mut self, receiver: &mut impl Receiver) -> Result<(), PeerDeath> {
        loop {
            match self.decoder.poll().map_err(PeerDeath::Protocol)? {
                None => return Ok(()),
                Some(Decoded::Frame(header, body)) => self.handle_frame(header, body, receiver)?,
                Some(Decoded::Bulk(header)) => self.bulk = self.begin_bulk(header)?,
                Some(Decoded::BulkBytes(bytes)) => {
                    let count = bytes.len();
                    let placed = place(count, self.bulk, &mut self.transfers, &self.puts, receiver);
                    if let Some(place) = placed {
                        place.copy_from_slice(bytes);
                    }
                    self.advance_bulk(count, receiver);
                }
            }
        }
    }

    #[inline]
    fn handle_frame(
        &mut self,
        header: Header,
        body: Body,
        receiver: &mut impl Receiver,
    ) -> Result<(), PeerDeath> {
        if let Some(kind) = header.kind.message() {
            let handled = receiver.handle_message(kind, header.id, body);
            return handled.map_err(PeerDeath::Protocol);
        }
        match header.kind {
            Kind::Get | Kind::Put => {
                let access = Access::decode(&body).map_err(PeerDeath::Protocol)?;
                self.handle_request(header, access, receiver.regions())?;
            }
            Kind::Done => self.handle_done(header, receiver)?,
            Kind::Offer => receiver.handle_offer(&body)?,
            Kind::Doorbell => receiver.handle_doorbell()?,
            Kind::Cancel => {
                self.puts.remove(&header.id);
                self.outbox.cancel_served(header.id);
            }
            _ => unreachable!("the decoder gives bulk frames in pieces, and messages were handled"),
        }
        Ok(())
    }

    /// The owner of the data of a bulk frame.
    fn begin_bulk(&self, header: Header) -> Result<Bulk, PeerDeath> {
        let Header { id, length, .. } = header;
        let operation = OperationId::from_tag(id);
        let (bulk, room) = match (header.kind, self.transfers.get(&operation)) {
            (Kind::PutData, _) => match self.puts.get(&id) {
                Some(rest) => (Bulk::Put(id), rest.length),
                None => return Ok(Bulk::Discard),
            },
            // Whoever asked for checksums does not take data without them.
            (_, Some(Transfer::Get { checked: true, .. })) if !header.checked => return Err(UNSOLICITED),
            (_, Some(Transfer::Get { into, received, .. })) => {
                (Bulk::Get(operation), (into.len() - received) as u64)
            }
            _ => return Ok(Bulk::Discard),
        };
        match length as u64 <= room {
            true => Ok(bulk),
            false => Err(UNSOLICITED),
        }
    }

    /// Accounts for `count` bytes of the bulk frame.
    #[inline]
    fn advance_bulk(&mut self, count: usize, receiver: &mut impl Receiver) {
        match self.bulk {
            Bulk::Discard => {}
            Bulk::Get(operation) => {
                // It may have been cancelled since the frame began.
                let Some(Transfer::Get { into, received, .. }) = self.transfers.get_mut(&operation) else {
                    return;
                };
                *received += count;
                if *received == into.len() {
                    let result = Ok(Transferred::Got(std::mem::take(into)));
                    self.transfers.remove(&operation);
                    receiver.handle_transferred(operation, result);
                }
            }
            Bulk::Put(id) => {
                let Some(rest) = self.puts.get_mut(&id) else {
                    return;
                };
                // The exposure may have ended since the last piece, which then went nowhere.
                let granted = receiver.regions().check(rest, true);
                rest.offset += count as u64;
                rest.length -= count as u64;
                if granted.is_err() || rest.length == 0 {
                    self.puts.remove(&id);
                    self.outbox.push_done(id, granted);
                }
            }
        }
    }

    fn handle_request(
        &mut self,
        header: Header,
        access: Access,
        regions: &RegionTable,
    ) -> Result<(), PeerDeath> {
        let Header {
            kind, id, checked, ..
        } = header;
        // Each request may need an answer, and the peer does not take those that there are.
        if self.outbox.answers() >= self.answers_max {
            return Err(PeerDeath::Unreading);
        }
        let granted = if self.puts.len() + self.outbox.served() >= self.served_max {
            Err(AccessError::Busy)
        } else {
            regions.check(&access, kind == Kind::Put)
        };
        if granted.is_err() || access.length == 0 {
            self.outbox.push_done(id, granted);
        } else if kind == Kind::Put {
            self.puts.insert(id, access);
        } else {
            let source = Source::Served(access);
            self.outbox.push_stream(Stream { id, checked, source });
        }
        Ok(())
    }

    fn handle_done(&mut self, header: Header, receiver: &mut impl Receiver) -> Result<(), PeerDeath> {
        let Header { id, status, .. } = header;
        let operation = OperationId::from_tag(id);
        if let (Ok(()), Some(Transfer::Get { into, .. })) = (status, self.transfers.get(&operation))
            && !into.is_empty()
        {
            return Err(UNSOLICITED);
        }
        // It may have been cancelled, or it goes over another connection and is not this peer's to end.
        let Some(transfer) = self.transfers.remove(&operation) else {
            return Ok(());
        };
        if status.is_err() {
            self.outbox.cancel_put(id);
        }
        let result = status.map(|()| match transfer {
            Transfer::Get { into, .. } => Transferred::Got(into),
            Transfer::Put => Transferred::Put,
        });
        receiver.handle_transferred(operation, result);
        Ok(())
    }
}

/// The place for the next `size` bytes of the bulk frame, if there are any and they are still wanted.
#[inline]
fn place<'a>(
    size: usize,
    bulk: Bulk,
    transfers: &'a mut BTreeMap<OperationId, Transfer>,
    puts: &BTreeMap<u64, Access>,
    receiver: &'a mut impl Receiver,
) -> Option<&'a mut [u8]> {
    if size == 0 {
        return None;
    }
    let place = match bulk {
        Bulk::Discard => return None,
        Bulk::Get(operation) => match transfers.get_mut(&operation)? {
            Transfer::Get { into, received, .. } => &mut into[*received..],
            Transfer::Put => return None,
        },
        Bulk::Put(id) => receiver.regions().write(puts.get(&id)?).ok()?,
    };
    place.get_mut(..size)
}
