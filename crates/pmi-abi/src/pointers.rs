//! Reading and writing through the pointers that C hands over. What may be null is checked; all else is the caller's
//! promise, as it is for any C library.

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

/// Room for `count` items behind a pointer, or none.
///
/// # Errors
/// As for [`array()`].
///
/// # Safety
/// The pointer is null or points to `count` items that nobody else uses for `'a`.
pub unsafe fn slots<'a, T>(pointer: *mut T, count: c_int) -> Result<&'a mut [T], Status> {
    let count = usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
    if count == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count) })
}

/// What a pointer points to.
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

/// Writes a value for the caller.
///
/// # Errors
/// If the pointer is null.
///
/// # Safety
/// The pointer is null or points to room for the value.
pub unsafe fn write<T>(pointer: *mut T, value: T) -> Result<(), Status> {
    if pointer.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, and the caller promises that there is room.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes text and its end for the caller.
///
/// # Errors
/// If the pointer is null or there is not enough room; nothing is written then.
///
/// # Safety
/// The pointer is null or points to `size` bytes of room.
pub unsafe fn copy_text(pointer: *mut c_char, size: c_int, text: &[u8]) -> Result<(), Status> {
    // SAFETY: as the caller promises.
    let room: &mut [u8] = unsafe { slots(pointer.cast(), size) }?;
    if pointer.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    match room.get_mut(..=text.len()) {
        Some([start @ .., end]) => {
            start.copy_from_slice(text);
            *end = 0;
            Ok(())
        }
        _ => Err(Status::INVALID_LENGTH),
    }
}

/// Writes as much of a text as there is room for, and its end.
///
/// # Errors
/// If the pointer is null or there is no room at all.
///
/// # Safety
/// The pointer is null or points to `size` bytes of room.
pub unsafe fn fill(pointer: *mut c_char, size: c_int, text: &[u8]) -> Result<(), Status> {
    let room = usize::try_from(size).unwrap_or(0).saturating_sub(1);
    // SAFETY: as the caller promises.
    unsafe { copy_text(pointer, size, &text[..text.len().min(room)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text goes where there is room for it and its end, and nowhere else.
    #[test]
    fn text_needs_room() {
        let mut room = [b'x'; 4];
        let pointer = room.as_mut_ptr().cast();
        // SAFETY: the sizes are at most that of the room, and text is written with its end before it is read.
        unsafe {
            assert_eq!(copy_text(pointer, 3, b"abc"), Err(Status::INVALID_LENGTH));
            assert_eq!(copy_text(pointer, 0, b""), Err(Status::INVALID_LENGTH));
            assert_eq!(copy_text(pointer, -1, b""), Err(Status::INVALID_ARGUMENT));
            assert_eq!(
                copy_text(std::ptr::null_mut(), 0, b""),
                Err(Status::INVALID_ARGUMENT)
            );
            assert_eq!(copy_text(pointer, 4, b"abc"), Ok(()));
            assert_eq!(text(pointer), Ok(&b"abc"[..]));
            assert_eq!(fill(pointer, 3, b"xyz"), Ok(()));
            assert_eq!(text(pointer), Ok(&b"xy"[..]));
            assert_eq!(text(std::ptr::null()), Err(Status::INVALID_ARGUMENT));
        }
    }

    /// A list of texts ends at its null, or at its count.
    #[test]
    fn lists_end() {
        let list = [c"a".as_ptr(), c"b".as_ptr(), std::ptr::null()];
        // SAFETY: the list has a null at its end, and the counts do not pass it without one.
        unsafe {
            assert_eq!(texts(list.as_ptr(), 9), [b"a", b"b"]);
            assert_eq!(texts(list.as_ptr(), 1), [b"a"]);
            assert_eq!(texts(std::ptr::null(), 9), [[0_u8; 0]; 0]);
        }
    }
}
