//! The header of a file that holds named arrays and values.
//!
//! ```text
//! ropewalk state 1 00000192        version, length of the header in bytes
//! array float64 8 100x100 u        element, bytes of an element, shape (`-`: a single element), name
//! value int 3 count                type, bytes, name
//! end BLAKE3                       a checksum of the lines above
//! ```
//!
//! The bytes of the entries follow in the same order, each at the next multiple of [`STATE_ALIGNMENT`], as they stand
//! in memory (little-endian, the last axis contiguous); the gaps are zero.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use thiserror::Error;

/// An entry of a named state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    name: String,
    element: String,
    extent: Extent,
    bytes: u64,
}

/// The size of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extent {
    Array { item: u32, shape: Vec<u64> },
    Value,
}

/// The entries of a file, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateHeader {
    entries: Vec<StateEntry>,
}

/// Why bytes are no header of a named state, or a state cannot be described by one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateHeaderError {
    /// The first line is another one.
    #[error("expected a file of named state that begins with \"{VERSION}\"")]
    Version,
    /// The header is longer than any that is written.
    #[error(
        "the header of the state has more than {ENTRIES_MAX} entries or {STATE_HEADER_MAX} bytes: name fewer arrays"
    )]
    TooLong,
    /// The checksum is missing or differs.
    #[error("the header of the named state does not match its checksum: it was cut off or changed")]
    Checksum,
    /// A line is not as it is written.
    #[error("line {line} of the named state's header: expected an array or a value as ropewalk writes them")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// A name that cannot stand in the header.
    #[error("{0:?} is no name for saved state: use 1 to {NAME_MAX} bytes without control characters")]
    Name(String),
    /// The type of an element cannot stand in the header.
    #[error(
        "{0:?} is no type of an element: use 1 to {ELEMENT_MAX} ASCII characters without blanks, as float64"
    )]
    Element(String),
    /// A shape with too many axes or elements.
    #[error("{name} is too large: an array has at most {AXES_MAX} axes and 2**63 - 1 bytes")]
    Shape {
        /// The array.
        name: String,
    },
    /// Two entries with one name.
    #[error("there are two states with the name {0}: give each its own")]
    Twice(String),
}

/// The first difference between a saved state and the one that is to be restored.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateMismatch {
    /// The save lacks an entry.
    #[error("the save holds nothing named {name}, which this program wants to restore; it holds {saved}")]
    Missing {
        /// The name.
        name: String,
        /// All names of the save.
        saved: String,
    },
    /// The program lacks an entry.
    #[error("the save holds {name}, which this program does not name; it names {named}")]
    Unnamed {
        /// The name.
        name: String,
        /// All names of the program.
        named: String,
    },
    /// Element or shape differ.
    #[error("{name} was saved as {saved}, and this program has {found}")]
    Differs {
        /// The name.
        name: String,
        /// As it was saved.
        saved: String,
        /// As the program has it.
        found: String,
    },
}

impl StateEntry {
    /// An array whose elements have `item` bytes each. An empty shape stands for a single element.
    ///
    /// # Errors
    /// If the name or the element cannot be written, or the array is too large.
    pub fn array(name: &str, element: &str, item: u32, shape: &[u64]) -> Result<Self, StateHeaderError> {
        let sized = |bytes: u64, &length: &u64| bytes.checked_mul(length);
        let bytes = shape.iter().try_fold(u64::from(item), sized);
        let bytes = bytes.filter(|&bytes| shape.len() <= AXES_MAX && item > 0 && bytes <= i64::MAX as u64);
        Self {
            name: name.to_owned(),
            element: element.to_owned(),
            extent: Extent::Array {
                item,
                shape: shape.to_vec(),
            },
            bytes: bytes.ok_or_else(|| StateHeaderError::Shape {
                name: name.to_owned(),
            })?,
        }
        .checked()
    }

    /// A value of some bytes, whose type and length may be others in each save.
    ///
    /// # Errors
    /// If the name or the type cannot be written, or the value is too large.
    pub fn value(name: &str, kind: &str, bytes: u64) -> Result<Self, StateHeaderError> {
        if bytes > i64::MAX as u64 {
            return Err(StateHeaderError::Shape {
                name: name.to_owned(),
            });
        }
        Self {
            name: name.to_owned(),
            element: kind.to_owned(),
            extent: Extent::Value,
            bytes,
        }
        .checked()
    }

