//! Lists that C hands over. Null is checked; all else is the caller's promise, as it is for any C library.

use std::{
    ffi::{CStr, c_char, c_int},
    slice,
};

use crate::Status;

/// The text behind a pointer, without its end.
///
/// # Errors
/// If the pointer is null.
///
/// # Safety
/// The pointer is null or points to text with a NUL at its end, which stays as it is for `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a [u8], Status> {
    if pointer.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// The texts behind pointers of which the last is null, at most `count` of them.
///
/// # Safety
/// `pointers` is null or points to that many pointers to text, or fewer with a null behind them.
pub unsafe fn texts(pointers: *const *const c_char, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for index in 0..count {
        if pointers.is_null() {
            break;
        }
        // SAFETY: no pointer before this one was null, so the caller promises that it is there.
        let pointer = unsafe { *pointers.add(index) };
        // SAFETY: as the caller promises.
        let Ok(text) = (unsafe { text(pointer) }) else {
            break;
        };
        found.push(text.to_vec());
    }
    found
}

/// `count` items behind a pointer, or none.
///
/// # Errors
/// If the count is negative, or the pointer null though there should be items.
///
/// # Safety
/// The pointer is null or points to `count` items, which stay as they are for `'a`.
pub unsafe fn array<'a, T>(pointer: *const T, count: c_int) -> Result<&'a [T], Status> {
    let count = usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// The item that a pointer points to.
///
/// # Errors
/// If it is null.
///
/// # Safety
/// The pointer is null or points to an item that stays as it is for `'a`.
pub unsafe fn item<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Status::INVALID_ARGUMENT)
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    /// A list of texts ends at its null, or at its count.
    #[test]
    fn lists_end() {
        let list = [c"a".as_ptr(), c"b".as_ptr(), null()];
        // SAFETY: the list has a null at its end, and the counts do not pass it without one.
        unsafe {
            assert_eq!(texts(list.as_ptr(), 9), [b"a", b"b"]);
            assert_eq!(texts(list.as_ptr(), 1), [b"a"]);
            assert_eq!(texts(null(), 9), [[0_u8; 0]; 0]);
            assert_eq!(text(null()), Err(Status::INVALID_ARGUMENT));
        }
    }
}
