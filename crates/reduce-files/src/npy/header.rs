//! The header of an array file, which stands before the elements.

use std::fmt::Write as _;

use thiserror::Error;

use super::ElementType;

/// The header of an array file: the type, the byte order and the index order of its elements, and its shape.
///
/// ```
/// use ropewalk_reduce_files::npy::{ElementType, Header};
///
/// let header = Header::new(ElementType::F32, vec![2, 3]);
/// let (read, length) = Header::parse(&header.encode())?;
/// assert_eq!(read, header);
/// assert_eq!(read.data_size(), 24);
/// assert_eq!(length, 128);
/// # Ok::<(), ropewalk_reduce_files::npy::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    element: ElementType,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Header {
    /// The longest header text, in bytes; NumPy reads no longer one either unless it is told to.
    pub const TEXT_SIZE_MAX: usize = 10_000;
    /// The most bytes from the start of a file that [`parse`](Self::parse) needs.
    pub const SIZE_MAX: usize = Self::TEXT_SIZE_MAX + 12;
    /// The most dimensions, as in NumPy 2.
    pub const DIMENSIONS_MAX: usize = 64;

    /// The header of an array in this machine's byte order, its last index running fastest.
    ///
    /// # Panics
    /// If the array would have more than [`Self::DIMENSIONS_MAX`] dimensions or more bytes than fit an `i64`.
    pub fn new(element: ElementType, shape: Vec<u64>) -> Self {
        assert!(
            is_possible(element, &shape),
            "no array of {element} can have the shape {shape:?}"
        );
        Self {
            element,
            big_endian: cfg!(target_endian = "big"),
            fortran_order: false,
            shape,
        }
    }

    /// This header with the first index running fastest, if `fortran_order` is true, or the last.
    #[must_use]
    pub fn with_fortran_order(self, fortran_order: bool) -> Self {
        Self {
            fortran_order,
            ..self
        }
    }

    /// Reads the header that a file begins with, of which `start` is the first [`Self::SIZE_MAX`] bytes or all;
    /// returns it and its length in bytes.
    ///
    /// # Errors
    /// If this is no array file, or one of a kind that is not read here.
    pub fn parse(start: &[u8]) -> Result<(Self, usize), HeaderError> {
        let Some(rest) = start.strip_prefix(MAGIC) else {
            // A file that ends within the magic number was a good one once.
            let cut = start.len() < MAGIC.len() && MAGIC.starts_with(start);
            return Err(if cut {
                HeaderError::Truncated
            } else {
                HeaderError::Magic
            });
        };
        let (length, text) = match *rest {
            [1, 0, a, b, ref text @ ..] => (u64::from(u16::from_le_bytes([a, b])), text),
            [2 | 3, 0, a, b, c, d, ref text @ ..] => (u64::from(u32::from_le_bytes([a, b, c, d])), text),
            [1..=3, 0, ..] | [] | [_] => return Err(HeaderError::Truncated),
            [major, minor, ..] => return Err(HeaderError::Version { major, minor }),
        };
        let length = match usize::try_from(length) {
            Ok(length) if length <= Self::TEXT_SIZE_MAX => length,
            _ => return Err(HeaderError::TooLong { length }),
        };
        let end = start.len() - text.len() + length;
        let text = text.get(..length).ok_or(HeaderError::Truncated)?;
        Ok((parse_text(text)?, end))
    }

    /// The bytes that a file with this header begins with, in the oldest version, which every NumPy reads.
    pub fn encode(&self) -> Vec<u8> {
        let order = match (self.element.size(), self.big_endian) {
            (1, _) => '|',
            (_, true) => '>',
            (_, false) => '<',
        };
        let mut text = format!(
            "{{'descr': '{order}{}', 'fortran_order': {}, 'shape': {}, }}",
            self.element.code(),
            if self.fortran_order { "True" } else { "False" },
            self.shape_text(),
        );
        // The elements start on a multiple of 64 bytes, after a line feed.
        let unpadded = MAGIC.len() + 4 + text.len() + 1;
        text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
        text.push('\n');
        let length = u16::try_from(text.len()).expect("64 dimensions of 20 digits are far below 64 KiB");
        [MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat()
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Returns true if the bytes of an element stand in this machine's order.
    pub fn is_native(&self) -> bool {
        self.element.size() == 1 || self.big_endian == cfg!(target_endian = "big")
    }

    /// Returns true if the first index runs fastest, false if the last one does.
    pub fn fortran_order(&self) -> bool {
        self.fortran_order
    }

    /// The length of each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The shape as Python writes it: `()`, `(3,)`, `(3, 4)`.
    pub fn shape_text(&self) -> String {
        let mut text = String::from("(");
        for (at, length) in self.shape.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(text, "{comma}{length}").expect("writing to a string cannot fail");
        }
        text.push_str(if self.shape.len() == 1 { ",)" } else { ")" });
        text
    }

    /// How many elements there are.
    pub fn element_count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// How many bytes the elements take.
    pub fn data_size(&self) -> u64 {
        self.element_count() * self.element.size() as u64
    }
}