    fn checked(self) -> Result<Self, StateHeaderError> {
        if self.name.is_empty() || self.name.len() > NAME_MAX || self.name.chars().any(char::is_control) {
            return Err(StateHeaderError::Name(self.name));
        }
        let is_graphic = self.element.bytes().all(|byte| byte.is_ascii_graphic());
        if self.element.is_empty() || self.element.len() > ELEMENT_MAX || !is_graphic {
            return Err(StateHeaderError::Element(self.element));
        }
        Ok(self)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements, or of the value.
    pub fn element(&self) -> &str {
        &self.element
    }

    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True for a value, false for an array.
    pub fn is_value(&self) -> bool {
        self.extent == Extent::Value
    }

    fn line(&self) -> String {
        let Self {
            name, element, bytes, ..
        } = self;
        match &self.extent {
            Extent::Array { item, shape } => format!("array {element} {item} {} {name}", written(shape)),
            Extent::Value => format!("value {element} {bytes} {name}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let (element, rest) = rest.split_once(' ')?;
        let (size, rest) = rest.split_once(' ')?;
        match kind {
            "array" => {
                let (shape, name) = rest.split_once(' ')?;
                let shape: Option<Vec<u64>> = match shape {
                    "-" => Some(Vec::new()),
                    axes => axes.split('x').map(|axis| axis.parse().ok()).collect(),
                };
                Self::array(name, element, size.parse().ok()?, &shape?).ok()
            }
            "value" => Self::value(rest, element, size.parse().ok()?).ok(),
            _ => None,
        }
    }

    /// The saved entry can be restored into this one.
    fn fits(&self, saved: &Self) -> bool {
        match (&self.extent, &saved.extent) {
            (Extent::Value, Extent::Value) => true,
            (own, other) => own == other && self.element == saved.element,
        }
    }
}

/// In words, as `float64 of shape 100x100`.
impl fmt::Display for StateEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.extent {
            Extent::Value => write!(f, "a value ({})", self.element),
            Extent::Array { item, shape } => {
                write!(f, "{} of {item} bytes, shape {}", self.element, written(shape))
            }
        }
    }
}

impl StateHeader {
    /// The header of these entries.
    ///
    /// # Errors
    /// If two of them have the same name, or they are too many or too large together.
    pub fn new(entries: Vec<StateEntry>) -> Result<Self, StateHeaderError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = entries.iter().find(|entry| !names.insert(entry.name())) {
            return Err(StateHeaderError::Twice(twice.name.clone()));
        }
        let header = Self { entries };
        let length = header.encode().len();
        if length > STATE_HEADER_MAX || header.entries.len() > ENTRIES_MAX {
            return Err(StateHeaderError::TooLong);
        }
        let mut end = length as u64;
        for entry in &header.entries {
            end = aligned(end)
                .and_then(|start| start.checked_add(entry.bytes))
                .filter(|&end| end <= i64::MAX as u64)
                .ok_or_else(|| StateHeaderError::Shape {
                    name: entry.name.clone(),
                })?;
        }
        Ok(header)
    }

    /// The entries, in the order of their bytes.
    pub fn entries(&self) -> &[StateEntry] {
        &self.entries
    }

    /// The text at the beginning of the file.
    pub fn encode(&self) -> String {
        let mut lines = String::new();
        for entry in &self.entries {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{}", entry.line());
        }
        let length = FIRST_LINE + lines.len() + LAST_LINE;
        let body = format!("{VERSION}{length:08}\n{lines}");
        let sum = blake3::hash(body.as_bytes()).to_hex();
        format!("{body}end {sum}\n")
    }

    /// The length of the header, by the first [`STATE_PREFIX`] bytes of a file.
    ///
    /// # Errors
    /// If it is no file of named state, or the header longer than any that is written.
    pub fn length(prefix: &[u8]) -> Result<usize, StateHeaderError> {
        let digits = prefix
            .get(..STATE_PREFIX)
            .and_then(|prefix| std::str::from_utf8(prefix).ok())
            .and_then(|text| text.strip_prefix(VERSION)?.strip_suffix('\n'))
            .ok_or(StateHeaderError::Version)?;
        match digits.parse() {
            Ok(length) if length <= STATE_HEADER_MAX => Ok(length),
            Ok(_) => Err(StateHeaderError::TooLong),
            Err(_) => Err(StateHeaderError::Version),
        }
    }

