//! Operations on whole objects: histograms, sketches, maps.

use std::{any::type_name, borrow::Cow, sync::Arc};

use super::{Codec, DecodeError, Fold, FoldError, FoldObjects, Operation, ResultMemory};

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
    /// The type that is reduced.
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
        fold: Fold::Objects(Arc::new(Encoded(reducer))),
        is_total: false,
    }
}

struct Encoded<R>(Arc<R>);

impl<R: ObjectReducer> Codec<R::Value> for Encoded<R> {
    fn encode<'a>(&self, value: &'a R::Value) -> Cow<'a, [u8]> {
        Cow::Owned(self.0.encode(value))
    }

    fn decode(&self, bytes: &[u8]) -> Result<R::Value, DecodeError> {
        self.0.decode(bytes)
    }

    fn take(&self, result: ResultMemory) -> Result<R::Value, DecodeError> {
        match result {
            ResultMemory::Object(memory) => self.0.decode(&memory),
            ResultMemory::Elements(mut elements) => self.0.decode(elements.bytes_mut()),
        }
    }
}

impl<R: ObjectReducer> FoldObjects for Encoded<R> {
    fn fold(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, FoldError> {
        let (left, right) = (self.0.decode(left)?, self.0.decode(right)?);
        Ok(self.0.encode(&self.0.combine(left, right)))
    }
}
