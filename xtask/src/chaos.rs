//! Reductions in real processes, on several hosts, under every fault of the table.

mod cells;
mod judge;
mod record;
mod returns;
mod steps;
mod trial;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use ropewalk_rig::{Network, Relay};

use cells::{CELLS, Cell, Shortage, Workload};
use judge::{Outcome, Seen};
use record::Tally;
use returns::ReturnTrial;
use steps::{Draw, Layout};
use trial::{CONTROL_GROUPS, Call, Collective, Programs, Trial};

use crate::{
    project,
    shell::{cargo, run},
};

/// How jobs are disturbed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The kinds of faults by name; all if there is none
    cells: Vec<String>,
    /// How many runs of each; by default as many as the cell wants
    #[arg(long)]
    runs: Option<u64>,
    /// The short version, of which nothing is written down
    #[arg(long)]
    short: bool,
    /// Run i has the seed SEED + i; by default the time
    #[arg(long)]
    seed: Option<u64>,
    /// The length of the vectors, in bytes
    #[arg(long)]
    bytes: Option<u64>,
    /// HOSTSxRANKS, where a single host is this machine as it is
    #[arg(long)]
    layout: Option<Layout>,
    /// Where `ropewalk`, `examples/chaos_worker` and `examples/reduce_returning` are, if they are not to be built
    #[arg(long)]
    built: Option<PathBuf>,
    /// Prints the names of all cells
    #[arg(long)]
    list: bool,
}

impl Options {
    /// All cells, shortly.
    pub(crate) fn short() -> Self {
        Self {
            cells: Vec::new(),
            runs: None,
            short: true,
            seed: None,
            bytes: None,
            layout: None,
            built: None,
            list: false,
        }
    }

    /// The command that does one run again.
    fn again(&self, cell: &Cell, seed: u64) -> String {
        let mut command = format!("cargo xtask chaos {} --runs 1 --seed {seed}", cell.name);
        let layout = self.layout.unwrap_or_else(|| layout_of(cell, seed));
        command += &format!(" --layout {}x{}", layout.hosts, layout.ranks);
        if let Some(bytes) = self.bytes {
            command += &format!(" --bytes {bytes}");
        }
        command
    }
}

/// Runs the cells, and writes their rows of `docs/faults.md` and a line each in `docs/soak.jsonl`.
///
/// # Errors
/// If an outcome is not the promised one; says how to repeat it.
pub(crate) fn chaos(options: &Options) -> anyhow::Result<()> {
    if options.list {
        CELLS
            .iter()
            .for_each(|cell| println!("{:<18} {}", cell.name, cell.fault));
        return Ok(());
    }
    let chosen = choose(options)?;
    let seed = match options.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    let mut stage = Stage::prepare(options)?;
    let mut failed = Vec::new();
    for cell in chosen {
        let runs = options
            .runs
            .unwrap_or(if options.short { cell.short_runs } else { cell.runs });
        if runs == 0 || options.short && !stage.can_run(cell) {
            continue;
        }
        eprintln!("==> chaos {}: {runs} runs from seed {seed}", cell.name);
        let mut tally = Tally::default();
        for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
            let (seen, outcome, usual) = stage.run(cell, options, seed)?;
            if outcome.is_failure() {
                eprintln!("seed {seed}: {outcome:?}\n  again: {}", options.again(cell, seed));
            }
            tally.count(seed, &seen, outcome, usual);
        }
        tally.print(cell);
        if !options.short {
            tally.append(cell, seed)?;
            // The table is about the cells as they are.
            if options.layout.is_none() && options.bytes.is_none() {
                tally.write_row(cell)?;
            }
        }
        if !tally.failed.is_empty() {
            failed.push(format!(
                "{} ({} of {})",
                cell.name,
                tally.failed.len(),
                tally.runs
            ));
        }
    }
    if !failed.is_empty() {
        bail!("not as promised: {}", failed.join(", "));
    }
    Ok(())
}

/// The cells that are named, or all.
fn choose(options: &Options) -> anyhow::Result<Vec<&'static Cell>> {
    if options.cells.is_empty() {
        return Ok(CELLS.iter().collect());
    }
    let named = |name: &String| {
        let cell = CELLS.iter().find(|cell| cell.name == name);
        cell.with_context(|| format!("no cell {name:?}; `cargo xtask chaos --list` names all"))
    };
    options.cells.iter().map(named).collect()
}

/// The programs, the hosts and the measures that all runs share.
struct Stage {
    programs: Programs,
    network: Option<Network>,
    /// The times of undisturbed reductions.
    usual: BTreeMap<(Layout, u64), Duration>,
}

impl Stage {
    fn prepare(options: &Options) -> anyhow::Result<Self> {
        let built = match &options.built {
            Some(built) => built.clone(),
            None => {
                // As the tests build it, so that nothing is compiled twice.
                let words = "build --workspace --all-features --locked --bin ropewalk --example chaos_worker \
                             --example reduce_returning";
                run(cargo(&words.split_whitespace().collect::<Vec<_>>()))?;
                project::target()?.join("debug")
            }
        };
        Ok(Self {
            programs: Programs::copy(&built)?,
            network: None,
            usual: BTreeMap::new(),
        })
    }

