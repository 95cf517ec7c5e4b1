//! The paper's cases at its numbers of steps, measured for `docs/papers`.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use super::{
    Bench, Effort, Mean, Parts,
    make::{SHORT, STUDIES_OF_PAPER, Study},
    median, parts,
    report::Report,
};
use crate::solver::Mode;

/// A case of the paper, as it was measured.
#[derive(Debug)]
pub struct PaperCase {
    /// The name of the tutorial.
    pub name: &'static str,
    /// The number of ranks that run it.
    pub ranks: u32,
    /// The number of cells of its mesh.
    pub cells: u64,
    /// Each step without saves and failures, in seconds.
    pub steps: Vec<f64>,
    /// A save, in seconds: the median.
    pub save: f64,
    /// The shortest and the longest save.
    pub save_range: (f64, f64),
    /// From a failure to the first step after it, in seconds.
    pub restart: f64,
}

impl PaperCase {
    /// All steps together, in seconds.
    pub fn total(&self) -> f64 {
        self.steps.iter().sum()
    }
}

/// Runs of a solver that was killed at random moments.
#[derive(Debug)]
pub struct Killed {
    /// The mean time between failures, in seconds.
    pub mtbf: f64,
    /// The time between start and end, in seconds, without a failure and a save.
    pub undisturbed: f64,
    /// The runs, one of each policy.
    pub rows: Vec<KilledRow>,
}

/// The run of one policy.
#[derive(Debug)]
pub struct KilledRow {
    /// The steps between two saves; nothing for the advisor.
    pub every: Option<usize>,
    /// The time that it took.
    pub seconds: f64,
    /// The number of times that it was killed.
    pub failures: usize,
    /// The same by the model, for the failures that struck and the speed of that run.
    pub by_model: f64,
    /// The mean of many runs by the model.
    pub expected: f64,
}

/// Runs each case without failures, and measures its saves and restarts: serial and on two ranks. In short, only the
/// first steps of small meshes, serial.
///
/// # Errors
/// If something cannot be run.
pub fn measure(library: &Path, in_short: bool) -> anyhow::Result<Vec<PaperCase>> {
    let folder = tempfile::tempdir()?;
    let mut found = Vec::new();
    let (studies, modes) = match in_short {
        true => (&SHORT, &[Mode::Serial][..]),
        false => (&STUDIES_OF_PAPER, &[Mode::Serial, Mode::Parallel][..]),
    };
    for study in studies {
        for &mode in modes {
            eprintln!("==> {}, {}", study.name, mode.name());
            let (bench, parts, saves) = prepare(library, folder.path(), study, mode, in_short)?;
            let range = saves
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(least, most), save| {
                    (least.min(*save), most.max(*save))
                });
            found.push(PaperCase {
                name: study.name,
                ranks: mode.ranks().unwrap_or(1),
                cells: cells(&bench.fresh.case)?,
                steps: parts.steps,
                save: median(&mut saves.clone()),
                save_range: range,
                restart: parts.restart,
            });
        }
    }
    Ok(found)
}

/// Runs the cavity with failures, under each policy once, at an MTBF that is a part of its time.
///
/// # Errors
/// If something cannot be run.
pub fn kill(
    library: &Path,
    mtbf_share: f64,
    policies: &[Option<usize>],
    in_short: bool,
) -> anyhow::Result<Killed> {
    let folder = tempfile::tempdir()?;
    let study = match in_short {
        true => &SHORT[0],
        false => &STUDIES_OF_PAPER[0],
    };
    let (bench, parts, _) = prepare(library, folder.path(), study, Mode::Serial, in_short)?;
    let undisturbed = parts.start + parts.steps.iter().sum::<f64>() + parts.end;
    let report = Report {
        study: study.name.to_owned(),
        mtbf: undisturbed * mtbf_share,
        seed: 1,
        parts,
        undisturbed: vec![undisturbed],
        policies: policies.to_vec(),
        measured: Vec::new(),
    };
    let mut rows = Vec::new();
    for &every in policies {
        // All policies meet the same failures.
        let mut moment = report.gaps().start();
        let measured = bench.run(every, &mut moment, &report)?;
        eprintln!("{}", report.line(&measured));
        rows.push(KilledRow {
            every,
            seconds: measured.seconds,
            failures: measured.failures,
            by_model: report.replay(&measured).seconds,
            expected: report.saves(every).expected(&report.parts, report.mtbf)?,
        });
    }
    Ok(Killed {
        mtbf: report.mtbf,
        undisturbed,
        rows,
    })
}

fn prepare<'a>(
    library: &'a Path,
    folder: &Path,
    study: &'a Study,
    mode: Mode,
    in_short: bool,
) -> anyhow::Result<(Bench<'a>, Parts, Vec<f64>)> {
    let mut bench = Bench {
        study,
        fresh: study.make(
            folder.join(format!("{}-{}", study.name, mode.places().len())),
            mode,
        )?,
        library,
        times: Vec::new(),
        effort: match in_short {
            true => Effort::SHORT,
            false => Effort::OF_PAPER,
        },
    };
    let alone = bench.undisturbed()?;
    bench.times.clone_from(&alone.times);
    let found = bench.calibrate(&alone.steps)?;
    ensure!(!found.saves.is_empty(), "{} has made no save", study.name);
    let mut parts = parts(&[alone], &found);
    parts.restart = median(&mut found.restarts.clone());
    parts.save = Mean::of(&found.saves).mean;
    Ok((bench, parts, found.saves))
}

/// The number of cells, as the mesh's generator printed it.
fn cells(case: &Path) -> anyhow::Result<u64> {
    let log = fs::read_to_string(case.join("log.blockMesh"))?;
    let cells = log.lines().find_map(|line| line.trim().strip_prefix("nCells:"));
    Ok(cells
        .context("blockMesh prints the number of cells")?
        .trim()
        .parse()?)
}
