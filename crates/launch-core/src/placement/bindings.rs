//! Which processors of a host each of its ranks is bound to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Binding, Mapping, Part, Parts, UserBinding,
    processors::{Processor, in_order},
};

/// The processors that the ranks of one host are bound to.
#[derive(Clone, Debug)]
pub enum Bindings {
    /// Nothing.
    Nowhere,
    /// Parts of the host, as the domains say.
    Parts {
        /// The processors of each part, by their numbers.
        parts: Vec<Vec<u32>>,
        /// The parts of each domain, which its ranks get in turn.
        domains: Vec<Domain>,
        /// How many parts each rank gets.
        count: usize,
        /// How many ranks in a row get the same domain.
        run: usize,
    },
    /// One of these each.
    RoundRobin(Vec<u32>),
    /// Those that a list names, out of these.
    User(UserBinding, Vec<u32>),
}

/// How many parts of a kind a host has, by which its ranks are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedParts {
    /// The kind of part.
    pub part: Part,
    /// How many there are.
    pub count: u32,
}

/// The parts that the ranks of one domain get in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Indices of parts.
    parts: Vec<usize>,
    /// How much further each rank begins than the one before it.
    step: usize,
}

/// Why ranks cannot be bound on a host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BindingError {
    /// A processor that is not there, or not for this job.
    #[error(
        "there is no processor {processor} among those that it may run on, {}",
        processor_list(allowed)
    )]
    NoProcessor {
        /// The processor's number.
        processor: u32,
        /// The processors that may be used.
        allowed: Vec<u32>,
    },
    /// As of a host that may have more processors than a set of them has room for.
    #[error("the processors that it may run on are not told: {reason}")]
    Unknown {
        /// The reason, as a clause.
        reason: String,
    },
    /// The kernel tells of none.
    #[error("the host shows no {part}")]
    NoPart {
        /// The kind of part.
        part: Part,
    },
    /// Another number of parts than on the launcher's host, by which ranks were counted.
    #[error(
        "ranks were counted by {part}, of which the launcher's host has {expected} and this one {count}: say with \
         -ppn how many ranks run on each host"
    )]
    UnlikeLauncher {
        /// The kind of part.
        part: Part,
        /// How many the launcher's host has.
        expected: u32,
        /// How many this host has.
        count: u32,
    },
    /// More are to go together than there are.
    #[error("it wants {wanted}, and the processors that it may run on have {part} {count} times only")]
    TooFewParts {
        /// The kind of part.
        part: Part,
        /// The number of parts that each rank wants.
        wanted: Parts,
        /// How many parts there are.
        count: usize,
    },
}

impl CountedParts {
    /// Counts the parts of a host with these processors.
    pub fn on(part: Part, processors: &[Processor]) -> Result<Self, BindingError> {
        let parts = all(part.into(), processors)?;
        let count = parts.len() as u32;
        Ok(Self { part, count })
    }

    /// Returns an error if a host with these processors has another number of them.
    pub fn check(self, processors: &[Processor]) -> Result<(), BindingError> {
        let Self { part, count } = Self::on(self.part, processors)?;
        match count == self.count {
            true => Ok(()),
            false => Err(BindingError::UnlikeLauncher {
                part,
                expected: self.count,
                count,
            }),
        }
    }
}

impl Bindings {
    /// The bindings on a host whose ranks may run on the processors with the numbers `allowed`, in ascending
    /// order. `describe` says of which parts a processor is. It is called only if the binding depends on
    /// that: it takes the system some dozen files for each processor.
    pub fn new(
        binding: &Binding,
        allowed: &[u32],
        describe: impl Fn(u32) -> Processor,
    ) -> Result<Self, BindingError> {
        Ok(match binding {
            Binding::Nowhere => Self::Nowhere,
            Binding::Parts { parts, mapping } => {
                let processors: Vec<_> = allowed.iter().map(|&number| describe(number)).collect();
                Self::to_parts(*parts, *mapping, &processors)?
            }
            Binding::RoundRobin => Self::RoundRobin(allowed.to_vec()),
            Binding::User(list) => Self::User(list.clone(), allowed.to_vec()),
        })
    }

