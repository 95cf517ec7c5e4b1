//! The messages and chunks that come from other ranks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, Identity, RegionHandle, Role};
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{ChunkHeader, Failure, Grant, Member, Session, Site, ToScheduler};
use ropewalk_rpc::{Engine, Fault, Responder, Transfer};
use serde::Serialize;

use super::{
    account::encoded_bytes,
    early_chunks::EarlyChunks,
    lines::InOrder,
    outbox::is_silent,
    procedures::{
        Admission, AskedCopy, ChunkPlace, Collect, Forward, KeepCopy, Knock, Ready, SettledBytes, Spread,
        TakeChunk, TakeGrants, TellMember, TellSeat, TellSite, TellTogether, ToMember,
    },
    progress::ProgressThread,
    roster::Card,
};
use crate::{
    folding::Memory,
    message::{Forwarded, Letters, ToSeat, ToSite},
};

/// Everything that came and was not looked at yet, and the chunks that are being read, which grants bound.
pub(super) struct Arrivals {
    mail: Arc<Queue>,
    taken: TakenLetters,
    pub(super) early: EarlyChunks,
    reads: Vec<Read>,
}

/// The mail, in its order. The thread that takes it also runs the handlers that put it here, and so it never waits for
/// room. A caller for whom there is none is told so: it sends messages again, and gives a chunk up, for which the
/// scheduler then finds another way.
#[derive(Default)]
struct Queue(Mutex<VecDeque<Post>>);

/// Something that came, its sender, and the epoch to which it belongs.
struct Post {
    from: Identity,
    epoch: Epoch,
    mail: Mail,
}

/// Something that came.
enum Mail {
    Letters(Letters),
    Forward(Box<Forwarded>, Responder<()>),
    Collect(Box<Forwarded>, Responder<()>),
    Together(Vec<Forwarded>),
    Spread(Vec<Forwarded>, Responder<Vec<Rank>>),
    ToMember(Vec<ToMember>),
    /// With its bytes, unless this rank is to read them.
    Chunk(Box<(ChunkHeader, Bytes, Option<ChunkPlace>)>, Responder<Duration>),
    Copy(Box<AskedCopy>, Responder<()>),
    SettledBytes(Session, Member, Responder<Option<u64>>),
    Knock(Box<Card>, Responder<Admission>),
    Ready(Epoch, Responder<()>),
}

/// A chunk that is read from the memory of its sender, who waits for the answer.
struct Read {
    chunk: ChunkHeader,
    transfer: Transfer<Buffer>,
    responder: Responder<Duration>,
}

/// The letters that were heard, by kind.
#[derive(Default)]
struct TakenLetters {
    to_seat: InOrder<ToSeat>,
    to_site: InOrder<ToSite>,
    grants: InOrder<Grant>,
}

