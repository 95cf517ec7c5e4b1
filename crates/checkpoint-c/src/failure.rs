//! Errors for C: a code, and a line of text that the thread keeps.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use ropewalk_c_abi::ArgumentError;
use ropewalk_checkpoint::{RunError, StoreError};

/// Why a function of the library did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            code: FAILED,
            text: text.into(),
        }
    }

    pub(crate) fn bad_argument(text: impl Into<String>) -> Self {
        Self {
            code: BAD_ARGUMENT,
            text: text.into(),
        }
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Self::bad_argument(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error.is_for_lack_of_room() {
            true => NO_ROOM,
            false => FAILED,
        };
        Self {
            code,
            text: chain(&error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let code = match &error {
            error if error.is_mismatch() => MISMATCH,
            error if error.is_for_lack_of_room() => NO_ROOM,
            RunError::NoDirectory | RunError::NoStart { .. } | RunError::Rank { .. } => BAD_ARGUMENT,
            _ => FAILED,
        };
        Self {
            code,
            text: chain(&error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(format!("cannot use the journal: {error}"))
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Runs what a function does and gives its result to C. A panic, which would be a fault of ours, does not cross.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::new("ropewalk failed inside; please report this")));
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
            LAST.with_borrow_mut(|last| *last = text);
            failure.code
        }
    }
}

/// The text of the thread's last failure, valid until the next one.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

const FAILED: c_int = -1;
const BAD_ARGUMENT: c_int = 1;
const NO_ROOM: c_int = 2;
const MISMATCH: c_int = 3;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A panic does not cross the border, and a full disk has a code of its own.
    #[test]
    fn failures_have_codes() {
        assert_eq!(guarded(|| Ok(())), 0);
        assert_eq!(guarded(|| panic!("on purpose")), FAILED);
        assert_eq!(guarded(|| Err(Failure::bad_argument("no"))), BAD_ARGUMENT);
        let full = StoreError::Files {
            action: "write",
            path: "/a".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(guarded(|| Err(full.into())), NO_ROOM);
        let text = LAST.with_borrow(|last| last.to_string_lossy().into_owned());
        assert!(
            text.starts_with("cannot write /a; the checkpoints made before"),
            "{text}"
        );
        assert!(text.ends_with(": no storage space"), "{text}");
    }
}
