//! Calls that go by the scheduler after all, and from which one on.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;

use super::{ANNOUNCEMENT_TIME, Ends, OwnCall, State, TableCall, TableCalls};
use crate::{
    driver::{
        hold::Hold,
        session::{Begin, Originals},
    },
    outcome::ReductionError,
    source::shared_token,
};

impl TableCalls {
    /// This rank takes part in nothing any more: its calls end with this error.
    pub(in crate::driver) fn give_up(&self, error: &ReductionError) -> Ends {
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
    pub(in crate::driver) fn abandon(&self) {
        let mut state = self.lock();
        state.left_from.get_or_insert(u64::MAX);
        self.has_left.store(true, Ordering::Release);
        let abandoned = std::mem::take(&mut state.calls);
        drop(state);
        self.table.ring();
        drop(abandoned);
    }

    /// From the next call on all go by the scheduler.
    pub(super) fn leave(&self, state: &mut State) -> Vec<Begin> {
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
    pub(super) fn leave_with(&self, number: u64, call: TableCall, state: &mut State) -> Option<Begin> {
        let place = call.begin.place;
        let elapsed = call.since.elapsed();
        let mut begin = call.begin;
        let left = |timeout: Duration| timeout.saturating_sub(elapsed).max(ANNOUNCEMENT_TIME);
        begin.timeout = begin.timeout.map(left);
        // On several hosts it is protected from the beginning.
        if call.contributes && number < state.posted && self.hosts.is_none() {
            // The block stays in the table for good: others read it if this rank is lost.
            let bytes = Bytes::copy_from_slice(self.table.data(self.own_row(), number));
            let hold = begin.originals.take_hold().map(|(hold, _)| Hold::Held(hold));
            begin.originals = Originals::Own {
                token: shared_token(begin.id.session(), place),
                begin: call.signature.begin_of(place),
                bytes,
                hold,
            };
        }
        Some(begin)
    }
}
