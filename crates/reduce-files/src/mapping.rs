//! Files as memory that may be taken away.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    io,
    ops::Range,
    os::fd::AsFd,
    ptr,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A file in this process's memory, to be read.
///
/// Reading memory of a file that was cut, or whose disk fails, is a signal (SIGBUS) and not an error. While a range is
/// [lent](Self::lend), the handler puts zeros in its place, and the loan ends with an error.
#[derive(Debug)]
pub(super) struct Mapping {
    address: *mut c_void,
    length: usize,
    /// Up to here the kernel was asked to map pages.
    populated: AtomicUsize,
    /// Zeros stand in the place of some pages.
    is_broken: AtomicBool,
}

// SAFETY: the memory is only read, and belongs to the mapping alone until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes of a file.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn new(file: &File, length: usize) -> io::Result<Self> {
        catch_faults();
        // SAFETY: the system chooses an address that nobody uses.
        let address = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file.as_fd(),
                0,
            )
        }?;
        Ok(Self {
            address,
            length,
            populated: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        })
    }

    /// Lends a part of the file. Its bytes may change meanwhile if others write the file.
    ///
    /// # Errors
    /// If a part of it is not there any more, or cannot be read from the disk. The borrower has then got zeros.
    ///
    /// # Panics
    /// If the mapping is shorter.
    pub(super) fn lend<R>(&self, range: Range<usize>, borrower: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "{range:?} of {} bytes",
            self.length
        );
        let _alone = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = self.address as usize;
        LENT_BEGIN.store(begin, Ordering::SeqCst);
        LENT_END.store(begin + self.length, Ordering::SeqCst);
        HAS_FAULTED.store(false, Ordering::SeqCst);
        self.populate(&range);
        // SAFETY: the range is part of the mapping, which is readable and lives as long as `self`. Others may write the
        // file meanwhile; any bytes are bytes, and the borrower keeps none of them.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.address.cast::<u8>().add(range.start),
                range.end - range.start,
            )
        };
        let returned = borrower(bytes);
        LENT_END.store(0, Ordering::SeqCst);
        let has_faulted = HAS_FAULTED.load(Ordering::SeqCst);
        match self.is_broken.fetch_or(has_faulted, Ordering::SeqCst) || has_faulted {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(returned),
        }
    }

    /// Has the kernel map the pages of a window that begins here all at once: one page after the other takes longer
    /// than to read them.
    fn populate(&self, range: &Range<usize>) {
        if range.end <= self.populated.load(Ordering::Relaxed) {
            return;
        }
        let begin = range.start - range.start % PAGE_SIZE.load(Ordering::Relaxed);
        let end = self.length.min(range.end.max(begin + WINDOW));
        self.populated.store(end, Ordering::Relaxed);
        // SAFETY: these pages belong to the mapping. It is for speed only: what it cannot do, the borrower finds out.
        let _ = unsafe {
            let begin = self.address.cast::<u8>().add(begin).cast();
            madvise(
                begin,
                end - (begin as usize - self.address as usize),
                Advice::LinuxPopulateRead,
            )
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody borrows of a mapping that is dropped.
        let _ = unsafe { munmap(self.address, self.length) };
    }
}

/// Installs the handler, once.
fn catch_faults() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE_SIZE.store(rustix::param::page_size(), Ordering::SeqCst);
        // SAFETY: an action of zeros is a valid one, and the handler does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

/// Puts a page of zeros where a lent page is not there any more.
extern "C" fn handle_fault(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives the handler of this signal the address of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let lent = LENT_BEGIN.load(Ordering::SeqCst)..LENT_END.load(Ordering::SeqCst);
    let page_size = PAGE_SIZE.load(Ordering::SeqCst);
    let page = address & !(page_size - 1);
    if lent.contains(&address) {
        HAS_FAULTED.store(true, Ordering::SeqCst);
        // SAFETY: the page is part of the lent mapping. This is one system call, and touches no memory but its own.
        let mapped = unsafe {
            mmap_anonymous(
                page as *mut c_void,
                page_size,
                ProtFlags::READ,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        };
        if mapped.is_ok() {
            return;
        }
    }
    // It is none of ours: when it comes again, it ends the process as ever.
    // SAFETY: the default action is a valid one.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// How much is mapped ahead.
const WINDOW: usize = 4 << 20;

/// Only one range is lent at a time.
static LENDING: Mutex<()> = Mutex::new(());
static LENT_BEGIN: AtomicUsize = AtomicUsize::new(0);
static LENT_END: AtomicUsize = AtomicUsize::new(0);
static HAS_FAULTED: AtomicBool = AtomicBool::new(false);
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file is read as it is. Of one that was cut what is left can be read, until more was read, and that is an
    /// error.
    #[test]
    fn cut_files_are_errors() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mapping = Mapping::new(&file, bytes.len()).unwrap();
        let read = |range: Range<usize>| mapping.lend(range, <[u8]>::to_vec);
        for range in [0..100_000, 5..5, 99_999..100_000, 4_000..9_000] {
            assert_eq!(read(range.clone()).unwrap(), bytes[range]);
        }
        file.set_len(50_000).unwrap();
        assert_eq!(read(0..50_000).unwrap(), bytes[..50_000]);
        for range in [40_000..100_000, 90_000..100_000, 0..50_000] {
            let error = read(range).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
