//! A long run of mixed reductions under changing interference and random kills, in place of the paper's days of
//! production.

use std::{
    fmt::Write,
    fs,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{bail, ensure};
use ropewalk_launch::{
    Ending, JobEvent, JobOutcome, JobSpec, Launcher, OnFailure, RespawnPolicy, Segment, hosts::parse_hosts,
};
use ropewalk_rig::{Direction, Flow, Network, within};
use ropewalk_sim::Dice;

use super::{Extent, Made, reduction::time, setup::Setup};

/// Runs it, and tells mean and worst of each tenth of an hour.
pub(super) fn soak(setup: &Setup) -> anyhow::Result<Made> {
    let (spans, span, life) = match setup.extent {
        Extent::Full => (6, Duration::from_secs(600), Duration::from_secs(60)),
        Extent::Quick => (1, Duration::from_secs(8), Duration::from_secs(6)),
    };
    let network = Network::new(HOSTS, MBIT)?;
    let (over, is_over) = mpsc::channel::<()>();
    let rows = thread::scope(|scope| {
        let network = &network;
        let weather = scope.spawn(move || change_interference(network, &is_over));
        let rows = run(setup, network, spans, span, life);
        drop(over);
        weather
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        rows
    })?;
    let mut text = format!(
        "{HOSTS} hosts at {MBIT} Mbit/s, one rank each. All ranks but one kill themselves at random, each {} s on \
         average, and come back.\nTimes of steps, mean / worst:\n\n\
         | minutes | steps | killed | one call, to 64 KiB | one call, from 128 KiB | 4 to 8 calls at once | memory of \
         the rank that stays | of all agents |\n|---|---|---|---|---|---|---|---|\n",
        life.as_secs()
    );
    for (at, row) in rows.iter().enumerate() {
        let minutes = |spans: usize| format!("{:.0}", spans as f64 * span.as_secs_f64() / 60.0);
        let times: Vec<String> = row.times.iter().map(Times::text).collect();
        writeln!(
            text,
            "| {} to {} | {} | {} | {} | {} | {} |",
            minutes(at),
            minutes(at + 1),
            row.times.iter().map(|times| times.steps).sum::<u64>(),
            row.kills,
            times.join(" | "),
            mebibytes(row.rank_kib),
            mebibytes(row.agents_kib),
        )?;
    }
    Ok(Made { text, picture: None })
}

/// A part of the run.
#[derive(Default)]
struct Row {
    kills: u64,
    /// Of short calls, of long ones, and of several at once.
    times: [Times; 3],
    /// The most.
    rank_kib: u64,
    agents_kib: u64,
}

#[derive(Default)]
struct Times {
    steps: u64,
    seconds: f64,
    worst: f64,
}

impl Times {
    fn add(&mut self, seconds: f64) {
        self.steps += 1;
        self.seconds += seconds;
        self.worst = self.worst.max(seconds);
    }

    fn text(&self) -> String {
        match self.steps {
            0 => String::new(),
            steps => format!("{} / {}", time(self.seconds / steps as f64), time(self.worst)),
        }
    }
}

impl Row {
    /// Takes a line of `reduce-soak`.
    fn hear(&mut self, line: &str) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>();
        match (kind, numbers.as_deref()) {
            (Some("step"), Ok(&[calls, bytes, nanoseconds])) => {
                let kind = match calls {
                    1 if bytes <= SHORT_BYTES_MAX => 0,
                    1 => 1,
                    _ => 2,
                };
                self.times[kind].add(nanoseconds as f64 / 1e9);
            }
            (Some("memory"), Ok(&[kib])) => self.rank_kib = self.rank_kib.max(kib),
            _ => bail!("a rank says: {line}"),
        }
        Ok(())
    }
}

