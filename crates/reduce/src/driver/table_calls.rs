//! Calls of the ranks of one host. They end in a table that these ranks have, without the scheduler; or, if the job is
//! on several hosts, by a call [among hosts](among_hosts). If the job is on one host each group has a table.
//!
//! A rank posts each call of the group with its contribution. When all have posted, each combines all contributions by
//! itself if they are short, and its part of them if they are long. What is posted outlives its rank. Calls that do not
//! suit the table are posted without a contribution, so that a rank that calls for something else is noticed.
//!
//! When a rank is lost before it posts a call, when the calls differ, or when the time of one is over, this call and
//! all after it go by the scheduler, on all ranks: the rules of the table see to it that all agree on the first of
//! them. What a lost rank has posted of these is then taken from the table, by each rank for itself, as from an agent.

mod among_hosts;
mod combination;
mod leaving;
mod long;
mod offering;
mod progress;
mod tables;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Block, CallState, CallTable, Data, Post, Record, Taken};
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Epoch, Rank};

use self::{
    among_hosts::Hosts,
    combination::Ended,
    long::{Awaited, LongCall, Work},
    waiting::ROOM_LOOK,
};
pub(super) use self::{
    offering::Offered,
    tables::{Legacies, Tables},
    waiting::Waiting,
};
use super::{
    bootstrap::HostMark,
    reduction::Slot,
    session::{Begin, Originals},
};
use crate::{ids::GroupId, operation::ResultMemory, outcome::ReductionError, signature::Signature};

/// The calls of this rank that may end in the table.
#[derive(Debug)]
pub(super) struct TableCalls {
    table: CallTable,
    group: GroupId,
    own: Rank,
    /// The rank of each row.
    ranks: Vec<Rank>,
    /// The hosts, if there are several.
    hosts: Option<Hosts>,
    /// This rank has begun the calls among hosts before this one.
    begun: AtomicU64,
    /// The last calls that have ended among hosts, with their results if this rank got them.
    ended_among_hosts: Mutex<VecDeque<(u64, Signature, Option<Bytes>)>>,
    state: Mutex<State>,
    /// All goes by the scheduler.
    has_left: AtomicBool,
    /// Others were told so.
    has_told_leaving: AtomicBool,
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
    /// There was no memory when a call was to be posted last.
    is_out_of_memory: bool,
    /// The agent had no room for the contribution of a call.
    waits_for_agent: bool,
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
    /// The rank whose result is waited for, or that tells the end of the call among hosts.
    pub(super) taker: Option<Rank>,
    pub(super) since: Instant,
    /// The work on it, if it is long.
    pub(super) long: Option<Arc<LongCall>>,
    /// Its time is over, and those for whom it waits were told.
    pub(super) is_overdue: bool,
    /// The end of the call among hosts, once this rank has begun that.
    pub(super) among_hosts: Option<Arc<Slot>>,
}

/// The next step of a call.
enum Standing {
    /// It has to be waited for.
    Open,
    /// It has ended, with this result.
    Ends(Result<Option<ResultMemory>, ReductionError>),
    /// There is work to do on it.
    Works(Arc<LongCall>),
    /// It goes on by this call among hosts.
    Begins(Box<Begin>),
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
    /// The calls of all ranks of a job, which are on these hosts.
    pub(super) fn new(mut table: CallTable, epoch: Epoch, own: Rank, marks: &[HostMark]) -> Self {
        let world = GroupId::of(&ProcessGroup::world(marks.len() as u32), epoch);
        let hosts = Hosts::of(marks, own, epoch);
        if hosts.is_some() {
            table.expect_long_waits();
        }
        Self {
            hosts,
            ..Self::of_ranks(table, world, own, HostMark::ranks_beside(own, marks))
        }
    }

    /// The calls of a group whose ranks are all in this table, if there is a section for it. The first call of a rank
    /// has to be the first of its calls in that.
    fn of_group(&self, id: GroupId, members: &ProcessGroup) -> Option<Self> {
        let rows: Option<Vec<usize>> = members.ranks().iter().map(|rank| self.row_of(*rank)).collect();
        let rows = rows.filter(|rows| rows.len() > 1)?;
        let table = self.table.section(id.0, &rows)?;
        Some(Self::of_ranks(table, id, self.own, members.ranks().to_vec()))
    }

