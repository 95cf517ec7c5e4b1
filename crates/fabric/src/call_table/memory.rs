//! The memory of a table: words and bytes that several processes read and write.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::NonNull,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use bytemuck::{Pod, Zeroable};
use rustix::{
    fs::{OFlags, open},
    thread::futex,
};

use super::{
    chunks::Chunks,
    row::{Row, Word},
};
use crate::{
    arena::{Arena, Block},
    memfd::SharedMapping,
    streamed_copy::copy_streamed,
};

/// Where another process finds a table, and the bytes of an area in it: `PID.DESCRIPTOR.MARK.BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    pid: u32,
    descriptor: u32,
    mark: u64,
    area_size: u64,
}

/// The memory of the table of all processes, or of a group of them. Nothing that is read from it is to be believed.
#[derive(Clone, Debug)]
pub(super) struct TableMemory {
    mapping: Arc<SharedMapping>,
    layout: Layout,
    /// Where the section begins.
    begin: usize,
    /// Of the process that made it, for the others.
    descriptor: Arc<OwnedFd>,
    mark: u64,
}

/// Where all is in a table of so many rows: sections and then areas. A section has words of all, rows, the words of
/// shared work, records.
#[derive(Clone, Copy, Debug)]
struct Layout {
    rows: usize,
    /// Bytes of a process's memory for long data: whole pages.
    area_size: usize,
}

/// A call that a process makes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The bytes that all have to call alike, at most [`CALL_SIZE_MAX`](super::CallTable::CALL_SIZE_MAX) of them.
    pub call: &'a [u8],
    /// The contribution.
    pub data: Data<'a>,
    /// The memory for the common result, if this process has it. All write there.
    pub result: Option<&'a Block>,
}

/// A contribution to a call.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// It stands in the record: at most [`DATA_SIZE_MAX`](super::CallTable::DATA_SIZE_MAX) bytes.
    Short(&'a [u8]),
    /// It stands in the process's [memory](super::CallTable::allocate).
    Long(&'a Block),
}

/// The beginning of a record: lengths in bytes, and places from the beginning of the table.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Head {
    call_length: u64,
    data_length: u64,
    /// Zero if the data stand in the record.
    data_at: u64,
    result_length: u64,
    /// Zero if there is none.
    result_at: u64,
}

