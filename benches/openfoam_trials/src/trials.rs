//! Many runs that are killed at a random moment, with our store and without.

use std::{path::Path, time::Duration};

use anyhow::{bail, ensure};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_openfoam::CaseOptions;

use super::{cavity::Cavity, solver::Mode, tests::Bench};

/// How many trials.
#[derive(clap::Args)]
pub struct Options {
    /// How many runs with the store are killed, a third of each kind
    #[arg(long, default_value_t = 500)]
    count: u64,
    /// How many runs without it, if not as many
    #[arg(long)]
    without: Option<u64>,
    /// Only the runs of this kind: serial, "2 ranks" or collated; as many as all kinds together have of it
    #[arg(long)]
    only: Option<String>,
    /// Decides when and whom; trial i has the seed SEED + i
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The numbers of trials of one kind, by outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u32,
    /// Killed before they were done.
    killed: u32,
    /// So that something torn or uncommitted was left.
    torn: u32,
    failed: u32,
    different: u32,
}

/// Kills icoFoam once at a random moment, starts it again, and compares the result with that of an undisturbed run, bit
/// for bit.
///
/// # Errors
/// If a restart fails or differs with our store.
pub fn trials(library: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut all_right = true;
    println!("| runs | killed | torn or uncommitted | failed restarts | other results |");
    println!("|---|---|---|---|---|");
    let names = Mode::ALL.map(Mode::name);
    let chosen = |mode: Mode| options.only.as_deref().is_none_or(|only| only == mode.name());
    ensure!(
        Mode::ALL.into_iter().any(chosen),
        "there are the kinds {}",
        names.join(", ")
    );
    let numbers = |at: usize, count: u64| (at as u64..count).step_by(Mode::ALL.len());
    for (at, mode) in Mode::ALL
        .into_iter()
        .enumerate()
        .filter(|&(_, mode)| chosen(mode))
    {
        let bench = Bench::prepare(folder.path(), library, mode, SAVED_BY_US)?;
        let by_itself = Bench::prepare(folder.path(), library, mode, SAVED_BY_ITSELF)?;
        let [mut with, mut without] = [Tally::default(); 2];
        for trial in numbers(at, options.count) {
            with.count(with_store(&bench, options.seed.wrapping_add(trial))?);
        }
        for trial in numbers(at, options.without.unwrap_or(options.count)) {
            without.count(without_store(&by_itself, options.seed.wrapping_add(trial))?);
        }
        for (kind, tally) in [("with our store", with), ("without", without)] {
            let Tally {
                runs,
                killed,
                torn,
                failed,
                different,
            } = tally;
            println!(
                "| {}, {kind}: {runs} | {killed} | {torn} | {failed} | {different} |",
                mode.name()
            );
        }
        all_right &= with.failed + with.different == 0;
    }
    ensure!(all_right, "with our store no restart may fail or differ");
    Ok(())
}

/// The outcome of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    killed: bool,
    torn: bool,
    restarted: bool,
    right: bool,
}

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        self.runs += 1;
        self.killed += u32::from(outcome.killed);
        self.torn += u32::from(outcome.torn);
        self.failed += u32::from(!outcome.restarted);
        self.different += u32::from(outcome.restarted && !outcome.right);
    }
}

/// A moment in the usual time of a run.
fn moment(bench: &Bench, random: &mut Pcg64) -> Duration {
    bench
        .usual
        .mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX))
}

fn with_store(bench: &Bench, seed: u64) -> anyhow::Result<Outcome> {
    let mut random = Pcg64::seed_from_u64(seed);
    let solver = bench.fresh("trial")?;
    let options = CaseOptions {
        every: Some(SAVED_BY_ITSELF.output),
        ..bench.options()
    };
    let case = solver.open(options)?;
    let prepared = case.prepare()?;
    let running = solver.start(Some(&prepared))?;
    let at = running.began + moment(bench, &mut random);
    let killed = running.kill_at(at, &mut random)?;
    let prepared = case.prepare()?;
    let restarted = solver.finish(Some(&prepared)).is_ok();
    case.finish()?;
    let outcome = Outcome {
        killed,
        torn: !prepared.quarantined.is_empty(),
        restarted,
        right: restarted && bench.is_right(&solver)?,
    };
    if !outcome.right {
        eprintln!("seed {seed}: {outcome:?}\n{}", tail(&solver.log()));
    }
    Ok(outcome)
}

fn without_store(bench: &Bench, seed: u64) -> anyhow::Result<Outcome> {
    let mut random = Pcg64::seed_from_u64(seed);
    let solver = bench.fresh("trial")?;
    let running = solver.start(None)?;
    let at = running.began + moment(bench, &mut random);
    let killed = running.kill_at(at, &mut random)?;
    // Whoever knows nothing of the store starts again, and the solver begins at the latest time.
    let restarted = solver.finish(None).is_ok();
    let right = restarted && bench.is_right(&solver)?;
    if !killed && !right {
        bail!("an undisturbed run without the store differs");
    }
    Ok(Outcome {
        killed,
        // Nobody looks.
        torn: false,
        restarted,
        right,
    })
}

fn tail(log: &str) -> &str {
    let start = log.len().saturating_sub(2000);
    let start = (start..log.len()).find(|&at| log.is_char_boundary(at));
    &log[start.unwrap_or(0)..]
}

/// The solver saves at every second step, so that many kills strike a save.
const SAVED_BY_ITSELF: Cavity = Cavity {
    cells: 60,
    steps: 80,
    output: 2,
    latest: true,
};

/// We do that; the solver itself writes only the result.
const SAVED_BY_US: Cavity = Cavity {
    output: SAVED_BY_ITSELF.steps,
    latest: false,
    ..SAVED_BY_ITSELF
};
