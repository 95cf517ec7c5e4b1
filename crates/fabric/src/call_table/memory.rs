//! The memory of a table: words and bytes that several processes read and write.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::NonNull,
    str::FromStr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use rustix::{
    fs::{OFlags, open},
    thread::futex,
};

use super::row::{Row, Word};
use crate::memfd::SharedMapping;

/// Where another process finds a table: `PID.DESCRIPTOR.MARK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    pid: u32,
    descriptor: u32,
    mark: u64,
}

/// The memory. Nothing that is read from it is to be believed.
#[derive(Debug)]
pub(super) struct TableMemory {
    mapping: SharedMapping,
    /// Of the process that made it, for the others.
    descriptor: OwnedFd,
    mark: u64,
}

impl Word for AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    fn compare_exchange(&self, current: u64, new: u64, ordering: Ordering) -> bool {
        self.compare_exchange(current, new, ordering, Ordering::Relaxed)
            .is_ok()
    }

    fn fetch_or(&self, bits: u64, ordering: Ordering) {
        self.fetch_or(bits, ordering);
    }
}

impl TableMemory {
    pub(super) fn create(rows: usize) -> io::Result<Self> {
        let mut mark = [0; 8];
        getrandom::fill(&mut mark).map_err(io::Error::other)?;
        let mark = u64::from_le_bytes(mark);
        let (descriptor, mapping) = SharedMapping::create("ropewalk-calls", size(rows))?;
        let memory = Self {
            mapping,
            descriptor,
            mark,
        };
        memory.mark().store(mark, Ordering::SeqCst);
        Ok(memory)
    }

