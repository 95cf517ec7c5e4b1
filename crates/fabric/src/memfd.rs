//! Memory behind a descriptor: it can be handed to another process, and outlives the one that filled it.

use std::{
    fs::File,
    io,
    ops::{Deref, DerefMut},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use rustix::{
    fs::{
        FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
        memfd_create,
    },
    io::Errno,
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap},
    process::{Resource, getrlimit},
};

/// A memfd of fixed length that this process alone writes. Its descriptor may be handed to others
/// ([`HeldMemfd`]), who see what is in it, also what is written later.
#[derive(Debug)]
pub struct WritableMemfd {
    descriptor: OwnedFd,
    mapping: Mapping,
}

impl WritableMemfd {
    /// A memfd of `capacity` bytes that begins with a copy of `parts`, one after the other; the rest is zero. `name`
    /// shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    ///
    /// # Panics
    /// If the parts are longer than `capacity`.
    pub fn with(name: &str, parts: &[&[u8]], capacity: usize) -> io::Result<Self> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        assert!(length <= capacity, "{length} bytes for a memfd of {capacity}");
        let file = File::from(create(name, capacity)?);
        // Pages that are written by the system are neither cleared before nor brought one by one.
        let mut offset = 0;
        for part in parts {
            file.write_all_at(part, offset)?;
            offset += part.len() as u64;
        }
        let descriptor = OwnedFd::from(file);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(descriptor.as_fd(), capacity, protection)?;
        // From now on nobody can map it for writing any more.
        fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE)?;
        Ok(Self { descriptor, mapping })
    }

    /// A memfd of `capacity` zero bytes that processes forked off this one do not have: an access kills them by
    /// SIGSEGV. Its pages come when they are touched. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// If the system is out of descriptors or address space, or the process may not make files of that size.
    pub fn unforked(name: &str, capacity: usize) -> io::Result<Self> {
        let memory = Self::with(name, &[], capacity)?;
        memory.mapping.keep_from_children()?;
        Ok(memory)
    }

    /// Writes a word, in little-endian order. Who sees it sees what was written before, and nothing that is written
    /// later is there before it: so also if this process is killed in between.
    ///
    /// # Panics
    /// If it is not inside the memory, at a multiple of 8 bytes.
    pub fn store(&mut self, at: usize, word: u64) {
        let place = self[at..].first_chunk_mut::<{ size_of::<u64>() }>();
        let place = place
            .expect("a word is inside the memory")
            .as_mut_ptr()
            .cast::<u64>();
        assert!(
            place.is_aligned(),
            "a word is at a multiple of 8 bytes, and not at {at}"
        );
        // SAFETY: the place is aligned, valid for as long as `self` is borrowed, and reached by nothing else here.
        // Other processes only read it.
        let place = unsafe { AtomicU64::from_ptr(place) };
        place.swap(word.to_le(), Ordering::AcqRel);
    }

    /// Makes the memory read-only, for pointers from before too: a write kills the process by SIGSEGV.
    ///
    /// # Errors
    /// If the system refuses; the memory is returned with the reason.
    pub fn into_read_only(self) -> Result<ReadOnlyMemfd, (Self, io::Error)> {
        let Self { descriptor, mapping } = self;
        match mapping.protect(MprotectFlags::READ) {
            Ok(()) => Ok(ReadOnlyMemfd { descriptor, mapping }),
            Err(error) => Err((Self { descriptor, mapping }, error)),
        }
    }
}

