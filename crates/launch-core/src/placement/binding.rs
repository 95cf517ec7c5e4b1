//! To which processors ranks are bound, as users say it.

use core::{fmt, num::NonZeroU32, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// To which processors of its host a rank is bound. The ranks of a host get them in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binding {
    /// None: the system decides.
    #[default]
    Nowhere,
    /// To parts of the host.
    Parts {
        /// To which.
        parts: Parts,
        /// The domains of the host in which its ranks are bound, one after the other.
        mapping: Mapping,
    },
    /// To one processor each, in the order of their numbers.
    RoundRobin,
    /// As a list says; ranks that it has no entry for are bound nowhere.
    User(UserBinding),
}

/// Division of a host into domains, which its ranks get in turn. In its domain a rank is bound to those parts that no
/// rank has, as long as there are some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The extent of each domain.
    pub domain: Parts,
    /// How many ranks in a row get the same domain.
    pub ranks: NonZeroU32,
}

/// So many parts of a host, one beside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The kind of part.
    pub part: Part,
    /// How many.
    pub count: NonZeroU32,
}

/// A part of a host, with all its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The processors that share a cache.
    Cache(CacheKind),
    /// A core with all its hardware threads.
    Core,
    /// A die of a socket.
    Die,
    /// A hardware thread: a processor, as the kernel counts them.
    HardwareThread,
    /// All of it.
    Machine,
    /// A memory node.
    Numa,
    /// A socket.
    Socket,
}

/// A cache, by what it is and not which of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CacheKind {
    /// 1 is the one next to the core.
    pub level: u8,
    /// It holds instructions only; others hold data, or both.
    pub is_instruction: bool,
}

/// A list with the processors of each rank of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBinding {
    pub(super) entries: Vec<UserEntry>,
}

/// The processors of some ranks, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UserEntry {
    /// First and last of each range.
    pub(super) ranges: Vec<(u32, u32)>,
    /// How many ranks it is for.
    pub(super) ranks: u32,
}

/// Why text says no [`Binding`] and no [`Parts`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindingSyntaxError {
    /// A number of parts that is none.
    #[error("{text:?} says no number of parts: expected 1 or more behind the colon, as in core:2")]
    Count {
        /// Its text.
        text: String,
    },
    /// Something near a device.
    #[error(
        "{text:?} names a device, and where devices are is not looked at: name the processors near it (user:LIST), or \
         the memory node (numa)"
    )]
    Device {
        /// Its text.
        text: String,
    },
    /// A part of hosts that is not known.
    #[error("{text:?} is none of {}", Part::NAMES)]
    Part {
        /// Its text.
        text: String,
    },
    /// An entry of a list of processors.
    #[error(
        "{entry:?} names no processors: expected numbers up to {}, as in 3, 0+2 or 4-7, and x2 behind them if they \
         are for two ranks",
        UserBinding::PROCESSOR_MAX
    )]
    Entry {
        /// Its text.
        entry: String,
    },
}

impl Part {
    /// How they are called; `package` and `numanode` are other names of two.
    pub const NAMES: &str =
        "machine, socket, die, numa, core, hwthread, l1cache .. l5cache, with d, u or i before cache too";
    /// Levels of caches that can be named.
    const CACHE_LEVEL_MAX: u8 = 5;
    /// Above these no host has caches for instructions.
    const INSTRUCTION_LEVEL_MAX: u8 = 3;

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "core" => Self::Core,
            "die" => Self::Die,
            "hwthread" => Self::HardwareThread,
            "machine" => Self::Machine,
            "numa" | "numanode" => Self::Numa,
            "package" | "socket" => Self::Socket,
            _ => {
                let (level, kind) = name
                    .strip_prefix('l')?
                    .strip_suffix("cache")?
                    .split_at_checked(1)?;
                let level = level.parse().ok()?;
                // What holds data holds instructions too at some levels, and is one kind for those who name it.
                let (is_instruction, level_max) = match kind {
                    "" | "d" | "u" => (false, Self::CACHE_LEVEL_MAX),
                    "i" => (true, Self::INSTRUCTION_LEVEL_MAX),
                    _ => return None,
                };
                let is_level = (1..=level_max).contains(&level);
                is_level.then_some(Self::Cache(CacheKind {
                    level,
                    is_instruction,
                }))?
            }
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(CacheKind {
                level,
                is_instruction,
            }) => {
                let kind = if *is_instruction { "i" } else { "" };
                write!(formatter, "l{level}{kind}cache")
            }
            Self::Core => formatter.write_str("core"),
            Self::Die => formatter.write_str("die"),
            Self::HardwareThread => formatter.write_str("hwthread"),
            Self::Machine => formatter.write_str("machine"),
            Self::Numa => formatter.write_str("numa"),
            Self::Socket => formatter.write_str("socket"),
        }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.part, self.count)
    }
}

impl From<Part> for Parts {
    fn from(part: Part) -> Self {
        let count = NonZeroU32::MIN;
        Self { part, count }
    }
}

impl From<Parts> for Mapping {
    /// Each rank gets the domain behind that of the rank before it.
    fn from(domain: Parts) -> Self {
        let ranks = NonZeroU32::MIN;
        Self { domain, ranks }
    }
}

impl FromStr for Parts {
    type Err = BindingSyntaxError;

    /// The name of a part, and how many behind a colon: `core:2`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, count) = match text.split_once(':') {
            Some((name, count)) => (name, Some(count)),
            None => (text, None),
        };
        let owned = || text.to_owned();
        let Some(part) = Part::named(name) else {
            let is_device = DEVICES.iter().any(|device| name.starts_with(device));
            return Err(match is_device {
                true => BindingSyntaxError::Device { text: owned() },
                false => BindingSyntaxError::Part { text: owned() },
            });
        };
        let count = count.map_or(Ok(NonZeroU32::MIN), str::parse);
        let count = count.map_err(|_| BindingSyntaxError::Count { text: owned() })?;
        Ok(Self { part, count })
    }
}

