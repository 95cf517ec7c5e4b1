//! The collectives of MPI libraries and of the paper in virtual time, to compare with: on the same hosts and links as
//! [`reduction`](super::reduction), MPI's without faults.
//!
//! An MPI algorithm is a program for each rank: it sends, waits for messages and folds, in a fixed order. Sends do not
//! block; a message waits at the receiver until it is asked for. That is kinder to MPI than its libraries are.

pub mod paper;
mod programs;

use std::collections::{BTreeMap, VecDeque};

use self::programs::{Ranks, Step};
use crate::{
    Host, Nanos, Network, Process, Simulation,
    reduction::{Collective, Setting},
};

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// A binomial tree of whole vectors: what MPICH takes for short vectors.
    Binomial,
    /// Reduce-scatter by halving, then a gather (Rabenseifner 1997): what MPICH takes for long vectors.
    Rabenseifner,
    /// A chain of all ranks in segments of so many bytes: Open MPI's `pipeline`.
    Pipeline(u64),
    /// Each rank exchanges with those whose numbers differ in one bit: what MPICH takes for short vectors that all get.
    /// An allgather is that of Bruck.
    RecursiveDoubling,
    /// Blocks go around all ranks; those of a broadcast go down a binomial tree before.
    Ring,
    /// All send to the root.
    Linear,
    /// The paper's queue of tasks.
    Paper,
}

impl Baseline {
    /// Says if the algorithm is one for this collective.
    pub fn is_for(self, collective: Collective) -> bool {
        let ranks = Ranks { hosts: 1, bytes: 0 };
        match self {
            Self::Paper => collective == Collective::Reduce,
            _ => programs::program(collective, self, ranks, 0).is_some(),
        }
    }
}

/// A finished simulation of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineOutcome {
    /// When the root has the results of all calls, or all ranks have if they get them too.
    pub time: Nanos,
    /// Messages that the paper's master received; 0 for MPI.
    pub messages_to_scheduler: u64,
    /// Messages that the paper's master sent, broadcasts apart; 0 for MPI.
    pub messages_from_scheduler: u64,
    /// All events.
    pub events: u64,
}

/// Runs an algorithm to its end, the paper's with the [faults](paper::run) of the setting. MPI's are run without: a
/// fault ends them. The algorithm has to be [for](Baseline::is_for) the collective: with another one nothing is done.
pub fn run(setting: &Setting, baseline: Baseline) -> BaselineOutcome {
    let ranks = Ranks {
        hosts: setting.hosts,
        bytes: setting.calls.bytes,
    };
    let collective = setting.collective();
    // Rank 0 of a program is the root.
    let program = |rank: u32| programs::program(collective, baseline, ranks, rank).unwrap_or_default();
    match baseline {
        Baseline::Paper => paper::run(setting).outcome,
        _ => Machine::new(setting, program).run(),
    }
}

/// The network of a setting, the root's host first.
fn network(setting: &Setting) -> Network {
    let mut network = Network::uniform(setting.hosts, setting.cluster.rate, setting.cluster.latency);
    network.set_message_time(setting.cluster.message_time);
    for host in 0..setting.hosts {
        setting.set_rates(host, &mut network, Host(rank_of(setting, host)));
    }
    if let Some(burst) = setting.cluster.burst {
        network.set_buckets(burst.bytes, burst.peak);
    }
    network
}

/// Ranks are counted from the root.
fn rank_of(setting: &Setting, host: u32) -> u32 {
    (host + setting.hosts - setting.calls.root) % setting.hosts
}

/// A process for each rank of each call: first all of the first call.
fn simulation<T>(setting: &Setting) -> Simulation<T> {
    let ranks = (0..setting.calls.count).flat_map(|_| 0..setting.hosts);
    Simulation::new(network(setting), ranks.map(Host).collect())
}

/// The time at which each process calls.
fn calls(setting: &Setting) -> impl Iterator<Item = (Process, Nanos)> {
    (0..setting.calls.count * setting.hosts).map(|process| {
        let rank = process % setting.hosts;
        let late = setting
            .late
            .iter()
            .find(|(host, _)| rank_of(setting, *host) == rank);
        (Process(process), late.map_or(Nanos::ZERO, |(_, at)| *at))
    })
}

/// Runs the programs of all ranks: of a rank as many at once as it calls, on one processor.
struct Machine {
    hosts: u32,
    /// The ranks that the time is of: all, or the root.
    timed: u32,
    fold_rate: f64,
    simulation: Simulation<Event>,
    programs: Vec<VecDeque<Step>>,
    /// Messages that were not asked for yet, by receiver and the sender's rank.
    waiting: BTreeMap<(Process, u32), u32>,
    /// The process called and is not folding.
    is_free: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Free,
    Message { from: u32 },
}

