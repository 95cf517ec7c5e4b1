//! The types of numbers that an array may have here.

use std::fmt;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
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
    const TABLE: [(Self, &str, &str); 10] = [
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
        usize::from(self.code().as_bytes()[1] - b'0')
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
            let bits: usize = name[1..].parse().unwrap();
            assert_eq!(element.size() * 8, bits);
        }
        assert_eq!(ElementType::from_code("c8"), None);
    }
}
