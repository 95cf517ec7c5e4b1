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

/// A pointer argument of an exported function: null, or room for values of the caller. Only a call from C makes one, and
/// the contract of that call is that of [`OutPtr::new`].
#[derive(Debug)]
#[repr(transparent)]
pub struct OutPtr<T>(*mut T);

impl<T> OutPtr<T> {
    /// # Safety
    /// Until the call returns, the pointer is null or points to room for as many values as the function's other arguments
    /// say, or one, which nobody else uses.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// The caller does not want the value.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes a value for the caller.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn write(self, value: T) -> Result<(), Status> {
        if self.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: it is not null, so there is room by the contract of `new`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// The value that the caller left there.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn read(&self) -> Result<T, Status>
    where
        T: Copy,
    {
        // SAFETY: by the contract of `new` it is null, or points to a value that nobody else uses.
        unsafe { self.0.as_ref() }
            .copied()
            .ok_or(Status::INVALID_ARGUMENT)
    }

    /// Writes values, at most `count`, and says how many.
    ///
    /// # Errors
    /// If the count is negative, or the pointer null though there should be room.
    pub fn write_each(self, count: c_int, values: impl IntoIterator<Item = T>) -> Result<usize, Status> {
        let count = usize::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
        if count > 0 && self.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        let mut written = 0;
        for value in values.into_iter().take(count) {
            // SAFETY: there are more than `written` places, so it is not null, and has that much room by the contract of
            // `new`.
            unsafe { self.0.add(written).write(value) };
            written += 1;
        }
        Ok(written)
    }
}

/// A text argument of an exported function. Only a call from C makes one, and the contract of that call is that of
/// [`InText::new`].
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InText(*const c_char);

impl InText {
    /// # Safety
    /// Until the call returns, the pointer is null or points to text with a NUL at its end, which stays as it is.
    pub unsafe fn new(pointer: *const c_char) -> Self {
        Self(pointer)
    }

    /// The text without its end.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn get(&self) -> Result<&[u8], Status> {
        // SAFETY: by the contract of `new`.
        unsafe { text(self.0) }
    }
}

/// Room for text: an argument of an exported function. Only a call from C makes one, and the contract of that call is
/// that of [`OutText::new`].
#[derive(Debug)]
#[repr(transparent)]
pub struct OutText(OutPtr<c_char>);

impl OutText {
    /// # Safety
    /// As for [`OutPtr::new`], and the size that another argument says is that of the room.
    pub unsafe fn new(pointer: *mut c_char) -> Self {
        Self(OutPtr(pointer))
    }

    /// The caller does not want the text.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes text and its end for the caller.
    ///
    /// # Errors
    /// If the pointer is null or there is not enough room; nothing is written then.
    pub fn copy(self, size: c_int, text: &[u8]) -> Result<(), Status> {
        let room = usize::try_from(size).map_err(|_| Status::INVALID_ARGUMENT)?;
        if self.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        if room <= text.len() {
            return Err(Status::INVALID_LENGTH);
        }
        let bytes = text.iter().chain([&0]).map(|&byte| byte as c_char);
        self.0.write_each(size, bytes).map(drop)
    }

    /// Writes as much of a text as there is room for, and its end.
    ///
    /// # Errors
    /// If the pointer is null or there is no room at all.
    pub fn fill(self, size: c_int, text: &[u8]) -> Result<(), Status> {
        let room = usize::try_from(size).unwrap_or(0).saturating_sub(1);
        self.copy(size, &text[..text.len().min(room)])
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;

    /// Text goes where there is room for it and its end, and nowhere else.
    #[test]
    fn text_needs_room() {
        let mut room = [b'x'; 4];
        let pointer = room.as_mut_ptr().cast();
        // SAFETY: the sizes below are at most that of the room, and text is written with its end before it is read.
        let (out, read) = unsafe { (|| OutText(OutPtr(pointer)), InText::new(pointer)) };
        assert_eq!(out().copy(3, b"abc"), Err(Status::INVALID_LENGTH));
        assert_eq!(out().copy(0, b""), Err(Status::INVALID_LENGTH));
        assert_eq!(out().copy(-1, b""), Err(Status::INVALID_ARGUMENT));
        assert_eq!(
            OutText(OutPtr(null_mut())).copy(0, b""),
            Err(Status::INVALID_ARGUMENT)
        );
        assert_eq!(out().copy(4, b"abc"), Ok(()));
        assert_eq!(read.get(), Ok(&b"abc"[..]));
        assert_eq!(out().fill(3, b"xyz"), Ok(()));
        assert_eq!(read.get(), Ok(&b"xy"[..]));
        // SAFETY: null may be asked for.
        assert_eq!(unsafe { text(null()) }, Err(Status::INVALID_ARGUMENT));
    }

    /// A list of texts ends at its null, or at its count.
    #[test]
    fn lists_end() {
        let list = [c"a".as_ptr(), c"b".as_ptr(), null()];
        // SAFETY: the list has a null at its end, and the counts do not pass it without one.
        unsafe {
            assert_eq!(texts(list.as_ptr(), 9), [b"a", b"b"]);
            assert_eq!(texts(list.as_ptr(), 1), [b"a"]);
            assert_eq!(texts(null(), 9), [[0_u8; 0]; 0]);
        }
    }
}