/// Why a file is no array file that can be read here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The elements are no plain numbers.
    #[error(
        "its elements are {descr}; only bool, integers of 8 to 64 bits, f16, bf16, f32, f64 and complex numbers of \
         two f32 or f64 can be reduced"
    )]
    Element {
        /// The element type as the header describes it.
        descr: String,
    },
    /// It does not begin as an array file does.
    #[error("it is no .npy file")]
    Magic,
    /// The header text is not what NumPy writes.
    #[error("its header is damaged: {problem}")]
    Malformed {
        /// The defect.
        problem: &'static str,
    },
    /// The header is longer than any that describes plain numbers.
    #[error(
        "its header of {length} bytes is longer than the longest, {}",
        Header::TEXT_SIZE_MAX
    )]
    TooLong {
        /// Its length in bytes.
        length: u64,
    },
    /// The file ends within its header.
    #[error("it is truncated: it ends within its header")]
    Truncated,
    /// A version of the format that is not known here.
    #[error("it has version {major}.{minor} of the .npy format; known are 1.0, 2.0 and 3.0")]
    Version {
        /// The version before the point.
        major: u8,
        /// The version behind it.
        minor: u8,
    },
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Returns true if an array can have this shape: numbers of elements and bytes must not overflow, even where
/// a dimension of length 0 makes the product 0.
fn is_possible(element: ElementType, shape: &[u64]) -> bool {
    let bytes = (shape.iter().filter(|&&length| length != 0))
        .try_fold(element.size() as u64, |product, &length| {
            product.checked_mul(length)
        });
    shape.len() <= Header::DIMENSIONS_MAX && bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok())
}

fn parse_text(text: &[u8]) -> Result<Header, HeaderError> {
    let text = std::str::from_utf8(text).map_err(|_| malformed("it is no text"))?;
    let mut literal = Literal { rest: text };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    literal.expect('{')?;
    while !literal.take('}') {
        let key = literal.string()?;
        literal.expect(':')?;
        let first = match key {
            "descr" => descr.replace(literal.element()?).is_none(),
            "fortran_order" => fortran_order.replace(literal.boolean()?).is_none(),
            "shape" => shape.replace(literal.shape()?).is_none(),
            _ => {
                return Err(malformed(
                    "it has a key that is none of descr, fortran_order and shape",
                ));
            }
        };
        if !first {
            return Err(malformed("a key stands twice"));
        }
        if !literal.take(',') {
            literal.expect('}')?;
            break;
        }
    }
    if !literal.rest.trim_ascii().is_empty() {
        return Err(malformed("something follows it"));
    }
    let (Some((element, big_endian)), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape)
    else {
        return Err(malformed("one of descr, fortran_order and shape is missing"));
    };
    if !is_possible(element, &shape) {
        return Err(malformed("no memory could hold an array of that shape"));
    }
    Ok(Header {
        element,
        big_endian,
        fortran_order,
        shape,
    })
}

fn malformed(problem: &'static str) -> HeaderError {
    HeaderError::Malformed { problem }
}

