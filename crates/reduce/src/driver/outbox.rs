//! The messages and chunks that wait to be sent, and the chunks that are under way.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, HandshakeError, PeerDeath, RegionHandle, SubmitError};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{ChunkHeader, Grant, Session};
use ropewalk_rpc::{Call, CallError, CallOptions, Engine, Procedure};

use super::procedures::{ChunkBytes, MESSAGES_MAX, TakeChunk, TakeGrants, TellSeat, TellSite};
use crate::message::{ToSeat, ToSite};

/// Everything on its way from this rank to others. A connection that breaks loses nothing: messages and chunks are sent
/// again over the next one, and are taken once.
#[derive(Default)]
pub(super) struct Outbox {
    messages: BTreeMap<Rank, Messages>,
    chunks: VecDeque<Chunk>,
    sends: Vec<Sent>,
}

/// The messages for one rank.
#[derive(Default)]
struct Messages {
    to_seat: Line<ToSeat>,
    to_site: Line<ToSite>,
    grants: Line<Grant>,
}

/// Messages of one kind for one rank. They arrive in order: a batch waits for the answer to the one before it.
struct Line<M> {
    waiting: VecDeque<M>,
    under_way: Option<Call<()>>,
}

/// A chunk that waits to be sent.
struct Chunk {
    to: Rank,
    header: ChunkHeader,
    bytes: Bytes,
    /// How often it was under way when a connection broke, and until when it waits for that.
    losses: u32,
    not_before: Option<Instant>,
}

/// A chunk under way.
struct Sent {
    chunk: Chunk,
    /// Where the receiver reads it.
    exposed: Option<RegionHandle>,
    answer: Call<()>,
}

impl Outbox {
    pub(super) fn tell_seat(&mut self, to: Rank, message: ToSeat) {
        self.of(to).to_seat.waiting.push_back(message);
    }

    pub(super) fn tell_site(&mut self, to: Rank, message: ToSite) {
        self.of(to).to_site.waiting.push_back(message);
    }

    pub(super) fn grant(&mut self, to: Rank, grant: Grant) {
        self.of(to).grants.waiting.push_back(grant);
    }

    pub(super) fn send_chunk(&mut self, to: Rank, chunk: ChunkHeader, bytes: Bytes) {
        self.chunks.push_back(Chunk {
            to,
            header: chunk,
            bytes,
            losses: 0,
            not_before: None,
        });
    }

    /// Says if nothing waits to be sent that could be now or soon.
    pub(super) fn is_empty(&self) -> bool {
        let mut messages = self.messages.values();
        self.chunks.is_empty() && messages.all(|messages| !messages.could_be_sent())
    }

    fn of(&mut self, to: Rank) -> &mut Messages {
        self.messages.entry(to).or_default()
    }

