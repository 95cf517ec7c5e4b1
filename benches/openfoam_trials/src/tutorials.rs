//! Tutorials as Debian ships them, killed again and again: the user's outputs have to be those of a run that
//! nobody has disturbed, at the same times and no others.

mod bench;
mod table;

use std::path::Path;

use anyhow::ensure;
use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use self::{
    bench::{Bench, Outcome},
    table::{TUTORIALS, Tutorial, VARIANTS},
};

use super::solver::Mode;

/// How many trials.
#[derive(clap::Args)]
pub struct Options {
    /// How often each tutorial is killed in each mode; each run is killed up to three times
    #[arg(long, default_value_t = 60)]
    kills: u32,
    /// Only the tutorial of this name: cavity, pitzDaily or damBreak
    #[arg(long)]
    only: Option<String>,
    /// Decides when and whom
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The outcome of all runs of one tutorial.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u32,
    kills: u32,
    restores: usize,
    torn: usize,
    as_undisturbed: u32,
    as_by_itself: u32,
    /// How far a run with adjustable steps was off at most, and OpenFOAM's own restarts.
    distance: f64,
    own_distance: f64,
    wrong: u32,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.kills += outcome.kills;
        self.restores += outcome.restores;
        self.torn += outcome.quarantined;
        if let Some((distance, own)) = outcome.distance {
            self.distance = self.distance.max(distance);
            self.own_distance = own;
        }
        match () {
            () if !outcome.faults.is_empty() => self.wrong += 1,
            () if outcome.is_as_undisturbed => self.as_undisturbed += 1,
            () => self.as_by_itself += 1,
        }
    }
}

/// Kills each tutorial, serial and with two ranks, and prints a table of what was found.
///
/// # Errors
/// If an output is missing, is at another time, or differs.
pub fn tutorials(library: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let chosen = |tutorial: &&Tutorial| options.only.as_deref().is_none_or(|only| only == tutorial.name);
    ensure!(
        TUTORIALS.iter().any(|tutorial| chosen(&tutorial)),
        "there are the tutorials cavity, pitzDaily and damBreak"
    );
    println!(
        "| tutorial | runs | kills | restores | put aside | as undisturbed | as OpenFOAM's own restart | \
         off by at most | its own restarts | wrong |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut wrong = 0;
    for tutorial in TUTORIALS.iter().filter(chosen) {
        for mode in [Mode::Serial, Mode::Parallel] {
            let bench = Bench::prepare(folder.path(), library, tutorial, mode)?;
            let mut random = Pcg64::seed_from_u64(options.seed);
            let mut tally = Tally::default();
            while tally.kills < options.kills {
                let kills = KILLS_MAX.min(options.kills - tally.kills);
                let outcome = bench.killed(kills, &mut random)?;
                for fault in &outcome.faults {
                    eprintln!("{}, {}: {fault}", tutorial.name, mode.name());
                }
                tally.count(&outcome);
            }
            let Tally {
                runs,
                kills,
                restores,
                torn,
                as_undisturbed,
                as_by_itself,
                distance,
                own_distance,
                wrong: faulty,
            } = tally;
            println!(
                "| {}, {} | {runs} | {kills} | {restores} | {torn} | {as_undisturbed} | {as_by_itself} | \
                 {distance:.1e} | {own_distance:.1e} | {faulty} |",
                tutorial.name,
                mode.name()
            );
            wrong += faulty;
        }
    }
    ensure!(wrong == 0, "{wrong} runs have other outputs than they should");
    Ok(())
}

/// The same in short, with each of OpenFOAM's ways to say when there is an output.
pub(super) fn test(library: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut random = Pcg64::seed_from_u64(1);
    for (tutorial, mode, kills) in VARIANTS {
        let bench = Bench::prepare(folder.path(), library, tutorial, *mode)?;
        let outcome = bench.killed(*kills, &mut random)?;
        ensure!(
            outcome.faults.is_empty() && outcome.kills > 0,
            "{}, {}: killed {} times: {}",
            tutorial.name,
            mode.name(),
            outcome.kills,
            outcome.faults.join("; ")
        );
        println!(
            "{}, {}: killed {} times, the user's outputs are as they should be",
            tutorial.name,
            mode.name(),
            outcome.kills
        );
    }
    Ok(())
}

/// How often a run is killed.
const KILLS_MAX: u32 = 3;
