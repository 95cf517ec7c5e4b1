//! Simulated reductions on hosts like those of the paper, alone or beside other programs.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, anyhow, bail};
use ropewalk_reduce_core::End;
use ropewalk_sim::{
    Dice, Nanos,
    baseline::{self, Baseline},
    reduction::{self, Change, Setting, Slow},
};

/// The rate of a link and direction in bytes per second: the most that the paper measured on its cluster C1.
pub(super) const RATE: f64 = 812.7e6;
/// The paper does not say how long a message takes on its 10 Gbit/s Ethernet.
pub(super) const LATENCY: Nanos = Nanos::from_micros(50);
/// The bytes that a processor folds in a second. The paper does not say it.
pub(super) const FOLD_RATE: f64 = 2e9;
/// The hosts of the paper's clusters.
pub(super) const HOSTS: u32 = 200;
/// Other programs take another part of a host after each interval.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// The number of intervals; their part stays the same after the last.
const INTERVALS: u64 = 300;
/// A link or processor is shared with up to so many others.
const OTHERS_MAX: u64 = 4;

/// A way to reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Ropewalk,
    Paper,
    Binomial,
    Rabenseifner,
    /// The best of some lengths of segments.
    Pipeline,
}

impl Policy {
    pub(super) const ALL: [Self; 5] = [
        Self::Ropewalk,
        Self::Paper,
        Self::Binomial,
        Self::Rabenseifner,
        Self::Pipeline,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ropewalk => "ropewalk",
            Self::Paper => "the paper's",
            Self::Binomial => "MPI, binomial tree",
            Self::Rabenseifner => "MPI, Rabenseifner",
            Self::Pipeline => "MPI, pipeline",
        }
    }

    /// The algorithms of which the best counts; none is ours.
    fn baselines(self) -> &'static [Baseline] {
        match self {
            Self::Ropewalk => &[],
            Self::Paper => &[Baseline::Paper],
            Self::Binomial => &[Baseline::Binomial],
            Self::Rabenseifner => &[Baseline::Rabenseifner],
            Self::Pipeline => &[
                Baseline::Pipeline(16 << 10),
                Baseline::Pipeline(64 << 10),
                Baseline::Pipeline(256 << 10),
            ],
        }
    }
}

/// Other programs on the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    None,
    /// On some of the hosts; the mean of some draws.
    On {
        hosts: u32,
        draws: u64,
    },
    /// On all hosts, in this draw.
    Draw(u64),
}

/// Reductions on some hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) hosts: u32,
    pub(super) bytes: u64,
    /// Reductions at once.
    pub(super) calls: u32,
    pub(super) load: Load,
}

/// Seconds by policy, in the order of [`Policy::ALL`].
pub(super) type Times = [f64; Policy::ALL.len()];

/// Simulates all points under all policies, on all processors.
pub(super) fn simulated(points: &[Point]) -> anyhow::Result<Vec<Times>> {
    let jobs = points
        .iter()
        .flat_map(|point| Policy::ALL.map(|policy| (*point, policy)));
    let jobs: Vec<_> = jobs.collect();
    let times = on_all_processors(&jobs, |(point, policy)| seconds(*point, *policy))?;
    let rows = times.chunks_exact(Policy::ALL.len());
    rows.map(|row| row.try_into().context("a time for each policy"))
        .collect()
}

/// Does all jobs, and returns what came of them in their order.
pub(super) fn on_all_processors<J: Sync, T: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let outcome = work(job);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The mean of all draws; alone on the hosts, ours as benchmarks of MPI measure: other calls come before.
fn seconds(point: Point, policy: Policy) -> anyhow::Result<f64> {
    let draws = match point.load {
        Load::None => 0..1,
        Load::On { draws, .. } => 0..draws,
        Load::Draw(draw) => draw..draw + 1,
    };
    let settings: Vec<_> = draws.map(|draw| drawn(point, draw)).collect();
    if let [setting] = &settings[..]
        && policy == Policy::Ropewalk
        && (point.calls, point.load) == (1, Load::None)
    {
        return made_before(setting);
    }
    mean_seconds(&settings, policy)
}

/// The mean of all settings; of MPI's, with the setting of MPI that is best for that.
pub(super) fn mean_seconds(settings: &[Setting], policy: Policy) -> anyhow::Result<f64> {
    let count = settings.len() as f64;
    if policy == Policy::Ropewalk {
        let times = settings
            .iter()
            .map(|setting| Ok(ours(setting)?.time.as_seconds()));
        return Ok(times.sum::<anyhow::Result<f64>>()? / count);
    }
    let mean = |baseline: &Baseline| {
        let times = settings
            .iter()
            .map(|setting| baseline::run(setting, *baseline).time);
        times.map(Nanos::as_seconds).sum::<f64>() / count
    };
    Ok(policy.baselines().iter().map(mean).fold(f64::INFINITY, f64::min))
}