impl Machine {
    fn new(setting: &Setting, program: impl Fn(u32) -> VecDeque<Step>) -> Self {
        let ranks = (0..setting.calls.count).flat_map(|_| 0..setting.hosts);
        let programs: Vec<_> = ranks.map(program).collect();
        let mut simulation = simulation(setting);
        for (process, at) in calls(setting) {
            simulation.after(at, process, Event::Free);
        }
        Self {
            hosts: setting.hosts,
            timed: if setting.collective().is_spread() {
                setting.hosts
            } else {
                1
            },
            fold_rate: setting.cluster.fold_rate,
            simulation,
            waiting: BTreeMap::new(),
            is_free: vec![false; programs.len()],
            programs,
        }
    }

    fn run(mut self) -> BaselineOutcome {
        let mut time = None;
        while let Some(event) = self.simulation.next() {
            let process = event.process;
            match event.what {
                Event::Free => self.is_free[process.0 as usize] = true,
                Event::Message { from } => *self.waiting.entry((process, from)).or_default() += 1,
            }
            self.go_on(process);
            if time.is_none() && process.0 % self.hosts < self.timed && self.has_ended() {
                time = Some(event.at);
            }
        }
        BaselineOutcome {
            time: time.unwrap_or(Nanos::NEVER),
            messages_to_scheduler: 0,
            messages_from_scheduler: 0,
            events: self.simulation.events(),
        }
    }

    /// All that the time is of have their results.
    fn has_ended(&self) -> bool {
        let roots = (0..self.programs.len()).step_by(self.hosts as usize);
        let mut timed = roots.flat_map(|root| root..root + self.timed as usize);
        timed.all(|process| self.programs[process].is_empty() && self.is_free[process])
    }

