//! Operations on whole objects: histograms, sketches, maps.

use std::{any::type_name, borrow::Cow, sync::Arc};

use ropewalk_fabric::Buffer;

use super::{Codec, DecodeError, Fold, FoldError, Operation};
use crate::worker::Side;

/// The data and the operation of a reduction whose values cannot be cut into elements; the paper's
/// `ReducerBody` (figure 2).
///
/// # Examples
/// ```
/// use std::collections::BTreeMap;
/// use ropewalk_reduce::{DecodeError, ObjectReducer, object, ordered_fold};
///
/// /// Counts of words.
/// struct CountWords;
///
/// impl ObjectReducer for CountWords {
///     type Value = BTreeMap<String, u32>;
///
///     fn combine(&self, mut left: Self::Value, right: Self::Value) -> Self::Value {
///         for (word, count) in right {
///             *left.entry(word).or_default() += count;
///         }
///         left
///     }
///
///     fn encode(&self, counts: &Self::Value) -> Vec<u8> {
///         counts.iter().map(|(word, count)| format!("{word} {count}\n")).collect::<String>().into_bytes()
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<Self::Value, DecodeError> {
///         let error = |message: &str| DecodeError { message: message.to_owned() };
///         let text = str::from_utf8(bytes).map_err(|_| error("not UTF-8"))?;
///         text.lines()
///             .map(|line| {
///                 let (word, count) = line.split_once(' ').ok_or_else(|| error("no count"))?;
///                 Ok((word.to_owned(), count.parse().map_err(|_| error("no number"))?))
///             })
///             .collect()
///     }
/// }
///
/// let one = BTreeMap::from([("rope".to_owned(), 1)]);
/// let two = BTreeMap::from([("rope".to_owned(), 2), ("walk".to_owned(), 1)]);
/// let sum = ordered_fold(vec![one, two], object(CountWords))?.unwrap();
/// assert_eq!(sum, BTreeMap::from([("rope".to_owned(), 3), ("walk".to_owned(), 1)]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
pub trait ObjectReducer: Send + Sync + 'static {
    /// What is reduced.
    type Value: 'static;

    /// Combines two values. Must be associative; in [`Order::Any`](crate::Order::Any) also commutative.
    fn combine(&self, left: Self::Value, right: Self::Value) -> Self::Value;

    /// The value as bytes, for its way to another rank.
    fn encode(&self, value: &Self::Value) -> Vec<u8>;

    /// The value that these bytes are.
    ///
    /// # Errors
    /// If they are none.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Value, DecodeError>;
}

/// A reducer of whole objects.
pub fn object<R: ObjectReducer>(reducer: R) -> Operation<R::Value> {
    let reducer = Arc::new(reducer);
    Operation {
        name: type_name::<R>().to_owned(),
        element: type_name::<R::Value>().to_owned(),
        element_size: None,
        codec: Box::new(Encoded(Arc::clone(&reducer))),
        fold: Arc::new(Encoded(reducer)),
    }
}

struct Encoded<R>(Arc<R>);

impl<R: ObjectReducer> Codec<R::Value> for Encoded<R> {
    fn encode<'a>(&self, value: &'a R::Value) -> Cow<'a, [u8]> {
        Cow::Owned(self.0.encode(value))
    }

    fn decode(&self, stripes: &[&[u8]]) -> Result<R::Value, DecodeError> {
        match stripes {
            [whole] => self.0.decode(whole),
            _ => Err(DecodeError {
                message: format!("an object in {} stripes", stripes.len()),
            }),
        }
    }
}

impl<R: ObjectReducer> Fold for Encoded<R> {
    fn fold(
        &self,
        accumulator: &mut Buffer,
        data_offset: usize,
        other: &[u8],
        side: Side,
    ) -> Result<(), FoldError> {
        let (mine, other) = (self.0.decode(&accumulator[data_offset..])?, self.0.decode(other)?);
        let combined = match side {
            Side::Left => self.0.combine(other, mine),
            Side::Right => self.0.combine(mine, other),
        };
        let encoded = self.0.encode(&combined);
        *accumulator = Buffer::zeroed(data_offset + encoded.len());
        accumulator[data_offset..].copy_from_slice(&encoded);
        Ok(())
    }
}
