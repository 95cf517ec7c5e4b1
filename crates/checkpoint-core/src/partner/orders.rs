//! The orders of the processes that copy checkpoints, and the messages to whoever has started them.

use core::net::IpAddr;
use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    generation::Held,
    journal::{Record, Totals},
};

/// The orders of such a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartnerOrders {
    /// The directory of the job's checkpoints on each host.
    pub directory: PathBuf,
    /// The number of the start.
    pub start: u64,
    /// After how many starts in vain an older generation is taken.
    pub restarts_max: u32,
    /// The address of a host towards which this one is to be reached.
    pub towards: IpAddr,
    /// The hosts, in order.
    pub names: Vec<String>,
    /// On which of them each rank runs.
    pub host_of_rank: Vec<usize>,
}

impl PartnerOrders {
    /// How many arguments they are.
    pub const ARGUMENTS: usize = 6;

    /// The orders as arguments of a command.
    pub fn to_arguments(&self) -> [OsString; Self::ARGUMENTS] {
        [
            self.directory.clone().into_os_string(),
            self.start.to_string().into(),
            self.restarts_max.to_string().into(),
            self.towards.to_string().into(),
            self.names.join(",").into(),
            encode_ranks(&self.host_of_rank).into(),
        ]
    }

    /// The orders of which these are the arguments.
    ///
    /// # Errors
    /// If they are not what [`to_arguments`](Self::to_arguments) makes.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, PartnerOrdersError> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let count = arguments.len();
        let [directory, texts @ ..] = <[OsString; Self::ARGUMENTS]>::try_from(arguments)
            .map_err(|_| PartnerOrdersError::Count { count })?;
        let texts = texts.map(|text| text.to_string_lossy().into_owned());
        let [start, restarts_max, towards, names, ranks] = &texts;
        let names: Vec<String> = names.split(',').map(str::to_owned).collect();
        Ok(Self {
            directory: directory.into(),
            start: parse(start)?,
            restarts_max: parse(restarts_max)?,
            towards: parse(towards)?,
            host_of_rank: decode_ranks(ranks, names.len())?,
            names,
        })
    }
}

/// Arguments are no orders.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PartnerOrdersError {
    /// There are too many, or too few.
    #[error("{count} arguments, not the {} of a partner", PartnerOrders::ARGUMENTS)]
    Count {
        /// How many there are.
        count: usize,
    },
    /// This one is not what stands in its place.
    #[error("{text:?} is no argument of a partner")]
    Argument {
        /// The argument, or the part of it.
        text: String,
    },
}

/// A message of such a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// The ranks can be started.
    Ready(Ready),
    /// They cannot.
    Failed {
        /// The host because of which, if it is one.
        host: Option<String>,
        /// The reason.
        why: String,
    },
    /// All ranks have saved this.
    Newest(Held),
    /// The knowledge of its host about the job that is over.
    Journal {
        /// A journal.
        text: String,
    },
    /// Something that a user should know.
    Note(String),
}

/// The save that ranks are started from, and the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The save that they start from; from the beginning if `None`.
    pub restore: Option<Held>,
    /// The number of the next save.
    pub next: u64,
    /// The folder that holds the save, if it is not the usual one.
    pub root: Option<PathBuf>,
    /// Parts that came from other hosts.
    pub fetched: usize,
    /// Parts that were put aside, each with the number of the host.
    pub quarantined: Vec<(usize, String)>,
    /// Sentences about what could not be put aside, and the number of the host.
    pub stuck: Vec<(usize, String)>,
    /// The totals before this start, as a line of a journal.
    pub before: Option<String>,
}

impl Ready {
    /// The totals before this start, if they are known.
    pub fn totals_before(&self) -> Option<Totals> {
        let line = self.before.as_ref()?;
        match Record::parse(line.trim_end().as_bytes()) {
            Some(Record::Before(totals)) => Some(totals),
            _ => None,
        }
    }
}

fn parse<T: core::str::FromStr>(text: &str) -> Result<T, PartnerOrdersError> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(text: &str) -> PartnerOrdersError {
    PartnerOrdersError::Argument {
        text: text.to_owned(),
    }
}

/// The hosts of ranks, as `HOST:COUNT` for so many ranks in a row.
fn encode_ranks(host_of_rank: &[usize]) -> String {
    let runs = host_of_rank.chunk_by(|a, b| a == b);
    let runs: Vec<String> = runs.map(|run| format!("{}:{}", run[0], run.len())).collect();
    runs.join(",")
}

fn decode_ranks(text: &str, hosts: usize) -> Result<Vec<usize>, PartnerOrdersError> {
    let mut host_of_rank = Vec::new();
    for run in text.split(',') {
        let read = run.split_once(':').and_then(|(host, count)| {
            let (host, count): (usize, u32) = (host.parse().ok()?, count.parse().ok()?);
            (host < hosts).then_some((host, count))
        });
        let (host, count) = read.ok_or_else(|| malformed(run))?;
        host_of_rank.extend(std::iter::repeat_n(host, count as usize));
    }
    Ok(host_of_rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> PartnerOrders {
        PartnerOrders {
            directory: "/saves".into(),
            start: 7,
            restarts_max: 2,
            towards: IpAddr::from([10, 0, 0, 1]),
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            host_of_rank: vec![0, 0, 1, 2, 0],
        }
    }

    /// Orders that became arguments are understood.
    #[test]
    fn orders_are_told() {
        let arguments = orders().to_arguments();
        assert_eq!(arguments[5], "0:2,1:1,2:1,0:1");
        assert_eq!(PartnerOrders::from_arguments(arguments), Ok(orders()));
    }

    /// Ranks on a host that there is not, other words in place of numbers, and other numbers of arguments are refused.
    #[test]
    fn other_arguments_are_refused() {
        for (place, text) in [(1, "one"), (3, "host"), (5, "0:2,3:1"), (5, "1")] {
            let mut arguments = orders().to_arguments();
            arguments[place] = text.into();
            let refused = PartnerOrders::from_arguments(arguments);
            assert!(
                matches!(refused, Err(PartnerOrdersError::Argument { .. })),
                "{text}"
            );
        }
        let refused = PartnerOrders::from_arguments(["/saves".into()]);
        assert_eq!(refused, Err(PartnerOrdersError::Count { count: 1 }));
    }
}
