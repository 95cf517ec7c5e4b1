//! Types of elements, and the operations that each knows.

use std::ffi::CStr;

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use ropewalk_reduce::{Max, Min, Operation, Prod, Reducer, Sum, elementwise};

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
    /// `bfloat16` of ml_dtypes, whose buffers say that they hold unsigned integers.
    Bf16,
    /// One byte, 0 or 1.
    Bool,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// The operations that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Max,
    Min,
    Prod,
    Sum,
}

/// A type that collective calls know.
pub(crate) trait Element: Pod + Send + Sync {
    /// The operation on these elements; `None` if there is none, as for the larger of two complex numbers.
    fn operation(operator: Operator) -> Option<Operation<Vec<Self>>>;
}

/// Evaluates an expression with a name for the Rust type of elements.
macro_rules! with_type {
    ($element:expr, $T:ident => $body:expr) => {{
        use half::{bf16, f16};
        use num_complex::Complex;

        use crate::element::{Bool, ElementType};
        match $element {
            ElementType::Bf16 => {
                type $T = bf16;
                $body
            }
            ElementType::Bool => {
                type $T = Bool;
                $body
            }
            ElementType::C64 => {
                type $T = Complex<f32>;
                $body
            }
            ElementType::C128 => {
                type $T = Complex<f64>;
                $body
            }
            ElementType::F16 => {
                type $T = f16;
                $body
            }
            ElementType::F32 => {
                type $T = f32;
                $body
            }
            ElementType::F64 => {
                type $T = f64;
                $body
            }
            ElementType::I8 => {
                type $T = i8;
                $body
            }
            ElementType::I16 => {
                type $T = i16;
                $body
            }
            ElementType::I32 => {
                type $T = i32;
                $body
            }
            ElementType::I64 => {
                type $T = i64;
                $body
            }
            ElementType::U8 => {
                type $T = u8;
                $body
            }
            ElementType::U16 => {
                type $T = u16;
                $body
            }
            ElementType::U32 => {
                type $T = u32;
                $body
            }
            ElementType::U64 => {
                type $T = u64;
                $body
            }
        }
    }};
}
pub(crate) use with_type;

impl ElementType {
    /// The type that a format of Python's module `struct` describes; complex numbers are as PEP 3118 has them.
    /// `None` for structures, other byte orders and types without arithmetic.
    pub(crate) fn from_format(format: &CStr, item_bytes: usize) -> Option<Self> {
        let format = format.to_bytes();
        let native = if cfg!(target_endian = "little") {
            b'<'
        } else {
            b'>'
        };
        let code = match format {
            [b'@' | b'=', code @ ..] => code,
            [order, code @ ..] if *order == native => code,
            // The order of single bytes does not matter.
            [b'<' | b'>' | b'!' | b'|', code @ ..] if item_bytes == 1 => code,
            code => code,
        };
        Some(match (code, item_bytes) {
            (b"?", 1) => Self::Bool,
            (b"e", 2) => Self::F16,
            (b"f", 4) => Self::F32,
            (b"d", 8) => Self::F64,
            (b"Zf", 8) => Self::C64,
            (b"Zd", 16) => Self::C128,
            ([b'b' | b'h' | b'i' | b'l' | b'q' | b'n'], bytes) => match bytes {
                1 => Self::I8,
                2 => Self::I16,
                4 => Self::I32,
                8 => Self::I64,
                _ => return None,
            },
            ([b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' | b'c'], bytes) => match bytes {
                1 => Self::U8,
                2 => Self::U16,
                4 => Self::U32,
                8 => Self::U64,
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The format by which results are described; for `bf16` that of its bits.
    pub(crate) fn format(self) -> &'static CStr {
        match self {
            Self::Bool => c"?",
            Self::C64 => c"Zf",
            Self::C128 => c"Zd",
            Self::F16 => c"e",
            Self::F32 => c"f",
            Self::F64 => c"d",
            Self::I8 => c"b",
            Self::I16 => c"h",
            Self::I32 => c"i",
            Self::I64 => c"q",
            Self::U8 => c"B",
            Self::Bf16 | Self::U16 => c"H",
            Self::U32 => c"I",
            Self::U64 => c"Q",
        }
    }

    /// The name that NumPy uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::Bool => "bool",
            Self::C64 => "complex64",
            Self::C128 => "complex128",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
        }
    }
}

impl Operator {
    /// The names that a caller can use.
    pub(crate) const NAMES: &str = "\"max\", \"min\", \"prod\" and \"sum\"";

    /// The operation of a name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "max" => Self::Max,
            "min" => Self::Min,
            "prod" => Self::Prod,
            "sum" => Self::Sum,
            _ => return None,
        })
    }
}

/// A truth value of NumPy: a byte that is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Bool(u8);

impl Element for Bool {
    /// The smaller is false if one is, the larger true if one is; a sum of truth values is none.
    fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
        match operator {
            Operator::Max => Some(elementwise("max", |left: Self, right: Self| {
                Self(left.0 | right.0)
            })),
            Operator::Min => Some(elementwise("min", |left: Self, right: Self| {
                Self(left.0 & right.0)
            })),
            Operator::Prod | Operator::Sum => None,
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Element for $number {
            fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
                Some(match operator {
                    Operator::Max => Max.into_operation(),
                    Operator::Min => Min.into_operation(),
                    Operator::Prod => Prod.into_operation(),
                    Operator::Sum => Sum.into_operation(),
                })
            }
        }
    )*};
}

numbers! { f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! short_floats {
    ($($float:ty)*) => {$(
        impl Element for $float {
            /// Each combination is rounded to 16 bits.
            fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
                Some(match operator {
                    Operator::Max => elementwise("max", |left: Self, right: Self| {
                        let right_is_larger = right > left || (right == left && right.is_sign_positive());
                        if left.is_nan() || !(right_is_larger || right.is_nan()) { left } else { right }
                    }),
                    Operator::Min => elementwise("min", |left: Self, right: Self| {
                        let right_is_smaller = right < left || (right == left && right.is_sign_negative());
                        if left.is_nan() || !(right_is_smaller || right.is_nan()) { left } else { right }
                    }),
                    Operator::Prod => elementwise("prod", |left: Self, right: Self| left * right),
                    Operator::Sum => elementwise("sum", |left: Self, right: Self| left + right),
                })
            }
        }
    )*};
}

short_floats! { bf16 f16 }

macro_rules! complex {
    ($($float:ty)*) => {$(
        impl Element for Complex<$float> {
            /// Complex numbers have no order.
            fn operation(operator: Operator) -> Option<Operation<Vec<Self>>> {
                match operator {
                    Operator::Prod => Some(elementwise("prod", |left: Self, right: Self| left * right)),
                    Operator::Sum => Some(elementwise("sum", |left: Self, right: Self| left + right)),
                    Operator::Max | Operator::Min => None,
                }
            }
        }
    )*};
}

complex! { f32 f64 }
