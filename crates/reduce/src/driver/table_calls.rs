//! Calls of a job whose ranks are all on one host. They end in a table that all ranks have, without the scheduler.
//!
//! A rank posts each call of the world with its contribution. When all have posted, each combines all contributions by
//! itself if they are short, and its part of them if they are long. What is posted outlives its rank. Calls that do not
//! suit the table are posted without a contribution, so that a rank that calls for something else is noticed.
//!
//! When a rank is lost before it posts a call, when the calls differ, or when the time of one is over, this call and
//! all after it go by the scheduler, on all ranks: the rules of the table see to it that all agree on the first of
//! them. What a lost rank has posted of these is then taken from the table, by each rank for itself, as from an agent.

mod combination;
mod long;
mod offering;
mod progress;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Block, CallState, CallTable, Data, Post, Record, Taken};
use ropewalk_names::Rank;

use self::waiting::ROOM_LOOK;
use self::{
    combination::Ended,
    long::{Awaited, LongCall, Work},
};
pub(super) use self::{offering::Offered, waiting::Waiting};
use super::session::{Begin, Originals};
use crate::{
    ids::GroupId, operation::ResultMemory, outcome::ReductionError, signature::Signature,
    source::shared_token,
};

/// The calls of this rank that may end in the table.
#[derive(Debug)]
pub(super) struct TableCalls {
    table: CallTable,
    /// The group of all ranks.
    world: GroupId,
    own: Rank,
    state: Mutex<State>,
    /// All goes by the scheduler.
    has_left: AtomicBool,
    /// A thread ends the calls that nobody asks for.
    is_watched: AtomicBool,
    /// The progress thread does so, since there is no such thread.
    is_polled: AtomicBool,
    /// A caller has waited for a while: the progress threads of those that it waits for have to look at the table.
    has_to_ask: AtomicBool,
    /// The progress thread is to look soon: there is work to do.
    is_to_look: AtomicBool,
    /// So long chunks of others are waited for before they are combined here too.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The first call that has not ended here.
    next: u64,
    /// The calls from that one on; none in the place of one that another thread is about to make.
    calls: VecDeque<Option<OwnCall>>,
    /// The calls before this one are posted.
    posted: u64,
    /// From this call on all go by the scheduler.
    left_from: Option<u64>,
    /// All ranks have the table.
    is_shared: bool,
    /// The bytes of a record that is looked at.
    scratch: Vec<u8>,
    /// The memory that records of this rank name, with the numbers of their calls, until all have finished these.
    kept: VecDeque<(u64, Blocks)>,
}

/// The memory that a record of a long call names.
#[derive(Debug, Default)]
struct Blocks {
    data: Option<Block>,
    result: Option<Block>,
}

/// A call of this rank.
#[derive(Debug)]
enum OwnCall {
    /// It goes by the scheduler.
    Elsewhere,
    Here(Box<TableCall>),
}

/// A call that ends in the table, if all ranks post it.
#[derive(Debug)]
pub(super) struct TableCall {
    pub(super) begin: Begin,
    /// The signature, as it is compared.
    pub(super) call: Vec<u8>,
    pub(super) signature: Signature,
    /// This rank contributes.
    pub(super) contributes: bool,
    /// It has ended when the root has taken the result.
    pub(super) is_taken: bool,
    pub(super) since: Instant,
    /// The work on it, if it is long.
    pub(super) long: Option<Arc<LongCall>>,
}

/// The next step of a call.
enum Standing {
    /// It has to be waited for.
    Open,
    /// It has ended, with this result.
    Ends(Result<Option<ResultMemory>, ReductionError>),
    /// There is work to do on it.
    Works(Arc<LongCall>),
    /// It and all after it go by the scheduler.
    Leaves,
}

/// The fate of a call that is offered to the table.
#[derive(Debug)]
pub(super) enum Offer {
    /// It is posted.
    Posted,
    /// It can be posted when there is room, and all ranks have the table. Until then the contribution has to be
    /// protected by others; then it has to be [kept](TableCalls::keep).
    Waits(TableCall),
    /// It has to go by the scheduler.
    Refused(TableCall),
}

/// The calls that the table is done with.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The calls that have ended, for their callers.
    pub(super) ended: Vec<Ended>,
    /// Those that go by the scheduler after all.
    pub(super) left: Vec<Begin>,
    /// The chunks that are waited for.
    pub(super) awaited: Option<Awaited>,
    /// Chunks were combined.
    pub(super) has_worked: bool,
    /// There is more to do.
    pub(super) has_more: bool,
}

