//! The programs of a job.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use anyhow::{Context, bail};
use ropewalk_launch::{Inherited, JobSpec, Segment, UniverseSize};

use super::given::Given;

/// A program of the job, and its options.
#[derive(Default)]
pub(super) struct Program {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) ranks: Option<u32>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) inherited: Option<Inherited>,
    pub(super) working_directory: Option<PathBuf>,
}

/// The programs of the job, in their order.
#[derive(Default)]
pub(super) struct Programs {
    /// Those whose words are read.
    pub(super) ended: Vec<Program>,
    /// The one whose options are being read.
    pub(super) current: Program,
}

impl Programs {
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.current.program.is_empty()
    }

    /// Ends the current program at a `:`, or at the end of a line.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        if self.current.program.is_empty() {
            bail!("no program before `:`");
        }
        self.ended.push(std::mem::take(&mut self.current));
        Ok(())
    }

    /// Ends the last program, if it was not at the end of a line.
    pub(super) fn end_last(&mut self) -> anyhow::Result<()> {
        if self.is_empty() {
            bail!("no program given; `ropewalk run --help` tells how");
        }
        match self.current.program.is_empty() {
            true => Ok(()),
            false => self.end(),
        }
    }

    pub(super) fn finish(self, spec: &mut JobSpec) -> anyhow::Result<()> {
        let mut segments = self.ended.into_iter().map(|program| Segment {
            program: program.program,
            arguments: program.arguments,
            ranks: program.ranks.unwrap_or(1),
            environment: program.environment,
            inherited: program.inherited,
            working_directory: program.working_directory,
        });
        spec.first = segments.next().context("no program given")?;
        spec.more = segments.collect();
        Ok(())
    }
}

/// Variables by their names, with commas between them.
pub(super) fn list(names: &OsStr) -> Inherited {
    let names = names.as_bytes().split(|&byte| byte == b',');
    Inherited::Only(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// The value of `HYDRA_ENV`.
pub(super) fn inherited(given: &mut Given<'_>) -> anyhow::Result<Inherited> {
    let text = given.next()?;
    match (text.as_bytes(), text.as_bytes().strip_prefix(b"list:")) {
        (b"all", _) => Ok(Inherited::All),
        (b"none", _) => Ok(Inherited::Only(Vec::new())),
        (_, Some(names)) => Ok(list(OsStr::from_bytes(names))),
        (_, None) => bail!("{given} wants all, none or list:NAME,NAME.., not {text:?}"),
    }
}

/// The value of `-usize`.
pub(super) fn universe(given: &mut Given<'_>) -> anyhow::Result<UniverseSize> {
    let text = given.text()?;
    match text.to_ascii_lowercase().as_str() {
        "infinite" => Ok(UniverseSize::Unknown),
        "system" => Ok(UniverseSize::Slots),
        number => match number.parse() {
            Ok(size) => Ok(UniverseSize::Ranks(size)),
            Err(_) => Err(given.wants("system, infinite or a number", &text)),
        },
    }
}
