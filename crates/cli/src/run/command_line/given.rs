//! The value that is given for an option or a variable.

use std::{
    collections::VecDeque,
    error::Error,
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};

use crate::times::{TIMES, duration};

/// An option at hand, and the words behind it, of which it takes its value. Errors name it as the table spells it.
pub(super) struct Given<'a> {
    pub(super) name: &'static str,
    pub(super) words: &'a mut VecDeque<OsString>,
}

impl Given<'_> {
    pub(super) fn next(&mut self) -> anyhow::Result<OsString> {
        let word = self.words.pop_front();
        word.with_context(|| format!("{self} wants a value"))
    }

    pub(super) fn path(&mut self) -> anyhow::Result<PathBuf> {
        self.next().map(PathBuf::from)
    }

    pub(super) fn text(&mut self) -> anyhow::Result<String> {
        let word = self.next()?;
        word.into_string()
            .map_err(|word| anyhow!("{self} wants text, not {word:?}"))
    }

    pub(super) fn number(&mut self) -> anyhow::Result<u32> {
        let text = self.text()?;
        text.parse().map_err(|_| self.wants("a number", &text))
    }

    pub(super) fn time(&mut self) -> anyhow::Result<Duration> {
        let text = self.text()?;
        duration(&text).ok_or_else(|| self.wants(TIMES, &text))
    }

    /// A value whose syntax its type knows; `wanted` describes it.
    pub(super) fn parsed<T>(&mut self, wanted: &str) -> anyhow::Result<T>
    where
        T: FromStr<Err: Error + Send + Sync + 'static>,
    {
        let text = self.text()?;
        text.parse().with_context(|| format!("{self} wants {wanted}"))
    }

    /// One of several words, each with its meaning.
    pub(super) fn one_of<T: Clone>(&mut self, known: &[(&str, T)]) -> anyhow::Result<T> {
        let text = self.text()?;
        if let Some((_, meaning)) = known.iter().find(|(word, _)| *word == text) {
            return Ok(meaning.clone());
        }
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        Err(self.wants(&alternatives(&words), &text))
    }

    /// `NAME=VALUE` in one word, or two words.
    pub(super) fn variable(&mut self) -> anyhow::Result<(OsString, OsString)> {
        let word = self.next()?;
        let bytes = word.as_bytes();
        let equals = bytes.iter().position(|&byte| byte == b'=');
        let name = OsStr::from_bytes(&bytes[..equals.unwrap_or(bytes.len())]);
        let value = match equals {
            Some(at) => Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
            None if word.is_empty() => None,
            None => self.words.pop_front(),
        };
        match value {
            Some(value) if !name.is_empty() => Ok((name.to_owned(), value)),
            _ => bail!("{self} wants NAME=VALUE, not {word:?}"),
        }
    }

    /// Yes or no, in Hydra's words.
    pub(super) fn truth(&mut self) -> anyhow::Result<bool> {
        let text = self.text()?;
        match text.to_ascii_lowercase().as_str() {
            "1" | "yes" | "true" | "on" => Ok(true),
            "0" | "no" | "false" | "off" => Ok(false),
            _ => Err(self.wants("1 or 0", &text)),
        }
    }

    /// The option is the `-enable-` of a pair, not its `-disable-`.
    pub(super) fn enables(&self) -> bool {
        self.name.starts_with("-enable-")
    }

    pub(super) fn refused(&self, why: &str) -> anyhow::Result<()> {
        bail!("{self} is not there: {why}")
    }

    pub(super) fn wants(&self, wanted: &str, text: &str) -> anyhow::Error {
        anyhow!("{self} wants {wanted}, not {text:?}")
    }
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.name.starts_with('-') {
            "option"
        } else {
            "the variable"
        };
        write!(formatter, "{kind} {}", self.name)
    }
}

/// `a, b or c`.
pub(super) fn alternatives(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}