impl TableCalls {
    pub(super) fn new(table: CallTable, world: GroupId, own: Rank) -> Self {
        Self {
            table,
            world,
            own,
            state: Mutex::default(),
            has_left: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            has_to_ask: AtomicBool::new(false),
            is_to_look: AtomicBool::new(false),
            patience: CHUNK_PATIENCE,
        }
    }

    /// The group of the calls.
    pub(super) fn world(&self) -> GroupId {
        self.world
    }

    /// Says if all calls go by the scheduler.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// The bytes by which ranks compare their calls, if these are short enough for the table.
    pub(super) fn compared(signature: &Signature, is_taken: bool) -> Option<Vec<u8>> {
        let call = postcard::to_allocvec(&(signature, is_taken)).ok()?;
        (call.len() <= CallTable::CALL_SIZE_MAX).then_some(call)
    }

    /// Offers a call with its contribution.
    pub(super) fn offer(&self, number: u64, call: TableCall, data: &[u8]) -> Offer {
        // The copy of long data takes time, in which others may look at the calls.
        self.lock().forget(self.table.finished_by_all());
        let blocks = match self.blocks(&call, data) {
            Some(blocks) => blocks,
            None => return Offer::Waits(call),
        };
        let mut state = self.lock();
        if state.left_from.is_some() {
            return Offer::Refused(call);
        }
        if state.posted != number || state.has_unposted() || !self.is_shared(&mut state) {
            return Offer::Waits(call);
        }
        match self.table.post(number, &blocks.record(&call.call, data)) {
            Post::Done => {
                state.posted = number + 1;
                state.keep(number, blocks);
                state.calls.push_back(Some(OwnCall::Here(Box::new(call))));
                Offer::Posted
            }
            Post::NoRoom => Offer::Waits(call),
            Post::Closed => Offer::Refused(call),
        }
    }

    /// Keeps a call that waits for room.
    pub(super) fn keep(&self, number: u64, call: TableCall) -> Ends {
        self.add(number, OwnCall::Here(Box::new(call)))
    }

    /// Takes note of a call that goes by the scheduler.
    pub(super) fn pass(&self, number: u64) -> Ends {
        self.add(number, OwnCall::Elsewhere)
    }

    fn add(&self, number: u64, call: OwnCall) -> Ends {
        let mut state = self.lock();
        if state.left_from.is_some() {
            let left = match call {
                OwnCall::Here(call) => Vec::from_iter(self.leave_with(number, *call, &mut state)),
                OwnCall::Elsewhere => Vec::new(),
            };
            return Ends {
                left,
                ..Ends::default()
            };
        }
        let Some(at) = number.checked_sub(state.next) else {
            return Ends::default();
        };
        let at = at as usize;
        if state.calls.len() <= at {
            state.calls.resize_with(at + 1, || None);
        }
        let place = &mut state.calls[at];
        if place.is_some() {
            return Ends::default();
        }
        *place = Some(call);
        drop(state);
        self.advance(0)
    }

    /// Ends the calls that can be ended. Says what has come of them. Combines at most so many chunks for that.
    pub(super) fn advance(&self, chunks: usize) -> Ends {
        let mut ends = Ends::default();
        while let Some(long) = self.go_on(&mut self.lock(), &mut ends) {
            if chunks == 0 || ends.has_worked && chunks < usize::MAX {
                ends.has_more = true;
                break;
            }
            match long.work(&self.table, chunks, self.patience) {
                Work::Done => ends.has_worked = true,
                Work::Waits(until) => {
                    ends.awaited = Some(long.awaited(until));
                    break;
                }
                Work::Busy => {
                    ends.awaited = Some(long.awaited(Instant::now() + ROOM_LOOK));
                    break;
                }
            }
        }
        ends
    }

    /// This rank posts nothing any more.
    pub(super) fn close(&self) {
        self.table.close(self.own.index());
    }

    /// Another rank is lost: it posts nothing any more.
    pub(super) fn close_of(&self, lost: Rank) {
        self.table.close(lost.index());
    }

