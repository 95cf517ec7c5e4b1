//! Types of elements, and the formats by which Python describes them.

use std::{borrow::Cow, ffi::CStr};

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
    /// A value and its index, without a gap between them.
    Located(ValueType, IndexType),
    U8,
    U16,
    U32,
    U64,
}

/// The types of values that can have an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

/// The types of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexType {
    I32,
    I64,
}

/// Evaluates an expression with a name for the Rust type of elements.
macro_rules! with_type {
    ($element:expr, $T:ident => $body:expr) => {{
        use ropewalk_reduce::Located;

        use crate::element::{ElementType, IndexType, ValueType};
        crate::element::with_type!(@ $element, $T => $body;
            ElementType::Bf16 => half::bf16;
            ElementType::Bool => ropewalk_reduce::Bool;
            ElementType::C64 => num_complex::Complex<f32>;
            ElementType::C128 => num_complex::Complex<f64>;
            ElementType::F16 => half::f16;
            ElementType::F32 => f32;
            ElementType::F64 => f64;
            ElementType::I8 => i8;
            ElementType::I16 => i16;
            ElementType::I32 => i32;
            ElementType::I64 => i64;
            ElementType::Located(ValueType::F32, IndexType::I32) => Located<f32, i32>;
            ElementType::Located(ValueType::F32, IndexType::I64) => Located<f32, i64>;
            ElementType::Located(ValueType::F64, IndexType::I32) => Located<f64, i32>;
            ElementType::Located(ValueType::F64, IndexType::I64) => Located<f64, i64>;
            ElementType::Located(ValueType::I32, IndexType::I32) => Located<i32, i32>;
            ElementType::Located(ValueType::I32, IndexType::I64) => Located<i32, i64>;
            ElementType::Located(ValueType::I64, IndexType::I32) => Located<i64, i32>;
            ElementType::Located(ValueType::I64, IndexType::I64) => Located<i64, i64>;
            ElementType::Located(ValueType::U32, IndexType::I32) => Located<u32, i32>;
            ElementType::Located(ValueType::U32, IndexType::I64) => Located<u32, i64>;
            ElementType::Located(ValueType::U64, IndexType::I32) => Located<u64, i32>;
            ElementType::Located(ValueType::U64, IndexType::I64) => Located<u64, i64>;
            ElementType::U8 => u8;
            ElementType::U16 => u16;
            ElementType::U32 => u32;
            ElementType::U64 => u64;
        )
    }};
    (@ $element:expr, $T:ident => $body:expr; $($variant:pat => $type:ty;)*) => {
        match $element {
            $($variant => {
                type $T = $type;
                $body
            })*
        }
    };
}
pub(crate) use with_type;

impl ElementType {
    /// The type that a format of Python's module `struct` describes; complex numbers and structures are as PEP 3118 has
    /// them. `None` for other structures than a value with its index, other byte orders and types without arithmetic.
    pub(crate) fn from_format(format: &CStr, item_bytes: usize) -> Option<Self> {
        let format = format.to_bytes();
        if let Some(fields) = format.strip_prefix(b"T{") {
            return Self::from_fields(fields.strip_suffix(b"}")?, item_bytes);
        }
        let code = match format {
            [b'@' | b'=', code @ ..] => code,
            [order, code @ ..] if *order == NATIVE_ORDER => code,
            // The order of single bytes does not matter.
            [b'<' | b'>' | b'!' | b'|', code @ ..] if item_bytes == 1 => code,
            code => code,
        };
        Self::from_code(code, item_bytes)
    }

    fn from_code(code: &[u8], item_bytes: usize) -> Option<Self> {
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

    /// The type of the fields `value code : name : index code : name :`. The sign of a byte order holds until the next
    /// one. A gap stands before a code as `x`, or shows in the size of the whole.
    fn from_fields(fields: &[u8], item_bytes: usize) -> Option<Self> {
        let mut parts = fields.split(|&byte| byte == b':');
        let mut has_standard_sizes = false;
        let mut fields = [None; 2];
        for field in &mut fields {
            let code = match parts.next()? {
                [b'@' | b'^', code @ ..] => {
                    has_standard_sizes = false;
                    code
                }
                [order, code @ ..] if [b'=', NATIVE_ORDER].contains(order) => {
                    has_standard_sizes = true;
                    code
                }
                code => code,
            };
            let bytes = match code {
                b"i" | b"I" | b"f" => 4,
                b"l" | b"L" if has_standard_sizes => 4,
                b"l" | b"L" => size_of::<std::ffi::c_long>(),
                b"q" | b"Q" | b"d" => 8,
                _ => return None,
            };
            *field = Self::from_code(code, bytes).map(|element| (element, bytes));
            let _name = parts.next()?;
        }
        let is_end = parts.next() == Some(b"") && parts.next().is_none();
        let [Some((value, value_bytes)), Some((index, index_bytes))] = fields else {
            return None;
        };
        if !is_end || value_bytes + index_bytes != item_bytes {
            return None;
        }
        let value = match value {
            Self::F32 => ValueType::F32,
            Self::F64 => ValueType::F64,
            Self::I32 => ValueType::I32,
            Self::I64 => ValueType::I64,
            Self::U32 => ValueType::U32,
            Self::U64 => ValueType::U64,
            _ => return None,
        };
        let index = match index {
            Self::I32 => IndexType::I32,
            Self::I64 => IndexType::I64,
            _ => return None,
        };
        Some(Self::Located(value, index))
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
            Self::Located(value, IndexType::I32) => match value {
                ValueType::F32 => c"T{=f:value:=i:index:}",
                ValueType::F64 => c"T{=d:value:=i:index:}",
                ValueType::I32 => c"T{=i:value:=i:index:}",
                ValueType::I64 => c"T{=q:value:=i:index:}",
                ValueType::U32 => c"T{=I:value:=i:index:}",
                ValueType::U64 => c"T{=Q:value:=i:index:}",
            },
            Self::Located(value, IndexType::I64) => match value {
                ValueType::F32 => c"T{=f:value:=q:index:}",
                ValueType::F64 => c"T{=d:value:=q:index:}",
                ValueType::I32 => c"T{=i:value:=q:index:}",
                ValueType::I64 => c"T{=q:value:=q:index:}",
                ValueType::U32 => c"T{=I:value:=q:index:}",
                ValueType::U64 => c"T{=Q:value:=q:index:}",
            },
            Self::U8 => c"B",
            Self::Bf16 | Self::U16 => c"H",
            Self::U32 => c"I",
            Self::U64 => c"Q",
        }
    }

    /// The name that NumPy uses, and for a value with its index those of the two.
    pub(crate) fn name(self) -> Cow<'static, str> {
        let name = match self {
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
            Self::Located(value, index) => {
                let (value, index) = (value.element().name(), index.element().name());
                return format!("({value}, {index})").into();
            }
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
        };
        name.into()
    }
}

impl ValueType {
    fn element(self) -> ElementType {
        match self {
            Self::F32 => ElementType::F32,
            Self::F64 => ElementType::F64,
            Self::I32 => ElementType::I32,
            Self::I64 => ElementType::I64,
            Self::U32 => ElementType::U32,
            Self::U64 => ElementType::U64,
        }
    }
}

impl IndexType {
    fn element(self) -> ElementType {
        match self {
            Self::I32 => ElementType::I32,
            Self::I64 => ElementType::I64,
        }
    }
}

/// The sign of this machine's byte order.
const NATIVE_ORDER: u8 = if cfg!(target_endian = "little") {
    b'<'
} else {
    b'>'
};
