//! The smallest and the largest value together with the place where it is.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};

use super::{Operation, Ordered, Reducer, elementwise};

/// The smallest value with its index (`MPI_MINLOC`, MPI standard 4.0, section 6.9.4).
///
/// Of equal values, as the two zeros are, the one with the lowest index counts. NaN is below all other values, as for
/// `numpy.argmin`.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{Located, MaxLoc, MinLoc, ordered_fold};
///
/// // Each rank contributes its own value, and its number as the index.
/// let loads = [0.5, 0.25, 0.25].into_iter().zip(0..).map(|(load, rank)| vec![Located::new(load, rank)]);
/// let loads: Vec<Vec<Located<f64, i32>>> = loads.collect();
/// assert_eq!(ordered_fold(loads.clone(), MinLoc)?, Some(vec![Located::new(0.25, 1)]));
/// assert_eq!(ordered_fold(loads, MaxLoc)?, Some(vec![Located::new(0.5, 0)]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinLoc;

/// The largest value with its index (`MPI_MAXLOC`).
///
/// Of equal values, as the two zeros are, the one with the lowest index counts. NaN is above all other values, as for
/// `numpy.argmax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxLoc;

/// A value and its index: an element that [`MinLoc`] and [`MaxLoc`] combine.
///
/// Both stand one after the other without a gap, as in NumPy's `dtype([("value", "f8"), ("index", "i4")])`. The index
/// is an integer of any size, such as a rank or a place in a distributed vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Located<V, I> {
    value: V,
    index: I,
}

impl<V: Copy, I: Copy> Located<V, I> {
    /// A value and its index.
    pub const fn new(value: V, index: I) -> Self {
        Self { value, index }
    }

    /// The value.
    pub const fn value(&self) -> V {
        self.value
    }

    /// The index of the value.
    pub const fn index(&self) -> I {
        self.index
    }
}

impl<V: Ordered, I: Ordered + Ord> Located<V, I> {
    /// The one whose value comes first in an order, in which NaN comes before all other values.
    fn first(self, other: Self, order: Ordering) -> Self {
        let (left, right) = (self.value, other.value);
        match left.partial_cmp(&right) {
            Some(Ordering::Equal) => self.lower(other),
            Some(found) if found == order => self,
            Some(_) => other,
            None => match (is_nan(left), is_nan(right)) {
                (true, true) => self.lower(other),
                (true, false) => self,
                _ => other,
            },
        }
    }

    /// The one with the lower index; of the same index -0 comes before +0, so that sides make no difference.
    fn lower(self, other: Self) -> Self {
        let (left, right) = (self.index, other.index);
        match left.cmp(&right) {
            Ordering::Less => self,
            Ordering::Equal => Self::new(self.value().smaller(other.value()), left),
            Ordering::Greater => other,
        }
    }
}

/// NaN is not comparable, not even with itself.
fn is_nan<V: PartialOrd + Copy>(value: V) -> bool {
    value.partial_cmp(&value).is_none()
}

macro_rules! reducers {
    ($($name:ident, $mpi:literal, $order:ident;)*) => {$(
        impl<V: Ordered, I: Ordered + Ord> Reducer<Vec<Located<V, I>>> for $name {
            fn into_operation(self) -> Operation<Vec<Located<V, I>>> {
                Operation {
                    is_total: V::IS_TOTAL && I::IS_TOTAL,
                    ..elementwise($mpi, |left: Located<V, I>, right| left.first(right, Ordering::$order))
                }
            }
        }
    )*};
}

reducers! {
    MaxLoc, "maxloc", Greater;
    MinLoc, "minloc", Less;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ordered_fold;

    /// Few values, so that there are ties, zeros of both signs and several NaN.
    fn values() -> impl Strategy<Value = Vec<f32>> {
        let value = prop::sample::select(vec![-1.0, -0.0, 0.0, 1.0, f32::NAN, f32::INFINITY]);
        prop::collection::vec(value, 1..8)
    }

    /// The place of the first NaN, or else of the first value that no other one is before.
    fn place(values: &[f32], is_before: impl Fn(f32, f32) -> bool) -> usize {
        let nan = values.iter().position(|value| value.is_nan());
        let best = values
            .iter()
            .position(|&value| !values.iter().any(|&other| is_before(other, value)));
        nan.or(best).unwrap()
    }

    fn folded(
        values: &[f32],
        turn: usize,
        operation: impl Reducer<Vec<Located<f32, u16>>>,
    ) -> Located<f32, u16> {
        let located = values.iter().copied().zip(0..);
        let mut located: Vec<_> = located
            .map(|(value, index)| vec![Located::new(value, index)])
            .collect();
        located.rotate_left(turn % values.len());
        ordered_fold(located, operation).unwrap().unwrap()[0]
    }

    proptest! {
        /// In whichever order ranks come, the outcome is that of a plain loop: NaN wins, and ties take the lowest index
        /// with the value that stands there.
        #[test]
        fn places_are_those_of_a_plain_loop(values in values(), turn in 0_usize..8) {
            let least = place(&values, |left, right| left < right);
            let most = place(&values, |left, right| left > right);
            for (found, expected) in [
                (folded(&values, turn, MinLoc), least),
                (folded(&values, turn, MaxLoc), most),
            ] {
                prop_assert_eq!(usize::from(found.index()), expected);
                prop_assert_eq!(found.value().to_bits(), values[expected].to_bits());
            }
        }

        /// Integers have the place of their first minimum and maximum.
        #[test]
        fn integers_have_places(values in prop::collection::vec(-2_i64..2, 1..8)) {
            let located = values.iter().copied().zip(-4_i64..);
            let located: Vec<_> = located.map(|(value, index)| vec![Located::new(value, index)]).collect();
            let place = |value: i64| values.iter().position(|&other| other == value).unwrap() as i64 - 4;
            let (least, most) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            let found = ordered_fold(located.clone(), MinLoc).unwrap().unwrap()[0];
            prop_assert_eq!(found, Located::new(least, place(least)));
            let found = ordered_fold(located, MaxLoc).unwrap().unwrap()[0];
            prop_assert_eq!(found, Located::new(most, place(most)));
        }
    }

    /// Pairs with the same index do not depend on the side either.
    #[test]
    fn sides_make_no_difference() {
        let (minus, plus) = (Located::new(-0.0_f64, 7_i32), Located::new(0.0, 7));
        for order in [Ordering::Less, Ordering::Greater] {
            assert!(minus.first(plus, order).value().is_sign_negative());
            assert!(plus.first(minus, order).value().is_sign_negative());
        }
    }
}
