//! Operations on vectors, element by element.

use std::{any::Any, borrow::Cow, marker::PhantomData, num::NonZeroU32, sync::Arc};

use bytemuck::Pod;
use ropewalk_fabric::{Buffer, advise_huge_pages};

use super::{Codec, DecodeError, Elements, Fold, FoldElements, FoldError, Operation, ResultMemory, Side};

/// A reducer of vectors from a function that combines two elements, the left and the right one.
///
/// Vectors are cut into chunks, so the function must depend on nothing but its two arguments. `name` is what
/// members compare: the same function should have the same name everywhere.
///
/// # Panics
/// If `T` has no size, or is aligned more strictly than a cache line.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{elementwise, ordered_fold};
///
/// let hypotenuse = elementwise("hypot", |a: f32, b: f32| a.hypot(b));
/// let result = ordered_fold(vec![vec![3.0, 6.0], vec![4.0, 8.0]], hypotenuse)?;
/// assert_eq!(result, Some(vec![5.0, 10.0]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
pub fn elementwise<T: Pod + Send + Sync>(
    name: impl Into<String>,
    combine: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> Operation<Vec<T>> {
    let size = u32::try_from(size_of::<T>()).ok().and_then(NonZeroU32::new);
    let size = size.expect("an element has a size, below 4 GiB");
    assert!(
        align_of::<T>() <= Buffer::ALIGNMENT,
        "an element is aligned to a cache line at most"
    );
    Operation {
        name: name.into(),
        element: std::any::type_name::<T>().to_owned(),
        element_size: Some(size),
        codec: Box::new(Plain),
        fold: Fold::Elements(Arc::new(Elementwise {
            combine,
            element: PhantomData,
        })),
        is_total: false,
    }
}

pub(super) struct Plain;

impl<T: Pod + Send> Codec<Vec<T>> for Plain {
    fn encode<'a>(&self, value: &'a Vec<T>) -> Cow<'a, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(value))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let elements = bytemuck::try_cast_slice(bytes);
        elements.map(<[T]>::to_vec).map_err(|error| DecodeError {
            message: error.to_string(),
        })
    }

    fn take(&self, result: ResultMemory) -> Result<Vec<T>, DecodeError> {
        let elements = match result {
            ResultMemory::Elements(elements) => elements.into_any().downcast::<Vec<T>>(),
            ResultMemory::Object(memory) => return self.decode(&memory),
        };
        elements.map(|elements| *elements).map_err(|_| DecodeError {
            message: "the result is of another type".to_owned(),
        })
    }

    fn memory(&self, value: Vec<T>) -> Option<Box<dyn Elements>> {
        Some(Box::new(value))
    }
}

impl<T: Pod + Send> Elements for Vec<T> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

struct Elementwise<T, F> {
    combine: F,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Pod + Send, F: Fn(T, T) -> T + Send + Sync> FoldElements for Elementwise<T, F> {
    fn fold(&self, accumulator: &mut [u8], other: &[u8], side: Side) -> Result<(), FoldError> {
        let error = FoldError::Elements {
            left: accumulator.len(),
            right: other.len(),
        };
        // No bytes stand nowhere, aligned or not.
        if accumulator.is_empty() && other.is_empty() {
            return Ok(());
        }
        let (Ok(accumulator), Ok(other)) = (
            bytemuck::try_cast_slice_mut::<u8, T>(accumulator),
            bytemuck::try_cast_slice::<u8, T>(other),
        ) else {
            return Err(error);
        };
        if accumulator.len() != other.len() {
            return Err(error);
        }
        let pairs = accumulator.iter_mut().zip(other);
        match side {
            Side::Left => pairs.for_each(|(right, &left)| *right = (self.combine)(left, *right)),
            Side::Right => pairs.for_each(|(left, &right)| *left = (self.combine)(*left, right)),
        }
        Ok(())
    }

    fn whole(&self, bytes: usize) -> usize {
        (bytes / size_of::<T>()).max(1) * size_of::<T>()
    }

    fn result(&self, bytes: usize) -> Box<dyn Elements> {
        let mut result = bytemuck::allocation::zeroed_vec::<T>(bytes / size_of::<T>());
        // Small pages would take longer to come than the result takes to be made.
        advise_huge_pages(bytemuck::cast_slice_mut(&mut result));
        Box::new(result)
    }
}