    /// As Hydra (`handle_bitmap_binding` in its `topo_hwloc.c`): the host is divided into domains of so many
    /// neighbouring parts as the mapping says; if they do not come out even the last one goes on with the
    /// first parts, and so on until they do. Ranks get the domains in turn. In each the first rank gets the
    /// parts where the domain begins, and the next one those behind them, if that is less than the domain.
    fn to_parts(wanted: Parts, mapping: Mapping, processors: &[Processor]) -> Result<Self, BindingError> {
        let processors = in_order(processors);
        let parts = all(wanted, &processors)?;
        let mapped = all(mapping.domain, &processors)?;
        let (count, width) = (wanted.count.get() as usize, mapping.domain.count.get() as usize);
        let mut part_of = vec![None; processors.len()];
        for (index, part) in parts.iter().enumerate() {
            for &place in part {
                part_of[place] = Some(index);
            }
        }
        let mut domains = Vec::new();
        for domain in 0..least_common_multiple(mapped.len(), width) / width {
            let places = (0..width).flat_map(|index| &mapped[(domain * width + index) % mapped.len()]);
            let places: Vec<_> = places.copied().collect();
            // Of hosts whose cores are of several kinds some may have no such part.
            let Some(first) = places.iter().find_map(|&place| part_of[place]) else {
                continue;
            };
            let from_first = (first..first + count).map(|index| index % parts.len());
            let size: usize = from_first.clone().map(|index| parts[index].len()).sum();
            domains.push(if size < places.len() {
                let mut known = BTreeSet::new();
                let inside = places.iter().filter_map(|&place| part_of[place]);
                Domain {
                    parts: inside.filter(|&index| known.insert(index)).collect(),
                    step: count,
                }
            } else {
                Domain {
                    parts: from_first.collect(),
                    step: 0,
                }
            });
        }
        if domains.is_empty() {
            return Err(BindingError::NoPart { part: wanted.part });
        }
        let number = |&place: &usize| processors[place].number;
        let parts = parts.iter().map(|part| part.iter().map(number).collect());
        Ok(Self::Parts {
            parts: parts.collect(),
            domains,
            count,
            run: mapping.ranks.get() as usize,
        })
    }

    /// The processors of the `index`-th rank of the host, in ascending order; `None` if it is bound nowhere.
    pub fn of(&self, index: usize) -> Result<Option<Vec<u32>>, BindingError> {
        let mut bound: Vec<u32> = match self {
            Self::Nowhere => return Ok(None),
            Self::Parts {
                parts,
                domains,
                count,
                run,
            } => {
                let (runs, place) = (index / run, index % run);
                let domain = &domains[runs % domains.len()];
                let turn = (runs / domains.len() * run + place) % domain.parts.len();
                let first = turn * domain.step;
                let own = (first..first + count).map(|index| domain.parts[index % domain.parts.len()]);
                own.flat_map(|part| &parts[part]).copied().collect()
            }
            Self::RoundRobin(numbers) => {
                let place = index.checked_rem(numbers.len());
                let no_part = BindingError::NoPart {
                    part: Part::HardwareThread,
                };
                vec![numbers[place.ok_or(no_part)?]]
            }
            Self::User(list, allowed) => match list.of(index, allowed)? {
                Some(bound) => bound,
                None => return Ok(None),
            },
        };
        bound.sort_unstable();
        bound.dedup();
        Ok(Some(bound))
    }
}

impl UserBinding {
    fn of(&self, index: usize, allowed: &[u32]) -> Result<Option<Vec<u32>>, BindingError> {
        let mut behind = 0u64;
        let entry = self.entries.iter().find(|entry| {
            behind += u64::from(entry.ranks);
            (index as u64) < behind
        });
        let Some(entry) = entry else {
            return Ok(None);
        };
        let bound = entry.ranges.iter().flat_map(|&(first, last)| first..=last);
        let bound = bound.map(|processor| match allowed.binary_search(&processor) {
            Ok(_) => Ok(processor),
            Err(_) => Err(BindingError::NoProcessor {
                processor,
                allowed: allowed.to_vec(),
            }),
        });
        bound.collect::<Result<_, _>>().map(Some)
    }
}

/// All parts of a kind, as places of their processors, in the order of the first. As many as are to go
/// together are there.
fn all(wanted: Parts, processors: &[Processor]) -> Result<Vec<Vec<usize>>, BindingError> {
    let mut indices = BTreeMap::new();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for (place, processor) in processors.iter().enumerate() {
        let Some(identity) = processor.part(wanted.part) else {
            continue;
        };
        let index = *indices.entry(identity).or_insert(parts.len());
        if index == parts.len() {
            parts.push(Vec::new());
        }
        parts[index].push(place);
    }
    let part = wanted.part;
    match parts.len() {
        0 => Err(BindingError::NoPart { part }),
        count if count < wanted.count.get() as usize => {
            Err(BindingError::TooFewParts { part, wanted, count })
        }
        _ => Ok(parts),
    }
}

fn least_common_multiple(one: usize, other: usize) -> usize {
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor * other
}

/// The numbers of processors, in ascending order, as the kernel writes them: `0-3,8`.
pub fn processor_list(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.filter_map(|run| match (run.first()?, run.last()?) {
        (first, last) if first == last => Some(first.to_string()),
        (first, last) => Some(format!("{first}-{last}")),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