    fn of_ranks(table: CallTable, group: GroupId, own: Rank, ranks: Vec<Rank>) -> Self {
        Self {
            table,
            group,
            own,
            ranks,
            hosts: None,
            begun: AtomicU64::new(0),
            ended_among_hosts: Mutex::default(),
            state: Mutex::default(),
            has_left: AtomicBool::new(false),
            has_told_leaving: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            has_to_ask: AtomicBool::new(false),
            is_to_look: AtomicBool::new(false),
            patience: CHUNK_PATIENCE,
        }
    }

    fn row_of(&self, rank: Rank) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    /// The row of this rank.
    fn own_row(&self) -> usize {
        self.row_of(self.own).unwrap_or_default()
    }

    /// Says if a rank of this host has taken a result.
    fn taken(&self, taker: Rank, number: u64) -> Taken {
        self.row_of(taker)
            .map_or(Taken::Never, |row| self.table.taken(row, number))
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
        let waits_for_agent = call.waits_for_agent();
        *place = Some(call);
        state.waits_for_agent |= waits_for_agent;
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
        self.table.close(self.own_row());
    }

    /// Says if no call is under way.
    fn is_idle(&self) -> bool {
        self.lock().calls.is_empty()
    }

    /// Nobody waits for a lost rank to open the table.
    fn count_as_joined(&self, lost: Rank) {
        if let Some(row) = self.row_of(lost) {
            self.table.count_as_joined(row);
        }
    }

    /// Another rank is lost: it posts nothing any more.
    pub(super) fn close_of(&self, lost: Rank) {
        if let Some(row) = self.row_of(lost) {
            self.table.close(row);
        }
    }

    /// Ends the calls that can be ended. Returns the first one if there is work to do on it.
    fn go_on(&self, state: &mut State, ends: &mut Ends) -> Option<Arc<LongCall>> {
        while state.left_from.is_none() {
            self.post_waiting(state);
            let first = state.calls.front_mut().and_then(Option::as_mut);
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
                Standing::Begins(begin) => {
                    ends.left.push(*begin);
                    return None;
                }
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
            let tells = |hosts: &Hosts| hosts.tells_result(self.own, &call.signature);
            let result = match self.hosts.as_ref().is_some_and(tells) {
                true => Some(
                    self.table
                        .allocate(call.signature.length.unwrap_or_default() as usize)?,
                ),
                false => None,
            };
            return Some(Blocks { data: None, result });
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
        state.offer_to_agent();
        if !state.has_unposted() || !self.is_shared(state) {
            return;
        }
        state.forget(self.table.finished_by_all());
        while let Some(Some(call)) = state.calls.get((state.posted - state.next) as usize) {
            if call.waits_for_agent() {
                return;
            }
            let blocks = match call {
                OwnCall::Elsewhere => Some(Blocks::default()),
                OwnCall::Here(call) => self.blocks(call, call.data()),
            };
            state.is_out_of_memory = blocks.is_none();
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
        state.is_shared = state.is_shared || self.table.is_shared();
        state.is_shared
    }

    /// The next step of a call that all ranks have posted.
    fn standing(&self, own: &mut OwnCall, number: u64, scratch: &mut Vec<u8>) -> Standing {
        let is_alike = self.are_alike(own, number, scratch);
        let OwnCall::Here(call) = own else {
            return if is_alike {
                Standing::Ends(Ok(None))
            } else {
                Standing::Leaves
            };
        };
        if let Some(hosts) = &self.hosts {
            return match is_alike {
                true => self.standing_among_hosts(hosts, number, call),
                false => Standing::Leaves,
            };
        }
        let taker = call.taker;
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
            Some(taker) if !is_for_me => self.taken(taker, number),
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

    /// Says if all ranks have posted a call as this one did.
    fn are_alike(&self, own: &OwnCall, number: u64, scratch: &mut Vec<u8>) -> bool {
        let call = match own {
            OwnCall::Elsewhere => &[],
            OwnCall::Here(call) => &call.call[..],
        };
        (0..self.table.rows()).all(|row| {
            scratch.clear();
            self.table.read_call(row, number, scratch);
            scratch == call
        })
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

    /// Says if the first call waits for memory, which only calls of other groups can have.
    fn lacks_memory(&self) -> bool {
        self.is_out_of_memory && self.left_from.is_none() && self.posted == self.next && self.kept.is_empty()
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
pub(super) const ANNOUNCEMENT_TIME: Duration = Duration::from_millis(20);
