//! Files of options: those that an option names, and Hydra's that are read unasked.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::{Parser, Surroundings, Taken};

/// What Hydra reads where nobody says otherwise.
const OF_SYSTEM: &str = "/etc/mpiexec.hydra.conf";

impl Parser {
    /// Files of options may name others, which might name the first.
    const FILES_MAX: u32 = 16;

    /// Reads the options of a file that Hydra would read unasked, unless the command names one. Options of the command
    /// count more.
    pub(super) fn read_unasked(
        &mut self,
        words: &[OsString],
        around: &Surroundings<'_>,
    ) -> anyhow::Result<()> {
        let Some((path, text)) = unasked(around) else {
            return Ok(());
        };
        // What is wrong with the command is told when it is read for good.
        let mut command = Self::new();
        let taken = command.take(words.to_vec(), around);
        let names_file = command.files_read > 0;
        if names_file || !matches!(taken, Ok(Taken::All)) {
            return Ok(());
        }
        let has_program = !command.segments.is_empty() || !command.current.program.is_empty();
        let has_hosts = !command.hosts.is_empty();
        self.take_lines(&text, around)
            .with_context(|| format!("the file of options {}", path.display()))?;
        if has_program && !self.segments.is_empty() {
            bail!(
                "{} names a program, and the command another; -configfile FILE reads another file instead",
                path.display()
            );
        }
        if has_hosts {
            self.hosts.clear();
        }
        Ok(())
    }

    /// A line of the file is what stands between two colons of a command.
    pub(super) fn read_config(&mut self, path: &Path, around: &Surroundings<'_>) -> anyhow::Result<()> {
        self.files_read += 1;
        if self.files_read > Self::FILES_MAX {
            bail!("more than {} files of options", Self::FILES_MAX);
        }
        let text = (around.read)(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.take_lines(&text, around)
    }

    fn take_lines(&mut self, text: &[u8], around: &Surroundings<'_>) -> anyhow::Result<()> {
        for line in text.split(|&byte| byte == b'\n') {
            let words: Vec<_> = line
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .map(|word| OsString::from_vec(word.to_vec()))
                .collect();
            if words
                .first()
                .is_some_and(|word| !word.as_bytes().starts_with(b"#"))
            {
                self.take(words, around)?;
                // A line without a program is for all that come.
                if !self.current.program.is_empty() {
                    self.end_segment()?;
                }
            }
        }
        Ok(())
    }
}

/// The first of Hydra's files that can be read, and what it says.
fn unasked(around: &Surroundings<'_>) -> Option<(PathBuf, Vec<u8>)> {
    let named = (around.variable)("HYDRA_CONFIG_FILE").map(PathBuf::from);
    let own = (around.variable)("HOME").map(|home| PathBuf::from(home).join(".mpiexec.hydra.conf"));
    let paths = [named, own, Some(OF_SYSTEM.into())].into_iter().flatten();
    paths.into_iter().find_map(|path| {
        let text = (around.read)(&path).ok()?;
        Some((path, text))
    })
}
