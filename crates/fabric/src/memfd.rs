//! Memory behind a descriptor: it can be handed to another process, and outlives the one that filled it.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
};

use rustix::{
    fs::{
        FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
        memfd_create,
    },
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap},
};

/// A memfd of fixed length, mapped for writing by the one process that fills it.
#[derive(Debug)]
pub struct WritableMemfd {
    descriptor: OwnedFd,
    mapping: Mapping,
}

impl WritableMemfd {
    /// A memfd of `length` zero bytes. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub fn create(name: &str, length: usize) -> io::Result<Self> {
        let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, length as u64)?;
        // Whoever maps it may rely on its length: nobody can shrink it under a reader and so kill that
        // reader with SIGBUS.
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
        let mapping = Mapping::new(descriptor.as_fd(), length, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { descriptor, mapping })
    }

    /// Ends the writing: seals the memory against any further write and maps it for reading.
    ///
    /// # Errors
    /// If the kernel refuses the seal or the mapping.
    pub fn freeze(self) -> io::Result<(OwnedFd, ReadOnlyMapping)> {
        let Self { descriptor, mapping } = self;
        let length = mapping.length;
        drop(mapping);
        fcntl_add_seals(&descriptor, SealFlags::WRITE | SealFlags::SEAL)?;
        let mapping = Mapping::new(descriptor.as_fd(), length, ProtFlags::READ)?;
        Ok((descriptor, ReadOnlyMapping(mapping)))
    }
}

impl Deref for WritableMemfd {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping covers `length` readable bytes for as long as `self` lives, and nobody else
        // has the descriptor before `freeze`, so that only `&mut self` can write them.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

impl DerefMut for WritableMemfd {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes this the only view of the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

/// A frozen memfd, mapped for reading: its bytes never change again, whoever holds it.
#[derive(Debug)]
pub struct ReadOnlyMapping(Mapping);

impl ReadOnlyMapping {
    /// Maps a memfd that another process froze.
    ///
    /// # Errors
    /// If the descriptor is not a memfd sealed against writing, shrinking and growing (its content could then
    /// change or vanish under us), or cannot be mapped.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let needed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        let seals = fcntl_get_seals(descriptor)?;
        if !seals.contains(needed) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not sealed against writing and resizing; freeze the memfd before handing it on",
            ));
        }
        let length = usize::try_from(fstat(descriptor)?.st_size).map_err(io::Error::other)?;
        Ok(Self(Mapping::new(descriptor, length, ProtFlags::READ)?))
    }
}

impl AsRef<[u8]> for ReadOnlyMapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping covers `length` readable bytes for as long as `self` lives; the write seal
        // means that no process can change them and the shrink seal that they stay there.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.length) }
    }
}

/// Memory that other processes write at the same time: it is reached through raw pointers only, and nothing in it
/// is to be believed.
#[derive(Debug)]
pub(crate) struct SharedMapping(Mapping);

// The shm provider is to take it up.
#[allow(dead_code)]
impl SharedMapping {
    /// A new memfd of `length` zero bytes that keeps its length for ever, mapped for reading and writing.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub(crate) fn create(name: &str, length: usize) -> io::Result<(OwnedFd, Self)> {
        let WritableMemfd { descriptor, mapping } = WritableMemfd::create(name, length)?;
        Ok((descriptor, Self(mapping)))
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
        Ok(Self(Mapping::new(descriptor, length, protection)?))
    }

    /// Lets what was mapped for reading only be written, too.
    ///
    /// # Errors
    /// If the descriptor that it was mapped from is not open for writing, or sealed against it.
    pub(crate) fn allow_writing(&mut self) -> io::Result<()> {
        let start = self.0.start.as_ptr().cast();
        // SAFETY: the range is a mapping of ours, whose bytes nobody reaches but through raw pointers; more may be
        // done with it than before.
        unsafe { mprotect(start, self.0.length, MprotectFlags::READ | MprotectFlags::WRITE)? };
        Ok(())
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

    /// What was written before the freeze is read after it, through any descriptor, and cannot be written.
    #[test]
    fn frozen_memory_is_readable_and_immutable() {
        let mut memory = WritableMemfd::create("test", 5000).unwrap();
        memory[4999] = 42;
        let (descriptor, mapping) = memory.freeze().unwrap();
        assert_eq!(mapping.as_ref()[4999], 42);
        assert_eq!(
            ReadOnlyMapping::of(descriptor.as_fd()).unwrap().as_ref().len(),
            5000
        );
        assert!(rustix::io::write(&descriptor, b"x").is_err());
    }

    /// A descriptor whose content may still change is refused.
    #[test]
    fn unsealed_memory_is_refused() {
        let memory = WritableMemfd::create("test", 100).unwrap();
        assert!(ReadOnlyMapping::of(memory.descriptor.as_fd()).is_err());
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

    /// Memory whose length may change, or is too short, or is none, is refused: no access to it could be safe.
    #[test]
    fn memory_that_may_vanish_is_refused() {
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 8192).unwrap();
        assert!(SharedMapping::of(unsealed.as_fd(), 8192, true).is_err());
        let (short, _mapping) = SharedMapping::create("test", 4096).unwrap();
        assert!(SharedMapping::of(short.as_fd(), 8192, true).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(SharedMapping::of(file.as_fd(), 10, false).is_err());
    }
}
