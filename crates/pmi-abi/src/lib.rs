//! The common part of the C libraries of PMI-1 (`libpmi.so`) and PMI-2 (`libpmi2.so`): status codes, the
//! process's connection, and the passing of text and numbers across the border.
//!
//! Nothing panics across the border: each function of the libraries runs in [`guarded`].

mod pointers;
mod session;

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
};

use ropewalk_c_abi::{self as abi, ArgumentError};
use ropewalk_pmi_client::ClientError;

pub use pointers::{array, item, text, texts};
pub use session::{Session, close, is_open, open, session};

/// A text argument.
pub type InText = abi::InText<Status>;
/// Room for values.
pub type OutPtr<T> = abi::OutPtr<T, Status>;
/// Room for text.
pub type OutText = abi::OutText<Status>;

/// A status of either library: 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub c_int);

impl Status {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// Nothing more is known.
    pub const FAIL: Self = Self(-1);
    /// There is no connection: `PMI_Init` was not called, or failed.
    pub const INIT: Self = Self(1);
    /// A pointer or number that makes no sense.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// A key that cannot be one.
    pub const INVALID_KEY: Self = Self(4);
    /// A value that is too long.
    pub const INVALID_VALUE_LENGTH: Self = Self(7);
    /// A buffer that is too small.
    pub const INVALID_LENGTH: Self = Self(8);
    /// The process manager's answer says so.
    pub const OTHER: Self = Self(14);
}

impl From<ArgumentError> for Status {
    fn from(error: ArgumentError) -> Self {
        match error {
            ArgumentError::NoRoom => Self::INVALID_LENGTH,
            _ => Self::INVALID_ARGUMENT,
        }
    }
}

impl From<ClientError> for Status {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Encode(_) | ClientError::Text { .. } => Self::INVALID_VALUE_LENGTH,
            ClientError::Refused { .. } => Self::OTHER,
            _ => Self::FAIL,
        }
    }
}

/// Runs what a function of a library does, and gives what it returns to C. A panic, which would be a fault of ours,
/// becomes a failure of the function.
pub fn guarded(work: impl FnOnce() -> Result<(), Status>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Status::SUCCESS.0,
        Ok(Err(status)) => status.0,
        Err(_) => Status::FAIL.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic does not cross the border.
    #[test]
    fn a_panic_is_a_failure() {
        assert_eq!(guarded(|| Ok(())), 0);
        assert_eq!(guarded(|| Err(Status::INVALID_KEY)), 4);
        assert_eq!(guarded(|| panic!("on purpose")), -1);
    }
}