/// Runs the job.
///
/// # Errors
/// If a result is wrong, a rank fails by itself, or nothing is heard for long.
fn run(
    setup: &Setup,
    network: &Network,
    spans: usize,
    span: Duration,
    life: Duration,
) -> anyhow::Result<Vec<Row>> {
    let folder = setup.executables.folder()?;
    let end = SystemTime::now().duration_since(UNIX_EPOCH)? + span * spans as u32;
    let words = [end, life].map(|time| time.as_secs().to_string());
    let mut spec = JobSpec::new(
        folder.join("ropewalk"),
        Segment {
            arguments: words.map(Into::into).into(),
            ranks: HOSTS.into(),
            ..Segment::new(folder.join("reduce-soak"))
        },
    );
    spec.hosts = parse_hosts(&network.hosts_with_ranks(1))?;
    spec.agents.method = network.method();
    spec.reactions = OnFailure::Respawn(RespawnPolicy {
        per_rank: u32::MAX,
        pause_max: Duration::from_secs(1),
        ..RespawnPolicy::default()
    })
    .into();
    within(&network.namespace(0), move || {
        let mut launcher = Launcher::start(spec)?;
        let begun = Instant::now();
        let mut rows: Vec<Row> = (0..spans).map(|_| Row::default()).collect();
        let mut heard = Instant::now();
        let mut looked = Instant::now();
        loop {
            let event = launcher.next_event(Some(LOOK_EVERY))?;
            let at = (begun.elapsed().as_secs_f64() / span.as_secs_f64()) as usize;
            let row = &mut rows[at.min(spans - 1)];
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                row.agents_kib = row.agents_kib.max(agents_kib(network));
            }
            match event {
                Some(JobEvent::Output { line, .. }) => {
                    heard = Instant::now();
                    row.hear(String::from_utf8_lossy(&line).trim_end())?;
                }
                Some(JobEvent::Respawning { .. }) => row.kills += 1,
                Some(JobEvent::Finished(JobOutcome { verdict, .. })) => {
                    ensure!(matches!(verdict.ending, Ending::Completed), "{verdict}");
                    return Ok(rows);
                }
                _ => ensure!(
                    heard.elapsed() < SILENCE_MAX,
                    "no step has ended for {SILENCE_MAX:?}"
                ),
            }
        }
    })
}

/// Lets some hosts have less of their links, and others carry streams, each time for a while; until the sender is gone.
fn change_interference(network: &Network, is_over: &mpsc::Receiver<()>) -> anyhow::Result<()> {
    let mut dice = Dice::new(1);
    let hosts = 1..u64::from(HOSTS) + 1;
    loop {
        let mut flows = Vec::new();
        for _ in 0..dice.within(0..4) {
            let host = dice.within(hosts.clone()) as u8;
            match dice.within(0..2) {
                0 => {
                    let directions = [Direction::In, Direction::Out, Direction::Both];
                    let direction = directions[dice.within(0..3) as usize];
                    let part = [2, 4, 10][dice.within(0..3) as usize];
                    network.set_rate(host, direction, MBIT / part)?;
                }
                _ => {
                    let to = host % HOSTS + 1;
                    flows.push(Flow::start(network, host, to)?);
                }
            }
        }
        let is_over = is_over.recv_timeout(INTERFERENCE_LASTS) != Err(RecvTimeoutError::Timeout);
        drop(flows);
        network.heal()?;
        if is_over {
            return Ok(());
        }
    }
}

/// The memory of all agents that is their own.
fn agents_kib(network: &Network) -> u64 {
    let processes = (1..=network.hosts()).flat_map(|host| network.processes(host));
    let memory = processes.filter_map(|process| {
        let folder = format!("/proc/{}", process.as_raw_nonzero());
        let name = fs::read_to_string(format!("{folder}/comm")).ok()?;
        let rollup = fs::read_to_string(format!("{folder}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Dirty:"))?;
        let kib = line.split_whitespace().next()?.parse::<u64>().ok()?;
        (name.trim_end() == "ropewalk").then_some(kib)
    });
    memory.sum()
}

fn mebibytes(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

const HOSTS: u8 = 8;
const MBIT: u32 = 400;
const SHORT_BYTES_MAX: u64 = 64 << 10;
const INTERFERENCE_LASTS: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_secs(20);
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines go to their column, and a line that is none of these is an error.
    #[test]
    fn lines_go_to_their_columns() {
        let mut row = Row::default();
        for line in [
            "step 1 8 1000000",
            "step 1 65536 3000000",
            "step 1 131072 9000000",
            "step 4 8 5000000",
            "memory 2048",
            "memory 1024",
        ] {
            row.hear(line).unwrap();
        }
        let counts = row.times.each_ref().map(|times| (times.steps, times.worst));
        assert_eq!(counts, [(2, 0.003), (1, 0.009), (1, 0.005)]);
        assert_eq!((row.times[0].seconds, row.rank_kib), (0.004, 2048));
        for wrong in ["step 1 8", "memory", "step 3: it is wrong", ""] {
            assert!(row.hear(wrong).is_err(), "{wrong}");
        }
    }
}
