//! The endpoint as the frames of a connection see it.

use super::sharing::Sharing;
use crate::{
    AccessError, Body, FrameError, OperationId, PeerDeath, PeerId,
    frame::{HEADER_SIZE, MessageKind},
    inbox::Around,
    provider::{TransferFailure, Transferred, frames::Receiver},
    region_table::RegionTable,
};

/// The endpoint around an open connection, and the memory that its two ends share.
pub(super) struct Incoming<'a, 'b> {
    pub(super) from: PeerId,
    pub(super) sharing: Option<&'a mut Sharing>,
    pub(super) around: &'a mut Around<'b>,
    /// How many operations of ours go in frames, over all connections.
    pub(super) transfers: &'a mut usize,
}

impl Receiver for Incoming<'_, '_> {
    fn regions(&mut self) -> &mut RegionTable {
        self.around.regions
    }

    #[inline]
    fn handle_message(&mut self, kind: MessageKind, tag: u64, body: Body) -> Result<(), FrameError> {
        if self.sharing.is_some() {
            return Err(FrameError::Unsolicited);
        }
        self.around.handle_message(kind, self.from, tag, body);
        Ok(())
    }

    fn handle_transferred(&mut self, operation: OperationId, result: Result<Transferred, AccessError>) {
        *self.transfers -= 1;
        let result = result.map_err(TransferFailure::Access);
        self.around.handle_transferred(operation, result);
    }

    fn handle_offer(&mut self, body: &[u8]) -> Result<(), PeerDeath> {
        let sharing = self.sharing.as_mut();
        sharing
            .ok_or(PeerDeath::Protocol(FrameError::Unsolicited))?
            .handle_offer(body)
    }

    fn handle_doorbell(&mut self) -> Result<(), PeerDeath> {
        let sharing = self.sharing.as_mut();
        // Whatever is read has the provider look into the channel.
        sharing
            .ok_or(PeerDeath::Protocol(FrameError::Unsolicited))?
            .doorbell_bytes += HEADER_SIZE as u64;
        Ok(())
    }
}
