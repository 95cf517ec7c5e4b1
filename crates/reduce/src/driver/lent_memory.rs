//! The memory of a buffer while a reduction needs it.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
};

use ropewalk_fabric::memfd::ReadOnlyMemfd;

/// The memory of a [`Buffer`](crate::Buffer) that is contributed: nobody can write it.
#[derive(Debug)]
pub(super) struct LentMemory {
    // This goes before the loan is over.
    memory: Arc<ReadOnlyMemfd>,
    length: usize,
    _loan: Arc<Lending>,
}

/// Lives as long as a reduction needs the memory.
#[derive(Debug)]
struct Lending;

/// Tells when memory that was lent is not needed any more.
#[derive(Debug)]
pub(super) struct Loan(Weak<Lending>);

impl LentMemory {
    /// Lends the first `length` bytes of the memory.
    pub(super) fn new(memory: Arc<ReadOnlyMemfd>, length: usize) -> (Self, Loan) {
        let lending = Arc::new(Lending);
        let loan = Loan(Arc::downgrade(&lending));
        let memory = Self {
            memory,
            length,
            _loan: lending,
        };
        (memory, loan)
    }
}

impl Loan {
    /// Says if nobody needs the memory any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl AsRef<[u8]> for LentMemory {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl AsFd for LentMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.memory).as_fd()
    }
}
