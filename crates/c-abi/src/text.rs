//! Texts with a NUL at their end.

use std::{
    ffi::{CStr, c_char, c_int},
    marker::PhantomData,
};

use crate::{ArgumentError, OutPtr};

/// A text argument: null, or text of the caller.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InText<E>(*const c_char, PhantomData<E>);

impl<E: From<ArgumentError>> InText<E> {
    /// # Safety
    /// Until the call returns, the pointer is null or points to text with a NUL at its end, which stays as it is.
    pub unsafe fn new(pointer: *const c_char) -> Self {
        Self(pointer, PhantomData)
    }

    /// The text without its end.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn get(&self) -> Result<&[u8], E> {
        if self.0.is_null() {
            return Err(ArgumentError::NoText.into());
        }
        // SAFETY: it is not null, so it is a text by the contract of `new`.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Room for text: null, or room of the caller, whose size another argument says.
#[derive(Debug)]
#[repr(transparent)]
pub struct OutText<E>(OutPtr<c_char, E>);

impl<E: From<ArgumentError>> OutText<E> {
    /// # Safety
    /// As for [`OutPtr::new`], and the size that another argument says is that of the room.
    pub unsafe fn new(pointer: *mut c_char) -> Self {
        // SAFETY: the caller promises it.
        Self(unsafe { OutPtr::new(pointer) })
    }

    /// The caller does not want the text.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes text and its end for the caller.
    ///
    /// # Errors
    /// If the pointer is null or there is not enough room; nothing is written then.
    pub fn copy(self, size: c_int, text: &[u8]) -> Result<(), E> {
        let room = usize::try_from(size).map_err(|_| ArgumentError::NegativeSize)?;
        if self.is_null() {
            return Err(ArgumentError::NoPlace.into());
        }
        if room <= text.len() {
            return Err(ArgumentError::NoRoom.into());
        }
        let bytes = text.iter().chain([&0]).map(|&byte| byte as c_char);
        self.0.write_each(size, bytes).map(drop)
    }

    /// Writes as much of a text as there is room for, and its end.
    ///
    /// # Errors
    /// If the pointer is null or there is no room at all.
    pub fn fill(self, size: c_int, text: &[u8]) -> Result<(), E> {
        let room = usize::try_from(size).unwrap_or(0).saturating_sub(1);
        self.copy(size, &text[..text.len().min(room)])
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    /// Text goes where there is room for it and its end, and nowhere else.
    #[test]
    fn text_needs_room() {
        let mut room = [b'x'; 4];
        let pointer = room.as_mut_ptr().cast();
        let out = |pointer| {
            // SAFETY: the sizes below are at most that of the room, and null may be given.
            unsafe { OutText::<ArgumentError>::new(pointer) }
        };
        let read = || {
            // SAFETY: text is written with its end before it is read.
            unsafe { CStr::from_ptr(pointer) }.to_bytes()
        };
        assert_eq!(out(pointer).copy(3, b"abc"), Err(ArgumentError::NoRoom));
        assert_eq!(out(pointer).copy(0, b""), Err(ArgumentError::NoRoom));
        assert_eq!(out(pointer).copy(-1, b""), Err(ArgumentError::NegativeSize));
        assert_eq!(out(null_mut()).copy(0, b""), Err(ArgumentError::NoPlace));
        assert_eq!(out(pointer).copy(4, b"abc"), Ok(()));
        assert_eq!(read(), b"abc");
        assert_eq!(out(pointer).fill(3, b"xyz"), Ok(()));
        assert_eq!(read(), b"xy");
        // SAFETY: it is a text, and null may be given.
        let (text, none) = unsafe {
            (
                InText::<ArgumentError>::new(pointer),
                InText::<ArgumentError>::new(null_mut()),
            )
        };
        assert_eq!(text.get(), Ok(&b"xy"[..]));
        assert_eq!(none.get(), Err(ArgumentError::NoText));
    }
}
