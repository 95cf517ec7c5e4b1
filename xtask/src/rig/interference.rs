//! Disturbances of the hosts while a collective is measured.

use clap::ValueEnum as _;

use super::{Direction, Network, flow::Flow};

/// A disturbance of which nobody is told. Host `i + 1` has rank `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Interference {
    /// All links are free.
    None,
    /// The link of rank 4 has a tenth of the rate, in both directions.
    SlowLink,
    /// The link in of rank 4 has a tenth of the rate.
    SlowIn,
    /// The links of ranks 1, 3, 5 and 7 have half of the rate.
    HalfRates,
    /// Ranks 1 and 2 send each other as much as a connection carries, and 3 and 4 too.
    BulkFlows,
}

/// Lasts until it is dropped.
pub(super) struct Disturbed<'a> {
    network: &'a Network,
    _flows: Vec<Flow>,
}

impl Interference {
    /// The floor in times of that of free links: each vector leaves its host, and comes to it if all get the result.
    pub(super) fn adjustment(self, collective: &str) -> f64 {
        match self {
            Self::None => 1.0,
            Self::SlowIn if collective == "reduce" => 1.0,
            Self::SlowIn => 10.0,
            Self::SlowLink => 10.0,
            Self::HalfRates | Self::BulkFlows => 2.0,
        }
    }

    /// Its word on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The least number of hosts that it needs.
    pub(super) fn hosts_min(self) -> u8 {
        match self {
            Self::None => 2,
            Self::SlowLink | Self::SlowIn | Self::BulkFlows => 6,
            Self::HalfRates => 8,
        }
    }

    /// Begins on a network whose links have this rate.
    pub(super) fn begin(self, network: &Network, mbit: u32) -> anyhow::Result<Disturbed<'_>> {
        let slow =
            |rank: u8, direction, part: u32| network.set_rate(rank + 1, direction, (mbit / part).max(1));
        let mut flows = Vec::new();
        match self {
            Self::None => {}
            Self::SlowLink => slow(4, Direction::Both, 10)?,
            Self::SlowIn => slow(4, Direction::In, 10)?,
            Self::HalfRates => {
                for rank in [1, 3, 5, 7] {
                    slow(rank, Direction::Both, 2)?;
                }
            }
            Self::BulkFlows => {
                for (from, to) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
                    flows.push(Flow::start(network, from + 1, to + 1)?);
                }
                // They fill the queues before the first job begins.
                std::thread::sleep(FLOWS_BEGIN);
            }
        }
        Ok(Disturbed {
            network,
            _flows: flows,
        })
    }
}

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        // A network that is disturbed for longer measures less well, and is taken down by its owner in any case.
        let _ = self.network.heal();
    }
}

const FLOWS_BEGIN: std::time::Duration = std::time::Duration::from_secs(2);
