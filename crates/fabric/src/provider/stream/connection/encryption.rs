//! Frames in records, where the connection is encrypted.

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{Connection, Handled, Surroundings, place};
use crate::{
    PeerDeath,
    noise::{RECORD_SIZE_MAX, Records},
    provider::stream::outbox::Outbox,
};

/// Makes records of frames as far as there is room for them.
pub(super) fn encrypt(outbox: &mut Outbox, records: &mut Records) {
    while records.has_room() {
        let piece = outbox.first_piece();
        if piece.is_empty() {
            return;
        }
        let count = records.write(piece);
        outbox.handle_encrypted(count);
    }
}

impl Connection {
    /// How many bytes of records wait to be sent; what is in them counts as sent.
    pub(super) fn unsent_records(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.unsent().len())
    }

    /// True if frames wait to be sent.
    pub(in crate::provider::stream) fn has_frames(&self) -> bool {
        !self.outbox.is_empty() || self.unsent_records() > 0
    }

    /// Keeps what came with the end of the handshake, and is more than that.
    pub(super) fn keep_beyond_handshake(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(records) = &mut self.records {
            records.space()[..bytes.len()].copy_from_slice(bytes);
            records.handle_read(bytes.len());
        } else {
            self.decoder.space()[..bytes.len()].copy_from_slice(bytes);
            self.decoder.handle_read(bytes.len());
        }
    }

    /// Handles the frames that have come.
    pub(in crate::provider::stream) fn handle_received(
        &mut self,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        self.handle_decoded(around)?;
        self.handle_records(around)
    }

    /// Reads records that have come, and handles what is in them.
    pub(super) fn receive_records(
        &mut self,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<Handled, PeerDeath> {
        let mut read = 0;
        while let Some(records) = &mut self.records
            && read < Self::READ_PER_TURN / Self::ENCRYPTED_TURN
            && around.around.has_room()
        {
            let space = records.space();
            let size = space.len();
            let count = match recv(&self.socket, space, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(PeerDeath::Closed),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            self.received_bytes += count as u64;
            records.handle_read(count);
            self.handle_records(around)?;
            if count < size {
                break;
            }
            read += count;
        }
        Ok(Handled::Frames)
    }

    /// Handles what is in the records that have come whole.
    fn handle_records(&mut self, around: &mut Surroundings<'_, '_>) -> Result<(), PeerDeath> {
        if self.records.is_none() {
            return Ok(());
        }
        let mut content = [0; RECORD_SIZE_MAX];
        while let Some(records) = &mut self.records
            && let Some(content) = records.poll(&mut content).map_err(PeerDeath::Protocol)?
        {
            self.handle_content(content, around)?;
        }
        Ok(())
    }

    /// Handles the next part of the stream of frames, straight into place where it belongs to a transfer.
    fn handle_content(
        &mut self,
        mut content: &[u8],
        around: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        while !content.is_empty() {
            let remaining = self.decoder.bulk_remaining();
            let placed = match remaining {
                0 => None,
                _ => place(self.bulk, &self.puts, around),
            };
            if let Some(place) = placed {
                let (now, later) = content.split_at(content.len().min(remaining));
                place[..now.len()].copy_from_slice(now);
                self.decoder.handle_bulk_read(now).map_err(PeerDeath::Protocol)?;
                self.advance_bulk(now.len(), around);
                content = later;
            } else {
                let space = self.decoder.space();
                let (now, later) = content.split_at(content.len().min(space.len()));
                space[..now.len()].copy_from_slice(now);
                self.decoder.handle_read(now.len());
                self.handle_decoded(around)?;
                content = later;
            }
        }
        Ok(())
    }
}
