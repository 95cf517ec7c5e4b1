//! Callers that wait for calls of the table.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use ropewalk_fabric::{CallState, Taken};
use ropewalk_names::Rank;

use super::{
    Ends, OwnCall, TableCalls,
    long::{Awaited, LongCall},
};
use crate::driver::{
    job::{Shared, Wish},
    reduction::Slot,
};
use crate::operation::Elements;

/// A caller's way to the end of a call of the table.
#[derive(Debug)]
pub(in crate::driver) struct Waiting {
    shared: Arc<Shared>,
    calls: Arc<TableCalls>,
    number: u64,
    taker: Option<Rank>,
    long: Option<Arc<LongCall>>,
    /// Of a wait that ended before the call did.
    patience: Mutex<Option<Patience>>,
}

impl Waiting {
    pub(in crate::driver) fn new(
        shared: Arc<Shared>,
        calls: Arc<TableCalls>,
        number: u64,
        taker: Option<Rank>,
        long: Option<Arc<LongCall>>,
    ) -> Self {
        Self {
            shared,
            calls,
            number,
            taker,
            long,
            patience: Mutex::default(),
        }
    }

    /// Gives the memory of this rank's contribution, which is posted, for the result: its pages have been touched.
    pub(in crate::driver) fn lend(&self, memory: Option<Box<dyn Elements>>) {
        if let (Some(long), Some(memory)) = (&self.long, memory) {
            long.lend(memory);
        }
    }

    /// Ends what can be ended.
    pub(in crate::driver) fn look(&self) {
        self.shared
            .settle(&self.calls, self.calls.advance(CHUNKS_PER_LOOK));
    }

    /// Waits until the call has ended, or goes by the scheduler, or until the time has come.
    pub(in crate::driver) fn wait(&self, slot: &Slot, until: Instant) {
        let begun = self
            .patience
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut patience = begun.unwrap_or_else(Patience::new);
        while !self.wait_once(slot, until, &mut patience) {
            patience.see_to(&self.calls, &self.shared);
        }
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = Some(patience);
    }

    /// Waits until there may be news. Returns true if the wait is over.
    fn wait_once(&self, slot: &Slot, until: Instant, patience: &mut Patience) -> bool {
        let calls = &*self.calls;
        let has_ended = || slot.has_ended() || calls.has_left();
        let is_over = || has_ended() || Instant::now() >= until;
        // The machines begin the call among hosts, and end it.
        let look_at = patience.look_at.min(until);
        if calls.waits_for_hosts(self.number) && self.shared.turns.drive_until(look_at, has_ended) {
            return is_over();
        }
        let ends = calls.advance(usize::MAX);
        let awaited = ends.awaited;
        patience.renew(ends.has_worked);
        self.shared.settle(calls, ends);
        if is_over() {
            return true;
        }
        calls.wait(awaited, patience.look_at.min(until), || {
            calls.is_open(self.number, self.taker) && !has_ended()
        });
        false
    }

    /// Sees to it that the call ends also if nobody asks for it: somebody wants to be told.
    pub(in crate::driver) fn watch(&self) {
        let calls = &self.calls;
        if calls.has_left() || calls.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, watched) = (Arc::clone(&self.shared), Arc::clone(calls));
        let watch = std::thread::Builder::new().name("ropewalk-watch".into());
        let started = watch.spawn(move || watched.watch(&shared));
        if started.is_err() {
            // The progress thread looks often while there are calls.
            calls.is_polled.store(true, Ordering::Release);
            self.shared.wake();
        }
    }
}

impl TableCalls {
    /// Ends calls as long as there are any.
    fn watch(&self, shared: &Shared) {
        let mut patience = Patience::new();
        loop {
            let ends = self.advance(usize::MAX);
            let awaited = ends.awaited;
            patience.renew(ends.has_worked);
            shared.settle(self, ends);
            let Some((first, taker)) = self.first() else {
                self.is_watched.store(false, Ordering::Release);
                // One may have come before that could be seen.
                match self.first().is_some() && !self.is_watched.swap(true, Ordering::AcqRel) {
                    true => continue,
                    false => return,
                }
            };
            self.wait(awaited, patience.look_at, || {
                self.is_open(first, taker) && self.first() == Some((first, taker)) && !self.has_left()
            });
            patience.see_to(self, shared);
        }
    }

