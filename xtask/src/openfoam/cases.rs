//! The three cases of the paper, with failures at its ratios: what a run takes, what was expected, and what saving at
//! fixed numbers of steps takes.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint::{Costs, JournalFile, Level, Plan, Rate};
use ropewalk_openfoam::CaseOptions;
use serde_json::{Value, json};

use crate::project;

use super::{
    cavity::{Cavity, tool},
    solver::{Mode, Solver, copy},
};

/// How the cases are run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each policy runs each case, with other failures each time
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// The first run has this seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many cells each side of the cavity has; the time grows with its cube
    #[arg(long, default_value_t = 250)]
    cells: u32,
    /// Only the case of this name: cavity, pitzDaily or damBreak
    #[arg(long)]
    only: Option<String>,
}

/// One of the paper's cases.
struct Study {
    name: &'static str,
    application: &'static str,
    steps: u32,
    /// The mean time between failures as a part of the run's compute time.
    mtbf_share: f64,
}

const STUDIES: [Study; 3] = [
    Study {
        name: "cavity",
        application: "icoFoam",
        steps: 100,
        mtbf_share: 50.0 / 214.43,
    },
    Study {
        name: "pitzDaily",
        application: "pisoFoam",
        steps: 200,
        mtbf_share: 100.0 / 888.14,
    },
    Study {
        name: "damBreak",
        application: "interFoam",
        steps: 1000,
        mtbf_share: 25.0 / 167.09,
    },
];

/// Runs the cases and writes `target/openfoam/cases.json` and `cases.svg`.
///
/// # Errors
/// If something cannot be run.
pub(super) fn cases(library: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut found = Vec::new();
    let chosen = |study: &&Study| options.only.as_deref().is_none_or(|only| only == study.name);
    for study in STUDIES.iter().filter(chosen) {
        let fresh = study.make(folder.path().join(study.name), options)?;
        found.push(study.compare(&fresh, library, options)?);
    }
    let target = project::target()?.join("openfoam");
    fs::create_dir_all(&target)?;
    fs::write(target.join("cases.json"), serde_json::to_string_pretty(&found)?)?;
    fs::write(target.join("cases.svg"), draw(&found))?;
    println!("{} has the figures and cases.svg", target.display());
    Ok(())
}

impl Study {
    fn make(&self, case: PathBuf, options: &Options) -> anyhow::Result<Solver> {
        let solver = Solver {
            application: self.application,
            case: case.clone(),
            mode: Mode::Serial,
        };
        let examples = Path::new("/usr/share/doc/openfoam-examples/examples");
        let source = match self.name {
            "cavity" => {
                let cavity = Cavity {
                    cells: options.cells,
                    steps: self.steps,
                    output: self.steps,
                    latest: false,
                };
                return cavity.make(case, Mode::Serial);
            }
            "pitzDaily" => examples.join("incompressible/pisoFoam/LES/pitzDaily"),
            _ => examples.join("multiphase/interFoam/laminar/damBreak/damBreak"),
        };
        ensure!(
            source.exists(),
            "there is no {}; as root: apt-get install openfoam-examples",
            source.display()
        );
        copy(&source, &case)?;
        let path = case.join("system/controlDict");
        let text = fs::read_to_string(&path)?;
        // Without what else the tutorial looks at and writes.
        let text = text.split("functions").next().unwrap_or_default();
        let text = text.replace("#sinclude", "// #sinclude");
        let step = match self.name {
            "pitzDaily" => 1e-5,
            _ => 1e-3,
        };
        let end = step * f64::from(self.steps);
        let own = "writeControl timeStep; writeInterval 1000000; writeFormat binary;";
        fs::write(&path, format!("{text}\nendTime {end};\n{own}\n"))?;
        tool(&case, "blockMesh", &[])?;
        if self.name == "damBreak" {
            tool(&case, "setFields", &[])?;
        }
        Ok(solver)
    }

