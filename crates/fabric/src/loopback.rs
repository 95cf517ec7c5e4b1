//! What an endpoint has to do with itself, for which it needs no provider.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use crate::{
    Buffer, OperationId, Peer,
    provider::{MessageKind, ProviderEvent, TransferFailure, Transferred},
    region_table::{Access, RegionTable},
};

/// Messages and one-sided operations of an endpoint with itself, in order.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    actions: VecDeque<Action>,
    message_bytes: usize,
}

#[derive(Debug)]
enum Action {
    Get(OperationId, Access, Buffer),
    Message(MessageKind, u64, Bytes),
    Put(OperationId, Access, Bytes),
}

impl Loopback {
    pub(crate) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// How many actions wait.
    pub(crate) fn len(&self) -> usize {
        self.actions.len()
    }

    /// How many bytes of messages wait.
    pub(crate) fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    pub(crate) fn send(&mut self, kind: MessageKind, tag: u64, body: Bytes) {
        self.message_bytes += body.len();
        self.actions.push_back(Action::Message(kind, tag, body));
    }

    pub(crate) fn get(&mut self, operation: OperationId, access: Access, into: Buffer) {
        self.actions.push_back(Action::Get(operation, access, into));
    }

    pub(crate) fn put(&mut self, operation: OperationId, access: Access, from: Bytes) {
        self.actions.push_back(Action::Put(operation, access, from));
    }

    /// Does at most `budget` of what waits; each action is one event.
    pub(crate) fn progress(
        &mut self,
        itself: &Arc<Peer>,
        budget: usize,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    ) {
        let count = self.actions.len().min(budget);
        for action in self.actions.drain(..count) {
            events.push(match action {
                Action::Message(kind, tag, body) => {
                    self.message_bytes -= body.len();
                    ProviderEvent::Message {
                        kind,
                        from: itself.clone(),
                        tag,
                        body,
                    }
                }
                Action::Get(operation, access, mut into) => {
                    let result = regions.read(&access).map(|bytes| {
                        into.copy_from_slice(&bytes);
                        Transferred::Got(into)
                    });
                    let result = result.map_err(TransferFailure::Access);
                    ProviderEvent::Transferred { operation, result }
                }
                Action::Put(operation, access, from) => {
                    let result = regions.write(&access).map(|to| {
                        to.copy_from_slice(&from);
                        Transferred::Put
                    });
                    let result = result.map_err(TransferFailure::Access);
                    ProviderEvent::Transferred { operation, result }
                }
            });
        }
    }
}
