//! Files of options: those that an option names, and Hydra's that are read unasked.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::{Surroundings, settings::Settings};

/// The file that Hydra reads for all users.
const OF_SYSTEM: &str = "/etc/mpiexec.hydra.conf";

/// Files of options may name others, which might name the first.
const FILES_MAX: u32 = 16;

impl Settings<'_> {
    /// Reads the options of a file that Hydra would read unasked, unless the command names one. Options of the command
    /// count more.
    pub(super) fn read_unasked(&mut self, words: &[OsString]) -> anyhow::Result<()> {
        let Some((path, text)) = unasked(self.around) else {
            return Ok(());
        };
        // What is wrong with the command is told when it is read for good.
        let mut command = Settings::new(self.around);
        let taken = command.take(words.to_vec());
        if command.reading.files > 0 || taken.is_err() || command.reading.question.is_some() {
            return Ok(());
        }
        self.take_lines(&text)
            .with_context(|| format!("the file of options {}", path.display()))?;
        if !command.programs.is_empty() && !self.programs.ended.is_empty() {
            bail!(
                "{} names a program, and the command another; -configfile FILE reads another file instead",
                path.display()
            );
        }
        if !command.hosts.named.is_empty() {
            self.hosts.named.clear();
        }
        Ok(())
    }

    /// Reads a file that an option names.
    pub(super) fn read_config(&mut self, path: &Path) -> anyhow::Result<()> {
        self.reading.files += 1;
        if self.reading.files > FILES_MAX {
            bail!("more than {FILES_MAX} files of options");
        }
        let text = (self.around.read)(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.take_lines(&text)
    }

    /// A line of the file is what stands between two colons of a command.
    fn take_lines(&mut self, text: &[u8]) -> anyhow::Result<()> {
        for line in text.split(|&byte| byte == b'\n') {
            let words = line
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty());
            let words: Vec<_> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
            if words
                .first()
                .is_some_and(|word| !word.as_bytes().starts_with(b"#"))
            {
                self.take(words)?;
                // Questions are for commands.
                self.reading.question = None;
                // A line without a program is for all that come.
                if !self.programs.current.program.is_empty() {
                    self.programs.end()?;
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
