//! The reductions of MPI libraries and of the paper in virtual time, to compare with: on the same hosts and links as
//! [`reduction`](super::reduction), without faults.
//!
//! An MPI algorithm is a program for each rank: it sends, waits for messages and folds, in a fixed order. Sends do not
//! block; a message waits at the receiver until it is asked for. That is kinder to MPI than its libraries are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ropewalk_reduce_core::{
    Member,
    paper::{TaskAction, TaskScheduler},
};

use crate::{
    Host, Nanos, Network, Process, Simulation,
    reduction::{Setting, Slow},
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
    /// The paper's queue of tasks.
    Paper,
}

/// A finished simulation of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineOutcome {
    /// When the root has the result.
    pub time: Nanos,
    /// Messages that the paper's master received; 0 for MPI.
    pub messages_to_scheduler: u64,
    /// Messages that the paper's master sent, the broadcast of the end apart; 0 for MPI.
    pub messages_from_scheduler: u64,
    /// All events.
    pub events: u64,
}

/// Runs an algorithm to its end. The faults of the setting are left out: MPI ends at the first.
pub fn run(setting: &Setting, baseline: Baseline) -> BaselineOutcome {
    let hosts = setting.hosts;
    // Rank 0 of a program is the root.
    let program = |rank: u32| match baseline {
        Baseline::Binomial => binomial(rank, hosts, setting.bytes),
        Baseline::Rabenseifner => rabenseifner(rank, hosts, setting.bytes),
        Baseline::Pipeline(segment) => pipeline(rank, hosts, setting.bytes, segment),
        Baseline::Paper => VecDeque::new(),
    };
    match baseline {
        Baseline::Paper => run_paper(setting),
        _ => Machine::new(setting, (0..hosts).map(program).collect()).run(),
    }
}

/// A step of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Send { to: u32, bytes: u64 },
    Receive { from: u32 },
    Fold { bytes: u64 },
}

fn binomial(rank: u32, hosts: u32, bytes: u64) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let mut bit = 1;
    while bit < hosts {
        if rank & bit != 0 {
            let to = rank & !bit;
            steps.push_back(Step::Send { to, bytes });
            break;
        }
        if rank | bit < hosts {
            steps.extend([Step::Receive { from: rank | bit }, Step::Fold { bytes }]);
        }
        bit <<= 1;
    }
    steps
}

/// Of the first ranks, as many as are too many for a power of two send their vectors to their neighbours first.
fn rabenseifner(rank: u32, hosts: u32, bytes: u64) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let power = 1 << hosts.ilog2();
    let extra = hosts - power;
    if rank < 2 * extra {
        if rank % 2 == 1 {
            let to = rank - 1;
            return [Step::Send { to, bytes }].into();
        }
        steps.extend([Step::Receive { from: rank + 1 }, Step::Fold { bytes }]);
    }
    let own = if rank < 2 * extra { rank / 2 } else { rank - extra };
    let rank_of = |number: u32| {
        if number < extra {
            2 * number
        } else {
            number + extra
        }
    };
    let mut part = bytes;
    let mut bit = power / 2;
    while bit > 0 {
        let other = rank_of(own ^ bit);
        part /= 2;
        let (send, receive) = (
            Step::Send {
                to: other,
                bytes: part,
            },
            Step::Receive { from: other },
        );
        steps.extend([send, receive, Step::Fold { bytes: part }]);
        bit /= 2;
    }
    // The gather goes the other way.
    let mut bit = 1;
    while bit < power {
        let other = rank_of(own ^ bit);
        if own & bit != 0 {
            steps.push_back(Step::Send {
                to: other,
                bytes: part,
            });
            break;
        }
        steps.push_back(Step::Receive { from: other });
        part *= 2;
        bit <<= 1;
    }
    steps
}

