//! The options of an advisor, and its advice.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Decision;

/// The options of an advisor at its start. All times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdvisorOptions {
    /// The mean time between failures.
    pub mtbf: Mtbf,
    /// The time of a save, until one is measured. If nobody knows, a save is advised after the first step, to
    /// measure it: a guess that is too long could make a program that fails often never save.
    pub save: Option<f64>,
    /// How long a restore takes, until one was measured.
    pub restore: f64,
    /// How long the job may run from now on: the last save starts early enough.
    pub limit: Option<f64>,
    /// How many steps there will be, if somebody knows.
    pub steps: Option<u64>,
    /// A second, fast way to save that some failures leave nothing of.
    pub fast: Option<FastLevel>,
    /// The mean time between losses of a host with all that is on it, if full saves are copied to another
    /// host while the program goes on: [`copy_end`](super::Advisor::copy_end) tells when that is done. Each
    /// full save is then a fast one too, and survives such a loss from the end of its copy on; `fast` is
    /// ignored.
    pub host_mtbf: Option<f64>,
}

/// The mean time between failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mtbf {
    /// Known, in seconds.
    Known(f64),
    /// To be learned, with this number of seconds as a first guess. The guess may be wrong by powers of ten:
    /// the first failures tell more. A guess that is too short costs less than one that is too long.
    Learned(f64),
}

/// A fast way to save, as to the memory or disk of the own host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastLevel {
    /// How long such a save takes, in seconds, until one was measured.
    pub save: f64,
    /// Which part of the failures it survives, between 0 and 1.
    pub covers: f64,
}

/// A way to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// The fast one that some failures leave nothing of.
    Fast,
    /// The one that survives all failures.
    Full,
}

/// The advice at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// The decision to save or not, and its reason.
    pub decision: Decision,
    /// In which way.
    pub level: Level,
}

impl Level {
    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "fast" => Some(Self::Fast),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Fast => "fast",
            Self::Full => "full",
        })
    }
}

impl Default for AdvisorOptions {
    fn default() -> Self {
        Self {
            mtbf: Mtbf::Learned(MTBF_AT_FIRST),
            save: None,
            restore: SAVE_AT_FIRST,
            limit: None,
            steps: None,
            fast: None,
            host_mtbf: None,
        }
    }
}

/// The guess for one host of which nobody knows more: five years. A job on several fails as many times as often.
pub const MTBF_AT_FIRST: f64 = 5.0 * 365.25 * 86_400.0;

/// Until the first save is measured.
pub(super) const SAVE_AT_FIRST: f64 = 1.0;
