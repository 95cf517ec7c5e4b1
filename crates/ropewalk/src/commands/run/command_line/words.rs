//! The words of a command, taken one by one.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk::launch::UniverseSize;

/// The words that are left.
pub(super) struct Words(pub(super) VecDeque<OsString>);

impl Words {
    pub(super) fn next(&mut self, option: &str) -> anyhow::Result<OsString> {
        self.0
            .pop_front()
            .with_context(|| format!("option -{option} wants a value"))
    }

    pub(super) fn text(&mut self, option: &str) -> anyhow::Result<String> {
        let value = self.next(option)?;
        match value.into_string() {
            Ok(text) => Ok(text),
            Err(value) => bail!("option -{option} wants text, not {value:?}"),
        }
    }

    pub(super) fn number(&mut self, option: &str) -> anyhow::Result<u32> {
        let text = self.text(option)?;
        text.parse()
            .map_err(|_| anyhow::anyhow!("option -{option} wants a number, not {text:?}"))
    }

    /// How many processes there is room for.
    pub(super) fn universe(&mut self, option: &str) -> anyhow::Result<UniverseSize> {
        let text = self.text(option)?;
        match text.to_ascii_lowercase().as_str() {
            "infinite" => Ok(UniverseSize::Unknown),
            "system" => Ok(UniverseSize::Slots),
            number => match number.parse() {
                Ok(size) => Ok(UniverseSize::Ranks(size)),
                Err(_) => bail!("option -{option} wants system, infinite or a number, not {text:?}"),
            },
        }
    }

    pub(super) fn seconds(&mut self, option: &str) -> anyhow::Result<Duration> {
        let text = self.text(option)?;
        duration(&text).with_context(|| format!("option --{option} wants {TIMES}, not {text:?}"))
    }

    /// A mean time between failures in seconds; nothing if it is to be learned.
    pub(super) fn mtbf(&mut self, option: &str) -> anyhow::Result<Option<f64>> {
        let text = self.text(option)?;
        match (text.as_str(), text.parse()) {
            ("auto", _) => Ok(None),
            (_, Ok(mtbf)) if mtbf > 0.0 && f64::is_finite(mtbf) => Ok(Some(mtbf)),
            _ => bail!("option --{option} wants auto or a positive number of seconds, not {text:?}"),
        }
    }

    /// `NAME=VALUE` in one word, or two words.
    pub(super) fn variable(&mut self, option: &str) -> anyhow::Result<(OsString, OsString)> {
        let word = self.next(option)?;
        match split(&word) {
            Some((name, _)) if name.is_empty() => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None if word.is_empty() => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            None => match self.0.pop_front() {
                Some(value) => Ok((word, value)),
                None => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            },
        }
    }
}

/// The name of an option without its dashes; `None` for a word that is none.
pub(super) fn option_name(word: &OsStr) -> Option<String> {
    let text = word.to_str()?;
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    (!name.is_empty() || text == "--").then(|| name.to_owned())
}

fn split(word: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    Some((
        OsStr::from_bytes(&bytes[..at]),
        OsStr::from_bytes(&bytes[at + 1..]),
    ))
}

/// A length of time: seconds, or numbers with their units.
fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

/// The time that a job may take by MPIEXEC_TIMEOUT: as for Hydra, none if it is empty or negative.
pub(super) fn time_limit(text: &str) -> anyhow::Result<Option<Duration>> {
    let is_none = text.is_empty() || text.parse().is_ok_and(|seconds: f64| seconds < 0.0);
    let limit = (!is_none)
        .then(|| duration(text).with_context(|| format!("MPIEXEC_TIMEOUT wants {TIMES}, not {text:?}")));
    limit.transpose()
}

const TIMES: &str = "seconds, or a time such as 500ms, 10m or 1h30m";
