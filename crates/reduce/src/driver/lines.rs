//! The messages that wait for other ranks. They get there in their order and once each, on whichever road.

mod in_order;
mod relayed;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    iter,
    time::Duration,
};

use ropewalk_fabric::{Address, Identity};
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{FromScheduler, Grant, Relays, Session};
use ropewalk_rpc::{Call, CallOptions, Engine, Procedure};

pub(super) use self::in_order::InOrder;
use super::{
    outbox::{LOSSES_MAX, is_busy},
    procedures::{Forward, MESSAGES_MAX, TakeGrants, TellSeat, TellSite},
    roads::{Road, Roads},
};
use crate::message::{Batch, Forwarded, Letters, Numbered, ToSeat, ToSite};

/// The messages to all ranks. One that has a number is sent until its receiver has answered; of those with the same
/// number the receiver takes the first. A message to a full line is lost, which breaks the line.
pub(super) struct Lines {
    epoch: Epoch,
    own: Identity,
    messages: BTreeMap<Rank, Messages>,
    relays: Relays,
    /// The relays that carry nothing any more, and the ranks to which nothing is carried.
    without_relay: BTreeSet<Rank>,
    /// Messages under way to relays, for several ranks each.
    spreads: BTreeMap<u64, Call<Vec<Rank>>>,
    /// The number of the last message.
    last: u64,
    broken: BTreeSet<(Rank, Kind)>,
}

/// The messages for one rank.
#[derive(Default)]
struct Messages {
    to_seat: Line<ToSeat>,
    to_site: Line<ToSite>,
    grants: Line<Grant>,
}

/// Messages of one kind for one rank. They are heard in their order, and answered in it. Several batches may be under
/// way if all go directly: answers may take their time.
struct Line<M> {
    waiting: VecDeque<Numbered<M>>,
    under_way: VecDeque<UnderWay<M>>,
    /// An empty batch is to be sent, whose answer shows that the rank is there.
    has_to_ask: bool,
}

/// Messages under way, through another rank if so.
struct UnderWay<M> {
    messages: Vec<Numbered<M>>,
    via: Option<Rank>,
    answer: BatchAnswer,
}

/// The answer that is waited for.
enum BatchAnswer {
    Own(Call<()>),
    /// That of the relay through which they go.
    OfRelay(Call<()>),
    /// The same, for the messages of this spread.
    OfSpread(u64),
}

/// A batch was answered, or will never be.
pub(super) struct Answered {
    pub(super) rank: Rank,
    /// Another rank that it went through.
    pub(super) via: Option<Rank>,
    pub(super) is_reached: bool,
    /// The sessions of whose ends it has heard now.
    pub(super) ended: Vec<Session>,
}

/// Something that has a line.
trait Letter: Clone {
    /// Takes it to its receiver.
    type Direct: Procedure<Input = (Epoch, Batch<Self>), Output = ()>;

    fn pack(batch: Batch<Self>) -> Letters;

    /// The session whose end it tells.
    fn ended(&self) -> Option<Session> {
        None
    }
}

impl Letter for ToSeat {
    type Direct = TellSeat;

    fn pack(batch: Batch<Self>) -> Letters {
        Letters::ToSeat(batch)
    }
}

impl Letter for ToSite {
    type Direct = TellSite;

    fn pack(batch: Batch<Self>) -> Letters {
        Letters::ToSite(batch)
    }

    fn ended(&self) -> Option<Session> {
        match &self.message {
            FromScheduler::Ended { session, .. } => Some(*session),
            _ => None,
        }
    }
}

impl Letter for Grant {
    type Direct = TakeGrants;

    fn pack(batch: Batch<Self>) -> Letters {
        Letters::Grants(batch)
    }
}

impl Lines {
    pub(super) fn new(epoch: Epoch, own: Identity, relays: Relays) -> Self {
        Self {
            epoch,
            own,
            messages: BTreeMap::new(),
            relays,
            without_relay: BTreeSet::new(),
            spreads: BTreeMap::new(),
            last: 0,
            broken: BTreeSet::new(),
        }
    }

    /// The relays of the job.
    pub(super) fn relays(&self) -> &Relays {
        &self.relays
    }

    pub(super) fn tell_seat(&mut self, to: Rank, message: ToSeat) {
        let message = self.number(message);
        if !self.of(to).to_seat.put(message) {
            self.broken.insert((to, Kind::ToSeat));
        }
    }

    pub(super) fn tell_site(&mut self, to: Rank, message: ToSite) {
        let message = self.number(message);
        if !self.of(to).to_site.put(message) {
            self.broken.insert((to, Kind::ToSite));
        }
    }

    pub(super) fn grant(&mut self, to: Rank, grant: Grant) {
        let grant = self.number(grant);
        if !self.of(to).grants.put(grant) {
            self.broken.insert((to, Kind::Grants));
        }
    }

    /// Takes the lines that have lost a message since the last call.
    pub(super) fn take_broken(&mut self) -> BTreeSet<(Rank, Kind)> {
        std::mem::take(&mut self.broken)
    }

