//! The flow in a box under a moving lid, solved by icoFoam.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use ropewalk_openfoam::project_directory;

use crate::command::run;

use super::solver::{Mode, Solver};

/// How large it is, and how it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cavity {
    /// How many cells each side has.
    pub(super) cells: u32,
    pub(super) steps: u32,
    /// After how many steps the solver writes an output.
    pub(super) output: u32,
    /// True if the solver begins at the latest time, as OpenFOAM does by itself; false if at `startTime`.
    pub(super) latest: bool,
}

impl Cavity {
    /// Makes the case in a new folder, with its mesh, and decomposed for the mode.
    pub(super) fn make(&self, case: PathBuf, mode: Mode) -> anyhow::Result<Solver> {
        // The lid crosses at most this part of a cell in a step.
        let step = COURANT * SIDE / f64::from(self.cells);
        // Few digits, so that times have short names.
        let step = (step * 1e5).floor().max(1.0) / 1e5;
        let end = step * f64::from(self.steps);
        let control = CONTROL
            .replace("END", &format!("{end:.5}"))
            .replace("STEP", &format!("{step:.5}"))
            .replace("OUTPUT", &self.output.to_string())
            .replace("FORMAT", "binary");
        let control = match self.latest {
            true => control.replace("startFrom startTime", "startFrom latestTime"),
            false => control,
        };
        let mesh = MESH.replace("CELLS", &self.cells.to_string());
        let files = [
            ("0/U", include_str!("cavity/0/U")),
            ("0/p", include_str!("cavity/0/p")),
            (
                "constant/transportProperties",
                include_str!("cavity/constant/transportProperties"),
            ),
            ("system/controlDict", &control),
            ("system/blockMeshDict", &mesh),
            ("system/fvSchemes", include_str!("cavity/system/fvSchemes")),
            ("system/fvSolution", include_str!("cavity/system/fvSolution")),
            (
                "system/decomposeParDict",
                include_str!("cavity/system/decomposeParDict"),
            ),
        ];
        for (name, content) in files {
            let path = case.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&case))?;
            fs::write(path, content)?;
        }
        tool(&case, "blockMesh", &[])?;
        match mode {
            Mode::Serial => {}
            Mode::Parallel => tool(&case, "decomposePar", &[])?,
            Mode::Collated => tool(&case, "decomposePar", &["-fileHandler", "collated"])?,
        }
        Ok(Solver {
            application: "icoFoam",
            case,
            mode,
        })
    }

    /// The name of the last time.
    pub(super) fn last(solver: &Solver) -> anyhow::Result<String> {
        let control = fs::read_to_string(solver.case.join("system/controlDict"))?;
        let end = control.lines().find_map(|line| line.strip_prefix("endTime "));
        let end: f64 = end.unwrap_or_default().trim_end_matches(';').parse()?;
        Ok(end.to_string())
    }
}

/// Runs one of OpenFOAM's tools on a case; what it prints goes to a file of its name.
pub(super) fn tool(case: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let log = File::create(case.join(format!("log.{name}")))?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(case)
        .env("WM_PROJECT_DIR", project_directory()?)
        .stdout(log.try_clone()?)
        .stderr(log);
    run(command)
}

const CONTROL: &str = include_str!("cavity/system/controlDict");
const MESH: &str = include_str!("cavity/system/blockMeshDict");

/// In metres; the lid moves one in a second.
const SIDE: f64 = 0.1;

const COURANT: f64 = 0.6;