impl Arrivals {
    /// Takes what other ranks send by `engine`.
    pub(super) fn serve(engine: &mut Engine) -> Self {
        let mail = Arc::<Queue>::default();
        let queue = Arc::clone(&mail);
        engine.serve_with_delayed_answers::<TellSeat>(move |caller, (epoch, messages)| {
            queue.put(caller.identity(), epoch, Mail::Letters(Letters::ToSeat(messages)))
        });
        let queue = Arc::clone(&mail);
        engine.serve_with_delayed_answers::<TellSite>(move |caller, (epoch, messages)| {
            queue.put(caller.identity(), epoch, Mail::Letters(Letters::ToSite(messages)))
        });
        let queue = Arc::clone(&mail);
        engine.serve_with_delayed_answers::<TakeGrants>(move |caller, (epoch, grants)| {
            queue.put(caller.identity(), epoch, Mail::Letters(Letters::Grants(grants)))
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<Forward>(move |_, caller, (epoch, letters), responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::Forward(letters, responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<Collect>(move |_, caller, (epoch, letters), responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::Collect(letters, responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve::<TellTogether>(move |caller, (epoch, letters)| {
            queue.put(caller.identity(), epoch, Mail::Together(letters))
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<Spread>(move |_, caller, (epoch, letters), responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::Spread(letters.unpack(), responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve::<TellMember>(move |caller, messages| {
            queue.put(caller.identity(), Epoch(0), Mail::ToMember(messages))
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<KeepCopy>(move |_, caller, (epoch, asked), responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::Copy(asked, responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<SettledBytes>(move |_, caller, (epoch, session, member), responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::SettledBytes(session, member, responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve_with_data::<TakeChunk>(move |_, caller, (epoch, chunk, place), bytes, responder| {
            queue.put_or_answer(caller.identity(), epoch, responder, |responder| {
                Mail::Chunk(Box::new((chunk, bytes, place)), responder)
            });
        });
        // Who knocks is in no epoch yet, and who is ready says for which: these are heard at once.
        let queue = Arc::clone(&mail);
        engine.serve_later::<Knock>(move |_, caller, card, responder| {
            queue.put_or_answer(caller.identity(), Epoch(0), responder, |responder| {
                Mail::Knock(card, responder)
            });
        });
        let queue = Arc::clone(&mail);
        engine.serve_later::<Ready>(move |_, caller, epoch, responder| {
            queue.put_or_answer(caller.identity(), Epoch(0), responder, |responder| {
                Mail::Ready(epoch, responder)
            });
        });
        Self {
            mail,
            taken: TakenLetters::default(),
            early: EarlyChunks::default(),
            reads: Vec::new(),
        }
    }

    /// Tells those who knock here that this rank is not admitted itself. It may have the port of one that was lost.
    pub(super) fn turn_away(&self) {
        let mut mail = self.mail.lock();
        let posts = std::mem::take(&mut *mail).into_iter();
        *mail = posts
            .filter_map(|post| match post.mail {
                Mail::Knock(_, responder) => {
                    responder.answer(Ok(Admission::Waiting));
                    None
                }
                mail => Some(Post { mail, ..post }),
            })
            .collect();
    }

    /// Messages are numbered anew.
    pub(super) fn begin_epoch(&mut self) {
        self.taken = TakenLetters::default();
        self.early = EarlyChunks::default();
        self.reads.clear();
    }

    /// The reads that have ended.
    fn collect(&mut self) -> Vec<(Read, Result<Buffer, Fault>)> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.reads.len() {
            match self.reads[at].transfer.try_take() {
                None => at += 1,
                Some(result) => ended.push((self.reads.swap_remove(at), result.map_err(Fault::new))),
            }
        }
        ended
    }
}

impl Queue {
    /// How much may wait. A round of the engine handles about 256 arrivals, and the progress thread looks at all of
    /// them before the next round; the end of one pull, though, may let in as many requests as may wait for it
    /// (`EngineOptions::arrivals_max`). This is twice that, and is reached only while a rank leaves, which looks at
    /// nothing any more.
    const WAITING_MAX: usize = 1 << 15;

    /// Puts mail in, if there is room. Only ranks are heard.
    fn put(&self, from: Identity, epoch: Epoch, mail: Mail) -> Result<(), Fault> {
        let mut queue = self.lock();
        if queue.len() >= Self::WAITING_MAX {
            return Err(full());
        }
        if from.role == Role::Rank {
            queue.push_back(Post { from, epoch, mail });
        }
        Ok(())
    }

    /// The same with mail that is answered later, or at once if there is no room.
    fn put_or_answer<T: Serialize>(
        &self,
        from: Identity,
        epoch: Epoch,
        responder: Responder<T>,
        mail: impl FnOnce(Responder<T>) -> Mail,
    ) {
        if self.lock().len() >= Self::WAITING_MAX {
            return responder.answer(Err(full()));
        }
        // There still is room: handlers run one after the other.
        let _ = self.put(from, epoch, mail(responder));
    }

    /// The next mail of an epoch or an earlier one. Some members may be in the next epoch already: theirs waits.
    fn pop(&self, epoch: Epoch) -> Option<Post> {
        let mut queue = self.lock();
        let next = queue.iter().position(|post| post.epoch <= epoch)?;
        queue.remove(next)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Post>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full() -> Fault {
    Fault::new(format_args!(
        "{} messages and chunks wait at this rank already",
        Queue::WAITING_MAX
    ))
}

impl ProgressThread {
    /// Looks at what came.
    pub(super) fn receive_mail(&mut self) {
        let now = self.now();
        while let Some(post) = self.arrivals.mail.pop(self.shared.roster.epoch) {
            let Post {
                from: identity,
                epoch,
                mail,
            } = post;
            let from = identity.rank;
            if !matches!(mail, Mail::Knock(..) | Mail::Ready(..)) {
                // Nobody needs what belongs to an epoch before, or it came before the sender was fenced.
                if epoch < self.shared.roster.epoch || self.peers.gone.contains(&from) {
                    continue;
                }
                self.hear_from(from);
            }
            match mail {
                Mail::Knock(card, responder) => self.hear_knock(identity, *card, responder),
                Mail::Ready(ready_for, responder) => self.hear_ready(identity, ready_for, responder),
                Mail::Letters(letters) => self.take_letters(now, identity, letters),
                Mail::Forward(letters, responder) | Mail::Collect(letters, responder)
                    if letters.to == self.shared.rank =>
                {
                    self.take_forwarded(now, *letters);
                    self.engine.answer(responder, Ok(()));
                }
                Mail::Collect(letters, responder) => self.carrier.collect(now, *letters, responder),
                Mail::Together(letters) => {
                    let own = self.shared.rank;
                    for letters in letters.into_iter().filter(|letters| letters.to == own) {
                        self.take_forwarded(now, letters);
                    }
                }
                Mail::Spread(letters, responder) => {
                    let own = self.shared.rank;
                    let (own, others) = letters.into_iter().partition(|letters| letters.to == own);
                    self.carrier.spread(others, responder);
                    let own: Vec<Forwarded> = own;
                    own.into_iter()
                        .for_each(|letters| self.take_forwarded(now, letters));
                }
                Mail::Forward(letters, responder) => {
                    let address = self.peers.addresses.get(letters.to.index());
                    let address = address.and_then(Option::as_ref);
                    self.roads
                        .forward(&mut self.engine, address, (epoch, letters), responder);
                }
                Mail::ToMember(messages) => self.hear_member(from, messages),
                Mail::Copy(asked, responder) => self.copies.keep(from, *asked, responder),
                Mail::SettledBytes(session, member, responder) => {
                    let seat = self.seat.as_ref();
                    responder.answer(Ok(seat.and_then(|seat| seat.settled_bytes(session, member))));
                }
                Mail::Chunk(input, responder) => self.receive_chunk(now, *input, responder),
            }
        }
    }

    /// Messages that another rank has brought.
    fn take_forwarded(&mut self, now: Duration, letters: Forwarded) {
        let from = letters.from;
        let is_heard = from.role == Role::Rank && from.rank.0 < self.shared.size;
        if is_heard && !self.peers.gone.contains(&from.rank) {
            self.take_letters(now, from, letters.letters);
        }
    }

    /// Messages of a rank, which may have come by two roads.
    fn take_letters(&mut self, now: Duration, from: Identity, letters: Letters) {
        let taken = &mut self.arrivals.taken;
        match letters {
            Letters::ToSeat(batch) => {
                let messages = taken.to_seat.take(from, batch);
                self.hear_as_seat(now, from, messages);
            }
            Letters::ToSite(batch) => {
                let messages = taken.to_site.take(from, batch);
                let hear = |message| self.hear_seat(from.rank, message);
                messages.into_iter().for_each(hear);
            }
            Letters::Grants(batch) => {
                let grants = taken.grants.take(from, batch);
                grants
                    .into_iter()
                    .for_each(|grant| self.worker.handle_grant(grant));
            }
        }
    }

    fn hear_as_seat(&mut self, now: Duration, from: Identity, messages: Vec<ToSeat>) {
        if let Some(seat) = &mut self.seat
            && from.rank.0 < self.shared.size
        {
            self.peers.handle_heard(from);
            for message in messages {
                let bytes = encoded_bytes(&message);
                seat.handle(now, from.rank, message);
                seat.note_received(bytes);
            }
        }
    }

    /// Takes the chunks that were read: from their senders, and from what ranks have left.
    pub(super) fn receive_reads(&mut self) {
        let now = self.now();
        for (read, result) in self.arrivals.collect() {
            let result = result.map(|buffer| self.take_chunk(&read.chunk, Memory::Shared(buffer)));
            self.engine.answer(read.responder, result.map(|()| now));
        }
        let (chunks, failed) = self.inherited.collect();
        for (chunk, memory) in chunks {
            self.take_chunk(&chunk, memory);
        }
        for site in failed {
            self.worker.handle_unreachable(site);
        }
    }

    /// Takes note of the messages and chunks of this rank that have arrived.
    pub(super) fn receive_answers(&mut self) {
        let now = self.now();
        for (rank, chunk, result) in self.outbox.collect(&mut self.engine) {
            let to = Site(rank.0);
            self.hear_chunk_answer(rank, result.is_ok());
            let (bytes, arrived) = match result {
                Ok(taken) => taken,
                Err(error) => {
                    self.worker.handle_undelivered(to, &chunk);
                    if is_silent(&error) && self.worker.is_needed(&chunk) {
                        let failure = Failure::Unreachable(Site(self.shared.rank.0), to);
                        self.worker.handle_failure(chunk.session, failure);
                    }
                    self.rates.forget(to);
                    continue;
                }
            };
            self.worker.handle_delivered(to, &chunk);
            let rates = self.rates.handle_ended(now, to, bytes, arrived);
            self.worker.set_sends(self.rates.window());
            if let Some(rates) = rates {
                let message = ToScheduler::Rates(rates);
                let introductions = Vec::new();
                self.tell_seat(
                    self.peers.seat,
                    ToSeat::Worker {
                        introductions,
                        message,
                        enclosed: Vec::new(),
                    },
                );
            }
        }
        for answered in self.outbox.lines.collect() {
            self.hear_answer(&answered);
        }
    }

    /// Reads a chunk, if it has a place here.
    pub(super) fn read_chunk(
        &mut self,
        chunk: ChunkHeader,
        handle: &RegionHandle,
        length: u64,
        responder: Responder<Duration>,
    ) {
        let running = self.running.get(&chunk.session);
        let cut = self.worker.cut(chunk.session, chunk.to);
        let range = cut.map(|cut| cut.range(chunk.to.class, chunk.index));
        let fits = running.is_some_and(|running| running.is_length_of(range, length));
        if !fits || self.worker.place(&chunk).is_none() {
            return responder.answer(Ok(self.now()));
        }
        let into = self.engine.allocate(length as usize);
        match self.engine.pull(handle, 0, into, READ_TIMEOUT) {
            Ok(transfer) => self.arrivals.reads.push(Read {
                chunk,
                transfer,
                responder,
            }),
            Err(error) => responder.answer(Err(Fault::new(error))),
        }
    }

    pub(super) fn take_chunk(&mut self, chunk: &ChunkHeader, memory: Memory) {
        if let Some(running) = self.running.get_mut(&chunk.session)
            && let Some(place) = self.worker.place(chunk)
        {
            let now = self.origin.elapsed();
            self.rates.handle_received(now, memory.len() as u64);
            running.put(place, memory);
            self.worker.handle_chunk(chunk);
        }
    }
}

/// One chunk may take so long to read; a sender that is gone is noticed earlier.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use ropewalk_names::{Epoch, Incarnation, Rank};

    use super::*;

    /// A full queue refuses mail, and keeps the order of the mail in it.
    #[test]
    fn a_full_queue_refuses() {
        let from = |rank| Identity {
            role: Role::Rank,
            rank: Rank(rank),
            incarnation: Incarnation(0),
        };
        let queue = Queue::default();
        for rank in 0..Queue::WAITING_MAX {
            let put = queue.put(from(rank as u32), Epoch(0), Mail::ToMember(Vec::new()));
            assert_eq!(put, Ok(()));
        }
        let refused = queue.put(from(0), Epoch(0), Mail::ToMember(Vec::new()));
        assert_eq!(refused, Err(full()));
        for rank in 0..Queue::WAITING_MAX {
            assert_eq!(queue.pop(Epoch(0)).map(|post| post.from), Some(from(rank as u32)));
        }
        assert!(queue.pop(Epoch(0)).is_none());
    }
}