    /// Waits for chunks of others, if there are any, and else as long as the call is open.
    fn wait(&self, awaited: Option<Awaited>, look_at: Instant, is_open: impl Fn() -> bool) {
        let until = look_at.min(Instant::now() + self.turn());
        match awaited {
            None => self.table.wait(until, is_open),
            Some(awaited) => {
                let until = until.min(awaited.until);
                self.table
                    .wait(until, || !awaited.is_over(&self.table) && !self.has_left());
            }
        }
    }

    /// The first call that waits for others, and the rank whose result is waited for.
    fn first(&self) -> Option<(u64, Option<Rank>)> {
        let state = self.lock();
        let first = state.calls.front()?.as_ref();
        let taker = first.and_then(|call| match call {
            OwnCall::Here(call) => call.taker,
            OwnCall::Elsewhere => None,
        });
        Some((state.next, taker))
    }

    /// Says if nothing is known of the end of a call.
    fn is_open(&self, number: u64, taker: Option<Rank>) -> bool {
        match (self.table.state(number), taker) {
            // The progress thread tells of its end, or of that of the call before.
            (CallState::Posted, _) if self.has_begun_for(number) => true,
            (CallState::Posted, Some(taker)) if taker != self.own => {
                self.taken(taker, number) == Taken::NotYet
            }
            (state, _) => state == CallState::Open,
        }
    }

    /// Says if this rank has begun this call among hosts, or the one that has to end first.
    fn has_begun_for(&self, number: u64) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        begun > number || begun > 0 && begun > self.lock().next
    }

    /// This rank posts nothing any more, if its first call waits for what may never come.
    fn leave_if_hopeless(&self) {
        let mut state = self.lock();
        let is_hopeless = !self.is_shared(&mut state) || state.lacks_memory();
        drop(state);
        if is_hopeless {
            self.close();
        }
    }

    /// How long a caller waits before it looks at all that concerns it.
    fn turn(&self) -> Duration {
        match self.lock().has_waiting() {
            true => ROOM_LOOK,
            false => TURN,
        }
    }
}

impl Shared {
    /// Tells callers what has come of calls of a table.
    pub(in crate::driver) fn settle(&self, calls: &TableCalls, ends: Ends) {
        let Ends { ended, left, .. } = ends;
        if !ended.is_empty() {
            self.set_failed(ended.last().is_some_and(|ended| ended.result.is_err()));
        }
        let has_news = !(ended.is_empty() && left.is_empty());
        let several = ended.len() > 1;
        for ended in ended {
            if let Some((Some(hold), bytes)) = ended.hold {
                self.wish(Wish::Release(hold, bytes));
            }
            ended.completion.complete(ended.result);
        }
        if several || has_news && calls.hosts.is_some() {
            // Other threads of this process may sleep until one of them ends.
            calls.table.ring();
        }
        if has_news {
            self.turns.tell();
        }
        // Another thread may drive until such a call ends, and sleep on descriptors.
        if has_news && calls.hosts.is_some() && self.turns.are_driven_elsewhere() {
            self.wake_machines();
        }
        for begin in left {
            self.wish(Wish::Begin(Box::new(begin)));
        }
    }
}

/// The duties of a caller that has waited for long.
#[derive(Debug)]
struct Patience {
    begun: Instant,
    look_at: Instant,
    pause: Duration,
}

impl Patience {
    fn new() -> Self {
        let begun = Instant::now();
        Self {
            begun,
            look_at: begun + FIRST_LOOK,
            pause: FIRST_LOOK,
        }
    }

    /// The call goes on: this thread has just worked on it.
    fn renew(&mut self, has_worked: bool) {
        if has_worked {
            *self = Self::new();
        }
    }

    fn see_to(&mut self, calls: &TableCalls, shared: &Shared) {
        let now = Instant::now();
        if now < self.look_at {
            return;
        }
        self.pause = (self.pause * 2).min(TURN);
        self.look_at = now + self.pause;
        if now >= self.begun + TURN {
            calls.leave_if_hopeless();
        }
        // One that computes ends its part by its progress thread. Ours watches it, too.
        calls.has_to_ask.store(true, Ordering::Release);
        shared.wake();
    }
}

/// So long a caller waits before it asks those that it waits for; then twice as long each time.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// So long at most. A rank that has not come to the table by then will not; nor will memory that calls of other groups
/// have.
const TURN: Duration = Duration::from_secs(1);
/// So often it is looked if there is room for a call that waits for that.
pub(super) const ROOM_LOOK: Duration = Duration::from_millis(1);
/// So many chunks a caller combines that only asks if the call has ended.
const CHUNKS_PER_LOOK: usize = 1;