    /// This rank takes part in nothing any more: its calls end with this error.
    pub(super) fn give_up(&self, error: &ReductionError) -> Ends {
        self.close();
        let mut state = self.lock();
        state.left_from.get_or_insert(u64::MAX);
        self.has_left.store(true, Ordering::Release);
        let calls = std::mem::take(&mut state.calls).into_iter().flatten();
        let ended = calls.filter_map(|call| match call {
            OwnCall::Here(call) => Some(call.end(Err(error.clone()))),
            OwnCall::Elsewhere => None,
        });
        Ends {
            ended: ended.collect(),
            ..Ends::default()
        }
    }

    /// All is over: nobody ends the calls that are left.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.left_from.get_or_insert(u64::MAX);
        self.has_left.store(true, Ordering::Release);
        let abandoned = std::mem::take(&mut state.calls);
        drop(state);
        self.table.ring();
        drop(abandoned);
    }

    /// Ends the calls that can be ended. Returns the first one if there is work to do on it.
    fn go_on(&self, state: &mut State, ends: &mut Ends) -> Option<Arc<LongCall>> {
        while state.left_from.is_none() {
            self.post_waiting(state);
            let first = state.calls.front().and_then(Option::as_ref);
            let standing = match (self.table.state(state.next), first) {
                (CallState::Posted, Some(first)) => self.standing(first, state.next, &mut state.scratch),
                (CallState::Open, _) => Standing::Open,
                // This rank need not have called yet: others may have left.
                (CallState::Closed, _) | (CallState::Posted, None) => Standing::Leaves,
            };
            let result = match standing {
                Standing::Open => return None,
                Standing::Ends(result) => result,
                Standing::Works(long) => return Some(long),
                Standing::Leaves => {
                    ends.left.extend(self.leave(state));
                    return None;
                }
            };
            if let Some(Some(OwnCall::Here(call))) = state.calls.pop_front() {
                ends.ended.push(call.end(result));
            }
            state.next += 1;
            self.table.finish(state.next);
            state.forget(self.table.finished_by_all());
        }
        None
    }

    /// The memory for a call and its data, if it can be had now.
    fn blocks(&self, call: &TableCall, data: &[u8]) -> Option<Blocks> {
        let Some(long) = &call.long else {
            return Some(Blocks::default());
        };
        let data = match call.contributes {
            true => {
                let mut block = self.table.allocate(data.len())?;
                block.fill_from(data);
                Some(block)
            }
            false => None,
        };
        let result = match long.has_common_result() {
            true => Some(self.table.allocate(long.length())?),
            false => None,
        };
        Some(Blocks { data, result })
    }

    /// Posts the calls that have waited for room.
    fn post_waiting(&self, state: &mut State) {
        if !state.has_unposted() || !self.is_shared(state) {
            return;
        }
        while let Some(Some(call)) = state.calls.get((state.posted - state.next) as usize) {
            let blocks = match call {
                OwnCall::Elsewhere => Some(Blocks::default()),
                OwnCall::Here(call) => self.blocks(call, call.data()),
            };
            let Some(blocks) = blocks else { return };
            let record = match call {
                OwnCall::Elsewhere => blocks.record(&[], &[]),
                OwnCall::Here(call) => blocks.record(&call.call, call.data()),
            };
            if self.table.post(state.posted, &record) != Post::Done {
                return;
            }
            state.keep(state.posted, blocks);
            state.posted += 1;
        }
    }

    /// Says if all ranks have the table. Before that, what is in it may be lost with the ranks that have it.
    fn is_shared(&self, state: &mut State) -> bool {
        state.is_shared = state.is_shared || self.table.not_joined().next().is_none();
        state.is_shared
    }

    /// The next step of a call that all ranks have posted.
    fn standing(&self, own: &OwnCall, number: u64, scratch: &mut Vec<u8>) -> Standing {
        let call = match own {
            OwnCall::Elsewhere => &[],
            OwnCall::Here(call) => &call.call[..],
        };
        let is_alike = (0..self.table.rows()).all(|row| {
            scratch.clear();
            self.table.read_call(row, number, scratch);
            scratch == call
        });
        let OwnCall::Here(call) = own else {
            return if is_alike {
                Standing::Ends(Ok(None))
            } else {
                Standing::Leaves
            };
        };
        let taker = call.taker();
        let is_for_me = taker.is_none_or(|taker| taker == self.own);
        // Nothing is at an end while a thread of this rank works on it.
        if let Some(long) = &call.long
            && is_alike
            && !long.is_idle()
        {
            return Standing::Works(Arc::clone(long));
        }
        let taken = match taker {
            _ if !is_alike => Taken::Never,
            Some(taker) if !is_for_me => self.table.taken(taker.index(), number),
            _ => Taken::Yes,
        };
        match (taken, &call.long) {
            (Taken::NotYet, Some(long)) if !long.is_done(&self.table) => {
                return Standing::Works(Arc::clone(long));
            }
            (Taken::NotYet, _) => return Standing::Open,
            (Taken::Never, _) => return Standing::Leaves,
            (Taken::Yes, _) => {}
        }
        let is_wanted = call.signature.is_spread || call.signature.root == self.own;
        let result = match &call.long {
            Some(long) if is_wanted => match long.take_result() {
                Some(result) => self.named(result).map(Some),
                None => return Standing::Works(Arc::clone(long)),
            },
            _ => is_wanted.then(|| self.combine(number, call)).transpose(),
        };
        // The others say that it has ended when this rank has the result.
        match taker.is_none() || !is_for_me || self.table.take(number) {
            true => Standing::Ends(result),
            false => Standing::Leaves,
        }
    }

    /// From the next call on all go by the scheduler.
    fn leave(&self, state: &mut State) -> Vec<Begin> {
        self.close();
        state.left_from = Some(state.next);
        self.has_left.store(true, Ordering::Release);
        let calls = std::mem::take(&mut state.calls);
        let calls = (state.next..).zip(calls);
        let calls = calls.filter_map(|(number, call)| match call {
            Some(OwnCall::Here(call)) => self.leave_with(number, *call, state),
            Some(OwnCall::Elsewhere) | None => None,
        });
        calls.collect()
    }

    /// A call that goes by the scheduler after all. What is posted of it needs no other protection.
    fn leave_with(&self, number: u64, call: TableCall, state: &mut State) -> Option<Begin> {
        let place = call.begin.place;
        let elapsed = call.since.elapsed();
        let mut begin = call.begin;
        let left = |timeout: Duration| timeout.saturating_sub(elapsed).max(ANNOUNCEMENT_TIME);
        begin.timeout = begin.timeout.map(left);
        if call.contributes && number < state.posted {
            let data = self.table.data(self.own.index(), number).to_vec();
            let hold = begin.originals.take_hold().map(|(hold, _)| hold);
            begin.originals = Originals::Own {
                token: shared_token(begin.id.session(), place),
                begin: call.signature.begin_of(place),
                bytes: Bytes::from(data),
                hold,
            };
        }
        Some(begin)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panicked left a state that is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    /// The record of a call whose data are in this memory if they are long.
    fn record<'a>(&'a self, call: &'a [u8], data: &'a [u8]) -> Record<'a> {
        Record {
            call,
            data: self.data.as_ref().map_or(Data::Short(data), Data::Long),
            result: self.result.as_ref(),
        }
    }
}

