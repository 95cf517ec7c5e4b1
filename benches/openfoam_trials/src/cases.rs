//! The three cases of the paper, with failures at its ratios: what a run takes, what was expected, and what saving at
//! fixed numbers of steps takes.

mod gaps;
pub(super) mod make;
mod model;
pub(super) mod paper;
mod report;
mod watch;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use ropewalk_openfoam::CaseOptions;

use self::{
    gaps::{Gaps, Moment},
    make::{STUDIES, Study},
    model::{Mean, Parts, median},
    report::{Measured, Report},
    watch::{Observed, Watch},
};

use super::solver::{Mode, Solver, copy};

/// How the cases are run.
#[derive(clap::Args)]
pub struct Options {
    /// How often each policy runs each case, one run after the other, while the failures go on
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Decides when the runs fail
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the case of this name: cavity, pitzDaily or damBreak
    #[arg(long)]
    only: Option<String>,
    /// Where the cases are: how long a save takes depends on the disk there
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Only measures the run without failures, a save and a restart, and says what is expected
    #[arg(long)]
    predict: bool,
    /// Only shows what an earlier run of this command has found
    #[arg(long)]
    again: bool,
}

/// Runs the cases and writes `cases.json` and `cases.svg` in the folder `target` after each round of runs.
///
/// # Errors
/// If something cannot be run.
pub fn cases(library: &Path, target: &Path, options: &Options) -> anyhow::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("cases");
    let folder = match &options.folder {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    }?;
    let chosen = |study: &&Study| options.only.as_deref().is_none_or(|only| only == study.name);
    ensure!(
        STUDIES.iter().any(|study| chosen(&study)),
        "there are the cases {}",
        STUDIES.map(|study| study.name).join(", ")
    );
    fs::create_dir_all(target)?;
    for study in STUDIES.iter().filter(chosen) {
        if options.again {
            let report = Report::read(target, study.name, options.seed)?;
            report.print()?;
            report.write(target)?;
            continue;
        }
        let mut bench = Bench {
            study,
            fresh: study.make(folder.path().join(study.name), Mode::Serial)?,
            library,
            times: Vec::new(),
            effort: Effort::USUAL,
        };
        bench.compare(options, target)?;
    }
    println!("{} has the figures and cases.svg", target.display());
    Ok(())
}

/// A case as it is before any run.
struct Bench<'a> {
    study: &'a Study,
    fresh: Solver,
    library: &'a Path,
    /// To which its steps lead.
    times: Vec<f64>,
    effort: Effort,
}

/// The number of measurements.
#[derive(Clone, Copy, Debug)]
struct Effort {
    saves: usize,
    restarts: usize,
    /// The seconds of computing between saves that are measured.
    pause: f64,
}

impl Effort {
    const USUAL: Self = Self {
        saves: 20,
        restarts: 6,
        pause: 1.0,
    };
    const OF_PAPER: Self = Self {
        saves: 11,
        restarts: 3,
        pause: 0.5,
    };
    const SHORT: Self = Self {
        saves: 3,
        restarts: 1,
        pause: 0.1,
    };
}

/// A run without failures and saves.
struct Undisturbed {
    seconds: f64,
    steps: Vec<f64>,
    times: Vec<f64>,
    end: f64,
}

/// The measured times of saves, the start and restarts, in seconds.
struct Calibration {
    saves: Vec<f64>,
    start: f64,
    restarts: Vec<f64>,
}

