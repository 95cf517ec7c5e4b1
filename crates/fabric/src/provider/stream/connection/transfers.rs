//! One-sided operations in the frames of a connection: ours, and those that the peer is served.

use std::collections::BTreeMap;

use super::{Bulk, Connection, ServedPut, Surroundings};
use crate::{
    AccessError, FrameError, OperationId, PeerDeath,
    frame::{Header, Kind},
    provider::{
        TransferFailure, Transferred,
        stream::{
            Transfer,
            outbox::{Source, Stream},
        },
    },
    region_table::Access,
};

impl Connection {
    /// Where the data of a bulk frame belongs.
    pub(super) fn begin_bulk(
        &mut self,
        header: Header,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<Bulk, PeerDeath> {
        let length = header.length;
        let unsolicited = Err(PeerDeath::Protocol(FrameError::Unsolicited));
        if header.kind == Kind::PutData {
            return match self.puts.get(&header.id) {
                None => Ok(Bulk::Discard),
                Some(put) if length as u64 > put.rest.length => unsolicited,
                Some(_) => Ok(Bulk::Put(header.id)),
            };
        }
        let operation = OperationId::from_tag(header.id);
        match around.transfers.get(&operation) {
            Some(Transfer::Get {
                connection,
                into,
                received,
                checked,
            }) if *connection == self.id => {
                // Whoever asked for checksums does not take data without them.
                if length > into.len() - received || (*checked && !header.checked) {
                    return unsolicited;
                }
                Ok(Bulk::Get(operation))
            }
            _ => Ok(Bulk::Discard),
        }
    }

    /// Accounts for `count` bytes of the bulk frame.
    pub(super) fn advance_bulk(&mut self, count: usize, around: &mut Surroundings<'_, '_>) {
        match self.bulk {
            Bulk::Discard => {}
            Bulk::Get(operation) => {
                let Some(Transfer::Get { into, received, .. }) = around.transfers.get_mut(&operation) else {
                    return;
                };
                *received += count;
                if *received == into.len() {
                    let result = Ok(Transferred::Got(std::mem::take(into)));
                    around.transfers.remove(&operation);
                    around.around.handle_transferred(operation, result);
                }
            }
            Bulk::Put(id) => {
                let Some(put) = self.puts.get_mut(&id) else {
                    return;
                };
                // The exposure may have ended since the last piece, which then went nowhere.
                let granted = around.around.regions.check(&put.rest, true);
                put.rest.offset += count as u64;
                put.rest.length -= count as u64;
                if granted.is_err() || put.rest.length == 0 {
                    self.puts.remove(&id);
                    self.outbox.push_done(id, granted);
                }
            }
        }
    }

    pub(super) fn handle_request(
        &mut self,
        header: Header,
        access: Access,
        around: &mut Surroundings<'_, '_>,
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
            around.around.regions.check(&access, kind == Kind::Put)
        };
        if granted.is_err() || access.length == 0 {
            self.outbox.push_done(id, granted);
        } else if kind == Kind::Put {
            self.puts.insert(id, ServedPut { rest: access });
        } else {
            self.outbox.push_stream(Stream {
                id,
                checked,
                source: Source::Served(access),
            });
        }
        Ok(())
    }

    pub(super) fn handle_done(
        &mut self,
        header: Header,
        around: &mut Surroundings<'_, '_>,
    ) -> Result<(), PeerDeath> {
        let operation = OperationId::from_tag(header.id);
        match around.transfers.get(&operation) {
            Some(Transfer::Get { connection, into, .. }) if *connection == self.id => {
                if header.status.is_ok() && !into.is_empty() {
                    return Err(PeerDeath::Protocol(FrameError::Unsolicited));
                }
            }
            Some(Transfer::Put { connection }) if *connection == self.id => {}
            // It was cancelled, or goes over another connection and is not this peer's to end.
            _ => return Ok(()),
        }
        let Some(transfer) = around.transfers.remove(&operation) else {
            return Ok(());
        };
        let result = match (header.status, transfer) {
            (Ok(()), Transfer::Get { into, .. }) => Ok(Transferred::Got(into)),
            (Ok(()), Transfer::Put { .. }) => Ok(Transferred::Put),
            (Err(error), Transfer::Get { .. }) => Err(TransferFailure::Access(error)),
            (Err(error), Transfer::Put { .. }) => {
                self.outbox.cancel_put(header.id);
                Err(TransferFailure::Access(error))
            }
        };
        around.around.handle_transferred(operation, result);
        Ok(())
    }
}

/// The memory for the rest of what the bulk frame belongs to, if it is still wanted there.
pub(super) fn place<'a>(
    bulk: Bulk,
    puts: &BTreeMap<u64, ServedPut>,
    around: &'a mut Surroundings<'_, '_>,
) -> Option<&'a mut [u8]> {
    match bulk {
        Bulk::Discard => None,
        Bulk::Get(operation) => match around.transfers.get_mut(&operation)? {
            Transfer::Get { into, received, .. } => Some(&mut into[*received..]),
            Transfer::Put { .. } => None,
        },
        Bulk::Put(id) => around.around.regions.write(&puts.get(&id)?.rest).ok(),
    }
}
