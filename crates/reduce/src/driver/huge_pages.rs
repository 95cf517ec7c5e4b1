//! Huge pages under long results: each page that is touched first costs more than to fill it.

use rustix::mm::{Advice, madvise};

/// The size of a huge page of most processors. Elsewhere the advice is for fewer pages than it could be.
const SIZE: usize = 2 << 20;

/// Asks for huge pages under the part of a result that they can be under, where the system gives them to who asks
/// (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`). A system that has none says so, and nothing changes.
pub(super) fn advise(bytes: &mut [u8]) {
    let bytes = bytes.as_mut_ptr_range();
    let begin = (bytes.start as usize).next_multiple_of(SIZE);
    let end = bytes.end as usize / SIZE * SIZE;
    if begin < end {
        let offset = begin - bytes.start as usize;
        // SAFETY: the range lies within a slice that is lent to us alone. The advice changes no byte of it.
        let _ = unsafe { madvise(bytes.start.add(offset).cast(), end - begin, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice of any length and place stays as it is.
    #[test]
    fn bytes_stay() {
        for length in [0, 1, SIZE, 3 * SIZE + 5] {
            let mut vector: Vec<u8> = (0..length).map(|at| at as u8).collect();
            advise(&mut vector);
            assert!(vector.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }
}
