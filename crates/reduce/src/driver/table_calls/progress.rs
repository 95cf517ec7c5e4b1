//! The progress thread's part in the calls of the table: it tells of losses and looks at the time.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ropewalk_fabric::Taken;
use ropewalk_names::Rank;
use ropewalk_reduce_core::GiveUp;

use super::{Ends, OwnCall, TableCalls, waiting::ROOM_LOOK};
use crate::{driver::progress::ProgressThread, outcome::ReductionError};

impl ProgressThread {
    /// Looks at the calls of the tables. Calls that leave a table begin here.
    pub(in crate::driver) fn see_to_table_calls(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(tables) = &shared.tables else { return };
        let all = tables.all().into_iter();
        let looked: Vec<_> = all
            .filter(|calls| !calls.has_told_leaving.load(Ordering::Acquire))
            .map(|calls| (self.look_at_table(&calls), calls))
            .collect();
        let has_left = looked.iter().any(|(_, calls)| calls.has_left());
        let is_open = self.legacies.are_open() || !self.legacies.held.is_empty();
        if has_left || is_open || tables.has_to_look() {
            self.inherit_what_counts(None);
        }
        for (ends, calls) in looked {
            self.settle_table_calls(&calls, ends);
            if calls.has_to_ask.swap(false, Ordering::AcqRel) {
                let awaited = calls.awaited();
                awaited
                    .difference(&self.peers.gone)
                    .for_each(|rank| self.outbox.lines.ask(*rank));
            }
        }
    }

    /// Ends what can be ended of the calls of a table.
    fn look_at_table(&mut self, calls: &TableCalls) -> Ends {
        if calls.close_overdue(Instant::now())
            && let Some((session, member)) = calls.overdue_among_hosts()
        {
            self.worker.give_up(session, member, GiveUp::TimedOut);
        }
        let ends = calls.advance(CHUNKS_PER_LOOK);
        let is_to_look = ends.has_more || ends.has_worked || ends.awaited.is_some();
        calls.is_to_look.store(is_to_look, Ordering::Release);
        self.tell_leaving(calls);
        ends
    }

    /// A rank is lost: it posts nothing any more, and what it has posted of calls that go by the scheduler is
    /// inherited. This comes before the scheduler hears of the loss.
    pub(in crate::driver) fn lose_in_table(&mut self, lost: Rank) {
        let shared = Arc::clone(&self.shared);
        let Some(tables) = &shared.tables else { return };
        tables.close_of(lost);
        let all = tables.all().into_iter();
        let ends: Vec<_> = all.map(|calls| (calls.advance(0), calls)).collect();
        self.inherit_what_counts(Some(lost));
        for (ends, calls) in ends {
            self.tell_leaving(&calls);
            self.settle_table_calls(&calls, ends);
        }
    }

    /// This rank takes part in nothing any more: its calls end with this error. What it has posted others may count.
    pub(in crate::driver) fn leave_table(&mut self, error: &ReductionError) {
        let shared = Arc::clone(&self.shared);
        let Some(tables) = &shared.tables else { return };
        tables.end();
        for calls in tables.all() {
            let ends = calls.give_up(error);
            self.settle_table_calls(&calls, ends);
            // Their callers may sleep.
            calls.table.ring();
            shared.turns.tell();
        }
    }

    fn settle_table_calls(&mut self, calls: &TableCalls, ends: Ends) {
        let Ends { ended, left, .. } = ends;
        let ended = Ends {
            ended,
            ..Ends::default()
        };
        self.shared.settle(calls, ended);
        for begin in left {
            self.begin(begin);
        }
    }

    /// Tells the others once that calls have left a table: they may not look at it for long, and the scheduler's rank
    /// has to know what lost ranks have left there.
    fn tell_leaving(&mut self, calls: &TableCalls) {
        if !calls.has_left() || calls.has_told_leaving.swap(true, Ordering::AcqRel) {
            return;
        }
        let others = (0..self.shared.size)
            .map(Rank)
            .filter(|rank| *rank != self.shared.rank);
        for rank in others.filter(|rank| !self.peers.gone.contains(rank)) {
            self.outbox.lines.ask(rank);
        }
    }
}

impl TableCalls {
    /// The time of the calls that were cancelled is over.
    pub(in crate::driver) fn hasten_cancelled(&self) {
        for call in self.lock().calls.iter_mut().flatten() {
            if let OwnCall::Here(call) = call
                && call.begin.completion.is_cancelled()
            {
                call.begin.timeout = Some(Duration::ZERO);
            }
        }
    }

    /// Closes the rows of the ranks for which a call waits whose time is over. Says if there is such a call, once.
    fn close_overdue(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let next = state.next;
        let mut is_overdue = false;
        for (number, call) in (next..).zip(&mut state.calls) {
            if let Some(OwnCall::Here(call)) = call
                && !call.is_overdue
                && call.deadline().is_some_and(|deadline| deadline <= now)
            {
                (call.is_overdue, is_overdue) = (true, true);
                self.missing(number, call.taker)
                    .into_iter()
                    .for_each(|row| self.table.close(row));
            }
        }
        is_overdue
    }

    /// The rows for which a call waits.
    fn missing(&self, number: u64, taker: Option<Rank>) -> Vec<usize> {
        let not_taken = |taker: &Rank| self.taken(*taker, number) == Taken::NotYet;
        let taker = taker.filter(not_taken).and_then(|taker| self.row_of(taker));
        let missing = self.table.missing(number);
        missing.chain(taker).collect()
    }

    /// When to look at the calls again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let state = self.lock();
        let is_polled = state.has_waiting()
            || self.is_polled.load(Ordering::Acquire) && !state.calls.is_empty()
            || self.is_to_look.load(Ordering::Acquire);
        let has_ended = match state.calls.front() {
            Some(Some(OwnCall::Here(call))) => call.among_hosts.as_ref().is_some_and(|slot| slot.is_full()),
            _ => false,
        };
        let look = match has_ended {
            true => Some(Instant::now()),
            false => is_polled.then(|| Instant::now() + ROOM_LOOK),
        };
        let calls = state.calls.iter().flatten();
        let deadlines = calls.filter_map(|call| match call {
            OwnCall::Here(call) => call.deadline().filter(|_| !call.is_overdue),
            OwnCall::Elsewhere => None,
        });
        deadlines.chain(look).min()
    }

    /// The ranks that the first call waits for.
    pub(super) fn awaited(&self) -> BTreeSet<Rank> {
        let state = self.lock();
        match state.calls.front() {
            Some(Some(OwnCall::Here(call))) => {
                let missing = self.missing(state.next, call.taker).into_iter();
                let ranks = missing.filter_map(|row| self.ranks.get(row).copied());
                ranks.filter(|rank| *rank != self.own).collect()
            }
            _ => BTreeSet::new(),
        }
    }
}

/// So many chunks the progress thread combines before it looks at what else there is.
const CHUNKS_PER_LOOK: usize = 32;