impl AsFd for WritableMemfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Deref for WritableMemfd {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping covers `length` readable bytes for as long as `self` lives, and the seal leaves it the
        // only one by which they can be written: by `&mut self`.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

impl DerefMut for WritableMemfd {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes this the only view of the bytes here.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

/// A [`WritableMemfd`] that nobody can write until it is [made writable](Self::into_writable) again.
#[derive(Debug)]
pub struct ReadOnlyMemfd {
    descriptor: OwnedFd,
    mapping: Mapping,
}

impl ReadOnlyMemfd {
    /// Makes the memory writable again.
    ///
    /// # Errors
    /// If the system refuses; the memory is returned with the reason.
    pub fn into_writable(self) -> Result<WritableMemfd, (Self, io::Error)> {
        let Self { descriptor, mapping } = self;
        match mapping.protect(MprotectFlags::READ | MprotectFlags::WRITE) {
            Ok(()) => Ok(WritableMemfd { descriptor, mapping }),
            Err(error) => Err((Self { descriptor, mapping }, error)),
        }
    }
}

impl AsFd for ReadOnlyMemfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Deref for ReadOnlyMemfd {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping covers `length` readable bytes for as long as `self` lives. It cannot be written, the
        // seal leaves no other one that can, and `into_writable` takes `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

/// A [`WritableMemfd`] of another process, kept for the time when that process is no more.
#[derive(Debug)]
pub struct HeldMemfd {
    descriptor: OwnedFd,
    length: usize,
}

impl HeldMemfd {
    /// Keeps the memory that a descriptor stands for.
    ///
    /// # Errors
    /// If it is not a memfd sealed against resizing and against new writers: its content could then change or vanish
    /// under its readers.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let seals = fcntl_get_seals(&descriptor)?;
        let needed = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW;
        if !seals.contains(needed) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not sealed against resizing and other writers; hand over that of a `WritableMemfd`",
            ));
        }
        let length = usize::try_from(fstat(&descriptor)?.st_size).map_err(io::Error::other)?;
        Ok(Self { descriptor, length })
    }

    /// How long the memory is, in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The bytes that the process that wrote them has left: the memory itself, or a copy if a process that
    /// was forked off that one could still write it.
    ///
    /// # Errors
    /// If the system is out of memory or address space.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match fcntl_add_seals(&self.descriptor, SealFlags::WRITE) {
            Ok(()) => {
                let mapping = Mapping::new(self.descriptor.as_fd(), self.length, ProtFlags::READ)?;
                Ok(Bytes::from_owner(FrozenMapping(mapping)))
            }
            Err(Errno::BUSY) => {
                let mut copy = vec![0; self.length];
                File::from(self.descriptor).read_exact_at(&mut copy, 0)?;
                Ok(copy.into())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A memfd that nobody can write any more, mapped for reading.
#[derive(Debug)]
struct FrozenMapping(Mapping);

impl AsRef<[u8]> for FrozenMapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping covers `length` readable bytes for as long as `self` lives; the write seal
        // means that no process can change them and the shrink seal that they stay there.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.length) }
    }
}

/// A memfd of `length` zero bytes that keeps its length: nobody can shrink it under a reader and so kill that reader
/// with SIGBUS.
fn create(name: &str, length: usize) -> io::Result<OwnedFd> {
    // To exceed this limit would not fail but kill us.
    if (getrlimit(Resource::Fsize).current).is_some_and(|largest| largest < length as u64) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{length} bytes of shared memory are more than a file may have; raise `ulimit -f`"),
        ));
    }
    let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&descriptor, length as u64)?;
    fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(descriptor)
}

/// Memory that other processes write at the same time: it is reached through raw pointers only, and nothing in it
/// is to be believed.
#[derive(Debug)]
pub(crate) struct SharedMapping(Mapping);

