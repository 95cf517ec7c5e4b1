//! The messages and chunks that wait to be sent, and the chunks that are under way.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, HandshakeError, Identity, PeerDeath, RegionHandle, SubmitError};
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{ChunkHeader, Relays};
use ropewalk_rpc::{Call, CallError, Engine};

use super::{
    lines::Lines,
    procedures::{ChunkPlace, TakeChunk},
    roads::Roads,
};

/// Everything on its way from this rank to others. A connection that breaks loses nothing: messages and chunks are sent
/// again over the next one, and are taken once.
pub(super) struct Outbox {
    epoch: Epoch,
    pub(super) lines: Lines,
    chunks: VecDeque<Chunk>,
    sends: Vec<Sent>,
}

/// A chunk that waits to be sent.
struct Chunk {
    to: Rank,
    header: ChunkHeader,
    bytes: Bytes,
    /// When it was under way first and got no answer, how often that was a connection that broke, and until when it
    /// waits for that.
    first_loss: Option<Instant>,
    losses: u32,
    not_before: Option<Instant>,
}

/// The bytes of a chunk, and the time of its arrival by the receiver's clock.
pub(super) type Taken = (u64, Duration);

/// A chunk under way.
struct Sent {
    chunk: Chunk,
    /// Where the receiver reads it.
    exposed: Option<RegionHandle>,
    answer: Call<Duration>,
}

impl Outbox {
    /// Everything on its way in an epoch, from this member of a job with these relays.
    pub(super) fn new(epoch: Epoch, own: Identity, relays: Relays) -> Self {
        Self {
            epoch,
            lines: Lines::new(epoch, own, relays),
            chunks: VecDeque::new(),
            sends: Vec::new(),
        }
    }

    pub(super) fn send_chunk(&mut self, to: Rank, chunk: ChunkHeader, bytes: Bytes) {
        self.chunks.push_back(Chunk {
            to,
            header: chunk,
            bytes,
            first_loss: None,
            losses: 0,
            not_before: None,
        });
    }

    /// Says if nothing waits to be sent that could be now or soon.
    pub(super) fn is_empty(&self, roads: &Roads) -> bool {
        self.chunks.is_empty() && self.lines.is_empty(roads)
    }

    /// Gives up the chunks that wait because they got no answer, and are of no use any more.
    pub(super) fn drop_late(&mut self, is_needed: impl Fn(&ChunkHeader) -> bool) -> Vec<(Rank, ChunkHeader)> {
        let mut dropped = Vec::new();
        self.chunks.retain(|chunk| {
            let is_kept = chunk.first_loss.is_none() || is_needed(&chunk.header);
            if !is_kept {
                dropped.push((chunk.to, chunk.header));
            }
            is_kept
        });
        dropped
    }

    /// Gives up the chunks for a rank, those under way too. Their calls may end late: a connection that is still being
    /// made to a host that is gone waits for its time-out. What its queue has of a chunk is in use until then.
    pub(super) fn abandon(&mut self, engine: &mut Engine, rank: Rank) -> Vec<ChunkHeader> {
        let mut waiting = Vec::new();
        self.chunks.retain(|chunk| {
            if chunk.to == rank {
                waiting.push(chunk.header);
            }
            chunk.to != rank
        });
        let abandoned = self.sends.extract_if(.., |sent| sent.chunk.to == rank);
        let abandoned = abandoned.map(|sent| {
            sent.exposed.and_then(|handle| engine.withdraw(&handle));
            sent.chunk.header
        });
        waiting.into_iter().chain(abandoned).collect()
    }

