//! Giving back the memory that starting took and waiting does not take, with unsafe code to name it to the kernel.
//!
//! A launcher and an agent start for some milliseconds and wait for hours. What they ran until then stays in their
//! memory, and the kernel brings in sixteen pages of a file where one is touched.

use std::{
    ffi::{c_int, c_void},
    ptr,
    time::{Duration, Instant},
};

/// When memory is given back: a while after the last process was started.
#[derive(Debug, Default)]
pub(super) struct IdleMemory {
    due: Option<Instant>,
}

impl IdleMemory {
    /// Long enough for the last to have said what it has to say first.
    pub(super) const DELAY: Duration = Duration::from_millis(200);

    /// A process was started: more may follow.
    pub(super) fn handle_started(&mut self, now: Instant) {
        self.due = Some(now + Self::DELAY);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Gives memory back, if it is time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            give_back();
        }
    }
}

/// Gives back free memory of the heap, and takes this program's own code and constants out of this process's memory.
/// What is needed of them comes back from the file when it is touched.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
    // SAFETY: the function only reads what it is given, and ends the iteration.
    unsafe { libc::dl_iterate_phdr(Some(forget_unwritten), ptr::null_mut()) };
}

/// Lets the kernel drop the parts of an object that cannot be written. The first object is the program itself; the
/// libraries that it shares with others are in memory anyway.
unsafe extern "C" fn forget_unwritten(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    let page = rustix::param::page_size();
    // SAFETY: the loader describes what it has loaded, which stays.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info.dlpi_addr as usize, headers)
    };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = base + header.p_vaddr as usize;
        let end = (begin + header.p_memsz as usize).next_multiple_of(page);
        let begin = begin - begin % page;
        // SAFETY: these pages are as they are in the file, for nobody but a debugger can write to them: what is read
        // there after this is what was there before. If the kernel refuses, they stay.
        unsafe { libc::madvise(begin as *mut c_void, end - begin, libc::MADV_DONTNEED) };
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is given back once, a while after the last start, and the program runs on.
    #[test]
    fn is_given_back_after_the_last_start() {
        let mut memory = IdleMemory::default();
        let now = Instant::now();
        assert_eq!(memory.deadline(), None);
        memory.handle_started(now);
        memory.handle_started(now + IdleMemory::DELAY / 2);
        memory.handle_timeout(now + IdleMemory::DELAY);
        assert_eq!(memory.deadline(), Some(now + IdleMemory::DELAY * 3 / 2));
        memory.handle_timeout(now + IdleMemory::DELAY * 3 / 2);
        assert_eq!(memory.deadline(), None);
    }
}
