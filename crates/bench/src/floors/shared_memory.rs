//! The bare means of the operating system between processes of one host: mapped memory, reading another
//! process's memory, and a mutex that tells of its owner's death.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use anyhow::Context;
use ropewalk_rpc::Buffer;
use rustix::{
    fs::{MemfdFlags, fstat, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use serde::{Deserialize, Serialize};

/// Memory that two processes share: one makes it, the other opens it by its [`Place`].
#[derive(Debug)]
pub(crate) struct SharedMemory {
    descriptor: OwnedFd,
    start: NonNull<u8>,
    length: usize,
}

/// Where a process of this host keeps shared memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    process: u32,
    descriptor: i32,
}

/// A run of bytes in the memory of a process of this host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ForeignBytes {
    process: u32,
    address: u64,
    length: u64,
}

/// The fate of the owner of a robust mutex: it died, or it unlocked the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Died,
    Unlocked,
}

impl SharedMemory {
    /// Zeroed memory.
    pub(crate) fn create(length: usize) -> anyhow::Result<Self> {
        let descriptor = memfd_create("ropewalk-bench", MemfdFlags::CLOEXEC).context("memfd_create")?;
        ftruncate(&descriptor, length as u64).context("ftruncate of a memfd")?;
        Self::map(descriptor)
    }

    /// The memory that another process made.
    pub(crate) fn open(place: Place) -> anyhow::Result<Self> {
        let path = format!("/proc/{}/fd/{}", place.process, place.descriptor);
        let file = File::options().read(true).write(true).open(&path);
        Self::map(file.with_context(|| format!("cannot open {path}"))?.into())
    }

    /// By which another process of this host opens it.
    pub(crate) fn place(&self) -> Place {
        Place {
            process: std::process::id(),
            descriptor: self.descriptor.as_raw_fd(),
        }
    }

