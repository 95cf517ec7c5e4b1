//! Pointers to values and objects.

use std::{ffi::c_int, marker::PhantomData};

use crate::ArgumentError;

/// A pointer argument: null, or a value of the caller to be read.
#[derive(Debug)]
#[repr(transparent)]
pub struct InPtr<T, E>(*const T, PhantomData<E>);

impl<T, E: From<ArgumentError>> InPtr<T, E> {
    /// # Safety
    /// Until the call returns, the pointer is null or points to a value that stays as it is.
    pub unsafe fn new(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// The value.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn required(&self) -> Result<&T, E> {
        self.get().ok_or_else(|| ArgumentError::NoValue.into())
    }
}

/// A pointer argument: null, or room for values of the caller.
#[derive(Debug)]
#[repr(transparent)]
pub struct OutPtr<T, E>(*mut T, PhantomData<E>);

impl<T, E: From<ArgumentError>> OutPtr<T, E> {
    /// # Safety
    /// Until the call returns, the pointer is null or points to room for one value, or as many as other arguments say.
    /// Nobody else uses that room.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// The caller does not want the value.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes a value for the caller.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn write(self, value: T) -> Result<(), E> {
        if self.is_null() {
            return Err(ArgumentError::NoPlace.into());
        }
        // SAFETY: it is not null, so there is room by the contract of `new`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// The value that the caller left there.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn read(&self) -> Result<T, E>
    where
        T: Copy,
    {
        // SAFETY: by the contract of `new` it is null, or points to a value that nobody else uses.
        let value = unsafe { self.0.as_ref() };
        value.copied().ok_or_else(|| ArgumentError::NoPlace.into())
    }

    /// Writes values, at most `count`, and says how many.
    ///
    /// # Errors
    /// If the count is negative, or the pointer null though there should be room.
    pub fn write_each(self, count: c_int, values: impl IntoIterator<Item = T>) -> Result<usize, E> {
        let count = usize::try_from(count).map_err(|_| ArgumentError::NegativeSize)?;
        if count > 0 && self.is_null() {
            return Err(ArgumentError::NoPlace.into());
        }
        let mut written = 0;
        for value in values.into_iter().take(count) {
            // SAFETY: it is not null, as `count` is above `written`, and has that much room by the contract of `new`.
            unsafe { self.0.add(written).write(value) };
            written += 1;
        }
        Ok(written)
    }
}

/// An object of the library in the caller's hands: null, or a pointer that [`hand_over`](OutPtr::hand_over) made.
#[derive(Debug)]
#[repr(transparent)]
pub struct Object<T, E>(*mut T, PhantomData<E>);

impl<T, E: From<ArgumentError>> Object<T, E> {
    /// # Safety
    /// The pointer is null, or one that was handed over and not taken back; nobody else uses it until the call returns.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// The object.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn get(&mut self) -> Result<&mut T, E> {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_mut() }.ok_or_else(|| ArgumentError::NoObject.into())
    }

    /// Takes the object back from the caller, who has it no longer.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn take_back(self) -> Result<T, E> {
        if self.0.is_null() {
            return Err(ArgumentError::NoObject.into());
        }
        // SAFETY: it is not null, so it was handed over by the contract of `new`, and is no box but this one.
        Ok(*unsafe { Box::from_raw(self.0) })
    }
}

impl<T, E: From<ArgumentError>> OutPtr<Object<T, E>, E> {
    /// Gives the caller an object, who has to give it back.
    ///
    /// # Errors
    /// If the pointer is null; the object is dropped then.
    pub fn hand_over(self, object: T) -> Result<(), E> {
        if self.is_null() {
            return Err(ArgumentError::NoPlace.into());
        }
        self.write(Object(Box::into_raw(Box::new(object)), PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ptr::{null, null_mut},
        rc::Rc,
    };

    use super::*;

    type Out<T> = OutPtr<T, ArgumentError>;

    /// An object comes back as it was handed over, and is dropped if there is no place for it.
    #[test]
    fn objects_are_lent() {
        let object = Rc::new(());
        let mut place: *mut Rc<()> = null_mut();
        // SAFETY: the place is that of a pointer, which is used by one object at a time.
        let (out, nowhere) = unsafe { (Out::new((&raw mut place).cast()), Out::new(null_mut())) };
        assert_eq!(nowhere.hand_over(object.clone()), Err(ArgumentError::NoPlace));
        assert_eq!(Rc::strong_count(&object), 1);
        assert_eq!(out.hand_over(object.clone()), Ok(()));
        // SAFETY: it was handed over above.
        let lent = || unsafe { Object::<_, ArgumentError>::new(place) };
        assert_eq!(Rc::strong_count(lent().get().unwrap()), 2);
        drop(lent().take_back());
        assert_eq!(Rc::strong_count(&object), 1);
        // SAFETY: null may be given.
        let mut none = unsafe { Object::<u8, ArgumentError>::new(null_mut()) };
        assert_eq!(none.get(), Err(ArgumentError::NoObject));
        assert_eq!(none.take_back(), Err(ArgumentError::NoObject));
    }

    /// Values go where there is room for them, and null is told.
    #[test]
    fn null_is_no_place() {
        let mut room = [0; 2];
        let place = room.as_mut_ptr();
        // SAFETY: there is room for two values.
        let out = || unsafe { Out::new(place) };
        assert_eq!(out().write_each(2, [1, 2, 3]), Ok(2));
        assert_eq!(out().write_each(-1, [1]), Err(ArgumentError::NegativeSize));
        assert_eq!(out().read(), Ok(1));
        // SAFETY: null may be given.
        let (nowhere, nothing) = unsafe {
            (
                || Out::<u8>::new(null_mut()),
                InPtr::<u8, ArgumentError>::new(null()),
            )
        };
        assert_eq!(nowhere().write(1), Err(ArgumentError::NoPlace));
        assert_eq!(nowhere().write_each(1, [1]), Err(ArgumentError::NoPlace));
        assert_eq!(nowhere().write_each(0, [1]), Ok(0));
        assert_eq!(nothing.required(), Err(ArgumentError::NoValue));
    }
}