    /// Finds out if a rank can be reached.
    pub(super) fn ask(&mut self, rank: Rank) {
        let line = &mut self.of(rank).to_site;
        line.has_to_ask = line.under_way.is_empty();
    }

    fn number<M>(&mut self, message: M) -> Numbered<M> {
        self.last += 1;
        Numbered {
            number: self.last,
            message,
        }
    }

    fn of(&mut self, to: Rank) -> &mut Messages {
        self.messages.entry(to).or_default()
    }

    /// Says if nothing waits that could be sent now or soon.
    pub(super) fn is_empty(&self, roads: &Roads) -> bool {
        let is_empty =
            |(rank, messages): (&Rank, &Messages)| !messages.could_be_sent() || roads.is_paused(*rank);
        self.messages.iter().all(is_empty)
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
        let is_word = |numbered: &Numbered<ToSeat>| match &numbered.message {
            ToSeat::Copy(copy) => copy.owner == owner && copy.contribution.session == session,
            ToSeat::Worker { .. } | ToSeat::Unprotected(_) | ToSeat::Digests { .. } => false,
        };
        self.messages.values().any(|messages| {
            let line = &messages.to_seat;
            let under_way = line.under_way.iter().flat_map(|batch| &batch.messages);
            under_way.chain(&line.waiting).any(is_word)
        })
    }

    /// A rank is gone: it gets nothing any more, and carries nothing.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.messages.remove(&rank);
        self.without_relay.insert(rank);
        for messages in self.messages.values_mut() {
            messages.recall(Some(rank));
        }
    }

    /// Lets messages under way to a rank, through `via` or directly, wait again: they go another way.
    pub(super) fn recall(&mut self, rank: Rank, via: Option<Rank>) {
        if let Some(messages) = self.messages.get_mut(&rank) {
            messages.recall(via);
        }
    }

    /// Hands to the engine as much as it takes.
    pub(super) fn send(&mut self, engine: &mut Engine, addresses: &[Option<Address>], roads: &mut Roads) {
        let epoch = self.epoch;
        if self.relays.are_any() {
            self.send_through_relays(engine, addresses, roads);
        }
        self.messages.retain(|&rank, messages| {
            if addresses[rank.index()].is_none() {
                return false;
            }
            if messages.could_be_sent()
                && let Some(road) = roads.to(rank, addresses)
            {
                messages.to_seat.send(engine, epoch, &road);
                messages.to_site.send(engine, epoch, &road);
                messages.grants.send(engine, epoch, &road);
            }
            !messages.is_done()
        });
    }

    /// The batches that were answered since the last call, or will never be. The latter wait again.
    pub(super) fn collect(&mut self) -> Vec<Answered> {
        let mut answered = match self.relays.are_any() {
            true => self.hear_relays(),
            false => Vec::new(),
        };
        for (&rank, messages) in &mut self.messages {
            answered.extend(iter::from_fn(|| messages.to_seat.answer(rank)));
            answered.extend(iter::from_fn(|| messages.to_site.answer(rank)));
            answered.extend(iter::from_fn(|| messages.grants.answer(rank)));
        }
        answered
    }
}

impl Messages {
    fn could_be_sent(&self) -> bool {
        self.to_seat.could_be_sent() || self.to_site.could_be_sent() || self.grants.could_be_sent()
    }

    fn is_done(&self) -> bool {
        self.to_seat.is_done() && self.to_site.is_done() && self.grants.is_done()
    }

    fn recall(&mut self, via: Option<Rank>) {
        self.to_seat.recall(via);
        self.to_site.recall(via);
        self.grants.recall(via);
    }
}

impl<M: Letter> Line<M> {
    /// Sends the next batch, if the receiver has room for it.
    fn send(&mut self, engine: &mut Engine, epoch: Epoch, road: &Road<'_>) {
        let is_blocked = road.via.is_some() && !self.under_way.is_empty();
        if is_blocked || !self.could_be_sent() {
            return;
        }
        let batch = (epoch, self.next_batch());
        let call = match road.via {
            None => {
                let options = CallOptions {
                    retries: LOSSES_MAX,
                    ..CallOptions::new(MESSAGE_TIMEOUT)
                };
                engine.call::<M::Direct>(road.address, &batch, options)
            }
            // If that cannot be reached itself there are others.
            Some(_) => {
                let letters = Forwarded {
                    from: road.from,
                    to: road.to,
                    letters: M::pack(batch.1.clone()),
                };
                engine.call::<Forward>(road.address, &(epoch, Box::new(letters)), MESSAGE_TIMEOUT)
            }
        };
        match call {
            Err(error) if is_busy(&error) => return,
            Ok(answer) => self.begin(road.via, BatchAnswer::Own(answer)),
            // Those that cannot be sent at all are for a peer that is gone, which is noticed apart from this.
            Err(_) => drop(self.waiting.drain(..batch.1.messages.len())),
        }
        self.has_to_ask = false;
    }

