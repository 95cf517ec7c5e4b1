//! The traffic of an endpoint with itself, for which it needs no provider.

use std::collections::VecDeque;

use crate::{
    Body, OperationId, PeerId,
    frame::MessageKind,
    inbox::Around,
    provider::{Memory, TransferFailure, Transferred},
    region_table::Access,
};

/// Messages and one-sided operations of an endpoint with itself, in order.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    actions: VecDeque<Action>,
    message_bytes: usize,
}

#[derive(Debug)]
enum Action {
    Message(MessageKind, u64, Body),
    Transfer(OperationId, Access, Memory),
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

    pub(crate) fn send(&mut self, kind: MessageKind, tag: u64, body: Body) {
        self.message_bytes += body.len();
        self.actions.push_back(Action::Message(kind, tag, body));
    }

    pub(crate) fn transfer(&mut self, operation: OperationId, access: Access, memory: Memory) {
        self.actions
            .push_back(Action::Transfer(operation, access, memory));
    }

    /// Does what waits as far as there is room for its events; `itself` is the endpoint's own name.
    pub(crate) fn progress(&mut self, itself: PeerId, around: &mut Around<'_>) {
        // What the owner adds in answer to this has its turn next time.
        for _ in 0..self.actions.len() {
            if !around.has_room() {
                return;
            }
            match self.actions.pop_front() {
                None => return,
                Some(Action::Message(kind, tag, body)) => {
                    self.message_bytes -= body.len();
                    around.handle_message(kind, itself, tag, body);
                }
                Some(Action::Transfer(operation, access, memory)) => {
                    let result = match memory {
                        Memory::Into(mut into) => around.regions.read(&access).map(|bytes| {
                            into.copy_from_slice(&bytes);
                            Transferred::Got(into)
                        }),
                        Memory::From(from) => around.regions.write(&access).map(|to| {
                            to.copy_from_slice(&from);
                            Transferred::Put
                        }),
                    };
                    around.handle_transferred(operation, result.map_err(TransferFailure::Access));
                }
            }
        }
    }
}