    pub(super) fn open(place: &TablePlace, rows: usize) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", place.pid, place.descriptor);
        let descriptor = open(path, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
        let mapping = SharedMapping::of(descriptor.as_fd(), size(rows), true)?;
        let memory = Self {
            mapping,
            descriptor,
            mark: place.mark,
        };
        // Processes of another container have numbers of their own.
        match memory.mark().load(Ordering::SeqCst) == place.mark {
            true => Ok(memory),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "descriptor {} of process {} is another table",
                    place.descriptor, place.pid
                ),
            )),
        }
    }

    pub(super) fn place(&self) -> TablePlace {
        TablePlace {
            pid: std::process::id(),
            descriptor: self.descriptor.as_raw_fd() as u32,
            mark: self.mark,
        }
    }

    fn mark(&self) -> &AtomicU64 {
        // SAFETY: an aligned word inside the mapping, which is never anything but an atomic.
        unsafe { self.at(MARK).cast::<AtomicU64>().as_ref() }
    }

    fn bell(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.at(BELL).cast::<AtomicU32>().as_ref() }
    }

    /// The number of processes' threads that sleep, or were killed while they did.
    pub(super) fn sleepers(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.at(SLEEPERS).cast::<AtomicU32>().as_ref() }
    }

    pub(super) fn row(&self, row: usize) -> &Row<AtomicU64> {
        // SAFETY: as above; a row is made of atomics, and any bytes are some.
        unsafe { self.at(ROWS + row * ROW_SIZE).cast::<Row<AtomicU64>>().as_ref() }
    }

    pub(super) fn rows(&self, rows: usize) -> impl Iterator<Item = &Row<AtomicU64>> {
        (0..rows).map(|row| self.row(row))
    }

    /// Wakes all that sleep.
    pub(super) fn ring(&self) {
        self.bell().fetch_add(1, Ordering::SeqCst);
        // A word of ordinary memory can be waited on always.
        let _ = futex::wake(self.bell(), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps until somebody rings, or the time has come; not if `is_to_sleep` says no, which is asked after those who
    /// ring can know of the sleep.
    pub(super) fn sleep(&self, until: Instant, is_to_sleep: impl Fn() -> bool) {
        self.sleepers().fetch_add(1, Ordering::SeqCst);
        loop {
            let heard = self.bell().load(Ordering::SeqCst);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !is_to_sleep() {
                break;
            }
            let timeout = left.try_into().ok();
            // However it ends, it is looked again.
            let _ = futex::wait(self.bell(), futex::Flags::empty(), heard, timeout.as_ref());
        }
        self.sleepers().fetch_sub(1, Ordering::SeqCst);
    }

    /// Writes the record of a call into its place.
    ///
    /// # Panics
    /// If it is too long.
    pub(super) fn write_record(&self, row: usize, number: u64, call: &[u8], data: &[u8]) {
        assert!(
            call.len() <= CALL_SIZE_MAX && data.len() <= DATA_SIZE_MAX,
            "a record of {} and {} bytes",
            call.len(),
            data.len()
        );
        let record = self.record(row, number);
        let lengths = [call.len() as u32, data.len() as u32];
        // SAFETY: a record's place has room for all three. Who reads it meanwhile by a raw copy gets some bytes, and
        // does not look at them: its process has counted as lost before, or does not keep to the rules.
        unsafe {
            record.cast::<[u32; 2]>().write(lengths);
            record
                .add(CALL)
                .copy_from_nonoverlapping(NonNull::from(call).cast(), call.len());
            record
                .add(DATA)
                .copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
        }
    }

    /// Appends the call of a record.
    pub(super) fn read_call(&self, row: usize, number: u64, into: &mut Vec<u8>) {
        let begin = into.len();
        let length = self.lengths(row, number)[0].min(CALL_SIZE_MAX);
        into.resize(begin + length, 0);
        self.copy(row, number, CALL, &mut into[begin..]);
    }

    /// Copies the data of a record, as far as there is room for it. Returns their length.
    pub(super) fn read_data(&self, row: usize, number: u64, into: &mut [u8]) -> usize {
        let length = self.lengths(row, number)[1].min(DATA_SIZE_MAX);
        let copied = length.min(into.len());
        self.copy(row, number, DATA, &mut into[..copied]);
        length
    }

    fn lengths(&self, row: usize, number: u64) -> [usize; 2] {
        // SAFETY: a record's place begins with them; any bytes are some.
        let lengths = unsafe { self.record(row, number).cast::<[u32; 2]>().read_volatile() };
        lengths.map(|length| length as usize)
    }

    /// Copies the part of a record that begins there.
    fn copy(&self, row: usize, number: u64, begin: usize, into: &mut [u8]) {
        assert!(
            begin + into.len() <= RECORD_SIZE,
            "{} bytes of a record",
            into.len()
        );
        // SAFETY: just checked. Whatever another process writes meanwhile, some bytes are copied.
        unsafe {
            let from = self.record(row, number).add(begin).as_ptr();
            from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
        }
    }

    fn record(&self, row: usize, number: u64) -> NonNull<u8> {
        let rows = (self.mapping.length() - ROWS) / (ROW_SIZE + PLACES * RECORD_SIZE);
        let place = row * PLACES + (number % PLACES as u64) as usize;
        self.at(ROWS + rows * ROW_SIZE + place * RECORD_SIZE)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.mapping.length(), "{offset} is outside the table");
        // SAFETY: just checked.
        unsafe { self.mapping.start().add(offset) }
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.pid, self.descriptor, self.mark)
    }
}

impl FromStr for TablePlace {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, io::Error> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or("a part is missing");
        let mut parse = || -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
            Ok(Self {
                pid: next()?.parse()?,
                descriptor: next()?.parse()?,
                mark: u64::from_str_radix(next()?, 16)?,
            })
        };
        parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

/// Bytes of a table of so many rows.
fn size(rows: usize) -> usize {
    ROWS + rows * (ROW_SIZE + PLACES * RECORD_SIZE)
}

/// Places of each row.
pub(super) const PLACES: usize = 16;
pub(super) const CALL_SIZE_MAX: usize = 504;
pub(super) const DATA_SIZE_MAX: usize = 8192;
const MARK: usize = 0;
const BELL: usize = 128;
const SLEEPERS: usize = 256;
const ROWS: usize = 384;
const ROW_SIZE: usize = size_of::<Row<AtomicU64>>();
/// A record: two lengths, the call, the data.
const CALL: usize = 8;
const DATA: usize = CALL + CALL_SIZE_MAX;
const RECORD_SIZE: usize = DATA + DATA_SIZE_MAX;
