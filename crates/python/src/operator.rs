//! The operations that have names, and those that each type of elements knows.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use ropewalk_reduce::{
    Accumulator, Bits, BitwiseAnd, BitwiseOr, BitwiseXor, Bool, Located, LogicalAnd, LogicalOr, LogicalXor,
    Max, MaxLoc, Min, MinLoc, Number, Operation, Ordered, Prod, Reducer, Sum,
};

/// The operations that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    ExactSum,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    MaxLoc,
    Min,
    MinLoc,
    Prod,
    Sum,
}

impl Operator {
    /// The names that a caller can use: those of MPI, and that of `math.fsum`.
    const NAMES: [(&str, Self); 13] = [
        ("band", Self::BitwiseAnd),
        ("bor", Self::BitwiseOr),
        ("bxor", Self::BitwiseXor),
        ("fsum", Self::ExactSum),
        ("land", Self::LogicalAnd),
        ("lor", Self::LogicalOr),
        ("lxor", Self::LogicalXor),
        ("max", Self::Max),
        ("maxloc", Self::MaxLoc),
        ("min", Self::Min),
        ("minloc", Self::MinLoc),
        ("prod", Self::Prod),
        ("sum", Self::Sum),
    ];

    /// The operation of a name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, operator)| *operator)
    }

    /// The names of some operations, for a message.
    pub(crate) fn names(is_meant: impl Fn(Self) -> bool) -> String {
        let meant = Self::NAMES.iter().filter(|(_, operator)| is_meant(*operator));
        let quoted: Vec<String> = meant.map(|(name, _)| format!("{name:?}")).collect();
        quoted.join(", ")
    }
}

/// A type that collective calls know.
pub(crate) trait Element: Pod + Send + Sync {
    /// The operation on these elements; `None` if there is none, as for the larger of two complex numbers.
    fn operation(operator: Operator) -> Option<Operation<Vec<Self>>>;
}

/// A type of which sums are exact, on their way as [`Accumulator`]s.
pub(crate) trait Float: Element + Into<Accumulator> {
    /// The nearest one.
    fn nearest(sum: &Accumulator) -> Self;
}

impl Float for f32 {
    fn nearest(sum: &Accumulator) -> Self {
        sum.to_f32()
    }
}

impl Float for f64 {
    fn nearest(sum: &Accumulator) -> Self {
        sum.to_f64()
    }
}

/// Has the operations of several families.
macro_rules! elements {
    ($($element:ty: $first:ident $($other:ident)*;)*) => {$(
        impl Element for $element {
            fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
                $first(operator)$(.or_else(|| $other(operator)))*
            }
        }
    )*};
}

elements! {
    Bool: ordered bits;
    Complex<f32>: arithmetic;
    Complex<f64>: arithmetic;
    bf16: arithmetic ordered;
    f16: arithmetic ordered;
    f32: arithmetic ordered;
    f64: arithmetic ordered;
    i8: arithmetic ordered bits;
    i16: arithmetic ordered bits;
    i32: arithmetic ordered bits;
    i64: arithmetic ordered bits;
    u8: arithmetic ordered bits;
    u16: arithmetic ordered bits;
    u32: arithmetic ordered bits;
    u64: arithmetic ordered bits;
}

impl<V: Ordered, I: Ordered + Ord> Element for Located<V, I> {
    fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
        match operator {
            Operator::MaxLoc => Some(MaxLoc.into_operation()),
            Operator::MinLoc => Some(MinLoc.into_operation()),
            _ => None,
        }
    }
}

fn arithmetic<T: Number>(operator: Operator) -> Option<Operation<Vec<T>>> {
    match operator {
        Operator::Prod => Some(Prod.into_operation()),
        Operator::Sum => Some(Sum.into_operation()),
        _ => None,
    }
}

fn ordered<T: Ordered>(operator: Operator) -> Option<Operation<Vec<T>>> {
    match operator {
        Operator::Max => Some(Max.into_operation()),
        Operator::Min => Some(Min.into_operation()),
        _ => None,
    }
}

fn bits<T: Bits>(operator: Operator) -> Option<Operation<Vec<T>>> {
    match operator {
        Operator::BitwiseAnd => Some(BitwiseAnd.into_operation()),
        Operator::BitwiseOr => Some(BitwiseOr.into_operation()),
        Operator::BitwiseXor => Some(BitwiseXor.into_operation()),
        Operator::LogicalAnd => Some(LogicalAnd.into_operation()),
        Operator::LogicalOr => Some(LogicalOr.into_operation()),
        Operator::LogicalXor => Some(LogicalXor.into_operation()),
        _ => None,
    }
}