impl Bench<'_> {
    fn compare(&mut self, options: &Options, target: &Path) -> anyhow::Result<()> {
        let mut alone = vec![self.undisturbed()?];
        let first = &alone[0];
        self.times.clone_from(&first.times);
        let mtbf = first.seconds * self.study.mtbf_share;
        let found = self.calibrate(&first.steps)?;
        println!(
            "\n{}: {:.1} s of {} steps, save {} s, restart {} s, failures every {mtbf:.2} s",
            self.study.name,
            first.seconds,
            first.steps.len(),
            Spread(Mean::of(&found.saves)),
            Spread(Mean::of(&found.restarts)),
        );
        println!(
            "a save is {:.3} % of the run; in the paper it is {:.3} %",
            100.0 * Mean::of(&found.saves).mean / first.seconds,
            100.0 * self.study.save_share
        );
        let policies: Vec<Option<usize>> = std::iter::once(None).chain(self.study.fixed.map(Some)).collect();
        let mut report = Report {
            study: self.study.name.to_owned(),
            mtbf,
            seed: options.seed,
            parts: parts(&alone, &found),
            undisturbed: vec![first.seconds],
            policies: policies.clone(),
            measured: Vec::new(),
        };
        report.print()?;
        if options.predict {
            return Ok(());
        }
        let mut moments = vec![report.gaps().start(); policies.len()];
        for run in 0..options.runs {
            if run > 0 {
                alone.push(self.undisturbed()?);
                report.parts = parts(&alone, &found);
                report.undisturbed = alone.iter().map(|alone| alone.seconds).collect();
            }
            // Each round begins with another policy, so that no speed of the machine comes back to the same one.
            let first = (run + options.seed as usize) % policies.len();
            for at in (0..policies.len()).map(|at| (first + at) % policies.len()) {
                let measured = self.run(policies[at], &mut moments[at], &report)?;
                println!("{}", report.line(&measured));
                report.measured.push(measured);
            }
            report.print()?;
            report.write(target)?;
        }
        Ok(())
    }

    fn undisturbed(&self) -> anyhow::Result<Undisturbed> {
        let solver = self.copy_of("alone")?;
        let mut running = solver.start_watched(None)?;
        let began = running.began;
        let watch = Watch::begin(&solver, &mut running)?;
        let took = solver.wait(running)?;
        let (observed, times) = watch.end_of_whole()?;
        ensure!(
            self.times.is_empty() || times == self.times,
            "{} makes {} steps, and made {} before",
            self.study.name,
            times.len(),
            self.times.len()
        );
        let last = observed.last.context("it has made its steps")?;
        Ok(Undisturbed {
            seconds: took.as_secs_f64(),
            steps: observed.steps.into_iter().map(|(_, seconds)| seconds).collect(),
            times,
            end: (began + took - last).as_secs_f64(),
        })
    }

    /// Makes some saves, and begins again some times.
    fn calibrate(&self, steps: &[f64]) -> anyhow::Result<Calibration> {
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        // Far enough apart that one save does not wait for what another has left to the disk.
        let every = ((self.effort.pause / mean).ceil() as usize).max(1);
        let solver = self.copy_of("measured")?;
        let told = CaseOptions {
            every: Some(u32::try_from(every)?),
            ..CaseOptions::new(self.library)
        };
        let case = solver.open(told)?;
        let mut random = Pcg64::seed_from_u64(0);
        let mut found = Calibration {
            saves: Vec::new(),
            start: f64::NAN,
            restarts: Vec::new(),
        };
        let mut failed: Option<Instant> = None;
        while found.restarts.len() < self.effort.restarts {
            let began = Instant::now();
            let prepared = case.prepare()?;
            let mut running = solver.start_watched(Some(&prepared))?;
            let watch = Watch::begin(&solver, &mut running)?;
            let count = if failed.is_none() {
                // What is begun again goes on from there; it too has to be killed before the end.
                (self.effort.saves * every)
                    .min(steps.len().saturating_sub((self.effort.restarts + 2) * every))
            } else {
                every + 1
            };
            ensure!(
                count >= every,
                "{} is too short to measure its saves",
                self.study.name
            );
            // In the middle of a step, when all the steps before it are done.
            let begun = solver.await_steps_or_end(count + 1, &mut running)?;
            let moment = begun.unwrap_or(began) + Duration::from_secs_f64(mean / 2.0);
            ensure!(
                running.kill_at(moment, &mut random)?,
                "{} has ended before its saves were measured",
                self.study.name
            );
            let observed = watch.end(&self.times)?;
            let first = observed.first.context("it makes a step in this time")?;
            found.saves.extend(observed.saves(every));
            match failed {
                None => found.start = (first - began).as_secs_f64(),
                Some(failed) => {
                    // The first step after a restart may take longer than it would have.
                    let late = observed.steps.first().map_or(0.0, |&(at, took)| took - steps[at]);
                    found.restarts.push((first - failed).as_secs_f64() + late);
                }
            }
            failed = Some(moment);
        }
        Ok(found)
    }

    /// Runs the case to its end, killed after each gap, and says where the failures are then.
    fn run(&self, every: Option<usize>, moment: &mut Moment, report: &Report) -> anyhow::Result<Measured> {
        let from = *moment;
        let gaps: Gaps = report.gaps();
        let solver = self.copy_of("run")?;
        let told = CaseOptions {
            every: every.map(u32::try_from).transpose()?,
            mtbf: Some(gaps.mtbf),
            ..CaseOptions::new(self.library)
        };
        let case = solver.open(told)?;
        let mut random = Pcg64::seed_from_u64(gaps.seed);
        let mut gaps = gaps.from(from).map(Duration::from_secs_f64);
        let mut gap = || gaps.next().unwrap_or(Duration::MAX);
        let began = Instant::now();
        let mut failures = 0;
        let mut next = began + gap();
        let mut all: Vec<Observed> = Vec::new();
        loop {
            let prepared = case.prepare()?;
            while next <= Instant::now() {
                // It strikes who prepares the case, who would begin anew.
                failures += 1;
                next += gap();
            }
            let mut running = solver.start_watched(Some(&prepared))?;
            let watch = Watch::begin(&solver, &mut running)?;
            let killed = running.kill_at(next, &mut random)?;
            all.push(watch.end(&self.times)?);
            if !killed {
                break;
            }
            failures += 1;
            next += gap();
            ensure!(
                began.elapsed().as_secs_f64() < 30.0 * report.undisturbed[0],
                "the case makes no headway under this policy"
            );
        }
        case.finish().context("the case cannot be tidied up")?;
        let now = Instant::now();
        let seconds = (now - began).as_secs_f64();
        while next <= now {
            failures += 1;
            next += gap();
        }
        *moment = Moment {
            left: (next - now).as_secs_f64(),
            begun: from.begun + failures,
        };
        let steps = || all.iter().flat_map(|observed| &observed.steps);
        let usual: f64 = steps().map(|&(at, _)| report.parts.steps[at]).sum();
        Ok(Measured {
            every,
            from,
            seconds,
            failures,
            speed: steps().map(|(_, took)| took).sum::<f64>() / usual,
        })
    }

    fn copy_of(&self, name: &str) -> anyhow::Result<Solver> {
        let case = self
            .fresh
            .case
            .with_file_name(format!("{}-{name}", self.study.name));
        let _ = fs::remove_dir_all(&case);
        copy(&self.fresh.case, &case)?;
        Ok(Solver {
            case,
            ..self.fresh.clone()
        })
    }
}

impl Observed {
    /// The pauses in which there was a save, of a run that saves each so many steps.
    fn saves(&self, every: usize) -> impl Iterator<Item = f64> {
        self.pauses.iter().skip(every - 1).step_by(every).copied()
    }
}

/// The times of the parts of a run, from the measurements.
fn parts(alone: &[Undisturbed], found: &Calibration) -> Parts {
    let middle = |value: &dyn Fn(&Undisturbed) -> f64| {
        let mut values: Vec<f64> = alone.iter().map(value).collect();
        median(&mut values)
    };
    Parts {
        steps: (0..alone[0].steps.len())
            .map(|step| middle(&|alone| alone.steps[step]))
            .collect(),
        save: Mean::of(&found.saves).mean,
        start: found.start,
        restart: Mean::of(&found.restarts).mean,
        end: middle(&|alone| alone.end),
    }
}

/// A mean and its error, to be shown.
struct Spread(Mean);

impl std::fmt::Display for Spread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.3} ± {:.3}", self.0.mean, self.0.error)
    }
}