fn pipeline(rank: u32, hosts: u32, bytes: u64, segment: u64) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let mut begin = 0;
    while begin < bytes {
        let bytes = segment.min(bytes - begin);
        if rank + 1 < hosts {
            steps.extend([Step::Receive { from: rank + 1 }, Step::Fold { bytes }]);
        }
        if rank > 0 {
            let to = rank - 1;
            steps.push_back(Step::Send { to, bytes });
        }
        begin += segment;
    }
    steps
}

/// The network of a setting, the root's host first.
fn network(setting: &Setting) -> Network {
    let mut network = Network::uniform(setting.hosts, setting.rate, setting.latency);
    for slow in &setting.slow {
        let host = Host(rank_of(setting, slow.host));
        network.set_rate_out(host, setting.rate * slow.outwards);
        network.set_rate_in(host, setting.rate * slow.inwards);
    }
    network
}

/// Ranks are counted from the root.
fn rank_of(setting: &Setting, host: u32) -> u32 {
    (host + setting.hosts - setting.root) % setting.hosts
}

fn fold_rate(setting: &Setting, rank: u32) -> f64 {
    let is_its = |slow: &&Slow| rank_of(setting, slow.host) == rank;
    setting.fold_rate * setting.slow.iter().find(is_its).map_or(1.0, |slow| slow.folding)
}

fn simulation<T>(setting: &Setting) -> Simulation<T> {
    Simulation::new(network(setting), (0..setting.hosts).map(Host).collect())
}

fn calls(setting: &Setting) -> impl Iterator<Item = (u32, Nanos)> {
    (0..setting.hosts).map(|rank| {
        let late = setting
            .late
            .iter()
            .find(|(host, _)| rank_of(setting, *host) == rank);
        (rank, late.map_or(Nanos::ZERO, |(_, at)| *at))
    })
}

/// Runs the programs of all ranks.
struct Machine<'a> {
    setting: &'a Setting,
    simulation: Simulation<Event>,
    programs: Vec<VecDeque<Step>>,
    /// Messages that were not asked for yet, by receiver and sender.
    waiting: BTreeMap<(u32, u32), u32>,
    /// The rank called and is not folding.
    is_free: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Free,
    Message { from: u32 },
}

impl<'a> Machine<'a> {
    fn new(setting: &'a Setting, programs: Vec<VecDeque<Step>>) -> Self {
        let mut simulation = simulation(setting);
        for (rank, at) in calls(setting) {
            simulation.after(at, Process(rank), Event::Free);
        }
        Self {
            setting,
            simulation,
            waiting: BTreeMap::new(),
            is_free: vec![false; programs.len()],
            programs,
        }
    }

    fn run(mut self) -> BaselineOutcome {
        let mut time = None;
        while let Some(event) = self.simulation.next() {
            let rank = event.process.0;
            match event.what {
                Event::Free => self.is_free[rank as usize] = true,
                Event::Message { from } => *self.waiting.entry((rank, from)).or_default() += 1,
            }
            self.go_on(rank);
            if self.programs[0].is_empty() && self.is_free[0] {
                time.get_or_insert(event.at);
            }
        }
        BaselineOutcome {
            time: time.unwrap_or(Nanos::NEVER),
            messages_to_scheduler: 0,
            messages_from_scheduler: 0,
            events: self.simulation.events(),
        }
    }

    fn go_on(&mut self, rank: u32) {
        let at = rank as usize;
        while self.is_free[at]
            && let Some(&step) = self.programs[at].front()
        {
            match step {
                Step::Send { to, bytes } => {
                    let what = Event::Message { from: rank };
                    self.simulation.send(Process(rank), Process(to), bytes, what);
                }
                Step::Receive { from } => {
                    let Some(count) = self.waiting.get_mut(&(rank, from)).filter(|count| **count > 0) else {
                        return;
                    };
                    *count -= 1;
                }
                Step::Fold { bytes } => {
                    let span = Nanos::of_transfer(bytes, fold_rate(self.setting, rank));
                    self.is_free[at] = false;
                    self.simulation.after(span, Process(rank), Event::Free);
                }
            }
            self.programs[at].pop_front();
        }
    }
}

