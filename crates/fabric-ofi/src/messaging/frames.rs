//! What an association makes of the peer's frames.

use std::mem;

use ropewalk_fabric::{
    AccessError, Body, PeerDeath,
    provider::{Access, Decoded, Header, Kind, RegionTable, Source, Stream},
};

use super::{Association, Bulk, Happening, Transfer, UNSOLICITED};

impl Association {
    /// How much goes into the decoder at once: enough for small frames, little enough that most of a bulk
    /// frame goes straight into place.
    const DECODED_SIZE: usize = 1 << 10;

    /// Takes the next bytes of the peer's stream of frames.
    pub(super) fn handle_stream(
        &mut self,
        mut stream: &[u8],
        regions: &mut RegionTable,
        happenings: &mut Vec<Happening>,
    ) -> Result<(), PeerDeath> {
        while !stream.is_empty() {
            let remaining = self.decoder.bulk_remaining();
            let (piece, rest) = if remaining > 0 {
                let (piece, rest) = stream.split_at(remaining.min(stream.len()));
                self.decoder
                    .handle_bulk_read(piece)
                    .map_err(PeerDeath::Protocol)?;
                self.handle_bulk(piece, regions, happenings);
                (piece, rest)
            } else {
                let space = self.decoder.space();
                let count = stream.len().min(space.len()).min(Self::DECODED_SIZE);
                let (piece, rest) = stream.split_at(count);
                space[..count].copy_from_slice(piece);
                self.decoder.handle_read(count);
                (piece, rest)
            };
            assert!(!piece.is_empty(), "a decoder without space");
            stream = rest;
            self.handle_decoded(regions, happenings)?;
        }
        Ok(())
    }

    fn handle_decoded(
        &mut self,
        regions: &mut RegionTable,
        happenings: &mut Vec<Happening>,
    ) -> Result<(), PeerDeath> {
        loop {
            match self.decoder.poll().map_err(PeerDeath::Protocol)? {
                None => return Ok(()),
                Some(Decoded::Bulk(header)) => self.bulk = self.begin_bulk(header)?,
                Some(Decoded::BulkBytes(bytes)) => {
                    // The decoder lends its buffer, and this is at most `DECODED_SIZE`.
                    let bytes = bytes.to_vec();
                    self.handle_bulk(&bytes, regions, happenings);
                }
                Some(Decoded::Frame(header, body)) => {
                    self.handle_frame(header, body, regions, happenings)?;
                }
            }
        }
    }

    /// Where the data of a bulk frame belongs.
    fn begin_bulk(&self, header: Header) -> Result<Bulk, PeerDeath> {
        let Header { length, id, .. } = header;
        let (bulk, room) = match header.kind {
            Kind::PutData => match self.puts.get(&id) {
                Some(rest) => (Bulk::Put(id), rest.length),
                None => return Ok(Bulk::Discard),
            },
            _ => match self.transfers.get(&id) {
                Some(Transfer::Get { into, received }) => (Bulk::Get(id), (into.len() - received) as u64),
                _ => return Ok(Bulk::Discard),
            },
        };
        if length as u64 > room {
            return Err(UNSOLICITED);
        }
        Ok(bulk)
    }

    /// Takes the next bytes of the bulk frame, which are not more than are to come.
    fn handle_bulk(&mut self, bytes: &[u8], regions: &mut RegionTable, happenings: &mut Vec<Happening>) {
        match self.bulk {
            Bulk::Discard => {}
            Bulk::Get(id) => {
                // It may have been cancelled since the frame began.
                let Some(Transfer::Get { into, received }) = self.transfers.get_mut(&id) else {
                    return;
                };
                into[*received..*received + bytes.len()].copy_from_slice(bytes);
                *received += bytes.len();
                if *received == into.len() {
                    let into = mem::take(into);
                    self.transfers.remove(&id);
                    happenings.push(Happening::Got { id, into });
                }
            }
            Bulk::Put(id) => {
                let Some(rest) = self.puts.get_mut(&id) else {
                    return;
                };
                let length = bytes.len() as u64;
                // The exposure may have ended since the last piece.
                let written = regions.write(&Access { length, ..*rest }).map(|place| {
                    place.copy_from_slice(bytes);
                });
                rest.offset += length;
                rest.length -= length;
                if written.is_err() || rest.length == 0 {
                    self.puts.remove(&id);
                    self.outbox.push_done(id, written);
                }
            }
        }
    }

    fn handle_frame(
        &mut self,
        header: Header,
        body: Body,
        regions: &mut RegionTable,
        happenings: &mut Vec<Happening>,
    ) -> Result<(), PeerDeath> {
        match header.kind {
            Kind::Get | Kind::Put => {
                let access = Access::decode(&body).map_err(PeerDeath::Protocol)?;
                self.handle_request(header, access, regions)?;
            }
            Kind::Done => self.handle_done(header, happenings)?,
            Kind::Cancel => {
                self.puts.remove(&header.id);
                self.outbox.cancel_served(header.id);
            }
            // There is no memory that both sides see.
            Kind::Offer | Kind::Doorbell => return Err(UNSOLICITED),
            Kind::GetData | Kind::PutData => unreachable!("the decoder gives bulk frames in pieces"),
            Kind::Unexpected | Kind::Expected | Kind::Reply | Kind::Ping | Kind::Pong => {
                happenings.push(Happening::Frame { header, body });
            }
        }
        Ok(())
    }

    fn handle_request(
        &mut self,
        header: Header,
        access: Access,
        regions: &RegionTable,
    ) -> Result<(), PeerDeath> {
        let Header {
            id, kind, checked, ..
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

    fn handle_done(&mut self, header: Header, happenings: &mut Vec<Happening>) -> Result<(), PeerDeath> {
        let Header { id, status, .. } = header;
        if let (Ok(()), Some(Transfer::Get { into, .. })) = (status, self.transfers.get(&id))
            && !into.is_empty()
        {
            return Err(UNSOLICITED);
        }
        // It may have been cancelled.
        let Some(transfer) = self.transfers.remove(&id) else {
            return Ok(());
        };
        happenings.push(match (status, transfer) {
            (Ok(()), Transfer::Get { into, .. }) => Happening::Got { id, into },
            (Ok(()), Transfer::Put) => Happening::Put { id },
            (Err(error), _) => {
                self.outbox.cancel_put(id);
                Happening::Refused { id, error }
            }
        });
        Ok(())
    }
}