    fn go_on(&mut self, process: Process) {
        let at = process.0 as usize;
        let rank = process.0 % self.hosts;
        let first = process.0 - rank;
        while self.is_free[at]
            && let Some(&step) = self.programs[at].front()
        {
            match step {
                Step::Send { to, bytes } => {
                    let what = Event::Message { from: rank };
                    self.simulation.send(process, Process(first + to), bytes, what);
                }
                Step::Receive { from } => {
                    let Some(count) = self.waiting.get_mut(&(process, from)).filter(|count| **count > 0)
                    else {
                        return;
                    };
                    *count -= 1;
                }
                Step::Fold { bytes } => {
                    self.is_free[at] = false;
                    let span = Nanos::of_transfer(bytes, self.fold_rate);
                    self.simulation.work(span, process, Event::Free);
                }
            }
            self.programs[at].pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::Change;

    const MIB: u64 = 1 << 20;

    fn factor(setting: &Setting, baseline: Baseline) -> f64 {
        run(setting, baseline).time.as_seconds() / setting.floor().as_seconds()
    }

    /// On 8 equal links the algorithms take what their formulas say: 3 vectors one after the other, 1.75 vectors,
    /// and one vector and 7 segments.
    #[test]
    fn times_are_those_of_the_formulas() {
        let mut setting = Setting::new(8, 64 * MIB);
        setting.cluster.fold_rate = 1e15;
        let cases = [
            (Baseline::Binomial, 3.0),
            (Baseline::Rabenseifner, 1.75),
            (Baseline::Pipeline(1 << 16), 1.0 + 6.0 / 1024.0),
            (Baseline::Paper, 3.0),
        ];
        for (baseline, expected) in cases {
            let factor = factor(&setting, baseline);
            assert!(
                (factor - expected).abs() < 0.02,
                "{baseline:?}: {factor:.3}, not {expected:.3}"
            );
        }
    }

    /// Calls at once share links and processors: together they take as long as their vectors one after the other.
    #[test]
    fn calls_at_once_share_links() {
        let mut setting = Setting::new(8, MIB);
        let times = [Baseline::Binomial, Baseline::Pipeline(1 << 16), Baseline::Paper].map(|baseline| {
            setting.calls.count = 1;
            let alone = run(&setting, baseline).time.as_seconds();
            setting.calls.count = 8;
            run(&setting, baseline).time.as_seconds() / alone
        });
        assert!(times.iter().all(|times| (4.0..8.1).contains(times)), "{times:?}");
    }

    /// A host may lose a part of its rate while it sends, wherever the root is: here half of it for the second half.
    #[test]
    fn changes_of_a_host_count() {
        let mut setting = Setting::new(2, 64 * MIB);
        setting.cluster.fold_rate = 1e15;
        setting.calls.root = 1;
        let alone = run(&setting, Baseline::Binomial).time;
        setting.cluster.changes = vec![Change {
            at: Nanos(alone.0 / 2),
            host: 0,
            outwards: 0.5,
            inwards: 1.0,
            folding: 1.0,
        }];
        let disturbed = run(&setting, Baseline::Binomial).time;
        let times = disturbed.as_seconds() / alone.as_seconds();
        assert!((times - 1.5).abs() < 0.01, "{times:.3}");
        setting.calls.root = 0;
        let other_way = run(&setting, Baseline::Binomial).time;
        assert!(other_way - alone < Nanos::from_micros(1), "{other_way} {alone}");
    }

    /// The other collectives too: blocks that all get cost the links no more than has to be.
    #[test]
    fn times_of_other_collectives_are_those_of_the_formulas() {
        let cases = [
            (Collective::Allreduce, Baseline::Rabenseifner, 1.0),
            (Collective::Allreduce, Baseline::Ring, 1.0),
            (Collective::Allreduce, Baseline::RecursiveDoubling, 3.0 / 1.75),
            (Collective::Broadcast, Baseline::Binomial, 3.0),
            (Collective::Broadcast, Baseline::Ring, 1.75),
            (
                Collective::Broadcast,
                Baseline::Pipeline(1 << 16),
                1.0 + 6.0 / 1024.0,
            ),
            (Collective::Gather, Baseline::Binomial, 1.0),
            (Collective::Gather, Baseline::Linear, 1.0),
            (Collective::Allgather, Baseline::Ring, 1.0),
            (Collective::Allgather, Baseline::RecursiveDoubling, 1.0),
        ];
        for (collective, baseline, expected) in cases {
            let mut setting = Setting::new(8, 64 * MIB);
            setting.cluster.fold_rate = 1e15;
            setting.calls.root = 5;
            setting.set_collective(collective);
            let factor = factor(&setting, baseline);
            assert!(
                (factor - expected).abs() < 0.01,
                "{collective:?} {baseline:?}: {factor:.3}"
            );
        }
    }

    /// An algorithm is for some collectives, and comes to an end with any number of ranks.
    #[test]
    fn other_collectives_end() {
        let collectives = [
            Collective::Reduce,
            Collective::Allreduce,
            Collective::Broadcast,
            Collective::Gather,
            Collective::Allgather,
        ];
        let baselines = [
            Baseline::Binomial,
            Baseline::Rabenseifner,
            Baseline::Pipeline(1 << 16),
            Baseline::RecursiveDoubling,
            Baseline::Ring,
            Baseline::Linear,
        ];
        let pairs = collectives
            .iter()
            .flat_map(|one| baselines.iter().map(move |other| (*one, *other)));
        for (collective, baseline) in pairs.filter(|(collective, baseline)| baseline.is_for(*collective)) {
            for hosts in [1, 2, 3, 5, 6, 7, 12, 100] {
                let mut setting = Setting::new(hosts, MIB);
                setting.calls.root = hosts / 2;
                setting.set_collective(collective);
                let time = run(&setting, baseline).time;
                let is_over = time < Nanos::NEVER && (hosts == 1 || time >= setting.floor());
                assert!(is_over, "{hosts} {collective:?} {baseline:?}: {time}");
            }
        }
        assert!(!Baseline::Paper.is_for(Collective::Gather) && !Baseline::Linear.is_for(Collective::Reduce));
    }

    /// Any number of ranks, and any root, comes to an end; the paper's master counts its messages.
    #[test]
    fn all_of_them_end() {
        for hosts in [1, 2, 3, 5, 6, 7, 12, 200] {
            let mut setting = Setting::new(hosts, MIB);
            setting.calls.root = hosts - 1;
            setting.late = vec![(0, Nanos::from_millis(3))];
            for baseline in [
                Baseline::Binomial,
                Baseline::Rabenseifner,
                Baseline::Pipeline(1 << 16),
            ] {
                let outcome = run(&setting, baseline);
                assert!(
                    hosts == 1 || outcome.time > setting.floor(),
                    "{hosts} {baseline:?}"
                );
            }
            let outcome = run(&setting, Baseline::Paper);
            let counts = (outcome.messages_to_scheduler, outcome.messages_from_scheduler);
            assert_eq!(counts, (2 * u64::from(hosts) - 1, u64::from(hosts) - 1));
        }
    }
}