/// Events of the paper's reduction; process 0 is the master and the root.
#[derive(Clone, Copy, Debug)]
enum PaperEvent {
    Call,
    Called(Member),
    Assigned { number: u64, provider: Member },
    Asked { number: u64, by: Member },
    Pulled { number: u64 },
    Folded { number: u64 },
    Executed { number: u64 },
    Over,
}

fn run_paper(setting: &Setting) -> BaselineOutcome {
    const MESSAGE_BYTES: u64 = 100;
    let mut simulation = simulation(setting);
    for (rank, at) in calls(setting) {
        simulation.after(at, Process(rank), PaperEvent::Call);
    }
    let master = Process(0);
    let mut scheduler = TaskScheduler::new(setting.hosts, Member(0));
    let mut began: BTreeMap<u64, Nanos> = BTreeMap::new();
    let mut over: BTreeSet<Process> = BTreeSet::new();
    let mut outcome = BaselineOutcome {
        time: Nanos::ZERO,
        messages_to_scheduler: 0,
        messages_from_scheduler: 0,
        events: 0,
    };
    while let Some(event) = simulation.next() {
        let process = event.process;
        match event.what {
            PaperEvent::Call => {
                let what = PaperEvent::Called(Member(process.0));
                simulation.send(process, master, MESSAGE_BYTES, what);
            }
            PaperEvent::Called(member) => {
                outcome.messages_to_scheduler += 1;
                scheduler.handle_called(member);
            }
            PaperEvent::Assigned { number, provider } => {
                let by = Member(process.0);
                let what = PaperEvent::Asked { number, by };
                simulation.send(process, Process(provider.0), MESSAGE_BYTES, what);
                began.insert(number, event.at);
            }
            PaperEvent::Asked { number, by } => {
                let what = PaperEvent::Pulled { number };
                simulation.send(process, Process(by.0), setting.bytes + MESSAGE_BYTES, what);
            }
            PaperEvent::Pulled { number } => {
                let span = Nanos::of_transfer(setting.bytes, fold_rate(setting, process.0));
                simulation.after(span, process, PaperEvent::Folded { number });
            }
            PaperEvent::Folded { number } => {
                simulation.send(process, master, MESSAGE_BYTES, PaperEvent::Executed { number });
            }
            PaperEvent::Executed { number } => {
                outcome.messages_to_scheduler += 1;
                let began = began.get(&number).copied().unwrap_or_default();
                scheduler.handle_executed(number, (event.at - began).into());
            }
            PaperEvent::Over => {
                over.insert(process);
            }
        }
        while let Some(action) = scheduler.poll_action() {
            match action {
                TaskAction::Assign(task) => {
                    outcome.messages_from_scheduler += 1;
                    let to = Process(task.executor.process.0);
                    let what = PaperEvent::Assigned {
                        number: task.number,
                        provider: task.provider.process,
                    };
                    simulation.send(master, to, MESSAGE_BYTES, what);
                }
                TaskAction::End { .. } => {
                    outcome.time = simulation.now();
                    for process in (0..setting.hosts).map(Process) {
                        simulation.send(master, process, MESSAGE_BYTES, PaperEvent::Over);
                    }
                }
            }
        }
    }
    assert_eq!(over.len(), setting.hosts as usize, "the end reaches everybody");
    outcome.events = simulation.events();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn factor(setting: &Setting, baseline: Baseline) -> f64 {
        run(setting, baseline).time.as_seconds() / setting.floor().as_seconds()
    }

    /// On 8 equal links the algorithms take what their formulas say: 3 vectors one after the other, 1.75 vectors,
    /// and one vector and 7 segments.
    #[test]
    fn times_are_those_of_the_formulas() {
        let mut setting = Setting::new(8, 64 * MIB);
        setting.fold_rate = 1e15;
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

    /// Any number of ranks, and any root, comes to an end; the paper's master counts its messages.
    #[test]
    fn all_of_them_end() {
        for hosts in [1, 2, 3, 5, 6, 7, 12, 200] {
            let mut setting = Setting::new(hosts, MIB);
            setting.root = hosts - 1;
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
