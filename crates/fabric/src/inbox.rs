//! Incoming messages and other events that wait for the owner of an endpoint.

use std::{collections::VecDeque, time::Instant};

use crate::{
    Address, Body, Completion, Event, Messages, OperationError, OperationId, Peer, PeerDeath, PeerId,
    Received,
    frame::MessageKind,
    operations::{Awaited, Operation, Operations},
    peer_table::PeerTable,
    provider::{TransferFailure, Transferred},
    region_table::RegionTable,
};

/// The events of an endpoint, and the operations that they end.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) operations: Operations,
    events: VecDeque<Event>,
    /// The operations that ended with a message that is on its way to the owner.
    replied: Vec<OperationId>,
    /// How many bytes of messages the events hold.
    bytes: usize,
    /// True if something came, or could be sent at last, even if no event tells of it yet.
    pub(crate) moved: bool,
    /// Peers that asked for a sign of life.
    pub(crate) pings: Vec<PeerId>,
    /// Peers that died, for other providers to know.
    pub(crate) dead: Vec<PeerId>,
}

/// The endpoint around a provider: what it works on besides itself, and whom it tells what comes.
pub struct Around<'a> {
    /// When this look at the provider began.
    pub now: Instant,
    /// Nothing more is read once so many events wait.
    pub(crate) events_max: usize,
    /// Nothing more is read once they hold so many bytes.
    pub(crate) bytes_max: usize,
    /// True if messages are read that the owner can take from the provider itself.
    pub(crate) takes_messages: bool,
    /// The provider's number in the peer table.
    pub(crate) provider: usize,
    /// The memory that the endpoint exposes.
    pub regions: &'a mut RegionTable,
    pub(crate) peers: &'a mut PeerTable,
    pub(crate) inbox: &'a mut Inbox,
}

impl Inbox {
    pub(crate) fn new(instance: u64) -> Self {
        Self {
            operations: Operations::new(instance),
            events: VecDeque::new(),
            replied: Vec::new(),
            bytes: 0,
            moved: false,
            pings: Vec::new(),
            dead: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= event.message_bytes();
        if let Event::Completed { operation, .. } = &event {
            self.operations.vacate(*operation);
        }
        Some(event)
    }

    /// Forgets the messages of a peer that are no answers and were not taken.
    pub(crate) fn drop_messages_from(&mut self, peer: PeerId) {
        let bytes = &mut self.bytes;
        self.events.retain(|event| {
            let is_dropped = matches!(event, Event::Unexpected { from, .. } if *from == peer);
            if is_dropped {
                *bytes -= event.message_bytes();
            }
            !is_dropped
        });
    }

    fn push(&mut self, event: Event) {
        self.bytes += event.message_bytes();
        self.events.push_back(event);
    }

    /// Ends an operation with a reply, which is told without an event. Returns whether it waits for that.
    #[inline]
    fn end_with_reply(&mut self, operation: OperationId, from: PeerId, peers: &mut PeerTable) -> bool {
        let waiting = self.operations.get(operation);
        if !waiting.is_some_and(|waiting| waiting.peer == from && waiting.awaited == Awaited::Reply) {
            return false;
        }
        self.operations.end(operation);
        self.replied.push(operation);
        if let Some(known) = peers.get_mut(from) {
            known.operations -= 1;
        }
        true
    }

    /// The owner knows of all operations that ended with a reply.
    pub(crate) fn vacate(&mut self) {
        for operation in self.replied.drain(..) {
            self.operations.vacate(operation);
        }
    }

    /// Takes an operation out without telling.
    pub(crate) fn forget(&mut self, operation: OperationId, peers: &mut PeerTable) -> Option<Operation> {
        let forgotten = self.operations.remove(operation)?;
        if let Some(known) = peers.get_mut(forgotten.peer) {
            known.operations -= 1;
        }
        Some(forgotten)
    }

    /// Ends an operation. `result` is given the address of its peer. Returns what it was.
    pub(crate) fn complete(
        &mut self,
        operation: OperationId,
        peers: &mut PeerTable,
        result: impl FnOnce(&Address) -> Result<Completion, OperationError>,
    ) -> Option<Operation> {
        let known = peers.get_mut(self.operations.get(operation)?.peer)?;
        let completed = self.operations.end(operation)?;
        known.operations -= 1;
        let result = result(&known.address);
        self.push(Event::Completed { operation, result });
        Some(completed)
    }
}

impl Around<'_> {
    /// The name of the peer at this address, a new one if it has none.
    pub fn intern(&mut self, address: &Address) -> PeerId {
        self.peers.intern(address)
    }

