//! Frames in records, where the connection is encrypted.

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{Connection, Handled, Surroundings, place};
use crate::{
    PeerDeath,
    record::{RecordReader, RecordSecrets},
};

impl Connection {
    /// From now on everything is encrypted, in both directions.
    pub(super) fn encrypt_by(&mut self, RecordSecrets { sent, received }: RecordSecrets) {
        assert!(
            self.channel.is_none(),
            "what is shared through memory stays on this host"
        );
        self.outbox.encrypt_by(sent);
        self.records = Some(Box::new(RecordReader::new(received)));
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
        self.with_records(|connection, records| connection.handle_records(records, around))
            .unwrap_or_else(|| self.handle_decoded(around))
    }

    /// Reads records that have come, and handles what is in them.
    pub(super) fn receive_records(
        &mut self,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<Handled, PeerDeath> {
        self.with_records(|connection, records| {
            connection.handle_records(records, around)?;
            let mut read = 0;
            while read < Self::READ_PER_TURN / Self::ENCRYPTED_TURN && around.around.has_room() {
                let space = records.space();
                let size = space.len();
                let count = match recv(&connection.socket, &mut *space, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Err(PeerDeath::Closed),
                    Ok((count, _)) => count,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                };
                connection.received_bytes += count as u64;
                records.handle_read(count);
                connection.handle_records(records, around)?;
                if count < size {
                    break;
                }
                read += count;
            }
            Ok(())
        })
        .unwrap_or(Ok(()))?;
        Ok(Handled::Frames)
    }

    fn with_records<T>(&mut self, work: impl FnOnce(&mut Self, &mut RecordReader) -> T) -> Option<T> {
        let mut records = self.records.take()?;
        let done = work(self, &mut records);
        self.records = Some(records);
        Some(done)
    }

    /// Handles what is in the records that have come whole.
    fn handle_records(
        &mut self,
        records: &mut RecordReader,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        self.handle_decoded(around)?;
        while let Some(content) = records.poll().map_err(PeerDeath::Protocol)? {
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