    /// Reads a header of the length that its first line says. Takes no more memory than a small multiple of that.
    ///
    /// # Errors
    /// If it is not, to the last byte, what [`encode`](Self::encode) writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, StateHeaderError> {
        if Self::length(bytes)? != bytes.len() || bytes.len() < FIRST_LINE + LAST_LINE {
            return Err(StateHeaderError::Checksum);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| StateHeaderError::Checksum)?;
        let body = text
            .get(..text.len() - LAST_LINE)
            .ok_or(StateHeaderError::Checksum)?;
        let mut entries = Vec::new();
        for (index, line) in body.lines().enumerate().skip(1) {
            entries.push(StateEntry::parse(line).ok_or(StateHeaderError::Line { line: index + 1 })?);
        }
        let header = Self::new(entries)?;
        // Only one text stands for a header.
        match header.encode() == text {
            true => Ok(header),
            false => Err(StateHeaderError::Checksum),
        }
    }

    /// The offset of each entry's bytes in the file, and the length of the file at the end.
    pub fn offsets(&self) -> Vec<u64> {
        let mut end = self.encode().len() as u64;
        let mut offsets = Vec::with_capacity(self.entries.len() + 1);
        for entry in &self.entries {
            // `new` has looked that no sum overflows.
            let start = aligned(end).unwrap_or(u64::MAX);
            offsets.push(start);
            end = start.saturating_add(entry.bytes);
        }
        offsets.push(end);
        offsets
    }

    /// For each entry of this header, the index of the saved entry with its name.
    ///
    /// # Errors
    /// If names, elements or shapes differ. Values may have another type and length.
    pub fn matching(&self, saved: &Self) -> Result<Vec<usize>, StateMismatch> {
        let mut indices = Vec::with_capacity(self.entries.len());
        for own in &self.entries {
            let found = saved.entries.iter().position(|entry| entry.name == own.name);
            let index = found.ok_or_else(|| StateMismatch::Missing {
                name: own.name.clone(),
                saved: saved.names(),
            })?;
            let entry = &saved.entries[index];
            if !own.fits(entry) {
                return Err(StateMismatch::Differs {
                    name: own.name.clone(),
                    saved: entry.to_string(),
                    found: own.to_string(),
                });
            }
            indices.push(index);
        }
        match (0..saved.entries.len()).find(|index| !indices.contains(index)) {
            None => Ok(indices),
            Some(index) => Err(StateMismatch::Unnamed {
                name: saved.entries[index].name.clone(),
                named: self.names(),
            }),
        }
    }

    fn names(&self) -> String {
        match self.entries.is_empty() {
            true => "nothing".into(),
            false => {
                let names: Vec<&str> = self.entries.iter().map(StateEntry::name).collect();
                names.join(", ")
            }
        }
    }
}

/// The lengths of the axes, as `100x100`.
fn written(shape: &[u64]) -> String {
    match shape {
        [] => "-".into(),
        axes => axes.iter().map(u64::to_string).collect::<Vec<_>>().join("x"),
    }
}

fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(STATE_ALIGNMENT)
}

/// The multiple at which the bytes of an entry begin: a cache line, which any type of element may need.
pub const STATE_ALIGNMENT: u64 = 64;

/// The longest header that is read.
pub const STATE_HEADER_MAX: usize = 1 << 20;

/// The length of the first line, which says that of the header.
pub const STATE_PREFIX: usize = FIRST_LINE;

