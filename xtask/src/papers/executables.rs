//! The executables that measure, and the rows that they print.

use std::{cell::OnceCell, path::PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;

use crate::{
    bench_rivals,
    shell::{output, program},
};

/// A folder of release executables and libraries; they are built when they are first needed.
pub(super) struct Executables {
    folder: OnceCell<PathBuf>,
}

impl Executables {
    /// Those in `built`, if they need not be built.
    pub(super) fn new(built: Option<&PathBuf>) -> Self {
        Self {
            folder: built.cloned().map_or_else(OnceCell::new, OnceCell::from),
        }
    }

    /// The rows of JSON that a comparison of `ropewalk-rivals` prints.
    pub(super) fn rivals<R: DeserializeOwned>(&self, words: &str) -> anyhow::Result<Vec<R>> {
        self.rows("ropewalk-rivals", words)
    }

    /// The rows of JSON that the command prints.
    pub(super) fn ropewalk<R: DeserializeOwned>(&self, words: &str) -> anyhow::Result<Vec<R>> {
        self.rows("ropewalk", words)
    }

    fn rows<R: DeserializeOwned>(&self, name: &str, words: &str) -> anyhow::Result<Vec<R>> {
        let path = self.folder()?.join(name);
        let words: Vec<_> = words.split_whitespace().chain(["--json"]).collect();
        eprintln!("==> {name} {}", words.join(" "));
        let text = output(program(&path.to_string_lossy(), &words))?;
        let row = |line: &str| serde_json::from_str(line).with_context(|| format!("not a row: {line}"));
        text.lines().map(row).collect()
    }

    fn folder(&self) -> anyhow::Result<&PathBuf> {
        match self.folder.get() {
            Some(folder) => Ok(folder),
            None => {
                let built = bench_rivals::build()?;
                Ok(self.folder.get_or_init(|| built))
            }
        }
    }
}
