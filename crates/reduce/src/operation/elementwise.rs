//! Operations on vectors, element by element.

use std::{borrow::Cow, marker::PhantomData, num::NonZeroU32, sync::Arc};

use bytemuck::Pod;
use ropewalk_fabric::Buffer;

use super::{Codec, DecodeError, Fold, FoldError, Operation};
use crate::worker::Side;

/// A reducer of vectors from a function that combines two elements, the left and the right one.
///
/// Vectors are cut into stripes, so the function must depend on nothing but its two arguments. `name` is what
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
        fold: Arc::new(Elementwise {
            combine,
            element: PhantomData,
        }),
    }
}

struct Plain;

impl<T: Pod> Codec<Vec<T>> for Plain {
    fn encode<'a>(&self, value: &'a Vec<T>) -> Cow<'a, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(value))
    }

    fn decode(&self, stripes: &[&[u8]]) -> Result<Vec<T>, DecodeError> {
        let length: usize = stripes.iter().map(|stripe| stripe.len()).sum();
        let mut value = Vec::with_capacity(length / size_of::<T>());
        for stripe in stripes {
            let elements = bytemuck::try_cast_slice(stripe);
            value.extend_from_slice(elements.map_err(|error| DecodeError {
                message: error.to_string(),
            })?);
        }
        Ok(value)
    }
}

struct Elementwise<T, F> {
    combine: F,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Pod, F: Fn(T, T) -> T + Send + Sync> Fold for Elementwise<T, F> {
    fn fold(
        &self,
        accumulator: &mut Buffer,
        data_offset: usize,
        other: &[u8],
        side: Side,
    ) -> Result<(), FoldError> {
        let accumulator = &mut accumulator[data_offset..];
        if accumulator.len() != other.len() {
            return Err(FoldError::Length {
                left: accumulator.len(),
                right: other.len(),
            });
        }
        let accumulator: &mut [T] = bytemuck::cast_slice_mut(accumulator);
        let pairs = accumulator.iter_mut().zip(bytemuck::cast_slice::<u8, T>(other));
        match side {
            Side::Left => pairs.for_each(|(right, &left)| *right = (self.combine)(left, *right)),
            Side::Right => pairs.for_each(|(left, &right)| *left = (self.combine)(*left, right)),
        }
        Ok(())
    }
}