/// Seconds that ours takes for a call that was made a few times before.
fn made_before(setting: &Setting) -> anyhow::Result<f64> {
    let mut setting = setting.clone();
    setting.calls.count = 4;
    let outcomes = reduction::run_in_turns(&setting)
        .map_err(|violation| anyhow!("a promise is broken: {violation:?}"))?;
    let last = outcomes.last().context("there is a last call")?;
    Ok(last.time.as_seconds())
}

/// A point in one draw of the other programs.
pub(super) fn drawn(point: Point, draw: u64) -> Setting {
    let mut setting = setting(point.hosts, point.bytes);
    setting.calls.count = point.calls;
    setting.cluster.changes = match point.load {
        Load::None => Vec::new(),
        Load::On { hosts, .. } => interference(point.hosts, hosts, draw),
        Load::Draw(draw) => interference(point.hosts, point.hosts, draw),
    };
    setting
}

/// Hosts like those of C1, with nothing else on them.
pub(super) fn setting(hosts: u32, bytes: u64) -> Setting {
    let mut setting = Setting::new(hosts, bytes);
    setting.cluster.rate = RATE;
    setting.cluster.latency = LATENCY;
    setting.cluster.fold_rate = FOLD_RATE;
    setting
}

/// Some of these hosts, which nobody knows, receive at a tenth of the rate all the time.
pub(super) fn with_slow_receivers(hosts: u32, bytes: u64, slow: u32, draw: u64) -> Setting {
    let mut setting = setting(hosts, bytes);
    let mut dice = Dice::new(draw);
    while setting.cluster.slow.len() < slow as usize {
        let host = dice.within(1..hosts.into()) as u32;
        if setting.cluster.slow.iter().all(|known| known.host != host) {
            setting.cluster.slow.push(Slow {
                host,
                outwards: 1.0,
                inwards: 0.1,
                folding: 1.0,
                is_known: false,
            });
        }
    }
    setting
}

/// Ours, to a result of all contributions.
pub(super) fn ours(setting: &Setting) -> anyhow::Result<reduction::Outcome> {
    let outcome =
        reduction::run(setting).map_err(|violation| anyhow!("a promise is broken: {violation:?}"))?;
    match &outcome.end {
        Some(End::Done { excluded, .. }) if excluded.is_empty() => Ok(outcome),
        end => bail!("no result: {end:?}"),
    }
}

/// On some of the hosts other programs come and go: link out, link in and processor are each shared with 0 to 4 others,
/// and as many are drawn anew ten times a second, on each host at other moments.
fn interference(hosts: u32, loaded: u32, draw: u64) -> Vec<Change> {
    let mut dice = Dice::new(draw);
    let mut order: Vec<u32> = (0..hosts).collect();
    for place in 0..loaded.min(hosts) as usize {
        let other = dice.within(place as u64..hosts.into()) as usize;
        order.swap(place, other);
    }
    let mut changes = Vec::new();
    for &host in order.iter().take(loaded as usize) {
        let offset = dice.below(INTERVAL.0);
        for interval in 0..INTERVALS {
            let mut part = || 1.0 / (1 + dice.below(OTHERS_MAX + 1)) as f64;
            changes.push(Change {
                at: Nanos((interval * INTERVAL.0).saturating_sub(offset)),
                host,
                outwards: part(),
                inwards: part(),
                folding: part(),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many hosts are loaded from the beginning, and each draw loads others.
    #[test]
    fn interference_is_on_so_many_hosts() {
        let loaded = |draw| {
            let changes = interference(20, 5, draw).into_iter();
            let first = changes.filter(|change| change.at == Nanos::ZERO);
            let mut hosts: Vec<u32> = first.map(|change| change.host).collect();
            hosts.sort_unstable();
            hosts
        };
        assert_eq!(loaded(1).len(), 5);
        assert_ne!(loaded(1), loaded(2));
    }

    /// Outcomes stand in the order of their jobs, and an error is not lost.
    #[test]
    fn jobs_keep_their_order() {
        let jobs: Vec<u32> = (0..50).collect();
        assert_eq!(on_all_processors(&jobs, |job| Ok(*job)).unwrap(), jobs);
        let fail = |job: &u32| match job {
            7 => bail!("seven"),
            _ => Ok(()),
        };
        assert_eq!(on_all_processors(&jobs, fail).unwrap_err().to_string(), "seven");
    }
}
