//! The task of each worker, as it reads it from its standard input.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{fs::MemfdFlags, fs::memfd_create, stdio::dup2_stdin};
use serde::{Deserialize, Serialize};

use super::{arrays::Kind, operator::Operator};
use ropewalk_output_file::OutputFile;

/// The task of all workers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) operator: Operator,
    /// The kind that all arrays are; `None` if workers shall find out.
    pub(super) kind: Option<Kind>,
    /// Other hosts may have other files: each worker looks first which it can open.
    pub(super) looks_first: bool,
    /// How long a process may be silent.
    pub(super) silence_max: Duration,
    /// The bytes of the files' names.
    inputs: Vec<Vec<u8>>,
    pub(super) output: Content,
}

/// The place of the result's content, for those on the command's own host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    path: PathBuf,
    /// The device and the number of the file.
    file: (u64, u64),
    /// The kernel in which the path means it.
    boot: String,
}

impl Task {
    pub(super) fn new(
        operator: Operator,
        kind: Option<Kind>,
        looks_first: bool,
        silence_max: Duration,
        inputs: &[PathBuf],
        output: Content,
    ) -> Self {
        Self {
            operator,
            kind,
            looks_first,
            silence_max,
            inputs: inputs
                .iter()
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .collect(),
            output,
        }
    }

    /// The files.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        self.inputs
            .iter()
            .map(|name| OsStr::from_bytes(name).into())
            .collect()
    }

    /// Makes it the standard input of this process, which the launcher gives to all ranks.
    pub(super) fn give(&self) -> io::Result<()> {
        let bytes = postcard::to_allocvec(self).map_err(io::Error::other)?;
        let mut file = File::from(memfd_create("ropewalk-reduce-task", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(dup2_stdin(&file)?)
    }

    /// Reads it from standard input.
    pub(super) fn take() -> io::Result<Self> {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        postcard::from_bytes(&bytes).map_err(io::Error::other)
    }
}

impl Content {
    pub(super) fn of(output: &OutputFile) -> io::Result<Self> {
        let path = output.content_path();
        let found = std::fs::metadata(&path)?;
        Ok(Self {
            path,
            file: (found.dev(), found.ino()),
            boot: boot(),
        })
    }

    /// Opens it for writing; `None` on other hosts.
    pub(super) fn open(&self) -> Option<File> {
        if self.boot != boot() {
            return None;
        }
        let file = File::options().write(true).open(&self.path).ok()?;
        let found = file.metadata().ok()?;
        ((found.dev(), found.ino()) == self.file).then_some(file)
    }
}

/// The identity of this boot of this machine; the same in all its containers.
fn boot() -> String {
    std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default()
}
