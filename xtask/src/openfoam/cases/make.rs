//! The cases of the paper, at a size for one core.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use super::super::{
    cavity::{Cavity, tool},
    solver::{Mode, Solver, copy},
};

/// One of the paper's cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Study {
    pub(super) name: &'static str,
    application: &'static str,
    pub(super) steps: usize,
    /// By how much a step advances the time, in seconds.
    pub(super) step: f64,
    /// How many cells a side of the cavity has, or how many times as many each side of the tutorial's mesh has.
    cells: f64,
    /// The mean time between failures as a part of the run's time, as in the paper.
    pub(super) mtbf_share: f64,
    /// The time of a save as a part of the run's time in the paper. What it is here depends on the disk.
    pub(super) save_share: f64,
    /// After how many steps users would save who know nothing of failures.
    pub(super) fixed: [usize; 5],
}

pub(super) const STUDIES: [Study; 3] = [
    Study {
        name: "cavity",
        application: "icoFoam",
        steps: 840,
        step: 1.2e-3,
        cells: 35.0,
        mtbf_share: 50.0 / 214.43,
        save_share: 0.60 / 214.43,
        fixed: [8, 16, 64, 128, 256],
    },
    Study {
        name: "pitzDaily",
        application: "pisoFoam",
        steps: 1190,
        step: 5e-6,
        cells: 0.73,
        mtbf_share: 100.0 / 888.14,
        save_share: 0.85 / 888.14,
        fixed: [8, 16, 64, 128, 256],
    },
    Study {
        name: "damBreak",
        application: "interFoam",
        steps: 1030,
        step: 4e-4,
        cells: 1.72,
        mtbf_share: 25.0 / 167.09,
        save_share: 0.27 / 167.09,
        fixed: [8, 16, 64, 128, 256],
    },
];

impl Study {
    /// Makes the case in a new folder.
    pub(super) fn make(&self, case: PathBuf) -> anyhow::Result<Solver> {
        let examples = Path::new("/usr/share/doc/openfoam-examples/examples");
        let source = match self.name {
            "cavity" => return self.cavity(case),
            "pitzDaily" => examples.join("incompressible/pisoFoam/LES/pitzDaily"),
            _ => examples.join("multiphase/interFoam/laminar/damBreak/damBreak"),
        };
        ensure!(
            source.exists(),
            "there is no {}, which Debian's package openfoam-examples has",
            source.display()
        );
        copy(&source, &case)?;
        edit(&case, "system/blockMeshDict", |text| refined(text, self.cells))?;
        edit(&case, "system/controlDict", |text| {
            // Without what else the tutorial looks at and writes.
            let text = text.split("\nfunctions").next().unwrap_or_default();
            let text = text.replace("#sinclude", "// #sinclude");
            format!("{text}\n{}", self.control())
        })?;
        tool(&case, "blockMesh", &[])?;
        if self.name == "damBreak" {
            tool(&case, "setFields", &[])?;
        }
        Ok(Solver {
            application: self.application,
            case,
            mode: Mode::Serial,
        })
    }

    /// A cube, as in the paper.
    fn cavity(&self, case: PathBuf) -> anyhow::Result<Solver> {
        let cells = self.cells as u32;
        let flat = Cavity {
            cells,
            steps: u32::try_from(self.steps).context("few steps")?,
            output: 1_000_000,
            latest: false,
        };
        let solver = flat.make(case, Mode::Serial)?;
        edit(&solver.case, "system/blockMeshDict", |text| {
            text.replace(
                &format!("({cells} {cells} 1)"),
                &format!("({cells} {cells} {cells})"),
            )
            .replace(" 0.1)", " 1)")
            .replace("type empty", "type wall")
        })?;
        edit(&solver.case, "0/U", |text| {
            text.replace("type empty", "type noSlip")
        })?;
        edit(&solver.case, "0/p", |text| {
            text.replace("type empty", "type zeroGradient")
        })?;
        edit(&solver.case, "system/controlDict", |text| {
            format!("{text}\n{}", self.control())
        })?;
        tool(&solver.case, "blockMesh", &[])?;
        Ok(solver)
    }

    /// What stands last in `system/controlDict`, where it counts.
    fn control(&self) -> String {
        let end = self.step * self.steps as f64;
        format!(
            "endTime {end:.9};\ndeltaT {};\nadjustTimeStep no;\nwriteControl timeStep;\nwriteInterval 1000000;\n\
             writeFormat binary;\ntimePrecision 9;\n",
            self.step
        )
    }
}

fn edit(case: &Path, name: &str, change: impl FnOnce(&str) -> String) -> anyhow::Result<()> {
    let path = case.join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, change(&text)).with_context(|| format!("cannot write {}", path.display()))
}

/// A `blockMeshDict` whose blocks have so many times as many cells in both directions of the plane.
fn refined(text: &str, factor: f64) -> String {
    let mut rest = text;
    let mut refined = String::with_capacity(text.len());
    while let Some((before, [x, y, z], after)) = next_cells(rest) {
        let more = |count: f64| (count * factor).round();
        // Writing to a string cannot fail.
        let _ = write!(refined, "{before}({} {} {z})", more(x), more(y));
        rest = after;
    }
    refined + rest
}

/// The numbers of cells of the next block, `hex (0 1 5 4 12 13 17 16) (23 8 1) simpleGrading (1 1 1)` for example, and what
/// is before and after them.
fn next_cells(text: &str) -> Option<(&str, [f64; 3], &str)> {
    let from = text.find("hex (")?;
    let from = from + text[from..].find(')')?;
    let from = from + text[from..].find('(')?;
    let to = from + text[from..].find(')')?;
    let mut numbers = text[from + 1..to].split_whitespace().map(str::parse);
    let three = [
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    ];
    Some((&text[..from], three, &text[to + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the numbers of cells change, in the two directions of the plane.
    #[test]
    fn meshes_are_refined() {
        let mesh = |first, second| {
            format!(
                "blocks\n(\n    hex (0 1 5 4 12 13 17 16) {first} simpleGrading (1 1 1)\n    hex (2 5)\n{second}\n);\n"
            )
        };
        assert_eq!(
            refined(&mesh("(23 8 1)", "(4 5 1)"), 2.0),
            mesh("(46 16 1)", "(8 10 1)")
        );
    }
}