impl Binding {
    /// To these parts, each after the other.
    pub fn to_parts(parts: impl Into<Parts>) -> Self {
        let parts = parts.into();
        Self::Parts {
            parts,
            mapping: parts.into(),
        }
    }
}

impl FromStr for Binding {
    type Err = BindingSyntaxError;

    /// `none`, `rr`, `user:LIST` or [`Parts`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "none" => Self::Nowhere,
            "rr" => Self::RoundRobin,
            _ => match text.strip_prefix("user:") {
                Some(list) => Self::User(list.parse()?),
                None => Self::to_parts(text.parse::<Parts>()?),
            },
        })
    }
}

impl UserBinding {
    /// The largest number of a processor: as large as the sets of Linux's C libraries.
    pub const PROCESSOR_MAX: u32 = 1023;
}

impl FromStr for UserBinding {
    type Err = BindingSyntaxError;

    /// Entries with commas between them, one for each rank: numbers or ranges of processors with `+` between them. With
    /// `xN` behind it an entry is for N ranks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entries = text.split(',').map(|entry| {
            UserEntry::parse(entry).ok_or_else(|| BindingSyntaxError::Entry {
                entry: entry.to_owned(),
            })
        });
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }
}

impl UserEntry {
    fn parse(text: &str) -> Option<Self> {
        let (set, ranks) = match text.split_once('x') {
            Some((set, ranks)) => (set, ranks.parse::<NonZeroU32>().ok()?.get()),
            None => (text, 1),
        };
        let number = |text: &str| {
            let number = text.parse().ok()?;
            (number <= UserBinding::PROCESSOR_MAX).then_some(number)
        };
        let ranges = set.split('+').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last))
        });
        let ranges = ranges.collect::<Option<_>>()?;
        Some(Self { ranges, ranks })
    }
}

/// The names that Hydra has for devices; numbers or names follow.
const DEVICES: [&str; 7] = ["pci", "gpu", "ib", "en", "eth", "hfi", "hsn"];

#[cfg(test)]
mod tests {
    use super::*;

    /// All names of Hydra's are known, and say what they say there; caches of data and unified ones are the same kind.
    #[test]
    fn parts_have_names() {
        let cache = |level, is_instruction| {
            Part::Cache(CacheKind {
                level,
                is_instruction,
            })
        };
        for (text, part, count) in [
            ("machine", Part::Machine, 1),
            ("socket:2", Part::Socket, 2),
            ("package", Part::Socket, 1),
            ("numa", Part::Numa, 1),
            ("numanode:3", Part::Numa, 3),
            ("die", Part::Die, 1),
            ("core:4294967295", Part::Core, u32::MAX),
            ("hwthread:7", Part::HardwareThread, 7),
            ("l1cache", cache(1, false), 1),
            ("l1dcache:2", cache(1, false), 2),
            ("l1icache", cache(1, true), 1),
            ("l3ucache", cache(3, false), 1),
            ("l5cache", cache(5, false), 1),
        ] {
            let count = NonZeroU32::new(count).unwrap();
            assert_eq!(text.parse(), Ok(Parts { part, count }), "{text}");
        }
    }

    /// A number that is none, a device and an unknown part are different errors.
    #[test]
    fn what_names_no_part_is_refused() {
        use BindingSyntaxError::{Count, Device, Part as NoPart};

        let error = |text: &str| text.parse::<Binding>().unwrap_err();
        for text in [
            "core:0",
            "core:",
            "core:x",
            "core:-1",
            "core:1:2",
            "socket:4294967296",
        ] {
            let text = text.to_owned();
            assert_eq!(error(&text), Count { text });
        }
        for text in [
            "pci:0000:01:00.0",
            "gpu",
            "gpu0",
            "ib:2",
            "eth0",
            "en",
            "hfi1",
            "hsn:1",
        ] {
            let text = text.to_owned();
            assert_eq!(error(&text), Device { text });
        }
        for text in [
            "", "moon", "board", "l0cache", "l6cache", "l4icache", "lcache", "l2xcache", "l²cache", "rr:2",
            "Core",
        ] {
            let text = text.to_owned();
            assert_eq!(error(&text), NoPart { text });
        }
    }

    /// Lists are read as Hydra has them, but for what it passes over in silence.
    #[test]
    fn lists_of_processors_are_read() {
        let Ok(Binding::User(list)) = "user:0+2,1-3+7x2,5".parse() else {
            panic!("a list");
        };
        let entry = |ranges: &[(u32, u32)], ranks| UserEntry {
            ranges: ranges.to_vec(),
            ranks,
        };
        assert_eq!(
            list.entries,
            [
                entry(&[(0, 0), (2, 2)], 1),
                entry(&[(1, 3), (7, 7)], 2),
                entry(&[(5, 5)], 1)
            ]
        );
        for (text, wrong) in [
            ("user:", ""),
            ("user:1,,2", ""),
            ("user:a,1", "a"),
            ("user:0,3-1", "3-1"),
            ("user:1024", "1024"),
            ("user:1x0", "1x0"),
            ("user:1x2x3", "1x2x3"),
            ("user:1+", "1+"),
            ("user:-1", "-1"),
        ] {
            let entry = wrong.to_owned();
            assert_eq!(
                text.parse::<Binding>(),
                Err(BindingSyntaxError::Entry { entry }),
                "{text}"
            );
        }
    }
}