impl State {
    /// Keeps the memory of a call that is posted.
    fn keep(&mut self, number: u64, blocks: Blocks) {
        if blocks.data.is_some() || blocks.result.is_some() {
            self.kept.push_back((number, blocks));
        }
    }

    /// Frees the memory of calls that all have finished.
    fn forget(&mut self, finished: u64) {
        // What goes by the scheduler is looked for in the table when its rank is lost.
        if self.left_from.is_none() {
            let still_used = self.kept.partition_point(|(number, _)| *number < finished);
            self.kept.drain(..still_used);
        }
    }

    fn has_unposted(&self) -> bool {
        self.next + self.calls.len() as u64 > self.posted
    }

    /// Says if a call waits for room.
    fn has_waiting(&self) -> bool {
        self.left_from.is_none() && self.has_unposted()
    }
}

impl TableCall {
    /// The rank whose result is waited for.
    pub(super) fn taker(&self) -> Option<Rank> {
        self.is_taken.then_some(self.signature.root)
    }

    /// The contribution of a call that waits.
    fn data(&self) -> &[u8] {
        match &self.begin.originals {
            Originals::Own { bytes, .. } => bytes,
            Originals::Shared(_) => &[],
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.begin
            .timeout
            .and_then(|timeout| self.since.checked_add(timeout))
    }
}

/// A chunk takes some 50 us, and its rank may have to wait for a processor.
const CHUNK_PATIENCE: Duration = Duration::from_millis(2);
/// So long a call that goes by the scheduler lasts at least: else it would name as missing those that have posted it
/// and not announced it yet.
const ANNOUNCEMENT_TIME: Duration = Duration::from_millis(20);
