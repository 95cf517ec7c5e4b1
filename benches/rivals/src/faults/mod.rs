//! From a fault to the line that names it, and until no process of the job is left, beside Hydra.

mod watched_job;

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{manager::Manager, network::Network};
use watched_job::{Outcome, WatchedJob};

/// How often, and how patiently.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How often each fault is made; the median is shown, and the worst.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Seconds to pass to `ropewalk run --detect`.
    #[arg(long, default_value_t = 1)]
    detect: u8,
    /// Only ropewalk, and not Hydra.
    #[arg(long)]
    no_hydra: bool,
}

/// A fault that is injected into a job of four ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    RankKilled {
        hosts: u8,
    },
    AgentKilled,
    AgentStopped,
    LinkCut,
    LauncherKilled,
    Interrupted,
    /// The ranks do not listen, so that the first does not end them.
    InterruptedTwice,
}

const FAULTS: [Fault; 8] = [
    Fault::RankKilled { hosts: 1 },
    Fault::RankKilled { hosts: 2 },
    Fault::AgentKilled,
    Fault::AgentStopped,
    Fault::LinkCut,
    Fault::LauncherKilled,
    Fault::Interrupted,
    Fault::InterruptedTwice,
];

const RANKS: usize = 4;
/// The host that faults happen to is the last.
const HOSTS: u8 = 2;
/// Between two interrupts of a user who does not want to wait.
const BETWEEN_INTERRUPTS: Duration = Duration::from_millis(50);
/// A fault that takes longer is not noticed: Hydra does not ask whether its agents are alive.
const PATIENCE_BEHIND_DETECTION: Duration = Duration::from_secs(3);