    /// The memory as words that both processes read and write.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `length` bytes from a page border, lives as long as `self`, is nowhere
        // borrowed otherwise, and any bits are valid for an `AtomicU64`.
        unsafe { std::slice::from_raw_parts(self.start.cast().as_ptr(), self.length / 8) }
    }

    /// Copies the start of the memory as fast as the machine does.
    ///
    /// # Panics
    /// If it is shorter than `into`.
    pub(crate) fn copy_to(&self, into: &mut [u8]) {
        assert!(into.len() <= self.length, "{} > {}", into.len(), self.length);
        // SAFETY: both ranges are whole, as asserted, and `into` is exclusive memory of this process. Nobody
        // writes the shared one meanwhile: its maker filled it before it told where it is.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    /// Copies all of the memory, one piece after the other, to the same place.
    pub(crate) fn copy_in_pieces(&self, piece: &mut [u8]) {
        let mut done = 0;
        while done < self.length {
            let length = piece.len().min(self.length - done);
            // SAFETY: `length` bytes from `done` on are inside the mapping, and inside `piece`, which is exclusive
            // memory of this process. Nobody writes the shared one meanwhile, as for `copy_to`.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.as_ptr().add(done), piece.as_mut_ptr(), length)
            };
            std::hint::black_box(&mut *piece);
            done += length;
        }
    }

    /// Makes a robust mutex of the memory and locks it, for as long as this thread lives.
    pub(crate) fn lock_robust(&self) -> io::Result<()> {
        let mutex = self.mutex();
        // SAFETY: `mutex` is zeroed writable memory, large enough and aligned, that nobody else knows yet;
        // the attributes are initialised before use and destroyed once. The mapping is never unmapped while
        // the mutex is locked: the caller keeps it for good.
        unsafe {
            let mut attributes = std::mem::zeroed();
            done(libc::pthread_mutexattr_init(&mut attributes))?;
            let made = done(libc::pthread_mutexattr_setpshared(
                &mut attributes,
                libc::PTHREAD_PROCESS_SHARED,
            ))
            .and_then(|()| {
                done(libc::pthread_mutexattr_setrobust(
                    &mut attributes,
                    libc::PTHREAD_MUTEX_ROBUST,
                ))
            })
            .and_then(|()| done(libc::pthread_mutex_init(mutex, &attributes)));
            libc::pthread_mutexattr_destroy(&mut attributes);
            made?;
            done(libc::pthread_mutex_lock(mutex))
        }
    }

    /// Waits until the owner of the mutex dies or unlocks it. The mutex is free afterwards: a robust one that is locked
    /// stands in a list of this thread, and its memory may be unmapped.
    pub(crate) fn wait_for_owner(&self) -> io::Result<Owner> {
        let mutex = self.mutex();
        // SAFETY: the memory holds a mutex that another process initialised, shared and robust, before it told
        // where it is. It is made consistent and unlocked only after this thread has locked it.
        unsafe {
            let owner = match libc::pthread_mutex_lock(mutex) {
                libc::EOWNERDEAD => {
                    done(libc::pthread_mutex_consistent(mutex))?;
                    Owner::Died
                }
                code => done(code).map(|()| Owner::Unlocked)?,
            };
            done(libc::pthread_mutex_unlock(mutex))?;
            Ok(owner)
        }
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        assert!(
            self.length >= size_of::<libc::pthread_mutex_t>(),
            "{}",
            self.length
        );
        self.start.cast().as_ptr()
    }

    fn map(descriptor: OwnedFd) -> anyhow::Result<Self> {
        let length = usize::try_from(fstat(&descriptor)?.st_size)?;
        // SAFETY: a new mapping at an address of the kernel's choice aliases no memory of ours. The bench's own
        // processes, which are the only ones that have the descriptor, never shrink it.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                descriptor.as_fd(),
                0,
            )
        };
        let start = start.context("cannot map a memfd")?;
        Ok(Self {
            descriptor,
            start: NonNull::new(start.cast()).context("mmap returned address 0")?,
            length,
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this is the whole of the mapping that `map` made; no borrow of it outlives its owner. A
        // failure would mean that it is not mapped, in which case there is nothing to undo.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for SharedMemory {}

impl ForeignBytes {
    /// Bytes of this process, for others to read.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            process: std::process::id(),
            address: bytes.as_ptr() as u64,
            length: bytes.len() as u64,
        }
    }

    /// Reads them with `process_vm_readv`.
    pub(crate) fn read(self, into: &mut Buffer) -> io::Result<()> {
        assert!(
            into.len() as u64 <= self.length,
            "{} > {}",
            into.len(),
            self.length
        );
        let mut done = 0;
        while done < into.len() {
            let left = &mut into[done..];
            let local = libc::iovec {
                iov_base: left.as_mut_ptr().cast(),
                iov_len: left.len(),
            };
            let remote = libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut((self.address as usize) + done),
                iov_len: left.len(),
            };
            // SAFETY: the kernel writes at most `left.len()` bytes into `left`, which is exclusively ours; what
            // it reads is not of this process, and it fails if there is nothing to read.
            let read = unsafe { libc::process_vm_readv(self.process as i32, &local, 1, &remote, 1, 0) };
            match usize::try_from(read) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }
}

/// The result that a function of the pthread family returned.
fn done(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// Bytes written through one mapping are read through another, and as foreign bytes.
    #[test]
    fn shared_and_foreign_bytes_are_the_ones_written() {
        let made = SharedMemory::create(4096).unwrap();
        let opened = SharedMemory::open(made.place()).unwrap();
        made.words()[511].store(u64::from_le_bytes(*b"ropewalk"), Ordering::Release);
        let mut bytes = vec![0; 4096];
        opened.copy_to(&mut bytes);
        assert_eq!(&bytes[4088..], b"ropewalk");
        let mut read = Buffer::zeroed(4096);
        // A process may be forbidden to read even itself; there is nothing to show then.
        match ForeignBytes::of(&bytes).read(&mut read) {
            Ok(()) => assert_eq!(*read, bytes),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    /// A mutex whose owner ends while it holds it tells so to whoever waits for it.
    #[test]
    fn robust_mutexes_tell_of_their_owners_death() {
        let memory = SharedMemory::create(4096).unwrap();
        let waiting = SharedMemory::open(memory.place()).unwrap();
        let kept = std::thread::spawn(move || {
            memory.lock_robust().unwrap();
            memory
        });
        let _memory = kept.join().unwrap();
        assert_eq!(waiting.wait_for_owner().unwrap(), Owner::Died);
    }
}
