//! Calls of the processes of one host, in memory that all of them have.
//!
//! Each process has a row, into which it alone posts the records of its calls: one after the other, with numbers from
//! 0. A record that is posted outlives its process. When all rows have posted a call each process reads all its
//! records, and knows that all others can. A row can be closed by any process: then it gets no further record. So of
//! each call either all come to know that all have posted it, or all come to know that somebody never will.
//!
//! A result that one process alone has counts when that has taken it; also that all agree on.
//!
//! Long contributions stand in memory that each process gives out from its part of the table. All share the work on
//! such a call: each claims chunks of it, and says which it has finished. Whoever waits for a chunk that does not come
//! may work on it too: all come to the same bytes.
//!
//! A group of the processes can have a section of the table, with rows of its own, as if it were a table. All processes
//! see what is posted there, also those that are not in the group.
//!
//! A process that writes on after its row was closed changes nothing: the places that it may write are those of calls
//! that all have read.

mod chunks;
#[cfg(test)]
mod interleavings;
mod memory;
mod row;

use std::{
    io,
    num::NonZero,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use self::memory::TableMemory;
pub use self::{
    memory::{CommonResult, Data, Record, TablePlace},
    row::{CallState, Post, Taken},
};
use crate::arena::{Arena, Block};

/// A table, or a group's section of it, as far as all processes can use it.
#[derive(Clone, Debug)]
pub struct CallRows {
    memory: TableMemory,
    rows: usize,
}

/// A group's section.
#[derive(Debug)]
pub struct CallSection {
    /// The name of the group.
    pub name: u64,
    /// The rows of its processes in the table of all.
    pub members: Vec<usize>,
    /// Their rows in the section.
    pub rows: CallRows,
}

/// A process's table.
#[derive(Debug)]
pub struct CallTable {
    /// The rows of the table of all.
    processes: CallRows,
    /// The rows of this table.
    view: CallRows,
    /// The memory that this process gives out.
    area: Arc<Arena>,
    own: usize,
    /// There are more processes than processors.
    is_crowded: bool,
    /// A process that waits looks for so long before it sleeps.
    spin: Duration,
}

impl CallTable {
    /// The most processes of a table.
    pub const ROWS_MAX: usize = 256;
    /// The calls that a process may have posted and another not have read.
    pub const PLACES: u64 = memory::PLACES as u64;
    /// The most bytes of what all have to call alike.
    pub const CALL_SIZE_MAX: usize = memory::CALL_SIZE_MAX;
    /// The most bytes of a contribution.
    pub const DATA_SIZE_MAX: usize = memory::DATA_SIZE_MAX;
    /// The most chunks of a call whose work is shared.
    pub const CHUNKS_MAX: usize = chunks::CHUNKS_MAX;
    /// A process that waits for others looks again and again for so long before it sleeps: several times as long as one
    /// that sleeps takes to wake up, or else each would always find the other asleep.
    const SPIN: Duration = Duration::from_micros(200);
    /// For so long it keeps its processor meanwhile, if there is one for each process.
    const SPIN_ALONE: Duration = Duration::from_micros(5);

    /// A new table for so many processes, of which this one has row `own`.
    ///
    /// # Errors
    /// If the system is out of descriptors, memory or random numbers.
    ///
    /// # Panics
    /// If there are more rows than [`ROWS_MAX`](Self::ROWS_MAX), or `own` is none of them.
    pub fn create(rows: usize, own: usize) -> io::Result<Self> {
        assert!(rows <= Self::ROWS_MAX && own < rows, "row {own} of {rows}");
        Self::of(TableMemory::create(rows)?, rows, own)
    }

    /// The table of another process of this host.
    ///
    /// # Errors
    /// If that process is gone, is of another user or another container, or its table is another one.
    ///
    /// # Panics
    /// If there are more rows than [`ROWS_MAX`](Self::ROWS_MAX), or `own` is none of them.
    pub fn open(place: &TablePlace, rows: usize, own: usize) -> io::Result<Self> {
        assert!(rows <= Self::ROWS_MAX && own < rows, "row {own} of {rows}");
        Self::of(TableMemory::open(place, rows)?, rows, own)
    }

    fn of(memory: TableMemory, rows: usize, own: usize) -> io::Result<Self> {
        let area = memory.area(own)?;
        memory.row(own).join();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let view = CallRows { memory, rows };
        Ok(Self {
            processes: view.clone(),
            view,
            area,
            own,
            is_crowded: rows > processors,
            spin: Self::SPIN,
        })
    }

    /// The table of a group, whose processes have these rows in the table of all. All processes of the group find the
    /// same: none if the name is 0 or too many groups have tables. One that is not in the group finds none.
    ///
    /// # Panics
    /// If one of the rows is not in the table of all.
    pub fn section(&self, name: u64, members: &[usize]) -> Option<Self> {
        let processes = self.processes.clone();
        assert!(
            members.iter().all(|row| *row < processes.rows),
            "{members:?} of {} rows",
            processes.rows
        );
        let own = members.iter().position(|row| *row == self.own)?;
        let memory = processes.memory.section(name, members)?;
        let rows = members.len();
        Some(Self {
            processes,
            view: CallRows { memory, rows },
            area: Arc::clone(&self.area),
            own,
            ..*self
        })
    }

    /// The sections of all groups in which something may have been posted.
    pub fn sections(&self) -> impl Iterator<Item = CallSection> {
        let sections = self.processes.memory.sections();
        sections.map(|(name, members, memory)| {
            let rows = members.len();
            CallSection {
                name,
                members,
                rows: CallRows { memory, rows },
            }
        })
    }

    /// The rows of this table, as all processes see them.
    pub fn view(&self) -> &CallRows {
        &self.view
    }

    /// Counts a process that is lost as one that has the table of all.
    pub fn count_as_joined(&self, row: usize) {
        self.processes.memory.row(row).join();
    }

    /// Says if all processes of the host have the table of all, and so those of all groups.
    pub fn is_shared(&self) -> bool {
        let CallRows { memory, rows } = &self.processes;
        memory.rows(*rows).all(row::Row::has_joined)
    }

    /// Says that calls take longer than it takes to wake up: they wait for other hosts. Where there are more processes
    /// than processors, those who wait then sleep at once.
    pub fn expect_long_waits(&mut self) {
        if self.is_crowded {
            self.spin = Duration::ZERO;
        }
    }

    /// By what others open the table, as long as this process lives.
    pub fn place(&self) -> TablePlace {
        self.view.memory.place()
    }

    /// The number of processes.
    pub fn rows(&self) -> usize {
        self.view.rows
    }

    /// The most bytes of a long contribution, the same for all processes.
    pub fn long_max(&self) -> usize {
        // Each place may have a contribution and a result, and some is lost between them.
        self.view.memory.area_size() / (4 * memory::PLACES)
    }

    /// Memory for so many bytes that all processes can read, if there is a hole of that size. It has the content of
    /// its last use.
    pub fn allocate(&self, length: usize) -> Option<Block> {
        self.area.allocate(length)
    }

    /// Posts a call of this process. The memory that the record names has to be kept until
    /// [all have finished](Self::finished_by_all) the call.
    ///
    /// # Panics
    /// If the record is too long.
    pub fn post(&self, number: u64, record: &Record<'_>) -> Post {
        let row = self.view.memory.row(self.own);
        match row.posted() {
            (_, true) => return Post::Closed,
            (posted, _) if posted != number => return Post::NoRoom,
            _ if !row::has_place(self.view.memory.rows(self.view.rows), number, Self::PLACES) => {
                return Post::NoRoom;
            }
            _ => {}
        }
        self.view.memory.write_record(self.own, number, record);
        if !row.post(number) {
            return Post::Closed;
        }
        if self.state(number) != CallState::Open {
            self.wake();
        }
        Post::Done
    }

    /// This process takes the result of a call, which is for it alone. Returns false if its row is closed.
    pub fn take(&self, number: u64) -> bool {
        let is_taken = self.view.memory.row(self.own).take(number);
        self.wake();
        is_taken
    }

    /// As [`CallRows::taken`].
    pub fn taken(&self, row: usize, number: u64) -> Taken {
        self.view.taken(row, number)
    }

    fn wake(&self) {
        if self.view.memory.sleepers().load(Ordering::SeqCst) > 0 {
            self.view.memory.ring();
        }
    }

    /// As [`CallRows::state`].
    pub fn state(&self, number: u64) -> CallState {
        self.view.state(number)
    }

    /// The rows that have not posted a call.
    pub fn missing(&self, number: u64) -> impl Iterator<Item = usize> {
        (0..self.rows()).filter(move |&row| self.view.posted(row) <= number)
    }

    /// As [`CallRows::close`].
    pub fn close(&self, row: usize) {
        self.view.close(row);
    }

    /// As [`CallRows::read_call`], as long as this process has not [finished](Self::finish) the call.
    pub fn read_call(&self, row: usize, number: u64, into: &mut Vec<u8>) {
        self.view.read_call(row, number, into);
    }

    /// Copies the contribution of a record, as far as there is room for it, under the same conditions. Returns its
    /// length.
    pub fn read_data(&self, row: usize, number: u64, into: &mut [u8]) -> usize {
        self.view.memory.read_data(row, number, into)
    }

    /// The contribution of a record, under the same conditions.
    pub fn data(&self, row: usize, number: u64) -> &[u8] {
        self.view.data(row, number)
    }

    /// The memory for the common result that a record names, under the same conditions.
    pub fn result(&self, row: usize, number: u64) -> Option<CommonResult<'_>> {
        self.view.memory.result(row, number)
    }

    /// Claims one of so many chunks of a call, under the same conditions, if there is one left.
    pub fn claim(&self, number: u64, count: u32) -> Option<u32> {
        self.view.memory.chunks(number).claim(number, count)
    }

    /// A chunk of a call is finished, and what belongs to it was written into the common result.
    pub fn finish_chunk(&self, number: u64, chunk: u32, count: u32) {
        let chunks = self.view.memory.chunks(number);
        chunks.finish(number, chunk);
        if chunks.are_finished(number, count) {
            self.wake();
        }
    }

    /// Says if a chunk of a call is finished.
    pub fn is_chunk_finished(&self, number: u64, chunk: u32) -> bool {
        self.view.memory.chunks(number).is_finished(number, chunk)
    }

    /// Says if all of so many chunks of a call are finished.
    pub fn are_chunks_finished(&self, number: u64, count: u32) -> bool {
        self.view.memory.chunks(number).are_finished(number, count)
    }

    /// The number of calls that all processes have finished.
    pub fn finished_by_all(&self) -> u64 {
        let rows = self.view.memory.rows(self.rows());
        rows.map(row::Row::done).min().unwrap_or_default()
    }

    /// This process does not read the records of calls before this one any more.
    pub fn finish(&self, calls: u64) {
        self.view.memory.row(self.own).finish(calls);
    }

    /// Waits as long as `is_to_wait` says so, which is asked again when a call is posted by all or a result is taken,
    /// or until the time has come.
    pub fn wait(&self, until: Instant, is_to_wait: impl Fn() -> bool) {
        let begun = Instant::now();
        let sleep_at = (begun + self.spin).min(until);
        while is_to_wait() {
            let now = Instant::now();
            if now >= sleep_at {
                return self.view.memory.sleep(until, is_to_wait);
            }
            // The other may wait for this very processor.
            match self.is_crowded || now > begun + Self::SPIN_ALONE {
                true => thread::yield_now(),
                false => (0..SPINS_PER_LOOK).for_each(|_| std::hint::spin_loop()),
            }
        }
    }

    /// Wakes all processes that wait.
    pub fn ring(&self) {
        self.view.memory.ring();
    }
}