/// The unread rest of a Python literal. Only the parts of the language that NumPy writes are understood.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn take(&mut self, character: char) -> bool {
        self.rest = self.rest.trim_ascii_start();
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, character: char) -> Result<(), HeaderError> {
        if self.take(character) {
            Ok(())
        } else {
            Err(malformed("it is no Python dictionary as NumPy writes it"))
        }
    }

    /// A string without escapes: none of ours has any.
    fn string(&mut self) -> Result<&'a str, HeaderError> {
        let quote = if self.take('\'') {
            '\''
        } else if self.take('"') {
            '"'
        } else {
            return Err(malformed("a string was expected"));
        };
        let (string, rest) = self
            .rest
            .split_once(quote)
            .ok_or(malformed("a string does not end"))?;
        self.rest = rest;
        Ok(string)
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_ascii_start();
        let end = self
            .rest
            .find(|character: char| !character.is_ascii_alphanumeric());
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn boolean(&mut self) -> Result<bool, HeaderError> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(malformed("True or False was expected")),
        }
    }

    /// An element type and whether it is big-endian.
    fn element(&mut self) -> Result<(ElementType, bool), HeaderError> {
        if self.rest.trim_ascii_start().starts_with('[') {
            return Err(HeaderError::Element {
                descr: "structures".into(),
            });
        }
        let descr = self.string()?;
        let unknown = || HeaderError::Element {
            // Another's text goes to a terminal: short, and without control characters.
            descr: descr.chars().take(20).flat_map(char::escape_default).collect(),
        };
        let order = descr.chars().next().ok_or_else(unknown)?;
        let element = descr
            .get(order.len_utf8()..)
            .and_then(ElementType::from_code)
            .ok_or_else(unknown)?;
        match order {
            '<' => Ok((element, false)),
            '>' => Ok((element, true)),
            '=' => Ok((element, cfg!(target_endian = "big"))),
            '|' if element.size() == 1 => Ok((element, false)),
            // NumPy forgets the order of bytes that mean nothing to it.
            '|' if element == ElementType::Bf16 => Ok((element, cfg!(target_endian = "big"))),
            _ => Err(unknown()),
        }
    }

    fn shape(&mut self) -> Result<Vec<u64>, HeaderError> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            if shape.len() == Header::DIMENSIONS_MAX {
                return Err(malformed("it has too many dimensions"));
            }
            let length = self
                .word()
                .parse()
                .map_err(|_| malformed("the shape is no tuple of lengths"))?;
            shape.push(length);
            if !self.take(',') {
                // `(3)` is a number in Python, no tuple.
                if shape.len() == 1 {
                    return Err(malformed("the shape is no tuple of lengths"));
                }
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [MAGIC, &[version, 0], length, text.as_bytes()].concat()
    }

    fn parse(text: &str) -> Result<Header, HeaderError> {
        Header::parse(&file(1, text)).map(|(header, _)| header)
    }

    /// The header equals, byte for byte, the one that NumPy 1.24 writes for
    /// `np.save(f, np.zeros((3, 4), "<f4"))`.
    #[test]
    fn writes_what_numpy_writes() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
        let expected = file(1, &format!("{text:117}\n"));
        assert_eq!(Header::new(ElementType::F32, vec![3, 4]).encode(), expected);
    }

    /// All versions, both quotes, any order of keys, and any spaces are understood.
    #[test]
    fn reads_what_numpy_may_write() {
        let expected = Header::new(ElementType::U8, vec![5]).with_fortran_order(true);
        let text = "{ \"shape\":(5 , ),'fortran_order' : True, 'descr': '|u1' }  \n";
        for version in 1..=3 {
            assert_eq!(Header::parse(&file(version, text)).unwrap().0, expected);
        }
        let scalar = parse("{'descr': '>i8', 'fortran_order': False, 'shape': ()}").unwrap();
        assert_eq!(
            (scalar.element_count(), scalar.data_size(), scalar.is_native()),
            (1, 8, false)
        );
        // `np.save` of an array of ml_dtypes' bfloat16, and of what `np.load` makes of that.
        for descr in ["<V2", "|V2"] {
            let header = parse(&format!(
                "{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}"
            ));
            let header = header.unwrap();
            assert_eq!((header.element(), header.is_native()), (ElementType::Bf16, true));
        }
    }

    /// A header that cannot be read is refused with the reason.
    #[test]
    fn refuses_what_it_cannot_read() {
        assert_eq!(Header::parse(b"PK\x03\x04"), Err(HeaderError::Magic));
        assert_eq!(Header::parse(b""), Err(HeaderError::Truncated));
        assert_eq!(
            Header::parse(b"\x93NUMPY\x01\x00\x76"),
            Err(HeaderError::Truncated)
        );
        assert_eq!(
            Header::parse(b"\x93NUMPY\x04\x00\x76\x00"),
            Err(HeaderError::Version { major: 4, minor: 0 })
        );
        let long = Header::parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff");
        assert_eq!(long, Err(HeaderError::TooLong { length: 0xffff_ffff }));
        let long = parse("{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}");
        assert_eq!(long, Err(HeaderError::Element { descr: "<f16".into() }));
        let structure = parse("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}");
        assert!(matches!(structure, Err(HeaderError::Element { .. })));
        for text in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} and more",
            "{'descr': '<f4",
            "{'more': '<f4', 'fortran_order': False, 'shape': (1,)}",
        ] {
            assert!(
                matches!(parse(text), Err(HeaderError::Malformed { .. })),
                "{text}"
            );
        }
    }

    fn any_element() -> impl Strategy<Value = ElementType> {
        let codes = [
            "V2", "b1", "c8", "c16", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8",
        ];
        proptest::sample::select(codes.to_vec()).prop_map(|code| ElementType::from_code(code).unwrap())
    }

    proptest! {
        /// Every header that can be made is read back as it was, and every shorter start is truncated.
        #[test]
        fn reads_what_it_wrote(
            element in any_element(),
            shape in prop::collection::vec(0u64..100, 0..8),
            fortran: bool,
        ) {
            let header = Header::new(element, shape).with_fortran_order(fortran);
            let bytes = header.encode();
            prop_assert_eq!(bytes.len() % 64, 0);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, bytes.len())));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Header::parse(&bytes[..cut]), Err(HeaderError::Truncated));
            }
        }

        /// No bytes make the parser panic.
        #[test]
        fn survives_garbage(
            text in "[{}(),:'a-z0-9<>| ]{0,80}",
            garbage in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = parse(&text);
            let _ = Header::parse(&garbage);
            let _ = Header::parse(&[MAGIC, &garbage].concat());
        }
    }
}
