//! The executables that measure, and the rows that they print.

use std::{cell::OnceCell, path::PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;

use super::Extent;
use crate::{
    bench_rivals, debian, project,
    shell::{cargo, output, program, run},
};

/// A folder of executables and libraries; they are built when they are first needed.
pub(super) struct Executables {
    extent: Extent,
    folder: OnceCell<PathBuf>,
}

impl Executables {
    /// Those in `built`, if they need not be built.
    pub(super) fn new(extent: Extent, built: Option<&PathBuf>) -> Self {
        Self {
            extent,
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

    /// The rows of the JSON array that `ropewalk bench rpc` prints.
    pub(super) fn bench_rpc<R: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<Vec<R>> {
        let path = self.folder()?.join("ropewalk");
        let words = [&["bench", "rpc", "--json"], words].concat();
        eprintln!("==> ropewalk {}", words.join(" "));
        let text = output(program(&path.to_string_lossy(), &words))?;
        serde_json::from_str(&text).context("ropewalk bench rpc printed no array of rows")
    }

    fn rows<R: DeserializeOwned>(&self, name: &str, words: &str) -> anyhow::Result<Vec<R>> {
        let path = self.folder()?.join(name);
        let words: Vec<_> = words.split_whitespace().chain(["--json"]).collect();
        eprintln!("==> {name} {}", words.join(" "));
        let text = output(program(&path.to_string_lossy(), &words))?;
        let row = |line: &str| serde_json::from_str(line).with_context(|| format!("not a row: {line}"));
        text.lines().map(row).collect()
    }

    /// The folder.
    pub(super) fn folder(&self) -> anyhow::Result<&PathBuf> {
        match self.folder.get() {
            Some(folder) => Ok(folder),
            None => {
                let built = build(self.extent)?;
                Ok(self.folder.get_or_init(|| built))
            }
        }
    }
}

/// Few points show that all works, for which the executables of the tests are good enough: nothing is built twice.
fn build(extent: Extent) -> anyhow::Result<PathBuf> {
    match extent {
        Extent::Quick => {
            debian::provide()?;
            project::build()
        }
        Extent::Full => {
            let built = bench_rivals::build()?;
            let words = [
                "build",
                "--release",
                "--locked",
                "-p",
                "ropewalk-cli",
                "-p",
                "reduce-vs-mpi",
                "--features",
                "ropewalk-cli/ofi",
            ];
            run(cargo(&words))?;
            Ok(built)
        }
    }
}
