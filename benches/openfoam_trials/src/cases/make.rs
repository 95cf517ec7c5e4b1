//! The cases of the paper, at a size for one core.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use super::super::{
    cavity::tool,
    solver::{Mode, Solver, copy},
};

/// One of the paper's cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Study {
    pub(super) name: &'static str,
    application: &'static str,
    /// Where it is among the tutorials.
    source: &'static str,
    /// How many times as many cells each side of the tutorial's mesh has.
    cells: f64,
    /// The end, and for a finer mesh the step: all else is as shipped.
    control: &'static str,
    /// The mean time between failures as a part of the run's time, as in the paper.
    pub(super) mtbf_share: f64,
    /// The time of a save as a part of the run's time in the paper. What it is here depends on the disk.
    pub(super) save_share: f64,
    /// After how many steps users would save who know nothing of failures.
    pub(super) fixed: [usize; 8],
}

/// Powers of two, and between them where the model says that the best is.
const FIXED: [usize; 8] = [8, 16, 24, 32, 40, 64, 128, 256];

pub(super) const STUDIES: [Study; 3] = [
    Study {
        name: "cavity",
        application: "icoFoam",
        source: "incompressible/icoFoam/cavity/cavity",
        cells: 1.75,
        control: "deltaT 0.0012; endTime 1.008;",
        mtbf_share: 50.0 / 214.43,
        save_share: 0.60 / 214.43,
        fixed: FIXED,
    },
    Study {
        name: "pitzDaily",
        application: "pisoFoam",
        source: "incompressible/pisoFoam/LES/pitzDaily",
        cells: 0.73,
        control: "endTime 0.0119;",
        mtbf_share: 100.0 / 888.14,
        save_share: 0.85 / 888.14,
        fixed: FIXED,
    },
    Study {
        name: "damBreak",
        application: "interFoam",
        source: "multiphase/interFoam/laminar/damBreak/damBreak",
        cells: 1.72,
        control: "endTime 1;",
        mtbf_share: 25.0 / 167.09,
        save_share: 0.27 / 167.09,
        fixed: FIXED,
    },
];

/// The same with as many steps as in the paper, and meshes with which a run takes less than half a minute.
pub(super) const STUDIES_OF_PAPER: [Study; 3] = [
    Study {
        control: "deltaT 0.0028; endTime 0.28;",
        ..STUDIES[0]
    },
    Study {
        cells: 1.0,
        control: "endTime 0.002;",
        ..STUDIES[1]
    },
    Study {
        cells: 1.4,
        control: "endTime 1.2;",
        ..STUDIES[2]
    },
];

/// The same in seconds.
pub(super) const SHORT: [Study; 3] = [
    Study {
        control: "deltaT 0.0028; endTime 0.084;",
        ..STUDIES[0]
    },
    Study {
        cells: 0.73,
        control: "endTime 0.0006;",
        ..STUDIES[1]
    },
    Study {
        cells: 1.0,
        control: "endTime 0.2;",
        ..STUDIES[2]
    },
];

impl Study {
    /// Makes the case in a new folder.
    pub(super) fn make(&self, case: PathBuf, mode: Mode) -> anyhow::Result<Solver> {
        copy_tutorial(self.source, &case)?;
        edit(&case, "system/blockMeshDict", |text| refined(text, self.cells))?;
        edit(&case, "system/controlDict", |text| {
            format!("{text}\n{}\n", self.control)
        })?;
        if self.name == "cavity" {
            make_cube(&case, self.cells)?;
        }
        tool(&case, "blockMesh", &[])?;
        if case.join("system/setFieldsDict").exists() {
            tool(&case, "setFields", &[])?;
        }
        if mode != Mode::Serial {
            let two = include_str!("../cavity/system/decomposeParDict");
            fs::write(case.join("system/decomposeParDict"), two)?;
            tool(&case, "decomposePar", &[])?;
        }
        Ok(Solver {
            application: self.application,
            case,
            mode,
        })
    }
}

/// Makes the cavity as deep as it is wide, as in the paper.
fn make_cube(case: &Path, factor: f64) -> anyhow::Result<()> {
    edit(case, "system/blockMeshDict", |text| {
        let side = (20.0 * factor).round();
        text.replace(&format!("({side} {side} 1)"), &format!("({side} {side} {side})"))
            .replace(" 0.1)", " 1)")
            .replace("type empty", "type wall")
    })?;
    edit(case, "0/U", |text| {
        let (before, front) = text.split_once("frontAndBack").unwrap_or((text, ""));
        format!("{before}frontAndBack{}", front.replace("empty", "noSlip"))
    })?;
    edit(case, "0/p", |text| {
        let (before, front) = text.split_once("frontAndBack").unwrap_or((text, ""));
        format!("{before}frontAndBack{}", front.replace("empty", "zeroGradient"))
    })
}

/// Copies a tutorial of Debian's package openfoam-examples.
pub(in super::super) fn copy_tutorial(name: &str, case: &Path) -> anyhow::Result<()> {
    let source = Path::new("/usr/share/doc/openfoam-examples/examples").join(name);
    ensure!(
        source.exists(),
        "there is no {}, which Debian's package openfoam-examples has",
        source.display()
    );
    copy(&source, case)
}

pub(in super::super) fn edit(
    case: &Path,
    name: &str,
    change: impl FnOnce(&str) -> String,
) -> anyhow::Result<()> {
    let path = case.join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, change(&text)).with_context(|| format!("cannot write {}", path.display()))
}

/// A `blockMeshDict` whose blocks have so many times as many cells in both directions of the plane.
pub(in super::super) fn refined(text: &str, factor: f64) -> String {
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

/// The numbers of cells of the next block, and the text before and after them. A block is for example
/// `hex (0 1 5 4 12 13 17 16) (23 8 1) simpleGrading (1 1 1)`.
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