    /// A rank is gone: it gets nothing any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.messages.remove(&rank);
    }

    /// Gives up the chunks that are under way to a rank. Their calls may end late: a connection that is still being
    /// made to a host that is gone waits for its time-out.
    pub(super) fn abandon(&mut self, engine: &mut Engine, rank: Rank) -> Vec<ChunkHeader> {
        let abandoned = self.sends.extract_if(.., |sent| sent.chunk.to == rank);
        let abandoned = abandoned.map(|sent| {
            sent.exposed.and_then(|handle| engine.withdraw(&handle));
            sent.chunk.header
        });
        abandoned.collect()
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
            messages.to_seat.send::<TellSeat>(engine, address);
            messages.to_site.send::<TellSite>(engine, address);
            messages.grants.send::<TakeGrants>(engine, address);
            !messages.is_done()
        });
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
            let (input, exposed) = match reads_itself(engine, address, &chunk.bytes) {
                true => {
                    let handle = engine.expose(chunk.bytes.clone());
                    let length = chunk.bytes.len() as u64;
                    (ChunkBytes::There(handle.clone(), length), Some(handle))
                }
                false => (ChunkBytes::Here(chunk.bytes.clone()), None),
            };
            match engine.call::<TakeChunk>(address, &(chunk.header, input), CHUNK_TIMEOUT) {
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

    /// The chunks that have arrived, or will never do so, and their bytes.
    pub(super) fn collect(
        &mut self,
        engine: &mut Engine,
    ) -> Vec<(Rank, ChunkHeader, Result<u64, CallError>)> {
        let mut ended = Vec::new();
        let chunks = &mut self.chunks;
        self.sends.retain_mut(|sent| match sent.answer.try_take() {
            None => true,
            Some(result) => {
                sent.exposed.take().and_then(|handle| engine.withdraw(&handle));
                let chunk = &mut sent.chunk;
                match result {
                    Err(error) if is_broken(&error) && chunk.losses < LOSSES_MAX => {
                        chunk.losses += 1;
                        chunks.push_back(Chunk {
                            bytes: std::mem::take(&mut chunk.bytes),
                            not_before: Some(Instant::now() + AFTER_LOSS),
                            ..*chunk
                        });
                    }
                    result => ended.push((chunk.to, chunk.header, result.map(|()| chunk.bytes.len() as u64))),
                }
                false
            }
        });
        ended
    }

    /// Says if messages wait that were never sent.
    pub(super) fn has_unsent(&self) -> bool {
        let waiting = |messages: &Messages| {
            !(messages.to_seat.waiting.is_empty()
                && messages.to_site.waiting.is_empty()
                && messages.grants.waiting.is_empty())
        };
        self.messages.values().any(waiting)
    }

    /// Says if word of a copy waits for a scheduler, or is on its way to it.
    pub(super) fn is_telling_of(&self, session: Session, owner: Rank) -> bool {
        let is_word = |message: &ToSeat| match message {
            ToSeat::Copy(copy) => copy.owner == owner && copy.contribution.session == session,
            ToSeat::Worker { .. } | ToSeat::Digests { .. } => false,
        };
        let lines = self.messages.values().map(|messages| &messages.to_seat);
        lines.into_iter().any(|line| {
            // What is on its way is not kept: any of it may be the word.
            line.under_way.is_some() || line.waiting.iter().any(is_word)
        })
    }

    /// The ranks that messages have reached since the last call, and those that they cannot reach.
    pub(super) fn collect_messages(&mut self) -> (Vec<Rank>, Vec<Rank>) {
        let (mut reached, mut unreachable) = (Vec::new(), Vec::new());
        for (&rank, messages) in &mut self.messages {
            let answers = [
                messages.to_seat.answer(),
                messages.to_site.answer(),
                messages.grants.answer(),
            ];
            for answer in answers.into_iter().flatten() {
                match answer {
                    Ok(()) => reached.push(rank),
                    Err(_) => unreachable.push(rank),
                }
            }
        }
        (reached, unreachable)
    }
}

impl Messages {
    fn could_be_sent(&self) -> bool {
        self.to_seat.could_be_sent() || self.to_site.could_be_sent() || self.grants.could_be_sent()
    }

    fn is_done(&self) -> bool {
        self.to_seat.is_done() && self.to_site.is_done() && self.grants.is_done()
    }
}

impl<M: Clone> Line<M> {
    /// Sends the next batch, if the receiver has room for it.
    fn send<P: Procedure<Input = Vec<M>, Output = ()>>(&mut self, engine: &mut Engine, address: &Address) {
        if !self.could_be_sent() {
            return;
        }
        let batch: Vec<M> = self.waiting.iter().take(MESSAGES_MAX).cloned().collect();
        let options = CallOptions {
            retries: LOSSES_MAX,
            ..CallOptions::new(MESSAGE_TIMEOUT)
        };
        match engine.call::<P>(address, &batch, options) {
            Err(error) if is_busy(&error) => return,
            Ok(call) => self.under_way = Some(call),
            // Those that cannot be sent at all are for a peer that is gone, which is noticed apart from this.
            Err(_) => {}
        }
        self.waiting.drain(..batch.len());
    }

    fn answer(&mut self) -> Option<Result<(), CallError>> {
        let answer = self.under_way.as_mut()?.try_take()?;
        self.under_way = None;
        Some(answer)
    }
}

impl<M> Line<M> {
    fn could_be_sent(&self) -> bool {
        self.under_way.is_none() && !self.waiting.is_empty()
    }

    fn is_done(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }
}

impl<M> Default for Line<M> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: None,
        }
    }
}

/// Says if the receiver can read the bytes by itself, and should: it copies them once, a message would three times.
fn reads_itself(engine: &mut Engine, address: &Address, bytes: &Bytes) -> bool {
    const WORTH_IT: usize = 16 << 10;
    let peer = engine.peer(address).ok().filter(|_| bytes.len() >= WORTH_IT);
    peer.and_then(|peer| engine.provider_of(peer)) == Some("shm")
}

/// Says if a connection broke under a call, over which nothing can be said of its other end.
fn is_broken(error: &CallError) -> bool {
    matches!(error, CallError::PeerDied { source, .. } if may_be_mended(source))
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
/// A message may wait so long: a receiver may be stopped, and one that is gone is noticed earlier.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// So often may a connection break under a message or a chunk; then its receiver cannot be reached.
const LOSSES_MAX: u32 = 40;
/// So long after its connection broke a chunk is sent again.
const AFTER_LOSS: Duration = Duration::from_millis(20);
