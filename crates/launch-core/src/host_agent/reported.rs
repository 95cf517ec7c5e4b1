//! The news that the launcher has had, of which it hears nothing too often.

use super::oddities::Oddities;

/// The reports that are not made again, or only if they change.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// A rank asked for the end of the job. The first abort ends it; no other matters.
    pub(super) abort: bool,
    /// A rank may hang.
    pub(super) may_hang: bool,
    pub(super) oddities: Oddities,
}
