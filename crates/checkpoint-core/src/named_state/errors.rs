//! Errors of named state.

use thiserror::Error;

use super::{AXES_MAX, ELEMENT_MAX, ENTRIES_MAX, NAME_MAX, STATE_HEADER_MAX, VERSION, VERSION_PARTITIONED};
use crate::redistribution::RedistributionError;

/// Why bytes are no header of a named state, or a state cannot be described by one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateHeaderError {
    /// The first line is another one.
    #[error("expected a file of named state that begins with \"{VERSION}\" or \"{VERSION_PARTITIONED}\"")]
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
    /// A partitioned array without an axis.
    #[error(
        "{name} is a single element, which cannot be partitioned: a partitioned array has at least one axis"
    )]
    NoAxis {
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
    /// The saved ranks had no common content.
    #[error(
        "{name} is not partitioned, and {others} of the {saved} ranks that saved it had other content than rank 0, so \
         that it cannot be restored on {ranks} ranks: start the program on {saved} ranks, or mark an array as \
         partitioned whose rows the ranks share"
    )]
    CopiesDiffer {
        /// The entry.
        name: String,
        /// The saved ranks that differ from rank 0.
        others: String,
        /// The number of ranks that saved.
        saved: usize,
        /// The number of ranks of the job.
        ranks: usize,
    },
    /// The array was saved without the mark of a partitioned one.
    #[error(
        "{name} was saved on {saved} ranks without the mark of a partitioned array, so that its rows cannot be \
         distributed in another way: start the program once on {saved} ranks with as many rows on each as before, \
         until it has saved with the mark"
    )]
    NotPartitioned {
        /// The array.
        name: String,
        /// The number of ranks that saved.
        saved: usize,
    },
    /// The ranks of the job have room for another number of rows.
    #[error("the rows of {name} cannot be distributed: {why}")]
    Rows {
        /// The array.
        name: String,
        /// The reason.
        why: RedistributionError,
    },
    /// A rank that did not save, or is none of the job.
    #[error("rank {rank} cannot restore what {saved} ranks saved")]
    Ranks {
        /// The number of ranks that saved.
        saved: usize,
        /// The rank.
        rank: u32,
    },
}
