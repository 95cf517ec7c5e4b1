//! Memory of the caller: several values in a call, and bytes that the library keeps using.

use std::{marker::PhantomData, ptr::NonNull, slice};

use crate::ArgumentError;

/// A pointer argument: null, or several values of the caller to be read, as many as another argument says.
#[derive(Debug)]
#[repr(transparent)]
pub struct InSlice<T, E>(*const T, PhantomData<E>);

impl<T, E: From<ArgumentError>> InSlice<T, E> {
    /// # Safety
    /// Until the call returns, the pointer is null or points to as many values as another argument says, which stay as
    /// they are.
    pub unsafe fn new(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    /// The values.
    ///
    /// # Errors
    /// If the pointer is null and there should be values.
    pub fn get(&self, count: usize) -> Result<&[T], E> {
        match count {
            0 => Ok(&[]),
            _ if self.0.is_null() => Err(ArgumentError::NoValue.into()),
            // SAFETY: it is not null, and by the contract of `new` there are so many values.
            _ => Ok(unsafe { slice::from_raw_parts(self.0, count) }),
        }
    }
}

/// A pointer argument: null, or bytes of the caller that the library uses in later calls too.
#[derive(Debug)]
#[repr(transparent)]
pub struct Memory<E>(*mut u8, PhantomData<E>);

impl<E: From<ArgumentError>> Memory<E> {
    /// # Safety
    /// The pointer is null or points to as many bytes as other arguments say. They exist until the object that takes
    /// them is given back, and nobody else uses them during a call with it.
    pub unsafe fn new(pointer: *mut u8) -> Self {
        Self(pointer, PhantomData)
    }

    /// The bytes, for an object of the library to keep.
    ///
    /// # Errors
    /// If the pointer is null and there should be bytes.
    pub fn lend(self, length: usize) -> Result<LentMemory, E> {
        match NonNull::new(self.0) {
            Some(pointer) => Ok(LentMemory { pointer, length }),
            None if length == 0 => Ok(LentMemory {
                pointer: NonNull::dangling(),
                length,
            }),
            None => Err(ArgumentError::NoValue.into()),
        }
    }
}

/// Bytes of the caller that an object of the library may use during calls with it.
#[derive(Debug)]
pub struct LentMemory {
    pointer: NonNull<u8>,
    length: usize,
}

impl LentMemory {
    /// True if both have a byte in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|memory| {
            let begin = memory.pointer.as_ptr().addr();
            (begin, begin.saturating_add(memory.length))
        });
        own.0.max(others.0) < own.1.min(others.1)
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: by the contract of `Memory::new` they exist, and nobody else uses them during the call.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;

    /// Bytes are those of the caller; null is an error unless there are none.
    #[test]
    fn memory_is_lent() {
        let mut bytes = [1_u8, 2, 3];
        // SAFETY: there are three bytes, used by one object at a time.
        let mut lent = unsafe { Memory::<ArgumentError>::new(bytes.as_mut_ptr()) }
            .lend(3)
            .unwrap();
        lent.bytes()[1] = 7;
        // SAFETY: as above, and only their addresses are used.
        let [same, next] =
            [0, 2].map(|at| unsafe { Memory::<ArgumentError>::new(lent.bytes().as_mut_ptr().add(at)) });
        assert!(same.lend(2).unwrap().overlaps(&lent));
        assert!(!lent.overlaps(&next.lend(0).unwrap()));
        assert_eq!(bytes, [1, 7, 3]);
        // SAFETY: there are three bytes, and null may be given.
        let (some, none) = unsafe {
            (
                InSlice::<u8, ArgumentError>::new(bytes.as_ptr()),
                InSlice::new(null()),
            )
        };
        assert_eq!(some.get(2), Ok(&[1, 7][..]));
        assert_eq!(
            <InSlice<u8, ArgumentError>>::get(&none, 1),
            Err(ArgumentError::NoValue)
        );
        assert_eq!(none.get(0), Ok(&[][..]));
        // SAFETY: null may be given.
        let nothing = || unsafe { Memory::<ArgumentError>::new(null_mut()) };
        assert!(nothing().lend(1).is_err());
        assert_eq!(nothing().lend(0).unwrap().bytes(), &[]);
    }
}