impl SharedMapping {
    /// A new memfd of `length` zero bytes that keeps its length for ever, mapped for reading and writing.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub(crate) fn create(name: &str, length: usize) -> io::Result<(OwnedFd, Self)> {
        let descriptor = create(name, length)?;
        let mapping = Self::of(descriptor.as_fd(), length, true)?;
        Ok((descriptor, mapping))
    }

    /// Maps a memfd that another process made, for reading and, if `writable`, for writing. It may be longer than
    /// `length`.
    ///
    /// # Errors
    /// If the descriptor is not a memfd in ordinary memory sealed against shrinking, of at least that length (an
    /// access could then kill us with SIGBUS), or cannot be mapped.
    pub(crate) fn of(descriptor: BorrowedFd<'_>, length: usize, writable: bool) -> io::Result<Self> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        // Only files in tmpfs and hugetlbfs have seals, and the latter can run out of pages under a reader.
        if !fcntl_get_seals(descriptor)?.contains(SealFlags::SHRINK) {
            return invalid(
                "the descriptor is not sealed against shrinking; seal the memfd before handing it on",
            );
        }
        if fstatfs(descriptor)?.f_type != Self::TMPFS {
            return invalid("the descriptor is of no ordinary memory; make the memfd without huge pages");
        }
        if u64::try_from(fstat(descriptor)?.st_size).is_ok_and(|size| size < length as u64) {
            return invalid("the memory is shorter than what is said to be in it");
        }
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        let mapping = Mapping::new(descriptor, length, protection)?;
        mapping.leave_out_of_dumps()?;
        Ok(Self(mapping))
    }

    /// Lets what was mapped for reading only be written, too.
    ///
    /// # Errors
    /// If the descriptor that it was mapped from is not open for writing, or sealed against it.
    pub(crate) fn allow_writing(&mut self) -> io::Result<()> {
        self.0.protect(MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// The magic number of tmpfs, see statfs(2).
    const TMPFS: FsWord = 0x0102_1994;

    /// Where it begins: at a page, and valid for `length` bytes for as long as this lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// How long it is, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.0.length
    }
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; access goes through the borrow rules of the
// types above.
unsafe impl Send for Mapping {}
// SAFETY: as above: shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(descriptor: BorrowedFd<'_>, length: usize, protection: ProtFlags) -> io::Result<Self> {
        if length == 0 {
            return Ok(Self {
                start: NonNull::dangling(),
                length,
            });
        }
        // SAFETY: a new mapping at an address of the kernel's choice aliases no memory of ours.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                descriptor,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, length })
    }

    /// Says what may be done with the memory from now on.
    fn protect(&self, protection: MprotectFlags) -> io::Result<()> {
        if self.length > 0 {
            // SAFETY: this is the whole of a mapping that `new` made. It stays readable and as it is; an access that is
            // not allowed any more ends the process, and does no more.
            unsafe { mprotect(self.start.as_ptr().cast(), self.length, protection)? };
        }
        Ok(())
    }

    /// Leaves the mapping out of core dumps. These would bring and write every page of it, also those that nobody has
    /// touched.
    fn leave_out_of_dumps(&self) -> io::Result<()> {
        if self.length > 0 {
            // SAFETY: this is the whole of a mapping that `new` made, and nothing changes for processes.
            unsafe { madvise(self.start.as_ptr().cast(), self.length, Advice::LinuxDontDump)? };
        }
        Ok(())
    }

    /// Leaves the mapping out of what processes get that are forked off this one.
    fn keep_from_children(&self) -> io::Result<()> {
        if self.length > 0 {
            // SAFETY: this is the whole of a mapping that `new` made, and nothing changes for this process. In a child
            // nothing of ours uses it: an access there ends the child, and does no more.
            unsafe { madvise(self.start.as_ptr().cast(), self.length, Advice::LinuxDontFork)? };
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: this is the whole of a mapping that `new` made; no borrow of it outlives its owner.
            // A failure would mean that it is not mapped, in which case there is nothing to undo.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who holds the memory sees what was written last, once its writer is gone, and nobody can write it then.
    #[test]
    fn held_memory_is_what_was_written_last() {
        let mut memory = WritableMemfd::with("test", &[b"head", &[7; 4000]], 5000).unwrap();
        assert_eq!((&memory[..5], memory[4999]), (&b"head\x07"[..], 0));
        memory[4999] = 42;
        let descriptor = memory.as_fd().try_clone_to_owned().unwrap();
        assert!(rustix::io::write(&descriptor, b"x").is_err());
        let held = HeldMemfd::of(descriptor).unwrap();
        assert_eq!(held.length(), 5000);
        drop(memory);
        let bytes = held.into_bytes().unwrap();
        assert_eq!((&bytes[..4], bytes[4003], bytes[4999]), (&b"head"[..], 7, 42));
    }

    /// As long as somebody can write the memory who holds it gets a copy, which does not change.
    #[test]
    fn memory_that_may_still_be_written_is_copied() {
        let mut memory = WritableMemfd::with("test", &[&[1; 100]], 100).unwrap();
        let held = HeldMemfd::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let bytes = held.into_bytes().unwrap();
        memory.fill(2);
        assert_eq!(bytes, &[1; 100][..]);
    }

    /// Memory that is read-only has the same place and bytes, for who holds it too, and is writable again afterwards.
    #[test]
    fn read_only_memory_is_writable_again() {
        let mut memory = WritableMemfd::unforked("test", 5000).unwrap();
        memory[4999] = 42;
        let place = memory.as_ptr();
        let read_only = memory.into_read_only().unwrap();
        let held = HeldMemfd::of(read_only.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(
            (read_only.as_ptr(), read_only[4998], read_only[4999]),
            (place, 0, 42)
        );
        let mut memory = read_only.into_writable().unwrap();
        memory[4998] = 41;
        let read_only = memory.into_read_only().unwrap();
        assert!(rustix::io::write(read_only.as_fd(), b"x").is_err());
        drop(read_only);
        let bytes = held.into_bytes().unwrap();
        assert_eq!(bytes[4998..], [41, 42]);
    }

    /// A write into read-only memory by a pointer from before kills the process; once it is writable again it does not.
    #[test]
    fn stray_writes_kill() {
        const STRAY: &str = "ROPEWALK_TEST_STRAY";
        match std::env::var(STRAY).as_deref() {
            Ok("write") => {
                let mut memory = WritableMemfd::unforked("test", 5000).unwrap();
                let place = memory.as_mut_ptr();
                let _read_only = memory.into_read_only().unwrap();
                // SAFETY: this is not sound. The memory is mapped, and read-only: the write must kill this process.
                unsafe { place.write_volatile(1) };
            }
            Ok("nothing") => {
                let mut memory = WritableMemfd::unforked("test", 5000).unwrap();
                let place = memory.as_mut_ptr();
                let _memory = memory.into_read_only().unwrap().into_writable().unwrap();
                // SAFETY: the memory is mapped for writing, and nobody has a reference to it.
                unsafe { place.write_volatile(1) };
            }
            _ => {
                let name = "memfd::tests::stray_writes_kill";
                for (what, signal) in [("write", Some(11)), ("nothing", None)] {
                    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
                    let again = again.args([name, "--exact"]).env(STRAY, what);
                    let status = again.output().unwrap().status;
                    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), signal);
                    assert_eq!(status.success(), signal.is_none());
                }
            }
        }
    }

    /// A child that is forked off does not have the memory of a buffer, in which it could write.
    #[test]
    fn children_do_not_have_unforked_memory() {
        let memory = WritableMemfd::unforked("roots-only", 5000).unwrap();
        let shared = WritableMemfd::with("for-all", &[], 5000).unwrap();
        let maps = || std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = |name: &str| {
            let maps = maps();
            let of_mapping = maps.split(name).nth(1).unwrap();
            let flags = of_mapping.lines().find_map(|line| line.strip_prefix("VmFlags:"));
            flags.unwrap().to_owned()
        };
        // See proc_pid_smaps(5): "dc" says that the area is not copied on fork.
        assert!(flags("memfd:roots-only").split(' ').any(|flag| flag == "dc"));
        assert!(!flags("memfd:for-all").split(' ').any(|flag| flag == "dc"));
        drop((memory, shared));
    }

    /// No bytes are memory too.
    #[test]
    fn empty_memory_can_be_held() {
        let memory = WritableMemfd::with("test", &[], 0).unwrap();
        let held = HeldMemfd::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        drop(memory);
        assert!(held.into_bytes().unwrap().is_empty());
    }

    /// A descriptor that others could still map for writing is refused.
    #[test]
    fn memory_with_other_writers_is_refused() {
        let (descriptor, _mapping) = SharedMapping::create("test", 100).unwrap();
        assert!(HeldMemfd::of(descriptor).is_err());
        let file = File::open("/proc/self/exe").unwrap();
        assert!(HeldMemfd::of(file.into()).is_err());
    }

    /// Both who made shared memory and who was given it see each other's writes.
    #[test]
    fn shared_memory_is_shared() {
        let (descriptor, ours) = SharedMapping::create("test", 8192).unwrap();
        let theirs = SharedMapping::of(descriptor.as_fd(), 8192, true).unwrap();
        // SAFETY: both mappings are 8192 bytes long, and no other thread has them.
        unsafe {
            ours.start().add(8191).write_volatile(42);
            assert_eq!(theirs.start().add(8191).read_volatile(), 42);
        }
    }

    /// A core dump does not bring the pages of a sparse mapping.
    #[test]
    fn shared_memory_is_not_dumped() {
        let (_descriptor, mapping) = SharedMapping::create("test-undumped", 1 << 40).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", mapping.start().as_ptr() as usize);
        let entry = &maps[maps.find(&begin).unwrap()..];
        let flags = entry.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }

    /// Memory whose length may change, or is too short, or is none, is refused: no access to it could be safe.
    #[test]
    fn memory_that_may_vanish_is_refused() {
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 8192).unwrap();
        assert!(SharedMapping::of(unsealed.as_fd(), 8192, true).is_err());
        let (short, _mapping) = SharedMapping::create("test", 4096).unwrap();
        assert!(SharedMapping::of(short.as_fd(), 8192, true).is_err());
        let file = File::open("/proc/self/exe").unwrap();
        assert!(SharedMapping::of(file.as_fd(), 10, false).is_err());
    }
}
