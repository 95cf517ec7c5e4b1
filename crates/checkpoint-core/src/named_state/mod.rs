//! The header of a file that holds named arrays and values.
//!
//! ```text
//! ropewalk state 1 00000192        version, length of the header in bytes
//! array float64 8 100x100 u        element, bytes of an element, shape (`-`: a single element), name
//! value int 3 count                type, bytes, name
//! end BLAKE3                       a checksum of the lines above
//! ```
//!
//! A header with a partitioned array has version 2, which readers of version 1 refuse. The array's line begins with
//! `rows` in the place of `array`; the shape is that of the saved rank's own part.
//!
//! ```text
//! ropewalk state 2 00000168
//! rows float64 8 50x100 u
//! end BLAKE3
//! ```
//!
//! The bytes of the entries follow in the same order, each at the next multiple of [`STATE_ALIGNMENT`], as they stand
//! in memory (little-endian, the last axis contiguous); the gaps are zero.

mod errors;

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

pub use errors::{StateHeaderError, StateMismatch};

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
    Array {
        item: u32,
        shape: Vec<u64>,
        /// The first axis is distributed over the ranks.
        is_partitioned: bool,
    },
    Value,
}

/// The entries of a file, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateHeader {
    entries: Vec<StateEntry>,
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
                is_partitioned: false,
            },
            bytes: bytes.ok_or_else(|| StateHeaderError::Shape {
                name: name.to_owned(),
            })?,
        }
        .checked()
    }

    /// The same array, of which each rank has other rows: its first axis is distributed over the ranks.
    ///
    /// # Errors
    /// If it has no axis, or more than 2**63 - 1 rows (of no bytes).
    pub fn partitioned(mut self) -> Result<Self, StateHeaderError> {
        match &mut self.extent {
            Extent::Array {
                shape,
                is_partitioned,
                ..
            } if !shape.is_empty() => {
                if shape[0] > i64::MAX as u64 {
                    return Err(StateHeaderError::Shape { name: self.name });
                }
                *is_partitioned = true;
            }
            _ => return Err(StateHeaderError::NoAxis { name: self.name }),
        }
        Ok(self)
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

    /// True for an array of which each rank has other rows.
    pub fn is_partitioned(&self) -> bool {
        matches!(
            self.extent,
            Extent::Array {
                is_partitioned: true,
                ..
            }
        )
    }

    /// The number of rows of this rank and the bytes of each, if the array is partitioned.
    pub(crate) fn rows(&self) -> Option<(u64, u64)> {
        let Extent::Array {
            item,
            shape,
            is_partitioned: true,
        } = &self.extent
        else {
            return None;
        };
        let (&rows, axes) = shape.split_first()?;
        // An array without rows may have axes whose product is too large.
        let row = axes
            .iter()
            .try_fold(u64::from(*item), |bytes, &axis| bytes.checked_mul(axis));
        Some((rows, row.unwrap_or(u64::MAX)))
    }

    /// Both are arrays of the same elements whose shapes differ at most in the number of rows.
    pub(crate) fn has_rows_of(&self, other: &Self) -> bool {
        let own = (&self.extent, &self.element);
        match (own, (&other.extent, &other.element)) {
            (
                (Extent::Array { item, shape, .. }, element),
                (
                    Extent::Array {
                        item: other_item,
                        shape: other_shape,
                        ..
                    },
                    other_element,
                ),
            ) => (item, element, shape.get(1..)) == (other_item, other_element, other_shape.get(1..)),
            _ => false,
        }
    }

    /// The same entry without the mark of a partitioned array.
    pub(crate) fn unmarked(&self) -> Self {
        let mut entry = self.clone();
        if let Extent::Array { is_partitioned, .. } = &mut entry.extent {
            *is_partitioned = false;
        }
        entry
    }

    fn line(&self) -> String {
        let Self {
            name, element, bytes, ..
        } = self;
        match &self.extent {
            Extent::Array {
                item,
                shape,
                is_partitioned,
            } => {
                let kind = if *is_partitioned { "rows" } else { "array" };
                format!("{kind} {element} {item} {} {name}", written(shape))
            }
            Extent::Value => format!("value {element} {bytes} {name}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let (element, rest) = rest.split_once(' ')?;
        let (size, rest) = rest.split_once(' ')?;
        match kind {
            "array" | "rows" => {
                let (shape, name) = rest.split_once(' ')?;
                let shape: Option<Vec<u64>> = match shape {
                    "-" => Some(Vec::new()),
                    axes => axes.split('x').map(|axis| axis.parse().ok()).collect(),
                };
                let entry = Self::array(name, element, size.parse().ok()?, &shape?).ok()?;
                match kind {
                    "rows" => entry.partitioned().ok(),
                    _ => Some(entry),
                }
            }
            "value" => Self::value(rest, element, size.parse().ok()?).ok(),
            _ => None,
        }
    }

    pub(crate) fn differs(&self, saved: &Self) -> StateMismatch {
        StateMismatch::Differs {
            name: self.name.clone(),
            saved: saved.to_string(),
            found: self.to_string(),
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
            Extent::Array {
                item,
                shape,
                is_partitioned,
            } => {
                let mark = if *is_partitioned { ", partitioned" } else { "" };
                write!(
                    f,
                    "{} of {item} bytes, shape {}{mark}",
                    self.element,
                    written(shape)
                )
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

    /// True if an array is partitioned.
    pub fn is_partitioned(&self) -> bool {
        self.entries.iter().any(StateEntry::is_partitioned)
    }

    /// The text at the beginning of the file.
    pub fn encode(&self) -> String {
        let mut lines = String::new();
        for entry in &self.entries {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{}", entry.line());
        }
        let length = FIRST_LINE + lines.len() + LAST_LINE;
        // Readers that know no partitioned arrays refuse them by their first line.
        let version = if self.is_partitioned() {
            VERSION_PARTITIONED
        } else {
            VERSION
        };
        let body = format!("{version}{length:08}\n{lines}");
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
            .and_then(|text| {
                let digits = [VERSION, VERSION_PARTITIONED]
                    .iter()
                    .find_map(|version| text.strip_prefix(version));
                digits?.strip_suffix('\n')
            })
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

    /// The entry with a name.
    pub fn entry(&self, name: &str) -> Option<&StateEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// For each entry of this header, the index of the saved entry with its name.
    ///
    /// # Errors
    /// If names, elements or shapes differ. Values may have another type and length.
    pub fn matching(&self, saved: &Self) -> Result<Vec<usize>, StateMismatch> {
        self.matching_unless(saved, |_| false)
    }

    /// The same, where some entries of this header may differ from the saved ones.
    pub(crate) fn matching_unless(
        &self,
        saved: &Self,
        may_differ: fn(&StateEntry) -> bool,
    ) -> Result<Vec<usize>, StateMismatch> {
        let mut indices = Vec::with_capacity(self.entries.len());
        for own in &self.entries {
            let found = saved.entries.iter().position(|entry| entry.name == own.name);
            let index = found.ok_or_else(|| StateMismatch::Missing {
                name: own.name.clone(),
                saved: saved.names(),
            })?;
            let entry = &saved.entries[index];
            if !may_differ(own) && !own.fits(entry) {
                return Err(own.differs(entry));
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

    pub(crate) fn names(&self) -> String {
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
const VERSION_PARTITIONED: &str = "ropewalk state 2 ";
const FIRST_LINE: usize = VERSION.len() + 8 + 1;
/// `end `, 64 digits, and the end of the line.
const LAST_LINE: usize = 4 + 64 + 1;
const ENTRIES_MAX: usize = 4096;
const NAME_MAX: usize = 255;
const ELEMENT_MAX: usize = 64;
/// As many as NumPy has.
const AXES_MAX: usize = 64;

#[cfg(test)]
mod tests;