impl CallRows {
    /// The number of rows.
    pub fn count(&self) -> usize {
        self.rows
    }

    /// The state of a call.
    pub fn state(&self, number: u64) -> CallState {
        row::state(self.memory.rows(self.rows), number)
    }

    /// The number of calls that a row has posted.
    pub fn posted(&self, row: usize) -> u64 {
        self.memory.row(row).posted().0
    }

    /// Says if a process has taken the result of a call.
    pub fn taken(&self, row: usize, number: u64) -> Taken {
        self.memory.row(row).taken(number)
    }

    /// The number of calls that some process has finished.
    pub fn finished(&self) -> u64 {
        let rows = self.memory.rows(self.rows);
        rows.map(row::Row::done).max().unwrap_or_default()
    }

    /// A row gets no further record, and its process takes no result.
    pub fn close(&self, row: usize) {
        self.memory.row(row).close();
        self.memory.ring();
    }

    /// Appends what a row has called. The call has to be [`Posted`](CallState::Posted), or the row to have posted it,
    /// and one of the processes, which may be dead, must not have [finished](CallTable::finish) it.
    pub fn read_call(&self, row: usize, number: u64, into: &mut Vec<u8>) {
        self.memory.read_call(row, number, into);
    }

    /// The contribution of a record, under the same conditions.
    pub fn data(&self, row: usize, number: u64) -> &[u8] {
        self.memory.data(row, number)
    }
}

const SPINS_PER_LOOK: u32 = 8;

#[cfg(test)]
mod tests;
