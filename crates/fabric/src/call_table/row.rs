//! The rules by which the processes of a table agree on the calls that end in it.

use std::sync::atomic::Ordering;

/// A word that several processes read and write at any time.
pub(super) trait Word {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    fn compare_exchange(&self, current: u64, new: u64, ordering: Ordering) -> bool;
    fn fetch_or(&self, bits: u64, ordering: Ordering);
}

/// The words of one process. All zero, it has made no call.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Row<W> {
    /// The number of calls that it has posted, and [`CLOSED`].
    posted: W,
    /// The number of calls whose records it does not read any more.
    done: W,
    /// The number after the last call whose result it alone has, and [`CLOSED`].
    taken: W,
    /// Not 0 once the process has the table.
    joined: W,
}

/// The state of a call, as far as it is known. It goes from `Open` to one of the others, the same for all processes,
/// and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// Some rows have neither posted it nor been closed.
    Open,
    /// All rows have posted it.
    Posted,
    /// A row was closed before it posted this call: it never will.
    Closed,
}

/// The state of a result that one process alone has. It goes from `NotYet` to one of the others, the same for all
/// processes, and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The process has not taken it yet.
    NotYet,
    /// It has.
    Yes,
    /// Its row was closed before.
    Never,
}

/// The outcome of an attempt to post a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The call is posted: it outlives this process.
    Done,
    /// Some process still reads the call whose place this one would take; or it is not the next one.
    NoRoom,
    /// The row is closed.
    Closed,
}

impl<W: Word> Row<W> {
    /// Posts a call whose record was written.
    pub(super) fn post(&self, call: u64) -> bool {
        // Sequentially consistent, as the look at who sleeps after it.
        self.posted.compare_exchange(call, call + 1, Ordering::SeqCst)
    }

    /// Nothing is posted in this row any more, nor taken, unless it has been before this.
    pub(super) fn close(&self) {
        self.posted.fetch_or(CLOSED, Ordering::SeqCst);
        self.taken.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// The process takes the result of a call. Returns false if the row is closed.
    pub(super) fn take(&self, call: u64) -> bool {
        let before = self.taken.load(Ordering::Acquire);
        before & CLOSED == 0 && self.taken.compare_exchange(before, call + 1, Ordering::SeqCst)
    }

    pub(super) fn taken(&self, call: u64) -> Taken {
        let taken = self.taken.load(Ordering::SeqCst);
        match (taken & !CLOSED > call, taken & CLOSED != 0) {
            (true, _) => Taken::Yes,
            (false, true) => Taken::Never,
            (false, false) => Taken::NotYet,
        }
    }

    /// The number of calls that were posted, and if the row is closed.
    pub(super) fn posted(&self) -> (u64, bool) {
        let posted = self.posted.load(Ordering::SeqCst);
        (posted & !CLOSED, posted & CLOSED != 0)
    }

    /// The process reads no records of calls before this one any more.
    pub(super) fn finish(&self, calls: u64) {
        self.done.store(calls, Ordering::Release);
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    pub(super) fn join(&self) {
        self.joined.store(1, Ordering::SeqCst);
    }

    pub(super) fn has_joined(&self) -> bool {
        self.joined.load(Ordering::SeqCst) != 0
    }
}

/// The state of a call. The records of one that is [`Posted`](CallState::Posted) may be read.
pub(super) fn state<'a, W: Word + 'a>(rows: impl Iterator<Item = &'a Row<W>>, call: u64) -> CallState {
    let mut state = CallState::Posted;
    for row in rows {
        match row.posted() {
            (posted, _) if posted > call => {}
            (_, false) => state = CallState::Open,
            (_, true) => return CallState::Closed,
        }
    }
    state
}

/// Says if the place of a call in a table of so many `places` is free: nobody reads the call that was in it.
pub(super) fn has_place<'a, W: Word + 'a>(
    mut rows: impl Iterator<Item = &'a Row<W>>,
    call: u64,
    places: u64,
) -> bool {
    rows.all(|row| call < row.done().saturating_add(places))
}

const CLOSED: u64 = 1 << 63;
