//! One-sided operations: done by copying where the peer's memory can be reached, else asked for by frames.

use std::time::Duration;

use super::{
    StreamProvider, Transfer,
    connection::Connection,
    outbox::{Source, Stream},
};
use crate::{
    EndpointOptions, OperationId, PeerId, SubmitError, Withdrawn,
    arena::Arena,
    frame::{ACCESS_SIZE, Header, Kind},
    inbox::Around,
    provider::{
        Memory, TransferFailure, Transferred,
        shm::{Ended, OwnMemory, Writer},
    },
    region_table::Access,
};

/// What an endpoint shows its peers on this host. Without it, or without an arena in it, all works, only slower.
pub(super) fn own_memory(options: &EndpointOptions) -> Option<OwnMemory> {
    let arena = match options.limits.arena_size {
        0 => None,
        size => Arena::create(size).ok(),
    };
    OwnMemory::new(arena, options.transports.process_vm).ok()
}

impl StreamProvider {
    /// How often it is looked whether peers that were let go are gone.
    pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
    /// How much is copied before messages have their turn, in bytes.
    const COPIED_PER_TURN: usize = 4 << 20;
    /// How many operations are ended by copying before messages have their turn.
    const ENDED_PER_TURN: usize = 256;

    /// Starts a `get` or `put`.
    pub(super) fn start(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        let connections = self.peers.get(&peer).ok_or(SubmitError::NotConnected)?;
        let reaches = |id| (self.connections.get(id)).is_some_and(|known| known.memory.is_some());
        if connections.ids.iter().any(reaches) {
            self.direct.push(operation, peer, access, memory);
            return Ok(());
        }
        self.connection_with_room(peer, ACCESS_SIZE)?;
        self.request(operation, peer, &access, memory)
    }

    /// Asks the peer for a transfer.
    fn request(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: &Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        let checked = self.bulk_checksum;
        let connection = self.connection_to(peer)?;
        let id = connection.id;
        let transfer = match memory {
            Memory::Into(into) => {
                let header = Header {
                    checked,
                    ..Header::new(Kind::Get, operation.tag())
                };
                connection.request(header, access);
                Transfer::Get {
                    connection: id,
                    into,
                    received: 0,
                    checked,
                }
            }
            Memory::From(from) => {
                connection.request(Header::new(Kind::Put, operation.tag()), access);
                if !from.is_empty() {
                    connection.outbox.push_stream(Stream {
                        id: operation.tag(),
                        checked,
                        source: Source::Put(from),
                    });
                }
                Transfer::Put { connection: id }
            }
        };
        self.sendable.insert(id);
        self.transfers.insert(operation, transfer);
        Ok(())
    }

    /// Copies what can be copied, for one turn.
    pub(super) fn copy_directly(&mut self, around: &mut Around<'_>) {
        // Messages may take all the room there is again and again: it is not needed for our own operations, of which
        // there is a limited number.
        let (mut copied, mut done) = (0, 0);
        while copied < Self::COPIED_PER_TURN && done < Self::ENDED_PER_TURN {
            let Self {
                direct,
                peers,
                connections,
                ..
            } = self;
            let advanced = direct.advance(|peer| {
                let ids = &peers.get(&peer)?.ids;
                let reaches = |id: &_| connections.get(id).is_some_and(|known| known.memory.is_some());
                let id = ids.iter().copied().find(reaches)?;
                let connection = connections.get_mut(&id)?;
                let [word, _] = connection.channel.as_ref()?.writing_words()?;
                Some((connection.memory.as_mut()?, word))
            });
            let Some((count, ended)) = advanced else {
                return;
            };
            copied += count;
            done += usize::from(ended.is_some());
            match ended {
                None => {}
                Some(Ended::Done(transfer)) => {
                    let result = match transfer.memory {
                        Memory::Into(buffer) => Transferred::Got(buffer),
                        Memory::From(_) => Transferred::Put,
                    };
                    around.handle_transferred(transfer.operation, Ok(result));
                }
                Some(Ended::Refused(transfer, error)) => {
                    around.handle_transferred(transfer.operation, Err(TransferFailure::Access(error)));
                }
                Some(Ended::NotDirect(transfer)) => {
                    // It was let in already, so that no limit stops it.
                    let asked = self.request(
                        transfer.operation,
                        transfer.peer,
                        &transfer.access,
                        transfer.memory,
                    );
                    debug_assert!(asked.is_ok(), "a lost peer's operations are ended with it");
                }
            }
        }
    }

    /// Gives memory back that is no longer exposed, or a copy if a peer may be writing it still.
    pub(super) fn take_back(&mut self, region: u64, memory: Withdrawn) -> Withdrawn {
        let Some(own) = &mut self.own_memory else {
            return memory;
        };
        match memory {
            Withdrawn::Immutable(_) => {
                own.withdraw(region);
                memory
            }
            Withdrawn::Writable(buffer) => {
                let writers = self.connections.values().filter_map(|connection| {
                    let [_, word] = connection.channel.as_ref()?.writing_words()?;
                    let socket = &connection.socket;
                    Some(Writer { word, socket })
                });
                Withdrawn::Writable(own.withdraw_writable(region, buffer, writers))
            }
        }
    }

    /// Lets go of a connection, but not of the peer's word if it may be writing our memory still.
    pub(super) fn keep_out(&mut self, connection: Connection) {
        if let Some(own) = &mut self.own_memory
            && let Some([_, word]) = connection
                .channel
                .as_ref()
                .and_then(|channel| channel.writing_words())
        {
            own.handle_closed(word.clone(), connection.socket);
        }
    }

    /// Whether [`sweep`](Self::sweep) has something to look for.
    pub(super) fn is_swept(&self) -> bool {
        self.own_memory.as_ref().is_some_and(OwnMemory::is_swept)
    }

    /// Frees what peers that were let go have left.
    pub(super) fn sweep(&mut self) {
        if let Some(own) = &mut self.own_memory
            && own.is_swept()
        {
            own.sweep();
        }
    }
}