/// Makes each fault in turn to both.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let network = match Network::new(HOSTS) {
        Ok(network) => Some(network),
        Err(error) => {
            eprintln!("ropewalk-rivals: faults of other hosts are left out: {error}");
            None
        }
    };
    println!(
        "| fault (`--detect {}`) | ropewalk: verdict, ms | nothing left, ms | Hydra: verdict, ms | nothing left, ms |",
        arguments.detect
    );
    println!("|---|---|---|---|---|");
    for fault in FAULTS {
        if fault.hosts() > 1 && network.is_none() {
            continue;
        }
        let measure = |manager| fault.measure(manager, network.as_ref(), arguments);
        let ours = measure(Manager::Ropewalk)?;
        let hydra = match arguments.no_hydra {
            false => measure(Manager::Hydra)?,
            true => ["not measured".to_owned(), String::new()],
        };
        println!(
            "| {} | {} | {} | {} | {} |",
            fault.name(),
            ours[0],
            ours[1],
            hydra[0],
            hydra[1]
        );
    }
    Ok(())
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::RankKilled { hosts: 1 } => "rank killed, one host",
            Self::RankKilled { .. } => "rank killed on another host",
            Self::AgentKilled => "agent killed",
            Self::AgentStopped => "agent stopped",
            Self::LinkCut => "link cut",
            Self::LauncherKilled => "launcher killed",
            Self::Interrupted => "^C",
            Self::InterruptedTwice => "^C twice, ranks that do not listen",
        }
    }

    fn hosts(self) -> u8 {
        match self {
            Self::RankKilled { hosts } => hosts,
            _ => HOSTS,
        }
    }

    /// The text that marks the line that names the culprit; `None` if nobody is left to say it, or nobody has
    /// to be told.
    fn verdict(self, manager: Manager) -> Option<&'static str> {
        match (self, manager) {
            (Self::LauncherKilled | Self::InterruptedTwice, _) => None,
            (Self::RankKilled { .. }, Manager::Ropewalk) => Some("rank 3 on host "),
            (Self::RankKilled { .. }, Manager::Hydra) => Some("RUNNING AT"),
            (Self::AgentKilled | Self::AgentStopped | Self::LinkCut, Manager::Ropewalk) => {
                Some("the agent on host ")
            }
            (Self::AgentKilled | Self::AgentStopped | Self::LinkCut, Manager::Hydra) => Some("proxy"),
            (Self::Interrupted, Manager::Ropewalk) => Some("ended by signal 2"),
            (Self::Interrupted, Manager::Hydra) => Some("Ctrl-C"),
        }
    }

    /// Times to the verdict and until nothing is left, as text.
    fn measure(
        self,
        manager: Manager,
        network: Option<&Network>,
        arguments: &Arguments,
    ) -> anyhow::Result<[String; 2]> {
        let detect = Duration::from_secs(arguments.detect.into());
        let patience = detect + PATIENCE_BEHIND_DETECTION;
        let mut outcomes = Vec::new();
        for _ in 0..arguments.repetitions.max(1) {
            let outcome = self.make(manager, network, arguments.detect, patience)?;
            let is_noticed = outcome.nothing_left.is_some();
            outcomes.push(outcome);
            // What is never noticed need not be waited for again.
            if !is_noticed {
                break;
            }
        }
        let verdict = match self.verdict(manager) {
            Some(_) => times(outcomes.iter().map(|outcome| outcome.verdict).collect(), patience),
            None => "-".to_owned(),
        };
        let nothing_left = outcomes.iter().map(|outcome| outcome.nothing_left).collect();
        Ok([verdict, times(nothing_left, patience)])
    }

    fn make(
        self,
        manager: Manager,
        network: Option<&Network>,
        detect: u8,
        patience: Duration,
    ) -> anyhow::Result<Outcome> {
        let mut words: Vec<OsString> = Vec::new();
        if manager == Manager::Ropewalk {
            words.extend(["--detect".to_owned(), detect.to_string()].map(OsString::from));
        }
        if let Some(network) = network.filter(|_| self.hosts() > 1) {
            words.extend(network.options(manager, self.hosts()));
            words.extend(["-ppn", "2"].map(OsString::from));
        }
        let deaf = self == Self::InterruptedTwice;
        let mut job = WatchedJob::start(manager, words, RANKS, deaf)?;
        let last = job.last_rank();
        let struck = Instant::now();
        match self {
            Self::RankKilled { .. } => last.signal(Signal::KILL)?,
            Self::AgentKilled => last.signal_agent(Signal::KILL)?,
            Self::AgentStopped => last.signal_agent(Signal::STOP)?,
            Self::LinkCut => {
                if let Some(network) = network {
                    network.set_link(HOSTS, false)?;
                }
            }
            Self::LauncherKilled => job.signal(Signal::KILL)?,
            Self::Interrupted => job.signal(Signal::INT)?,
            Self::InterruptedTwice => {
                job.signal(Signal::INT)?;
                std::thread::sleep(BETWEEN_INTERRUPTS);
                job.signal(Signal::INT)?;
            }
        }
        let outcome = job.watch(struck, self.verdict(manager), patience);
        if let (Self::LinkCut, Some(network)) = (self, network) {
            network.set_link(HOSTS, true)?;
        }
        outcome
    }
}

/// The median and the worst in milliseconds; one that did not come is the worst of all.
fn times(mut times: Vec<Option<Duration>>, patience: Duration) -> String {
    let never = || format!("not in {} s", patience.as_secs());
    times.sort_unstable_by_key(|time| time.unwrap_or(Duration::MAX));
    let text = |time: Option<Duration>| match time {
        Some(time) => format!("{:.1}", time.as_secs_f64() * 1e3),
        None => never(),
    };
    let median = times.get(times.len() / 2).copied().flatten();
    let worst = times.last().copied().flatten();
    match median {
        Some(_) => format!("{} (worst {})", text(median), text(worst)),
        None => never(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median and the worst are shown, and what never came is the worst.
    #[test]
    fn times_are_median_and_worst() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let patience = Duration::from_secs(4);
        assert_eq!(times(vec![ms(3), ms(1), ms(9)], patience), "3.0 (worst 9.0)");
        assert_eq!(
            times(vec![None, ms(1), ms(2)], patience),
            "2.0 (worst not in 4 s)"
        );
        assert_eq!(times(vec![None], patience), "not in 4 s");
    }
}
