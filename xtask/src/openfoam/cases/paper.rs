//! The paper's cases at its numbers of steps, measured for `docs/papers`.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use super::{
    Bench, Effort, Mean, Parts,
    make::{SHORT, STUDIES_OF_PAPER, Study},
    median, parts,
    report::Report,
};
use crate::{debian, openfoam::solver::Mode};

/// A case of the paper, as it was measured.
#[derive(Debug)]
pub(crate) struct PaperCase {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    pub(crate) cells: u64,
    /// Each step without saves and failures, in seconds.
    pub(crate) steps: Vec<f64>,
    /// A save, in seconds: the median.
    pub(crate) save: f64,
    /// The shortest and the longest save.
    pub(crate) save_range: (f64, f64),
    /// From a failure to the first step after it, in seconds.
    pub(crate) restart: f64,
}

impl PaperCase {
    /// All steps together, in seconds.
    pub(crate) fn total(&self) -> f64 {
        self.steps.iter().sum()
    }
}

/// Runs of a solver that was killed at random moments.
#[derive(Debug)]
pub(crate) struct Killed {
    pub(crate) mtbf: f64,
    /// The time between start and end, in seconds, without a failure and a save.
    pub(crate) undisturbed: f64,
    pub(crate) rows: Vec<KilledRow>,
}

/// The run of one policy.
#[derive(Debug)]
pub(crate) struct KilledRow {
    /// The steps between two saves; nothing for the advisor.
    pub(crate) every: Option<usize>,
    pub(crate) seconds: f64,
    pub(crate) failures: usize,
    /// The same by the model, for the failures that struck and the speed of that run.
    pub(crate) by_model: f64,
    /// The mean of many runs by the model.
    pub(crate) expected: f64,
}

/// Runs each case without failures, and measures its saves and restarts: serial and on two ranks. In short, only the
/// first steps of small meshes, serial.
///
/// # Errors
/// If something cannot be run.
pub(crate) fn measure(library: &Path, in_short: bool) -> anyhow::Result<Vec<PaperCase>> {
    debian::provide_examples()?;
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
pub(crate) fn kill(
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