    fn compare(&self, fresh: &Solver, library: &Path, options: &Options) -> anyhow::Result<Value> {
        let told = CaseOptions::new(library);
        let alone = self.copy_of(fresh, "alone")?.finish(None)?.as_secs_f64();
        // How long a save and a restart take, by a run that saves often and another that has nothing left to do.
        let measured = self.copy_of(fresh, "measured")?;
        let often = CaseOptions {
            every: Some((self.steps / 20).max(1)),
            ..told.clone()
        };
        let case = measured.open(often)?;
        measured.finish(Some(&case.prepare()?))?;
        let (_, history) = JournalFile::open(measured.case.join("checkpoints/journal"))?;
        let saves = history.saves(Level::Full);
        ensure!(!saves.is_empty(), "{} made no saves", self.name);
        let save = saves.iter().sum::<f64>() / saves.len() as f64;
        let restore = {
            let begun = self.copy_of(fresh, "begun")?;
            let case = begun.open(told.clone())?;
            let began = Instant::now();
            let prepared = case.prepare()?;
            let running = begun.start(Some(&prepared))?;
            begun.await_steps(1)?;
            drop(running);
            began.elapsed().as_secs_f64()
        };
        let compute = (alone - restore).max(0.0);
        let mtbf = compute * self.mtbf_share;
        let costs = Costs::new(save, restore, mtbf)?;
        let steps = vec![compute / f64::from(self.steps); self.steps as usize];
        let plan = Plan::by(&Rate, &costs, &steps);
        // The first start takes as long as a restart.
        let expected = restore + plan.expected_time(&costs, &steps);
        let best = costs.interval() / steps[0];
        let mut fixed: Vec<u32> = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
            .map(|share| ((best * share).round() as u32).clamp(1, self.steps))
            .to_vec();
        fixed.dedup();
        println!(
            "\n{}: {compute:.2} s of {} steps, save {save:.4} s, restart {restore:.3} s, failures every {mtbf:.2} s",
            self.name, self.steps
        );
        println!("| saved | seconds, mean of {} | failures |", options.runs);
        println!("|---|---|---|");
        println!("| expected | {expected:.2} | {:.1} |", expected / mtbf);
        let policies = std::iter::once(None).chain(fixed.into_iter().map(Some));
        let mut rows = Vec::new();
        for every in policies {
            let mut total = 0.0;
            let mut failures = 0;
            for seed in (0..options.runs).map(|run| options.seed.wrapping_add(run)) {
                let solver = self.copy_of(fresh, "run")?;
                let told = CaseOptions {
                    every,
                    mtbf: Some(mtbf),
                    ..told.clone()
                };
                let (seconds, killed) = run(&solver, told, mtbf, seed, alone)?;
                total += seconds;
                failures += killed;
            }
            let mean = total / options.runs as f64;
            let name = every.map_or("when it is best".to_owned(), |every| {
                format!("every {every} steps")
            });
            let failures = f64::from(failures) / options.runs as f64;
            println!("| {name} | {mean:.2} | {failures:.1} |");
            rows.push(json!({"policy": name, "seconds": mean, "failures": failures}));
        }
        Ok(json!({
            "case": self.name, "compute_s": compute, "steps": self.steps, "save_s": save, "restore_s": restore,
            "mtbf_s": mtbf, "expected_s": expected, "runs": options.runs, "policies": rows,
        }))
    }

    fn copy_of(&self, fresh: &Solver, name: &str) -> anyhow::Result<Solver> {
        let case = fresh.case.with_file_name(format!("{}-{name}", self.name));
        let _ = fs::remove_dir_all(&case);
        copy(&fresh.case, &case)?;
        Ok(Solver {
            case,
            ..fresh.clone()
        })
    }
}

/// Runs a case to its end, killed on average after each mean time between failures; says how long that took, and how often
/// it was killed.
fn run(solver: &Solver, told: CaseOptions, mtbf: f64, seed: u64, alone: f64) -> anyhow::Result<(f64, u32)> {
    let mut random = Pcg64::seed_from_u64(seed);
    let case = solver.open(told)?;
    let began = Instant::now();
    let mut failures = 0;
    // The clock of failures runs on over restarts, so that all policies meet the same ones.
    let mut next = began;
    loop {
        while next <= Instant::now() {
            let uniform = (f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0);
            next += Duration::from_secs_f64(-uniform.ln() * mtbf);
        }
        let prepared = case.prepare()?;
        let running = solver.start(Some(&prepared))?;
        if !running.kill_at(next, &mut random)? {
            break;
        }
        failures += 1;
        ensure!(
            began.elapsed().as_secs_f64() < 100.0 * alone,
            "the case makes no headway under this policy"
        );
    }
    case.finish().context("the case cannot be tidied up")?;
    Ok((began.elapsed().as_secs_f64(), failures))
}

/// Bars for each case, with a line at what was expected.
fn draw(found: &[Value]) -> String {
    const ROW: usize = 22;
    let mut body = String::new();
    let mut y = 10;
    let number = |value: &Value, name: &str| value[name].as_f64().unwrap_or(0.0);
    for case in found {
        let rows = case["policies"].as_array().map_or(&[][..], Vec::as_slice);
        let most = rows.iter().map(|row| number(row, "seconds")).fold(1e-9, f64::max);
        let width = |seconds: f64| 420.0 * seconds / most;
        let name = case["case"].as_str().unwrap_or_default();
        y += ROW;
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<text x='10' y='{y}' font-weight='bold'>{name}</text>");
        let top = y + 6;
        for row in rows {
            y += ROW;
            let seconds = number(row, "seconds");
            let policy = row["policy"].as_str().unwrap_or_default();
            let _ = writeln!(body, "<text x='10' y='{y}'>{policy}</text>");
            let bar = width(seconds);
            let at = y - 12;
            let _ = writeln!(
                body,
                "<rect x='150' y='{at}' width='{bar:.1}' height='14' fill='#4a7ebb'/>"
            );
            let _ = writeln!(body, "<text x='{:.1}' y='{y}'>{seconds:.2} s</text>", 156.0 + bar);
        }
        let x = 150.0 + width(number(case, "expected_s"));
        let _ = writeln!(
            body,
            "<line x1='{x:.1}' x2='{x:.1}' y1='{top}' y2='{}' stroke='#c0504d' stroke-width='2'/>",
            y + 4
        );
        y += ROW;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='680' height='{}' font-family='sans-serif' font-size='13'>\n\
         <rect width='100%' height='100%' fill='white'/>\n{body}\
         <text x='10' y='{}'>Total time; the line is what was expected of saving when it is best.</text>\n</svg>\n",
        y + 30,
        y + 14
    )
}