/// Memory for a result that all processes write, each what it has combined.
#[derive(Clone, Copy, Debug)]
pub struct CommonResult<'a> {
    memory: &'a TableMemory,
    at: usize,
    length: usize,
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
        let create = |area_size| {
            let layout = Layout { rows, area_size };
            SharedMapping::create("ropewalk-calls", layout.size()).map(|made| (layout, made))
        };
        // A process that may not have as much memory, or files as long, gets along with less.
        let [largest, smaller @ ..] = AREA_SIZES;
        let made = smaller
            .into_iter()
            .fold(create(largest), |made, size| made.or_else(|_| create(size)));
        let (layout, (descriptor, mapping)) = made?;
        let memory = Self {
            mapping: Arc::new(mapping),
            layout,
            begin: 0,
            descriptor: Arc::new(descriptor),
            mark,
        };
        memory.name().store(mark, Ordering::SeqCst);
        Ok(memory)
    }

    pub(super) fn open(place: &TablePlace, rows: usize) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", place.pid, place.descriptor);
        let descriptor = open(path, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
        let area_size = usize::try_from(place.area_size).unwrap_or(usize::MAX);
        if !AREA_SIZES.contains(&area_size) {
            let unknown = format!("a table with areas of {area_size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, unknown));
        }
        let layout = Layout { rows, area_size };
        let mapping = SharedMapping::of(descriptor.as_fd(), layout.size(), true)?;
        let memory = Self {
            mapping: Arc::new(mapping),
            layout,
            begin: 0,
            descriptor: Arc::new(descriptor),
            mark: place.mark,
        };
        // Processes of another container have numbers of their own.
        match memory.name().load(Ordering::SeqCst) == place.mark {
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
            area_size: self.layout.area_size as u64,
        }
    }

    /// Bytes of the memory that each process gives out.
    pub(super) fn area_size(&self) -> usize {
        self.layout.area_size
    }

    /// The section of the group with this name and these rows. One that has none gets the first that
    /// is free: sections are not freed, so all processes find the same.
    pub(super) fn section(&self, name: u64, rows: &[usize]) -> Option<Self> {
        if name == 0 {
            return None;
        }
        let claimed = (1..SECTIONS)
            .map(|section| self.of_section(section))
            .find(|found| {
                let word = found.name();
                let is_claimed = word.compare_exchange(0, name, Ordering::SeqCst, Ordering::SeqCst);
                is_claimed.err().is_none_or(|other| other == name)
            })?;
        // All processes of the group write the same.
        for (at, row) in rows.iter().enumerate() {
            claimed.member(at).store(*row as u8, Ordering::Relaxed);
        }
        claimed.members().store(rows.len() as u64, Ordering::SeqCst);
        Some(claimed)
    }

    /// The sections of groups that may have posted something, with names and rows.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u64, Vec<usize>, Self)> {
        let claimed = (1..SECTIONS).map(|section| {
            let found = self.of_section(section);
            let rows = found
                .members()
                .load(Ordering::SeqCst)
                .min(self.layout.rows as u64);
            let members = (0..rows as usize).map(|at| found.member(at).load(Ordering::Relaxed).into());
            (found.name().load(Ordering::SeqCst), members.collect(), found)
        });
        claimed
            .take_while(|(name, ..)| *name != 0)
            .filter(|(_, rows, _): &(_, Vec<usize>, _)| !rows.is_empty())
    }

    fn of_section(&self, section: usize) -> Self {
        Self {
            begin: section * self.layout.section_size(),
            ..self.clone()
        }
    }

    /// The mark of the table, in the section of all; the name of the group in others, or 0 if there is none.
    fn name(&self) -> &AtomicU64 {
        // SAFETY: an aligned word inside the mapping, which is never anything but an atomic.
        unsafe { self.at(self.begin + NAME).cast::<AtomicU64>().as_ref() }
    }

    /// The number of a group's rows, once they are known.
    fn members(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.at(self.begin + MEMBERS).cast::<AtomicU64>().as_ref() }
    }

    /// The row in the section of all of a group's process.
    fn member(&self, at: usize) -> &AtomicU8 {
        // SAFETY: as above.
        unsafe { self.at(self.begin + MEMBER_ROWS + at).cast::<AtomicU8>().as_ref() }
    }

    fn bell(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.at(self.begin + BELL).cast::<AtomicU32>().as_ref() }
    }

    /// The number of processes' threads that sleep, or were killed while they did.
    pub(super) fn sleepers(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.at(self.begin + SLEEPERS).cast::<AtomicU32>().as_ref() }
    }

    pub(super) fn row(&self, row: usize) -> &Row<AtomicU64> {
        let offset = self.begin + self.layout.row(row);
        // SAFETY: as above; a row is made of atomics, and any bytes are some.
        unsafe { self.at(offset).cast::<Row<AtomicU64>>().as_ref() }
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

    /// The memory that the process of a row gives out.
    pub(super) fn area(&self, row: usize) -> io::Result<Arc<Arena>> {
        let begin = self.layout.areas() + row * self.layout.area_size;
        let descriptor = self.descriptor.try_clone()?;
        let range = begin..begin + self.layout.area_size;
        Arena::within(descriptor, Arc::clone(&self.mapping), range)
    }

    /// The words of the work on a call.
    pub(super) fn chunks(&self, number: u64) -> &Chunks<AtomicU64> {
        let place = (number % PLACES as u64) as usize;
        let offset = self.begin + self.layout.chunks() + place * CHUNKS_SIZE;
        // SAFETY: as for a row.
        unsafe { self.at(offset).cast::<Chunks<AtomicU64>>().as_ref() }
    }

    /// Writes the record of a call into its place.
    ///
    /// # Panics
    /// If it is too long.
    pub(super) fn write_record(&self, row: usize, number: u64, record: &Record<'_>) {
        let (short, data_length, data_at) = match record.data {
            Data::Short(bytes) => (bytes, bytes.len(), 0),
            Data::Long(block) => (&[][..], block.len(), block.offset()),
        };
        let call = record.call;
        assert!(
            call.len() <= CALL_SIZE_MAX && short.len() <= DATA_SIZE_MAX,
            "a record of {} and {} bytes",
            call.len(),
            short.len()
        );
        let head = Head {
            call_length: call.len() as u64,
            data_length: data_length as u64,
            data_at: data_at as u64,
            result_length: record.result.map_or(0, |block| block.len()) as u64,
            result_at: record.result.map_or(0, Block::offset) as u64,
        };
        let place = self.record(row, number);
        // SAFETY: a record's place has room for all three. Who reads it meanwhile by a raw copy gets some bytes, and
        // does not look at them: its process has counted as lost before, or does not keep to the rules.
        unsafe {
            place.cast::<Head>().write(head);
            place
                .add(CALL)
                .copy_from_nonoverlapping(NonNull::from(call).cast(), call.len());
            place
                .add(DATA)
                .copy_from_nonoverlapping(NonNull::from(short).cast(), short.len());
        }
    }

    /// Appends the call of a record.
    pub(super) fn read_call(&self, row: usize, number: u64, into: &mut Vec<u8>) {
        let begin = into.len();
        let length = CALL_SIZE_MAX.min(self.head(row, number).call_length as usize);
        into.resize(begin + length, 0);
        let at = self.record_at(row, number) + CALL;
        self.read(at, &mut into[begin..]);
    }

    /// Copies the data of a record, as far as there is room for it. Returns their length.
    pub(super) fn read_data(&self, row: usize, number: u64, into: &mut [u8]) -> usize {
        let (at, length) = self.data_range(row, number);
        let copied = length.min(into.len());
        self.read(at, &mut into[..copied]);
        length
    }

    /// The data of a record.
    pub(super) fn data(&self, row: usize, number: u64) -> &[u8] {
        let (at, length) = self.data_range(row, number);
        // SAFETY: the range was checked. A process writes neither a record nor the memory that it names before all
        // processes have finished the call, or its row is closed and nobody finishes that; the caller has not. (One
        // that does not keep to that has proven that it belongs to the job, and could as well write any other memory
        // of ours, by ptrace.)
        unsafe { std::slice::from_raw_parts(self.at(at).as_ptr(), length) }
    }

    /// Where the data of a record are, inside the table whatever is said there.
    fn data_range(&self, row: usize, number: u64) -> (usize, usize) {
        let head = self.head(row, number);
        let long = self.area_range(head.data_at, head.data_length);
        long.unwrap_or_else(|| {
            let length = DATA_SIZE_MAX.min(head.data_length as usize);
            (self.record_at(row, number) + DATA, length)
        })
    }

    /// The memory for the common result that a record names, if that is some.
    pub(super) fn result(&self, row: usize, number: u64) -> Option<CommonResult<'_>> {
        let head = self.head(row, number);
        let (at, length) = self.area_range(head.result_at, head.result_length)?;
        let memory = self;
        Some(CommonResult { memory, at, length })
    }

    /// A place and a length, if all of that is in the areas.
    fn area_range(&self, at: u64, length: u64) -> Option<(usize, usize)> {
        let (at, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
        let is_inside = at >= self.layout.areas() && at.checked_add(length)? <= self.layout.size();
        is_inside.then_some((at, length))
    }

    fn head(&self, row: usize, number: u64) -> Head {
        // SAFETY: a record's place begins with it; any bytes are some.
        unsafe { self.record(row, number).cast::<Head>().read_volatile() }
    }

    /// Copies what is there.
    fn read(&self, at: usize, into: &mut [u8]) {
        assert!(
            at + into.len() <= self.layout.size(),
            "{} bytes at {at}",
            into.len()
        );
        // SAFETY: just checked. Whatever another process writes meanwhile, some bytes are copied.
        unsafe {
            self.at(at)
                .as_ptr()
                .copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
        }
    }

    fn record(&self, row: usize, number: u64) -> NonNull<u8> {
        self.at(self.record_at(row, number))
    }

    fn record_at(&self, row: usize, number: u64) -> usize {
        self.begin + self.layout.record(row, number)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.mapping.length(), "{offset} is outside the table");
        // SAFETY: just checked.
        unsafe { self.mapping.start().add(offset) }
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            descriptor,
            mark,
            area_size,
        } = self;
        write!(f, "{pid}.{descriptor}.{mark:016x}.{area_size}")
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
                area_size: next()?.parse()?,
            })
        };
        parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

