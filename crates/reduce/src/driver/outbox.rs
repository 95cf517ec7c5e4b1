//! The messages and chunks that wait to be sent, and the chunks that are under way.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use ropewalk_fabric::{Address, RegionHandle, SubmitError};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{ChunkHeader, Grant};
use ropewalk_rpc::{Call, CallError, Engine};

use super::procedures::{ChunkBytes, MESSAGES_MAX, TakeChunk, TakeGrants, TellSeat, TellSite};
use crate::message::{ToSeat, ToSite};

/// Everything on its way from this rank to others.
#[derive(Default)]
pub(super) struct Outbox {
    messages: BTreeMap<Rank, Messages>,
    chunks: VecDeque<(Rank, ChunkHeader, Bytes)>,
    sends: Vec<Sent>,
}

/// The messages that wait for one rank.
#[derive(Default)]
struct Messages {
    to_seat: VecDeque<ToSeat>,
    to_site: VecDeque<ToSite>,
    grants: VecDeque<Grant>,
}

/// A chunk under way.
struct Sent {
    to: Rank,
    chunk: ChunkHeader,
    /// Where the receiver reads it.
    exposed: Option<RegionHandle>,
    answer: Call<()>,
}

impl Outbox {
    pub(super) fn tell_seat(&mut self, to: Rank, message: ToSeat) {
        self.of(to).to_seat.push_back(message);
    }

    pub(super) fn tell_site(&mut self, to: Rank, message: ToSite) {
        self.of(to).to_site.push_back(message);
    }

    pub(super) fn grant(&mut self, to: Rank, grant: Grant) {
        self.of(to).grants.push_back(grant);
    }

    pub(super) fn send_chunk(&mut self, to: Rank, chunk: ChunkHeader, bytes: Bytes) {
        self.chunks.push_back((to, chunk, bytes));
    }

    /// Says if nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.chunks.is_empty()
    }

    fn of(&mut self, to: Rank) -> &mut Messages {
        self.messages.entry(to).or_default()
    }

    /// A rank is gone: it gets nothing any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.messages.remove(&rank);
    }

    /// Hands to the engine as much as it takes. Chunks for ranks without an address have failed.
    pub(super) fn send(
        &mut self,
        engine: &mut Engine,
        addresses: &[Option<Address>],
    ) -> Vec<(Rank, ChunkHeader)> {
        self.messages.retain(|&rank, messages| {
            let Some(address) = &addresses[rank.index()] else {
                return false;
            };
            send_batches(&mut messages.to_seat, |batch| {
                engine.notify::<TellSeat>(address, batch)
            });
            send_batches(&mut messages.to_site, |batch| {
                engine.notify::<TellSite>(address, batch)
            });
            send_batches(&mut messages.grants, |batch| {
                engine.notify::<TakeGrants>(address, batch)
            });
            !(messages.to_seat.is_empty() && messages.to_site.is_empty() && messages.grants.is_empty())
        });
        let mut failed = Vec::new();
        while let Some((to, chunk, bytes)) = self.chunks.pop_front() {
            let Some(address) = &addresses[to.index()] else {
                failed.push((to, chunk));
                continue;
            };
            let (input, exposed) = match reads_itself(engine, address, &bytes) {
                true => {
                    let handle = engine.expose(bytes.clone());
                    (
                        ChunkBytes::There(handle.clone(), bytes.len() as u64),
                        Some(handle),
                    )
                }
                false => (ChunkBytes::Here(bytes.clone()), None),
            };
            match engine.call::<TakeChunk>(address, &(chunk, input), CHUNK_TIMEOUT) {
                Ok(answer) => self.sends.push(Sent {
                    to,
                    chunk,
                    exposed,
                    answer,
                }),
                Err(error) => {
                    exposed.and_then(|handle| engine.withdraw(&handle));
                    if is_busy(&error) {
                        self.chunks.push_front((to, chunk, bytes));
                        break;
                    }
                    failed.push((to, chunk));
                }
            }
        }
        failed
    }

    /// The chunks that have arrived, or will never do so.
    pub(super) fn collect(&mut self, engine: &mut Engine) -> Vec<(Rank, ChunkHeader, Result<(), CallError>)> {
        let mut ended = Vec::new();
        self.sends.retain_mut(|sent| match sent.answer.try_take() {
            None => true,
            Some(result) => {
                sent.exposed.take().and_then(|handle| engine.withdraw(&handle));
                ended.push((sent.to, sent.chunk, result));
                false
            }
        });
        ended
    }
}

/// Says if the receiver can read the bytes by itself, and should: it copies them once, a message would three times.
fn reads_itself(engine: &mut Engine, address: &Address, bytes: &Bytes) -> bool {
    const WORTH_IT: usize = 16 << 10;
    let peer = engine.peer(address).ok().filter(|_| bytes.len() >= WORTH_IT);
    peer.and_then(|peer| engine.provider_of(peer)) == Some("shm")
}

/// Sends messages in order, in batches, for as long as the receiver has room for them.
fn send_batches<M: Clone>(
    messages: &mut VecDeque<M>,
    mut send: impl FnMut(&Vec<M>) -> Result<(), CallError>,
) {
    while !messages.is_empty() {
        let batch: Vec<M> = messages.iter().take(MESSAGES_MAX).cloned().collect();
        let sent = send(&batch);
        if sent.is_err_and(|error| is_busy(&error)) {
            return;
        }
        // Those that cannot be sent at all are for a peer that is gone, which is noticed apart from this.
        messages.drain(..batch.len());
    }
}

/// Says if a call could not be made now, and can be later.
pub(super) fn is_busy(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Submit {
            source: SubmitError::Busy { .. } | SubmitError::Connect { .. },
            ..
        }
    )
}

/// A chunk may wait so long in a slow link.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