    fn run(
        &mut self,
        cell: &Cell,
        options: &Options,
        seed: u64,
    ) -> anyhow::Result<(Seen, Outcome, Duration)> {
        let layout = options.layout.unwrap_or_else(|| layout_of(cell, seed));
        let bytes = options.bytes.unwrap_or(cell.workload.bytes);
        if layout.hosts > 1 && self.network.is_none() && cell.weather.is_none() {
            self.network = Some(Network::new(HOSTS.max(layout.hosts), MBIT)?);
        }
        if let Some(kills) = cell.returns {
            let mut draw = Draw::new(seed, layout, Duration::ZERO);
            let trial = ReturnTrial {
                network: self.network.as_ref().filter(|_| layout.hosts > 1),
                detect: Duration::try_from_secs_f64(cell.detect)?,
                time_max: Duration::from_secs(u64::from(cell.seconds_max)),
                programs: &self.programs,
                layout,
                kills: kills(&mut draw, seed),
            };
            return Ok((Seen::default(), trial.run()?, Duration::ZERO));
        }
        let usual = match cell.weather {
            Some(_) => Duration::ZERO,
            None => self.usual(layout, bytes)?,
        };
        let mut draw = Draw::new(seed, layout, usual);
        let steps = (cell.draw)(&mut draw);
        let shortage = cell.shortage.map(|shortage| (shortage, 8 + draw.below(32)));
        let relay = match cell.weather {
            Some(weather) => {
                self.network = None;
                Some(Relay::new(layout.hosts, MBIT, RELAYED, weather)?)
            }
            None => None,
        };
        let network = match &relay {
            Some(relay) => Some(relay.network()),
            None => self.network.as_ref().filter(|_| layout.hosts > 1),
        };
        // A relay has to see as many bytes as a reduction sends.
        let calls = match relay {
            None => &Call::ALL[..],
            Some(_) => &Call::REDUCTIONS[..],
        };
        let trial = Trial {
            network,
            workload: Workload {
                bytes,
                ..cell.workload
            },
            collective: Collective {
                is_ordered: draw.below(2) == 0,
                is_sum: draw.below(2) == 0,
                call: calls[draw.below(calls.len() as u32) as usize],
                root: draw.root,
                next: draw.next,
            },
            detect: Duration::try_from_secs_f64(cell.detect)?,
            shortage,
            kills_stopped: cell.kills_stopped,
            expected: cell.expected,
            time_max: Duration::from_secs(u64::from(cell.seconds_max)),
            ..Trial::new(&self.programs, &draw, steps)
        };
        let (seen, outcome) = trial.run()?;
        if let (Some(relay), Some(weather), Outcome::Exact { .. }) = (&relay, cell.weather, &outcome) {
            let (count, some) = (&relay.count, |count: &AtomicUsize| {
                count.load(Ordering::Relaxed) > 0
            });
            let was_bad = count.bytes() as u64 > bytes
                && (weather.reset_every.is_none() || some(&count.resets))
                && (weather.flip_every.is_none() || some(&count.flips));
            ensure!(was_bad, "the relay has done nothing: {count:?}");
        }
        Ok((seen, outcome, usual))
    }

    /// Says if this machine lets the cell run. Tests run without namespaces and control groups too, and print the cells
    /// that they leave out.
    fn can_run(&mut self, cell: &Cell) -> bool {
        let needs_group = cell.shortage == Some(Shortage::Memory);
        let obstacle = match (needs_group, &self.network) {
            (true, _) if !Path::new(CONTROL_GROUPS).exists() => Some(format!("there is no {CONTROL_GROUPS}")),
            (_, Some(_)) => None,
            (_, None) => match Network::new(HOSTS, MBIT) {
                Ok(network) => {
                    self.network = Some(network);
                    None
                }
                Err(error) => Some(format!("{error:#}")),
            },
        };
        if let Some(obstacle) = &obstacle {
            eprintln!("skipped: chaos {}: {obstacle}", cell.name);
        }
        obstacle.is_none()
    }

    fn usual(&mut self, layout: Layout, bytes: u64) -> anyhow::Result<Duration> {
        if let Some(&usual) = self.usual.get(&(layout, bytes)) {
            return Ok(usual);
        }
        let mut times = Vec::new();
        for seed in 0..CALIBRATIONS {
            let draw = Draw::new(seed, layout, Duration::ZERO);
            let mut trial = Trial {
                network: self.network.as_ref().filter(|_| layout.hosts > 1),
                workload: Workload::new(bytes),
                ..Trial::new(&self.programs, &draw, Vec::new())
            };
            trial.collective.is_ordered = seed % 2 == 0;
            match trial.run()? {
                (_, Outcome::Exact { elapsed, .. }) => times.push(elapsed),
                (_, outcome) => bail!("a run without any fault failed: {outcome:?}"),
            }
        }
        times.sort_unstable();
        let usual = times[times.len() / 2];
        self.usual.insert((layout, bytes), usual);
        Ok(usual)
    }
}

fn layout_of(cell: &Cell, seed: u64) -> Layout {
    cell.layouts[(seed % cell.layouts.len() as u64) as usize]
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('x')
            .and_then(|(hosts, ranks)| Some((hosts.parse().ok()?, ranks.parse().ok()?)));
        match parsed {
            Some((hosts, ranks)) if hosts > 0 && ranks >= u32::from(hosts) && ranks > 2 => {
                Ok(Self::new(hosts, ranks))
            }
            _ => Err(
                "expected a number of hosts, an x, and a number of ranks that is not smaller, at least 3"
                    .to_owned(),
            ),
        }
    }
}

/// As many as any layout has.
const HOSTS: u8 = 5;
const MBIT: u32 = 400;
/// The host behind the relay.
const RELAYED: u8 = 2;
const CALIBRATIONS: u64 = 5;