    fn answer(&mut self, rank: Rank) -> Option<Answered> {
        let batch = self.under_way.front_mut()?;
        let BatchAnswer::Own(answer) = &mut batch.answer else {
            return None;
        };
        let via = batch.via;
        if answer.try_take()?.is_ok() {
            return Some(self.is_answered(rank));
        }
        self.recall(via);
        Some(Answered {
            rank,
            via,
            is_reached: false,
            ended: Vec::new(),
        })
    }

    /// The first batch under way has got to its receiver.
    fn is_answered(&mut self, rank: Rank) -> Answered {
        let batch = self.under_way.pop_front();
        let via = batch.as_ref().and_then(|batch| batch.via);
        let messages = batch.into_iter().flat_map(|batch| batch.messages);
        Answered {
            rank,
            via,
            is_reached: true,
            ended: messages.filter_map(|numbered| numbered.message.ended()).collect(),
        }
    }

    /// The messages that are sent next.
    fn next_batch(&self) -> Batch<M> {
        let mut before = self.under_way.iter().rev();
        let before = before.find_map(|batch| batch.messages.last());
        Batch {
            after: before.map_or(0, |message| message.number),
            messages: self.waiting.iter().take(MESSAGES_MAX).cloned().collect(),
        }
    }

    /// The next messages are under way.
    fn begin(&mut self, via: Option<Rank>, answer: BatchAnswer) {
        let count = self.waiting.len().min(MESSAGES_MAX);
        self.under_way.push_back(UnderWay {
            messages: self.waiting.drain(..count).collect(),
            via,
            answer,
        });
    }

    fn recall(&mut self, via: Option<Rank>) {
        if self.under_way.front().is_some_and(|batch| batch.via == via) {
            let batches = std::mem::take(&mut self.under_way).into_iter();
            let mut messages: VecDeque<_> = batches.flat_map(|batch| batch.messages).collect();
            messages.append(&mut self.waiting);
            self.waiting = messages;
        }
    }
}

impl<M> Line<M> {
    /// How many messages may wait. A reduction sends a few messages to each rank, so that some ten thousand reductions
    /// have to be under way with a receiver that answers none of them.
    const WAITING_MAX: usize = 1 << 17;

    /// Lets a message wait, if the line has room for it.
    fn put(&mut self, message: Numbered<M>) -> bool {
        let has_room = self.waiting.len() < Self::WAITING_MAX;
        if has_room {
            self.waiting.push_back(message);
        }
        has_room
    }

    /// Says if messages could be sent now.
    fn has_waiting(&self) -> bool {
        self.under_way.is_empty() && !self.has_to_ask && !self.waiting.is_empty()
    }

    /// The relay that carries messages and has not answered.
    fn relay_in_use(&self) -> Option<Rank> {
        let batch = self.under_way.front()?;
        batch.via.filter(|_| !matches!(batch.answer, BatchAnswer::Own(_)))
    }

    fn could_be_sent(&self) -> bool {
        let is_direct = self.under_way.front().is_none_or(|batch| batch.via.is_none());
        is_direct && self.under_way.len() < UNDER_WAY_MAX && (self.has_to_ask || !self.waiting.is_empty())
    }

    fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty() && !self.has_to_ask
    }
}

impl<M> Default for Line<M> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            has_to_ask: false,
        }
    }
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    ToSeat,
    ToSite,
    Grants,
}

/// A message may wait so long: a receiver may be stopped, and one that is gone is noticed earlier.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// So many batches may be under way on a line.
const UNDER_WAY_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use ropewalk_fabric::Role;
    use ropewalk_names::Incarnation;

    use super::*;

    /// A message beyond the bound breaks its line, once, and no other line; those that wait stay in their order.
    #[test]
    fn a_full_line_breaks() {
        let message = |_| ToSeat::Digests {
            session: Session { group: 0, call: 0 },
            digests: Vec::new(),
        };
        let own = Identity {
            role: Role::Rank,
            rank: Rank(2),
            incarnation: Incarnation(0),
        };
        let mut lines = Lines::new(Epoch(0), own, Relays::in_groups(3, 1));
        (0..Line::<ToSeat>::WAITING_MAX)
            .map(message)
            .for_each(|message| lines.tell_seat(Rank(0), message));
        assert_eq!(lines.take_broken(), BTreeSet::new());
        lines.tell_seat(Rank(1), message(0));
        lines.tell_seat(Rank(0), message(0));
        assert_eq!(lines.take_broken(), BTreeSet::from([(Rank(0), Kind::ToSeat)]));
        assert_eq!(lines.take_broken(), BTreeSet::new());
        let numbers = lines
            .of(Rank(0))
            .to_seat
            .waiting
            .iter()
            .map(|message| message.number);
        assert!(numbers.eq(1..=Line::<ToSeat>::WAITING_MAX as u64));
        assert_eq!(lines.of(Rank(1)).to_seat.waiting.len(), 1);
    }
}
