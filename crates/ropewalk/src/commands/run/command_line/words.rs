//! The words of a command, taken one by one.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk::{
    checkpoint::Mtbf,
    launch::{Stall, UniverseSize},
};

use crate::commands::times::{TIMES, duration, seconds};

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

    /// After how long without progress a job ends; never for 0.
    pub(super) fn stall(&mut self, option: &str) -> anyhow::Result<Stall> {
        let text = self.text(option)?;
        match duration(&text) {
            Some(Duration::ZERO) => Ok(Stall::Never),
            Some(limit) => Ok(Stall::After(limit)),
            None if text == "off" => Ok(Stall::Never),
            None => bail!("option --{option} wants off or {TIMES}, not {text:?}"),
        }
    }

    /// A guess of the mean time between failures, or of hosts; nothing if nobody has any.
    pub(super) fn guess(&mut self, option: &str) -> anyhow::Result<Option<Mtbf>> {
        match self.text(option)?.as_str() {
            "auto" => Ok(None),
            text => mean_time(option, text).map(|guess| Some(Mtbf::Learned(guess))),
        }
    }

    /// The same if somebody knows it.
    pub(super) fn known(&mut self, option: &str) -> anyhow::Result<Option<Mtbf>> {
        let text = self.text(option)?;
        mean_time(option, &text).map(|mtbf| Some(Mtbf::Known(mtbf)))
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

fn mean_time(option: &str, text: &str) -> anyhow::Result<f64> {
    match seconds(text) {
        Ok(mtbf) if mtbf > 0.0 => Ok(mtbf),
        _ => bail!("option --{option} wants {TIMES}, more than 0, not {text:?}"),
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

/// The time that a job may take by MPIEXEC_TIMEOUT: as for Hydra, none if it is empty or negative.
pub(super) fn time_limit(text: &str) -> anyhow::Result<Option<Duration>> {
    let is_none = text.is_empty() || text.parse().is_ok_and(|seconds: f64| seconds < 0.0);
    let limit = (!is_none)
        .then(|| duration(text).with_context(|| format!("MPIEXEC_TIMEOUT wants {TIMES}, not {text:?}")));
    limit.transpose()
}