const VERSION: &str = "ropewalk state 1 ";
const FIRST_LINE: usize = VERSION.len() + 8 + 1;
/// `end `, 64 digits, and the end of the line.
const LAST_LINE: usize = 4 + 64 + 1;
const ENTRIES_MAX: usize = 4096;
const NAME_MAX: usize = 255;
const ELEMENT_MAX: usize = 64;
/// As many as NumPy has.
const AXES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(entries: &[StateEntry]) -> StateHeader {
        StateHeader::new(entries.to_vec()).unwrap()
    }

    fn array(name: &str, element: &str, shape: &[u64]) -> StateEntry {
        StateEntry::array(name, element, 8, shape).unwrap()
    }

    fn value(name: &str, kind: &str, bytes: u64) -> StateEntry {
        StateEntry::value(name, kind, bytes).unwrap()
    }

    /// The header is text that people can read; entries begin at multiples of 64 bytes.
    #[test]
    fn the_header_is_text() {
        let header = header(&[
            array("u", "float64", &[3, 5]),
            array("a time", "float64", &[]),
            value("n", "int", 2),
        ]);
        let text = header.encode();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("ropewalk state 1 {:08}", text.len()));
        assert_eq!(
            lines[1..4],
            [
                "array float64 8 3x5 u",
                "array float64 8 - a time",
                "value int 2 n"
            ]
        );
        let start = (text.len() as u64).next_multiple_of(64);
        assert_eq!(header.offsets(), [start, start + 128, start + 192, start + 194]);
        assert_eq!(StateHeader::parse(text.as_bytes()), Ok(header));
    }

    /// A byte that is changed, missing or too much is noticed, and so is a sum that overflows.
    #[test]
    fn wrong_headers_are_refused() {
        let text = header(&[array("u", "float64", &[3])]).encode().into_bytes();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert!(StateHeader::parse(&changed).is_err(), "byte {at}");
            assert!(StateHeader::parse(&text[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(
            StateHeader::length(b"ropewalk state 1 99999999\n"),
            Err(StateHeaderError::TooLong)
        );
        let shape = StateHeaderError::Shape { name: "u".into() };
        assert_eq!(
            StateEntry::array("u", "float64", 8, &[1 << 62, 4]),
            Err(shape.clone())
        );
        assert_eq!(StateEntry::array("u", "float64", 0, &[1]), Err(shape));
        assert!(StateEntry::array("u\n", "float64", 8, &[1]).is_err());
        assert!(StateEntry::array("", "float64", 8, &[1]).is_err());
        assert!(StateEntry::value("u", "a b", 8).is_err());
        let twice = vec![value("u", "int", 1), array("u", "float64", &[1])];
        assert_eq!(StateHeader::new(twice), Err(StateHeaderError::Twice("u".into())));
        let huge = [1, 2].map(|number| array(&format!("u{number}"), "x", &[1 << 59]));
        assert!(matches!(
            StateHeader::new(huge.to_vec()),
            Err(StateHeaderError::Shape { name }) if name == "u2"
        ));
    }

    /// Arrays have to be the same in both, in any order; values may change their type.
    #[test]
    fn differences_are_named() {
        let (u, t) = (array("u", "float64", &[3, 5]), value("t", "int", 1));
        let saved = header(&[u.clone(), t.clone()]);
        let saved_u = "float64 of 8 bytes, shape 3x5";
        let said = |entries: &[StateEntry]| {
            let found = header(entries).matching(&saved);
            found.map_err(|error| error.to_string())
        };
        assert_eq!(said(&[value("t", "float", 8), u.clone()]), Ok(vec![1, 0]));
        assert_eq!(
            said(&[array("u", "float32", &[3, 5]), t.clone()]),
            Err(format!(
                "u was saved as {saved_u}, and this program has float32 of 8 bytes, shape 3x5"
            ))
        );
        assert_eq!(
            said(&[array("u", "float64", &[15]), t.clone()]),
            Err(format!(
                "u was saved as {saved_u}, and this program has float64 of 8 bytes, shape 15"
            ))
        );
        assert_eq!(
            said(&[u.clone(), array("t", "int", &[])]),
            Err("t was saved as a value (int), and this program has int of 8 bytes, shape -".into())
        );
        assert_eq!(
            said(&[u.clone(), t, array("w", "float64", &[1])]),
            Err("the save holds nothing named w, which this program wants to restore; it holds u, t".into())
        );
        assert_eq!(
            said(&[u]),
            Err("the save holds t, which this program does not name; it names u".into())
        );
    }

    proptest! {
        /// The body of the fuzz target `checkpoint_state`, for lines that come near.
        #[test]
        fn a_header_that_is_read_is_what_would_be_written(
            lines in prop::collection::vec("(array|value)( (u|0?[0-9]{1,19}|-|[0-9]{1,9}x[0-9]{1,9})){2,5}", 0..4),
        ) {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let length = FIRST_LINE + lines.len() + LAST_LINE;
            let body = format!("{VERSION}{length:08}\n{lines}");
            let text = format!("{body}end {}\n", blake3::hash(body.as_bytes()).to_hex());
            if let Ok(header) = StateHeader::parse(text.as_bytes()) {
                prop_assert_eq!(header.encode(), text);
                let offsets = header.offsets();
                for (entry, pair) in header.entries().iter().zip(offsets.windows(2)) {
                    prop_assert!(pair[0] + entry.bytes() <= pair[1]);
                }
                prop_assert_eq!(header.matching(&header).map(|found| found.len()), Ok(header.entries().len()));
            }
        }

        #[test]
        fn any_header_is_read_as_written(
            arrays in prop::collection::vec(
                ("[a-z ]{1,9}", "[!-~]{1,9}", prop::collection::vec(0_u64..99, 0..4)),
                0..6,
            ),
            values in prop::collection::vec(0_u64..999, 0..4),
        ) {
            let mut entries: Vec<StateEntry> = Vec::new();
            for (index, (name, element, shape)) in arrays.iter().enumerate() {
                entries.push(array(&format!("{name}{index}"), element, shape));
            }
            for (index, &bytes) in values.iter().enumerate() {
                entries.push(value(&format!("{index}"), "str", bytes));
            }
            let header = header(&entries);
            prop_assert_eq!(StateHeader::parse(header.encode().as_bytes()), Ok(header));
        }
    }
}