    /// Tells that a peer has proven who it is. Returns its name.
    pub fn prove(&mut self, peer: Peer) -> PeerId {
        self.peers.prove(peer, self.provider)
    }

    /// Returns true if more may be read.
    pub fn has_room(&self) -> bool {
        self.inbox.events.len() < self.events_max && self.inbox.bytes < self.bytes_max
    }

    /// Hands a message over to whom it is for.
    #[inline]
    pub fn handle_message(&mut self, kind: MessageKind, from: PeerId, tag: u64, body: impl Into<Body>) {
        let receiver = match kind {
            MessageKind::Unexpected => {
                let body = body.into();
                return self.inbox.push(Event::Unexpected { from, tag, body });
            }
            MessageKind::Ping => return self.inbox.pings.push(from),
            MessageKind::Pong => return,
            MessageKind::Expected => self.inbox.operations.receiver(from, tag),
            MessageKind::Reply => Some(OperationId::from_tag(tag)).filter(|&operation| {
                let waiting = self.inbox.operations.get(operation);
                waiting.is_some_and(|waiting| waiting.peer == from && waiting.awaited == Awaited::Reply)
            }),
        };
        if let Some(operation) = receiver {
            self.inbox
                .complete(operation, self.peers, |_| Ok(Completion::Received(body.into())));
        }
    }

    /// As [`handle_message`](Self::handle_message) for a message whose body is in the room of `messages`: if it is for
    /// the owner, it is added to these.
    #[inline]
    pub(crate) fn take_message(
        &mut self,
        kind: MessageKind,
        from: PeerId,
        tag: u64,
        messages: &mut Messages,
    ) {
        match kind {
            MessageKind::Unexpected => messages.push(Received::Unexpected { from, tag }),
            MessageKind::Reply => {
                let operation = OperationId::from_tag(tag);
                if self.inbox.end_with_reply(operation, from, self.peers) {
                    messages.push(Received::Reply { operation });
                }
            }
            MessageKind::Expected | MessageKind::Ping | MessageKind::Pong => {
                let body = messages.room().map(std::mem::take).unwrap_or_default();
                self.handle_message(kind, from, tag, body);
            }
        }
    }

    /// Tells that a `get` or `put` has ended.
    pub fn handle_transferred(
        &mut self,
        operation: OperationId,
        result: Result<Transferred, TransferFailure>,
    ) {
        self.inbox.complete(operation, self.peers, |peer| match result {
            Ok(Transferred::Got(buffer)) => Ok(Completion::Got(buffer)),
            Ok(Transferred::Put) => Ok(Completion::Put),
            Err(TransferFailure::Access(source)) => Err(OperationError::Access {
                peer: peer.clone(),
                source,
            }),
            Err(TransferFailure::PeerDied(source)) => Err(OperationError::PeerDied {
                peer: peer.clone(),
                source,
            }),
        });
    }

    /// Tells that a peer is gone. Ends what is in progress with it, and its name.
    pub fn handle_death(&mut self, peer: PeerId, cause: PeerDeath) {
        let lost = self.inbox.operations.filter(|operation| operation.peer == peer);
        for operation in lost {
            self.inbox.complete(operation, self.peers, |peer| {
                Err(OperationError::PeerDied {
                    peer: peer.clone(),
                    source: cause.clone(),
                })
            });
        }
        if let Some(known) = self.peers.remove(peer) {
            self.inbox.dead.push(peer);
            let address = known.address;
            self.inbox.push(Event::PeerDied { peer, address, cause });
        }
    }
}