    /// Hands to the engine as much as it takes, messages on these roads. Chunks for ranks without an address have
    /// failed.
    pub(super) fn send(
        &mut self,
        engine: &mut Engine,
        addresses: &[Option<Address>],
        roads: &mut Roads,
    ) -> Vec<(Rank, ChunkHeader)> {
        self.lines.send(engine, addresses, roads);
        let mut failed = Vec::new();
        let now = Instant::now();
        let mut later = VecDeque::new();
        while let Some(chunk) = self.chunks.pop_front() {
            let Some(address) = &addresses[chunk.to.index()] else {
                failed.push((chunk.to, chunk.header));
                continue;
            };
            if chunk.not_before.is_some_and(|at| at > now) {
                later.push_back(chunk);
                continue;
            }
            let reads_itself = reads_itself(engine, address, &chunk.bytes);
            let exposed = reads_itself.then(|| engine.expose(chunk.bytes.clone()));
            let length = chunk.bytes.len() as u64;
            let place = exposed.clone().map(|handle| ChunkPlace { handle, length });
            let data = if reads_itself { &Bytes::new() } else { &chunk.bytes };
            let input = (self.epoch, chunk.header, place);
            match engine.call_with_data::<TakeChunk>(address, &input, data, CHUNK_TIMEOUT) {
                Ok(answer) => self.sends.push(Sent {
                    chunk,
                    exposed,
                    answer,
                }),
                Err(error) => {
                    exposed.and_then(|handle| engine.withdraw(&handle));
                    if is_busy(&error) {
                        self.chunks.push_front(chunk);
                        break;
                    }
                    failed.push((chunk.to, chunk.header));
                }
            }
        }
        later.append(&mut self.chunks);
        self.chunks = later;
        failed
    }

    /// The chunks that have arrived, or will never do so.
    pub(super) fn collect(
        &mut self,
        engine: &mut Engine,
    ) -> Vec<(Rank, ChunkHeader, Result<Taken, CallError>)> {
        let mut ended = Vec::new();
        let chunks = &mut self.chunks;
        self.sends.retain_mut(|sent| match sent.answer.try_take() {
            None => true,
            Some(result) => {
                sent.exposed.take().and_then(|handle| engine.withdraw(&handle));
                let chunk = &mut sent.chunk;
                let now = Instant::now();
                let first_loss = *chunk.first_loss.get_or_insert(now);
                match result {
                    Err(error)
                        if is_broken(&error) && chunk.losses < LOSSES_MAX
                            || is_silent(&error) && now < first_loss + SILENCE_MAX =>
                    {
                        chunk.losses += u32::from(!is_silent(&error));
                        chunks.push_back(Chunk {
                            bytes: std::mem::take(&mut chunk.bytes),
                            not_before: Some(now + AFTER_LOSS),
                            ..*chunk
                        });
                    }
                    result => {
                        let arrived = result.map(|at| (chunk.bytes.len() as u64, at));
                        ended.push((chunk.to, chunk.header, arrived));
                    }
                }
                false
            }
        });
        ended
    }
}

/// Says if the receiver should read the bytes by itself, straight to where it folds them. In shared memory that spares
/// two copies. Over a network it costs a further message, and lets messages go ahead of long chunks.
fn reads_itself(engine: &mut Engine, address: &Address, bytes: &Bytes) -> bool {
    const WORTH_IT: usize = 16 << 10;
    const WORTH_IT_OVER_NETWORK: usize = 256 << 10;
    let peer = engine.peer(address).ok().filter(|_| bytes.len() >= WORTH_IT);
    match peer.and_then(|peer| engine.provider_of(peer)) {
        Some("shm") => true,
        Some("tcp" | "unix") => bytes.len() >= WORTH_IT_OVER_NETWORK,
        _ => false,
    }
}

/// Says if a connection broke under a call, over which nothing can be said of its other end.
fn is_broken(error: &CallError) -> bool {
    matches!(error, CallError::PeerDied { source, .. } if may_be_mended(source))
}

/// Says if the receiver was silent under a call.
pub(super) fn is_silent(error: &CallError) -> bool {
    let is_silence = |source: &PeerDeath| matches!(source, PeerDeath::Silent | PeerDeath::ConnectTimedOut);
    matches!(error, CallError::PeerDied { source, .. } if is_silence(source))
}

/// Says if another connection to the peer may follow the one that is lost.
pub(super) fn may_be_mended(cause: &PeerDeath) -> bool {
    match cause {
        PeerDeath::Closed | PeerDeath::Io(_) | PeerDeath::Protocol(_) => true,
        PeerDeath::Handshake(error) => !matches!(error, HandshakeError::Fenced { .. }),
        _ => false,
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
/// So often may a connection break under a message or a chunk; then its receiver cannot be reached.
pub(super) const LOSSES_MAX: u32 = 40;
/// So long is a chunk sent again to a receiver that is silent. It may be stopped, or work on something long; one that
/// is silent on all roads counts as gone before.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// So long after its connection broke a chunk is sent again.
const AFTER_LOSS: Duration = Duration::from_millis(20);
