//! The progress thread's part in the calls of the table: it tells of losses and looks at the time.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Instant};

use bytes::Bytes;
use ropewalk_fabric::Taken;
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Contributions, Member};

use super::{Ends, OwnCall, TableCalls, waiting::ROOM_LOOK};
use crate::{
    driver::progress::ProgressThread,
    ids::{ReductionId, ReductionNumber},
    message::Contribution,
    outcome::ReductionError,
    signature::Signature,
    source::shared_token,
};

impl ProgressThread {
    /// Looks at the calls of the table. Calls that leave the table begin here.
    pub(in crate::driver) fn see_to_table_calls(&mut self) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(calls) = &shared.table_calls else { return };
        if !self.has_inherited_table_calls {
            calls.close_overdue(Instant::now());
            let ends = calls.advance(CHUNKS_PER_LOOK);
            let is_to_look = ends.has_more || ends.has_worked || ends.awaited.is_some();
            calls.is_to_look.store(is_to_look, Ordering::Release);
            self.inherit_table_calls(calls, None);
            self.settle_table_calls(ends);
            if calls.has_to_ask.swap(false, Ordering::AcqRel) {
                let awaited = calls.awaited();
                awaited
                    .difference(&self.peers.gone)
                    .for_each(|rank| self.outbox.lines.ask(*rank));
            }
        }
    }

    /// A rank is lost: it posts nothing any more, and what it has posted of calls that go by the scheduler is
    /// inherited. This comes before the scheduler hears of the loss.
    pub(in crate::driver) fn lose_in_table(&mut self, lost: Rank) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(calls) = &shared.table_calls else { return };
        calls.close_of(lost);
        let ends = calls.advance(0);
        self.inherit_table_calls(calls, Some(lost));
        self.settle_table_calls(ends);
    }

    /// This rank takes part in nothing any more: its calls end with this error. What it has posted others may count.
    pub(in crate::driver) fn leave_table(&mut self, error: &ReductionError) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(calls) = &shared.table_calls else { return };
        let ends = calls.give_up(error);
        self.settle_table_calls(ends);
        // Their callers may sleep.
        calls.table.ring();
    }

    fn settle_table_calls(&mut self, ends: Ends) {
        let Ends { ended, left, .. } = ends;
        self.shared.settle(Ends {
            ended,
            ..Ends::default()
        });
        for begin in left {
            self.begin(begin);
        }
    }

    fn inherit_table_calls(&mut self, calls: &TableCalls, lost: Option<Rank>) {
        let Some(from) = calls.left_from() else { return };
        let mut owners: BTreeSet<Rank> = lost.into_iter().collect();
        if !std::mem::replace(&mut self.has_inherited_table_calls, true) {
            owners.extend(&self.peers.gone);
            // Others may not look at the table for long.
            let others = (0..self.shared.size)
                .map(Rank)
                .filter(|rank| *rank != self.shared.rank);
            for rank in others.filter(|rank| !self.peers.gone.contains(rank)) {
                self.outbox.lines.ask(rank);
            }
        }
        for owner in owners {
            for (contribution, bytes) in calls.left_by(owner, from) {
                self.inherit_here(owner, contribution, bytes);
            }
        }
    }
}

impl TableCalls {
    /// The first call that goes by the scheduler.
    fn left_from(&self) -> Option<u64> {
        self.lock().left_from
    }

    /// The contributions that a rank has posted to the calls from that one on.
    pub(super) fn left_by(&self, owner: Rank, from: u64) -> Vec<(Contribution, Bytes)> {
        let posted = self.table.posted(owner.index());
        let contributions = (from..posted).filter_map(|number| {
            let mut call = Vec::new();
            self.table.read_call(owner.index(), number, &mut call);
            // A call that goes by the scheduler anyway has none.
            let (signature, _): (Signature, bool) = postcard::from_bytes(&call).ok()?;
            let member = Member(owner.0);
            if matches!(signature.contributions, Contributions::One(other) if other != member) {
                return None;
            }
            let length = signature.length?;
            let data = self.table.data(owner.index(), number);
            if data.len() as u64 != length {
                return None;
            }
            let id = ReductionId {
                group: self.world,
                number: ReductionNumber::Call(number),
            };
            let contribution = Contribution {
                session: id.session(),
                members: None,
                signature,
                member,
                token: shared_token(id.session(), member),
                length,
            };
            Some((contribution, Bytes::copy_from_slice(data)))
        });
        contributions.collect()
    }

    /// Closes the rows of the ranks for which a call waits whose time is over.
    fn close_overdue(&self, now: Instant) {
        let state = self.lock();
        for (number, call) in (state.next..).zip(&state.calls) {
            if let Some(OwnCall::Here(call)) = call
                && call.deadline().is_some_and(|deadline| deadline <= now)
            {
                self.missing(number, call.taker())
                    .into_iter()
                    .for_each(|row| self.table.close(row));
            }
        }
    }

    /// The rows for which a call waits.
    fn missing(&self, number: u64, taker: Option<Rank>) -> Vec<usize> {
        let not_taken = |taker: &Rank| self.table.taken(taker.index(), number) == Taken::NotYet;
        let taker = taker.filter(not_taken).map(Rank::index);
        let missing = self.table.missing(number);
        missing.chain(taker).collect()
    }

    /// When to look at the calls again.
    pub(in crate::driver) fn next_deadline(&self) -> Option<Instant> {
        let state = self.lock();
        let is_polled = state.has_waiting()
            || self.is_polled.load(Ordering::Acquire) && !state.calls.is_empty()
            || self.is_to_look.load(Ordering::Acquire);
        let look = is_polled.then(|| Instant::now() + ROOM_LOOK);
        let calls = state.calls.iter().flatten();
        let deadlines = calls.filter_map(|call| match call {
            OwnCall::Here(call) => call.deadline(),
            OwnCall::Elsewhere => None,
        });
        deadlines.chain(look).min()
    }

    /// The ranks that the first call waits for.
    pub(in crate::driver) fn awaited(&self) -> BTreeSet<Rank> {
        let state = self.lock();
        match state.calls.front() {
            Some(Some(OwnCall::Here(call))) => {
                let missing = self.missing(state.next, call.taker()).into_iter();
                let ranks = missing.map(|row| Rank(row as u32));
                ranks.filter(|rank| *rank != self.own).collect()
            }
            _ => BTreeSet::new(),
        }
    }
}

/// So many chunks the progress thread combines before it looks at what else there is.
const CHUNKS_PER_LOOK: usize = 32;