/// Places are from the beginning of a section, those of areas from the beginning of the table.
impl Layout {
    fn row(self, row: usize) -> usize {
        ROWS + row * ROW_SIZE
    }

    fn chunks(self) -> usize {
        self.row(self.rows)
    }

    fn record(self, row: usize, number: u64) -> usize {
        let place = row * PLACES + (number % PLACES as u64) as usize;
        self.chunks() + PLACES * CHUNKS_SIZE + place * RECORD_SIZE
    }

    fn section_size(self) -> usize {
        self.record(self.rows, 0).next_multiple_of(PAGE)
    }

    fn areas(self) -> usize {
        SECTIONS * self.section_size()
    }

    fn size(self) -> usize {
        self.areas() + self.rows * self.area_size
    }
}

impl CommonResult<'_> {
    /// Copies bytes into it, to the place `at`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: just checked. It is no memory of a value: all only copy into it and out of it.
        unsafe { copy_streamed(bytes, self.memory.at(self.at + at)) };
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        self.memory.read(self.at + at, into);
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    fn check(&self, at: usize, length: usize) {
        assert!(
            at.checked_add(length).is_some_and(|end| end <= self.length),
            "{length} bytes at {at} of a result of {}",
            self.length
        );
    }
}

/// Places of each row.
pub(super) const PLACES: usize = 16;
pub(super) const CALL_SIZE_MAX: usize = 504;
pub(super) const DATA_SIZE_MAX: usize = 8192;
/// The first that can be had is the size of each process's memory for long data. Only what is touched takes memory.
const AREA_SIZES: [usize; 4] = [64 << 30, 4 << 30, 256 << 20, 0];
/// The section of all processes, and those of 32 groups. What is not used takes no memory.
pub(super) const SECTIONS: usize = 33;
const NAME: usize = 0;
const MEMBERS: usize = 64;
const BELL: usize = 128;
const SLEEPERS: usize = 256;
const MEMBER_ROWS: usize = 384;
const ROWS: usize = MEMBER_ROWS + super::CallTable::ROWS_MAX;
const ROW_SIZE: usize = size_of::<Row<AtomicU64>>();
const CHUNKS_SIZE: usize = size_of::<Chunks<AtomicU64>>();
/// A record: its head, the call, the data.
const CALL: usize = size_of::<Head>();
const DATA: usize = CALL + CALL_SIZE_MAX;
const RECORD_SIZE: usize = (DATA + DATA_SIZE_MAX).next_multiple_of(64);
const PAGE: usize = 4096;
