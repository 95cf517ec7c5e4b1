//! Frames in records, where the connection is encrypted.

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::Wire;
use crate::{
    PeerDeath,
    noise::{RECORD_SIZE_MAX, Records},
    provider::{
        frames::{Frames, Receiver, outbox::Outbox},
        stream::incoming::Incoming,
    },
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

/// Handles what is in the records that have come whole.
pub(super) fn handle_records(
    records: &mut Records,
    frames: &mut Frames,
    receiver: &mut impl Receiver,
) -> Result<(), PeerDeath> {
    let mut content = [0; RECORD_SIZE_MAX];
    while let Some(content) = records.poll(&mut content).map_err(PeerDeath::Protocol)? {
        frames.handle_bytes(content, receiver)?;
    }
    Ok(())
}

impl Wire {
    /// Reads records that have come, and handles what is in them.
    pub(super) fn receive_records(
        &mut self,
        frames: &mut Frames,
        incoming: &mut Incoming<'_, '_>,
    ) -> Result<(), PeerDeath> {
        let mut read = 0;
        while let Some(records) = &mut self.records
            && read < Self::READ_PER_TURN / Self::ENCRYPTED_TURN
            && incoming.around.has_room()
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
            handle_records(records, frames, incoming)?;
            if count < size {
                break;
            }
            read += count;
        }
        Ok(())
    }
}
