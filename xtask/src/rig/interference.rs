//! Disturbances of the hosts while a collective is measured.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use clap::ValueEnum as _;
use ropewalk_rig::{ControlGroup, Direction, Flow, Network};

/// A disturbance of which nobody is told. Host `i + 1` has rank `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Interference {
    /// All links are free.
    None,
    /// The link of rank 4 has a tenth of the rate, in both directions.
    SlowLink,
    /// The link in of rank 4 has a tenth of the rate.
    SlowIn,
    /// The links in of ranks 1 and 3 have a tenth of the rate.
    TwoSlowIn,
    /// The links of ranks 1, 3, 5 and 7 have half of the rate.
    HalfRates,
    /// Ranks 1 and 2 send each other as much as a connection carries, and 3 and 4 too.
    BulkFlows,
    /// Rank 4 calls 0.6 s after the others; the time begins when it calls.
    LateRank,
    /// Rank 4 is killed in the middle of the call: ours alone, as that ends the jobs of others.
    Kill,
    /// The host of rank 4 has a twentieth of one processor.
    SlowProcessor,
    /// The hosts of ranks 3 and 4 have a fifth of one processor each.
    SlowProcessors,
    /// The host of rank 4 stands still for 0.1 s of each 0.5 s.
    Pulses,
}

/// Lasts until it is dropped.
pub(super) struct Disturbed<'a> {
    network: &'a Network,
    _flows: Vec<Flow>,
    _pulses: Option<Pulses>,
    _groups: Vec<ControlGroup>,
}

impl Interference {
    /// The least time of a collective on so many hosts, in times of what one vector takes over a free link.
    ///
    /// A slow processor counts as if it were as fast as its link, and a host that stands still now and then as one
    /// whose link is slower by that.
    pub(super) fn floor(self, collective: &str, hosts: u8) -> f64 {
        let hosts = usize::from(hosts);
        let (mut inwards, mut outwards) = (vec![1.0; hosts], vec![1.0; hosts]);
        let (slow, rate, is_out_slow): (&[usize], _, _) = match self {
            Self::None | Self::LateRank | Self::Kill | Self::SlowProcessor | Self::SlowProcessors => {
                (&[], 1.0, false)
            }
            Self::SlowIn => (&[4], 0.1, false),
            Self::TwoSlowIn => (&[1, 3], 0.1, false),
            Self::SlowLink => (&[4], 0.1, true),
            Self::HalfRates => (&[1, 3, 5, 7], 0.5, true),
            Self::BulkFlows => (&[1, 2, 3, 4], 0.5, true),
            Self::Pulses => (&[4], 0.8, true),
        };
        for &rank in slow {
            inwards[rank] = rate;
            if is_out_slow {
                outwards[rank] = rate;
            }
        }
        let least = |rates: &[f64]| rates.iter().copied().fold(f64::INFINITY, f64::min);
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let sends = hosts as f64 - 1.0;
        let bounds = match collective {
            // Each vector leaves its host and comes to it, and all together pass the links once for the sum, and once
            // for the result.
            "allreduce" => [
                1.0 / least(&outwards),
                1.0 / least(&inwards),
                2.0 * sends / sum(&inwards),
                2.0 * sends / sum(&outwards),
            ],
            // Each vector leaves its host, and the root receives one; the others receive the rest.
            _ => [
                1.0 / least(&outwards[1..]),
                1.0 / inwards[0],
                (sends - 1.0) / sum(&inwards[1..]),
                0.0,
            ],
        };
        bounds.into_iter().fold(0.0, f64::max)
    }

    /// How much later than the others rank 4 calls.
    pub(super) fn late(self) -> Duration {
        match self {
            Self::LateRank => Duration::from_millis(600),
            _ => Duration::ZERO,
        }
    }

    /// A median hides it: the mean and the 95th percentile count.
    pub(super) fn has_peaks(self) -> bool {
        self == Self::Pulses
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
            Self::HalfRates => 8,
            _ => 6,
        }
    }

    /// Begins on a network whose links have this rate.
    pub(super) fn begin(self, network: &Network, mbit: u32) -> anyhow::Result<Disturbed<'_>> {
        let slow =
            |rank: u8, direction, part: u32| network.set_rate(rank + 1, direction, (mbit / part).max(1));
        let mut disturbed = Disturbed {
            network,
            _flows: Vec::new(),
            _pulses: None,
            _groups: Vec::new(),
        };
        match self {
            Self::None | Self::LateRank | Self::Kill => {}
            Self::SlowLink => slow(4, Direction::Both, 10)?,
            Self::SlowIn => slow(4, Direction::In, 10)?,
            Self::TwoSlowIn => {
                for rank in [1, 3] {
                    slow(rank, Direction::In, 10)?;
                }
            }
            Self::HalfRates => {
                for rank in [1, 3, 5, 7] {
                    slow(rank, Direction::Both, 2)?;
                }
            }
            Self::BulkFlows => {
                for (from, to) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
                    disturbed._flows.push(Flow::start(network, from + 1, to + 1)?);
                }
                // They fill the queues before the first job begins.
                thread::sleep(FLOWS_BEGIN);
            }
            Self::SlowProcessor => disturbed._groups.push(network.limit_processor(4 + 1, 5)?),
            Self::SlowProcessors => {
                for rank in [3, 4] {
                    disturbed._groups.push(network.limit_processor(rank + 1, 20)?);
                }
            }
            Self::Pulses => disturbed._pulses = Some(Pulses::begin(network.freezer(4 + 1)?)),
        }
        Ok(disturbed)
    }
}

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        // A network that is disturbed for longer measures less well, and is taken down by its owner in any case.
        let _ = self.network.heal();
    }
}

/// Stops a group of processes again and again, until this is dropped.
struct Pulses {
    over: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Pulses {
    fn begin(group: ControlGroup) -> Self {
        let (over, is_over) = mpsc::channel::<()>();
        let waits = move |time| is_over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread = thread::spawn(move || {
            while waits(PULSE_EVERY - PULSE) {
                let stopped = group.freeze(true);
                let goes_on = waits(PULSE);
                // One that is not stopped is noticed by its times.
                if stopped.and_then(|()| group.freeze(false)).is_err() || !goes_on {
                    return;
                }
            }
        });
        Self {
            over: Some(over),
            thread: Some(thread),
        }
    }
}

impl Drop for Pulses {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to lose.
            let _ = thread.join();
        }
    }
}

const FLOWS_BEGIN: Duration = Duration::from_secs(2);
const PULSE: Duration = Duration::from_millis(100);
const PULSE_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow link in is nobody's bound in a reduction, as long as the others can receive in its place.
    #[test]
    fn floors_follow_the_links() {
        let floor = |interference: Interference, collective| interference.floor(collective, 8);
        assert_eq!(floor(Interference::None, "reduce"), 1.0);
        assert_eq!(floor(Interference::None, "allreduce"), 14.0 / 8.0);
        assert_eq!(floor(Interference::SlowIn, "reduce"), 1.0);
        assert_eq!(floor(Interference::SlowLink, "reduce"), 10.0);
        assert_eq!(floor(Interference::TwoSlowIn, "reduce"), 6.0 / 5.2);
        assert_eq!(floor(Interference::HalfRates, "reduce"), 2.0);
        assert_eq!(floor(Interference::SlowIn, "allreduce"), 10.0);
        assert_eq!(floor(Interference::HalfRates, "allreduce"), 14.0 / 6.0);
    }
}
