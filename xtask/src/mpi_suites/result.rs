//! The results of tests, kept in files from one run to the next.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{OURS, THEIRS, part::Part};

/// A test that was run under one launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// The output, if it did not pass.
    pub(super) said: String,
}

/// The end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    Failed,
    Passed,
    TimedOut,
}

/// The tests of a part under both launchers.
pub(super) struct Compared {
    pub(super) part: Part,
    /// Each test under the library's own launcher, and under ours.
    pub(super) tests: Vec<(Test, Test)>,
}

impl Compared {
    /// Reads the kept results of both launchers.
    ///
    /// # Errors
    /// If there are none, or not of the same tests.
    pub(super) fn load(folder: &Path, part: &Part) -> anyhow::Result<Self> {
        let (theirs, ours) = (load(folder, part, THEIRS)?, load(folder, part, OURS)?);
        let names = |tests: &[Test]| tests.iter().map(|test| test.name.clone()).collect::<Vec<_>>();
        ensure!(
            names(&theirs) == names(&ours),
            "{}: the launchers ran different tests",
            part.name()
        );
        Ok(Self {
            part: *part,
            tests: theirs.into_iter().zip(ours).collect(),
        })
    }

    /// The tests that passed under the library's launcher, or did not, and the same under ours.
    pub(super) fn passed(&self, theirs: bool, ours: bool) -> Vec<&(Test, Test)> {
        let passed = |test: &Test| test.verdict == Verdict::Passed;
        let is_asked_for =
            |(first, second): &&(Test, Test)| (passed(first), passed(second)) == (theirs, ours);
        self.tests.iter().filter(is_asked_for).collect()
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, launcher) = (self.part.name(), self.part.launcher());
        let both = self.passed(true, true).len();
        write!(
            formatter,
            "{part}: {both} of {} pass under both",
            self.tests.len()
        )?;
        for (heading, tests) in [
            (format!("only under {launcher}"), self.passed(true, false)),
            ("only under ropewalk".to_owned(), self.passed(false, true)),
            ("under neither".to_owned(), self.passed(false, false)),
        ] {
            for (theirs, ours) in tests {
                write!(
                    formatter,
                    "\n  {heading}: {} ({:?}, {:?})",
                    theirs.name, theirs.verdict, ours.verdict
                )?;
                for line in ours.said.lines().take(SAID_MAX) {
                    write!(formatter, "\n    {line}")?;
                }
            }
        }
        Ok(())
    }
}

/// Keeps the results of a part under a launcher.
///
/// # Errors
/// If they cannot be written.
pub(super) fn keep(folder: &Path, part: &Part, launcher: &str, tests: &[Test]) -> anyhow::Result<()> {
    let path = path(folder, part, launcher);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    Ok(fs::write(path, serde_json::to_string_pretty(tests)?)?)
}

/// The file of results.
pub(super) fn path(folder: &Path, part: &Part, launcher: &str) -> PathBuf {
    folder
        .join("results")
        .join(launcher)
        .join(format!("{}.json", part.name()))
}

fn load(folder: &Path, part: &Part, launcher: &str) -> anyhow::Result<Vec<Test>> {
    let path = path(folder, part, launcher);
    let text = fs::read_to_string(&path).with_context(|| format!("no results in {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

const SAID_MAX: usize = 5;
