//! The arrays that are reduced: their names, and what they have in common.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, fs,
    fs::Metadata,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::npy::{ArrayFile, ElementType, Header};

/// The kind of array that all of one reduction are. The order of bytes may differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Kind {
    pub(super) element: ElementType,
    pub(super) shape: Vec<u64>,
    pub(super) fortran_order: bool,
}

impl Kind {
    pub(super) fn of(header: &Header) -> Self {
        Self {
            element: header.element(),
            shape: header.shape().to_vec(),
            fortran_order: header.fortran_order(),
        }
    }

    /// The header of an array of this kind with other elements.
    pub(super) fn header(&self, element: ElementType) -> Header {
        Header::new(element, self.shape.clone()).with_fortran_order(self.fortran_order)
    }

    pub(super) fn elements(&self) -> u64 {
        self.header(self.element).element_count()
    }

    /// How this kind differs from the one that `others` have, in a person's words.
    pub(super) fn difference(&self, usual: &Self, others: &str) -> String {
        let say = |what: &str, this: &dyn fmt::Display, usual: &dyn fmt::Display| {
            format!("its {what} is {this}, that of {others} {usual}")
        };
        let shape = |kind: &Self| kind.header(kind.element).shape_text();
        if self.element != usual.element {
            say("element type", &self.element, &usual.element)
        } else if self.shape != usual.shape {
            say("shape", &shape(self), &shape(usual))
        } else {
            let name = |kind: &Self| if kind.fortran_order { "Fortran's" } else { "C's" };
            let way = if usual.fortran_order {
                "asfortranarray"
            } else {
                "ascontiguousarray"
            };
            let difference = say("order of elements", &name(self), &name(usual));
            format!("{difference}; save what numpy.{way} makes of it")
        }
    }
}

/// A file as it was at some moment: a change of its content changes this too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified: (i64, i64),
    file: (u64, u64),
}

impl Stamp {
    /// The reproach to a file that has another stamp than before.
    pub(super) const CHANGED: &str = "it was changed while it was read";

    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            file: (metadata.dev(), metadata.ino()),
        }
    }

    /// Compares a file with how it was.
    ///
    /// # Errors
    /// If it has another size or another time of modification, or is another file.
    pub(super) fn check(&self, path: &Path) -> io::Result<()> {
        if Self::of(&fs::metadata(path)?) == *self {
            return Ok(());
        }
        Err(io::Error::other(Self::CHANGED))
    }
}

/// The arrays as this process finds them.
#[derive(Debug)]
pub(super) struct Arrays {
    /// The kind that they are; `None` if none can be opened here.
    pub(super) kind: Option<Kind>,
    /// How those were that can be opened here.
    stamps: BTreeMap<usize, Stamp>,
    /// The first that cannot be opened here, and why.
    missing: Option<(usize, io::Error)>,
}

impl Arrays {
    /// Checks that all files that can be opened are arrays of one kind.
    ///
    /// # Errors
    /// If one is not.
    pub(super) fn look_at(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut kinds = Vec::with_capacity(paths.len());
        let (mut stamps, mut missing) = (BTreeMap::new(), None);
        for (at, path) in paths.iter().enumerate() {
            match ArrayFile::open(path) {
                Ok(file) => {
                    kinds.push((at, Kind::of(file.header())));
                    stamps.insert(
                        at,
                        Stamp::of(&file.file().metadata().map_err(|error| named(path, &error))?),
                    );
                }
                Err(error) => match error.not_there() {
                    Ok(error) => drop(missing.get_or_insert((at, error))),
                    Err(error) => return Err(named(path, &error)),
                },
            }
        }
        if let Some((odd, usual)) = odd_one_out(&kinds) {
            let (at, kind) = &kinds[odd];
            let others = match &kinds[..] {
                [(first, _), (second, _)] => paths[if odd == 0 { *second } else { *first }]
                    .display()
                    .to_string(),
                _ => "most of the others".to_owned(),
            };
            bail!("{}: {}", paths[*at].display(), kind.difference(usual, &others));
        }
        Ok(Self {
            kind: kinds.pop().map(|(_, kind)| kind),
            stamps,
            missing,
        })
    }

    /// Says that all can be opened here.
    ///
    /// # Errors
    /// Names the first that cannot.
    pub(super) fn are_all_here(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        match &self.missing {
            None => Ok(()),
            Some((at, error)) => Err(named(&paths[*at], &format!("it cannot be read: {error}"))),
        }
    }

    /// Says that none has changed.
    ///
    /// # Errors
    /// Names the first that has.
    pub(super) fn are_unchanged(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        self.stamps.iter().try_for_each(|(at, stamp)| {
            let path = &paths[*at];
            stamp.check(path).map_err(|error| named(path, &error))
        })
    }
}

/// The first of a minority, and what the majority is; if there is no majority, the first one sets the rule.
fn odd_one_out(kinds: &[(usize, Kind)]) -> Option<(usize, &Kind)> {
    let mut counts: BTreeMap<&Kind, usize> = BTreeMap::new();
    for (_, kind) in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    // Of several equal maxima `max_by_key` takes the last, which is the first here.
    let (_, usual) = kinds.iter().rev().max_by_key(|(_, kind)| counts[kind])?;
    let odd = kinds.iter().position(|(_, kind)| kind != usual)?;
    Some((odd, usual))
}

/// The names in a file, or in standard input if that is `-`: in lines, or with NUL behind each if there is one.
pub(super) fn listed(list: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut text = Vec::new();
    let read = match list == Path::new("-") {
        true => io::stdin().lock().read_to_end(&mut text).map(drop),
        false => fs::read(list).map(|read| text = read),
    };
    read.with_context(|| list.display().to_string())?;
    let end = if text.contains(&0) { 0 } else { b'\n' };
    let names = text.split(|&byte| byte == end).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).into()).collect())
}

/// An error about a file.
pub(super) fn named(path: &Path, error: &dyn fmt::Display) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}
