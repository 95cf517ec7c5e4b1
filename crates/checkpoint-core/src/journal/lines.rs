//! The lines of a journal.

use crate::advisor::Level;

use super::{Note, Record, SECONDS_MAX, Totals};

impl Record {
    /// Its line, which ends with a line feed.
    pub fn encode(&self) -> String {
        let text = match *self {
            Self::Start { start } => format!("start {start}"),
            Self::Ran { seconds } => format!("ran {seconds}"),
            Self::Step { seconds } => format!("step {seconds}"),
            Self::Steps { count } => format!("steps {count}"),
            Self::NotSaved { level, seconds } => format!("not-saved {level} {seconds}"),
            Self::Failing { count } => format!("failing {count}"),
            Self::SaveLonger { level, seconds } => format!("save-longer {level} {seconds}"),
            Self::Saved { level, seconds } => format!("saved {level} {seconds}"),
            Self::Copied { level, seconds } => format!("copied {level} {seconds}"),
            Self::Committed => "committed".to_owned(),
            Self::CommitTime { level, seconds } => format!("commit-time {level} {seconds}"),
            Self::CopyTime { seconds, slowdown } => format!("copy-time {seconds} {slowdown}"),
            Self::Restored { seconds } => format!("restored {seconds}"),
            Self::SaveTime { level, seconds } => format!("save-time {level} {seconds}"),
            Self::StepTime { seconds } => format!("step-time {seconds}"),
            Self::RestoreTime { seconds } => format!("restore-time {seconds}"),
            Self::Failed { ran } => format!("failed {ran}"),
            Self::Repeated { ran } => format!("repeated {ran}"),
            Self::Safe => "safe".to_owned(),
            Self::HostLost => "host-lost".to_owned(),
            Self::Ended => "ended".to_owned(),
            Self::Note(note) => note.encode(),
            Self::Before(totals) => format!(
                "before {} {} {} {} {} {} {} {} {}",
                totals.exposure,
                totals.failures,
                totals.saves,
                totals.save_seconds,
                totals.restores,
                totals.restore_seconds,
                totals.lost,
                totals.hosts_lost,
                totals.failed_saves
            ),
        };
        format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()))
    }

    /// Parses a line, without its line feed. `None` if the line was cut off or changed.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
        let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        if sum != format!("{:08x}", crc32c::crc32c(text.as_bytes())) {
            return None;
        }
        let mut words = text.split(' ');
        let word = words.next()?;
        let mut next = || words.next();
        let record = match word {
            "start" => Self::Start {
                start: next()?.parse().ok()?,
            },
            "ran" => Self::Ran {
                seconds: seconds(next()?)?,
            },
            "step" => Self::Step {
                seconds: seconds(next()?)?,
            },
            "steps" => Self::Steps {
                count: next()?.parse().ok()?,
            },
            "not-saved" => Self::NotSaved {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "failing" => Self::Failing {
                count: next()?.parse().ok()?,
            },
            "save-longer" => Self::SaveLonger {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "saved" => Self::Saved {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "copied" => Self::Copied {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "committed" => Self::Committed,
            "commit-time" => Self::CommitTime {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "copy-time" => Self::CopyTime {
                seconds: seconds(next()?)?,
                slowdown: seconds(next()?)?,
            },
            "restored" => Self::Restored {
                seconds: seconds(next()?)?,
            },
            "save-time" => Self::SaveTime {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "step-time" => Self::StepTime {
                seconds: seconds(next()?)?,
            },
            "restore-time" => Self::RestoreTime {
                seconds: seconds(next()?)?,
            },
            "failed" => Self::Failed {
                ran: seconds(next()?)?,
            },
            "repeated" => Self::Repeated {
                ran: seconds(next()?)?,
            },
            "safe" => Self::Safe,
            "host-lost" => Self::HostLost,
            "ended" => Self::Ended,
            "before" => Self::Before(Totals {
                exposure: seconds(next()?)?,
                failures: next()?.parse().ok()?,
                saves: next()?.parse().ok()?,
                save_seconds: seconds(next()?)?,
                restores: next()?.parse().ok()?,
                restore_seconds: seconds(next()?)?,
                lost: seconds(next()?)?,
                // Journals that were written before these were counted do not say them.
                hosts_lost: next().map_or(Some(0), |count| count.parse().ok())?,
                failed_saves: next().map_or(Some(0), |count| count.parse().ok())?,
            }),
            word => Self::Note(Note::parse(word, next)?),
        };
        words.next().is_none().then_some(record)
    }
}

pub(super) fn seconds(text: &str) -> Option<f64> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=SECONDS_MAX).contains(&seconds).then_some(seconds)
}

/// The longest line that is written is shorter.
const LINE_BYTES_MAX: usize = 256;
