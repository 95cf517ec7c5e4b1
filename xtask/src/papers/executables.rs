//! The executables that measure, and the rows that they print.

use std::{cell::OnceCell, path::PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;

use crate::{
    project,
    shell::{cargo, output, program, run},
};

/// A folder of release executables; they are built when they are first needed.
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

    /// The rows of the JSON array that `ropewalk bench rpc` prints.
    pub(super) fn bench_rpc<R: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<Vec<R>> {
        let path = self.folder()?.join("ropewalk");
        let words = [&["bench", "rpc", "--json"], words].concat();
        eprintln!("==> ropewalk {}", words.join(" "));
        let text = output(program(&path.to_string_lossy(), &words))?;
        serde_json::from_str(&text).context("ropewalk bench rpc printed no array of rows")
    }

    fn folder(&self) -> anyhow::Result<&PathBuf> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let words = [
            "build",
            "--release",
            "--locked",
            "-p",
            "ropewalk-cli",
            "--features",
            "ofi",
        ];
        run(cargo(&words))?;
        let built = project::target()?.join("release");
        Ok(self.folder.get_or_init(|| built))
    }
}
