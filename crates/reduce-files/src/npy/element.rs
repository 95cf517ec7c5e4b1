//! The types of numbers that an array may have here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ElementType {
    /// 16-bit floating-point number with the exponent of an `F32`. NumPy knows it from the package `ml_dtypes`, and
    /// saves it as two bytes without a meaning.
    Bf16,
    /// Truth value, in a byte.
    Bool,
    /// Complex number of two `F32`.
    C64,
    /// Complex number of two `F64`.
    C128,
    /// 16-bit floating-point number (IEEE 754 binary16).
    F16,
    /// 32-bit floating-point number.
    F32,
    /// 64-bit floating-point number.
    F64,
    /// 8-bit integer with sign.
    I8,
    /// 16-bit integer with sign.
    I16,
    /// 32-bit integer with sign.
    I32,
    /// 64-bit integer with sign.
    I64,
    /// 8-bit integer without sign.
    U8,
    /// 16-bit integer without sign.
    U16,
    /// 32-bit integer without sign.
    U32,
    /// 64-bit integer without sign.
    U64,
}

impl ElementType {
    /// All of them, with NumPy's code and our name for each.
    const TABLE: [(Self, &str, &str); 15] = [
        (Self::Bf16, "V2", "bf16"),
        (Self::Bool, "b1", "bool"),
        (Self::C64, "c8", "complex64"),
        (Self::C128, "c16", "complex128"),
        (Self::F16, "f2", "f16"),
        (Self::F32, "f4", "f32"),
        (Self::F64, "f8", "f64"),
        (Self::I8, "i1", "i8"),
        (Self::I16, "i2", "i16"),
        (Self::I32, "i4", "i32"),
        (Self::I64, "i8", "i64"),
        (Self::U8, "u1", "u8"),
        (Self::U16, "u2", "u16"),
        (Self::U32, "u4", "u32"),
        (Self::U64, "u8", "u64"),
    ];

    /// The type that NumPy writes as `code`, the kind and the size in bytes, as in `f4`.
    pub fn from_code(code: &str) -> Option<Self> {
        let row = Self::TABLE.iter().find(|row| row.1 == code);
        row.map(|row| row.0)
    }

    /// The kind and the size in bytes, as NumPy writes them.
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// The size of an element in bytes.
    pub fn size(self) -> usize {
        let digits = self.code()[1..].bytes();
        digits.fold(0, |size, digit| size * 10 + usize::from(digit - b'0'))
    }

    /// The size in bytes of what has an order of bytes: of each half of a complex number.
    pub fn swapped_size(self) -> usize {
        match self {
            Self::C64 | Self::C128 => self.size() / 2,
            _ => self.size(),
        }
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        let row = Self::TABLE.iter().find(|row| row.0 == self);
        row.expect("the table has a row for each type")
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each type is found by its own code, and its size is the code's.
    #[test]
    fn codes_name_types() {
        for (element, code, name) in ElementType::TABLE {
            assert_eq!(ElementType::from_code(code), Some(element));
            let bits = name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
            assert_eq!(element.size() * 8, bits.parse().unwrap_or(8));
        }
        assert_eq!(ElementType::from_code("V1"), None);
    }
}
