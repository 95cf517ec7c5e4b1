//! The socket of a connection, and the bytes that go through it.

use std::{
    io::IoSliceMut,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::{Errno, readv},
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg},
};

use super::{incoming::Incoming, send_queue, sharing};
use crate::{
    PeerDeath,
    noise::Records,
    provider::frames::{Frames, outbox::Outbox},
    region_table::RegionTable,
};

mod records;

/// A socket, and how far it is with what is sent and received.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: OwnedFd,
    /// The records that frames go through, if the connection is encrypted.
    pub(super) records: Option<Box<Records>>,
    /// The socket takes no more, and the poller tells when it does.
    pub(super) blocked: bool,
    /// The peer has reset the connection. What it had sent before is still to be read; then comes the end.
    reset: bool,
    /// The failure of a `send` when there was nobody to be told of it.
    failed: Option<Errno>,
    received_bytes: u64,
}

impl Wire {
    /// How much is read before other connections have their turn, in bytes.
    const READ_PER_TURN: usize = 1 << 20;
    /// How much is sent before other connections have their turn, in bytes.
    const SENT_PER_TURN: usize = 4 << 20;
    /// How much less either is on an encrypted connection, so that a turn takes about as long.
    const ENCRYPTED_TURN: usize = 4;

    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            records: None,
            blocked: false,
            reset: false,
            failed: None,
            received_bytes: 0,
        }
    }

    /// True if sending is of any use.
    pub(super) fn can_send(&self) -> bool {
        !self.reset
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// How many bytes of records wait to be sent; what is in them counts as sent.
    pub(super) fn unsent_records(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.unsent().len())
    }

    /// How many of the `sent` bytes the system of the peer has taken.
    pub(super) fn taken(&self, sent: u64) -> u64 {
        let under_way = self.unsent_records() as u64 + send_queue::unacknowledged(&self.socket);
        sent.saturating_sub(under_way)
    }

    /// Sends as much as the socket takes, up to this connection's turn, of an open connection.
    pub(super) fn flush(&mut self, frames: &mut Frames, regions: &RegionTable) -> Result<(), PeerDeath> {
        let mut sent = 0;
        let turn = match self.records {
            Some(_) => Self::SENT_PER_TURN / Self::ENCRYPTED_TURN,
            None => Self::SENT_PER_TURN,
        };
        while self.can_send() && !self.blocked && sent < turn {
            frames.outbox.fill(regions);
            let Some(result) = self.send_next(&mut frames.outbox) else {
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

    /// Tells what went wrong with sending early.
    pub(super) fn check(&self) -> Result<(), PeerDeath> {
        self.failed.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Gives the next bytes to the socket, and returns how many it took; `None` if there are none.
    fn send_next(&mut self, outbox: &mut Outbox) -> Option<Result<usize, Errno>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Some(records) = &mut self.records {
            records::encrypt(outbox, records);
            if records.unsent().is_empty() {
                return None;
            }
            let result = send(&self.socket, records.unsent(), flags);
            return Some(result.inspect(|&count| records.handle_sent(count)));
        }
        let result = match outbox.piece() {
            Some([]) => return None,
            Some(piece) => send(&self.socket, piece, flags),
            None => {
                let slices = outbox.slices();
                sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), flags)
            }
        };
        Some(result.inspect(|&count| outbox.handle_sent(count)))
    }

    /// Sends what waits before it is all there is to send, so that the peer works on it meanwhile. Returns whether
    /// nothing is left: what is, and what went wrong, is for the next [`flush`](Self::flush).
    pub(super) fn send_early(&mut self, frames: &mut Frames) -> bool {
        if !self.can_send() || self.blocked || frames.outbox.piece().is_none() {
            return false;
        }
        match self.send_next(&mut frames.outbox) {
            None | Some(Ok(_)) => !frames.has_unsent() && self.unsent_records() == 0,
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
    pub(super) fn receive(
        &mut self,
        frames: &mut Frames,
        incoming: &mut Incoming<'_, '_>,
    ) -> Result<(), PeerDeath> {
        if self.records.is_some() {
            return self.receive_records(frames, incoming);
        }
        let mut read = 0;
        frames.handle_decoded(incoming)?;
        // Beside a channel there come only offers, doorbells and what we asked for: messages in other channels, which
        // may take all the room there is again and again, must not keep that out.
        while read < Self::READ_PER_TURN && (incoming.sharing.is_some() || incoming.around.has_room()) {
            let (count, size) = match self.read(frames, incoming) {
                Ok((0, _)) => return Err(PeerDeath::Closed),
                Ok(read) => read,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            self.received_bytes += count as u64;
            frames.handle_read(count, incoming)?;
            frames.handle_decoded(incoming)?;
            if count < size {
                break;
            }
            read += count;
        }
        Ok(())
    }

    /// One read: how much, and how much there was space for.
    fn read(&self, frames: &mut Frames, incoming: &mut Incoming<'_, '_>) -> Result<(usize, usize), Errno> {
        let awaited = (incoming.sharing.as_mut()).and_then(|sharing| sharing.descriptors());
        let mut descriptors = awaited.map(std::mem::take);
        let (place, beyond) = frames.space(incoming);
        let size = place.len() + beyond.len();
        let count = match &mut descriptors {
            _ if !place.is_empty() => {
                let mut places = [IoSliceMut::new(place), IoSliceMut::new(beyond)];
                readv(&self.socket, &mut places)
            }
            Some(descriptors) => sharing::receive(&self.socket, beyond, descriptors),
            None => recv(&self.socket, beyond, RecvFlags::DONTWAIT).map(|(count, _)| count),
        };
        if let Some(awaited) = (incoming.sharing.as_mut()).and_then(|sharing| sharing.descriptors()) {
            *awaited = descriptors.unwrap_or_default();
        }
        Ok((count?, size))
    }

    /// Handles what came with the end of the handshake, and is more than that.
    pub(super) fn handle_beyond_handshake(
        &mut self,
        bytes: &[u8],
        frames: &mut Frames,
        incoming: &mut Incoming<'_, '_>,
    ) -> Result<(), PeerDeath> {
        let Some(records) = &mut self.records else {
            return frames.handle_bytes(bytes, incoming);
        };
        records.space()[..bytes.len()].copy_from_slice(bytes);
        records.handle_read(bytes.len());
        records::handle_records(records, frames, incoming)
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
