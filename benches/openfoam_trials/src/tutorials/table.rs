//! Which tutorials are run, and how.

use super::super::{cases::make::refined, solver::Mode};

/// A tutorial, with a mesh and an end that suit a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tutorial {
    pub(super) name: &'static str,
    pub(super) application: &'static str,
    /// Where it is among Debian's examples.
    pub(super) source: &'static str,
    /// Its mesh has so many times as many cells in both directions.
    pub(super) cells: f64,
    /// Its step if that is constant, in seconds.
    pub(super) step: Option<f64>,
    /// Added to its own controlDict. All digits are written, so that every difference is seen.
    pub(super) control: &'static str,
    /// Fields that a function object transports.
    pub(super) transported: &'static [&'static str],
    /// Set if its outputs depend on the clock, so that those of two runs differ.
    pub(super) by_clock: bool,
}

impl Tutorial {
    pub(super) fn mesh(&self, text: &str) -> String {
        refined(text, self.cells)
    }
}

const CAVITY: Tutorial = Tutorial {
    name: "cavity",
    application: "icoFoam",
    source: "incompressible/icoFoam/cavity/cavity",
    cells: 2.5,
    step: Some(0.002),
    control: "writePrecision 17; deltaT 0.002; writeControl runTime; writeInterval 0.2; endTime 0.6;",
    transported: &[],
    by_clock: false,
};

const PITZ_DAILY: Tutorial = Tutorial {
    name: "pitzDaily",
    application: "pisoFoam",
    source: "incompressible/pisoFoam/LES/pitzDaily",
    cells: 0.4,
    step: Some(1e-5),
    control: "writePrecision 17; endTime 0.002;",
    transported: &["s", "s_0"],
    by_clock: false,
};

const DAM_BREAK: Tutorial = Tutorial {
    name: "damBreak",
    application: "interFoam",
    source: "multiphase/interFoam/laminar/damBreak/damBreak",
    cells: 1.0,
    step: None,
    control: "writePrecision 17; endTime 0.3;",
    transported: &[],
    by_clock: false,
};

/// As shipped, but that cavity takes smaller steps and counts its outputs by time.
pub(super) const TUTORIALS: [Tutorial; 3] = [CAVITY, PITZ_DAILY, DAM_BREAK];

const fn cavity(name: &'static str, control: &'static str) -> Tutorial {
    Tutorial {
        name,
        control,
        cells: 2.0,
        step: Some(0.005),
        ..CAVITY
    }
}

const fn by_clock(tutorial: Tutorial) -> Tutorial {
    Tutorial {
        by_clock: true,
        ..tutorial
    }
}

/// The short trials: each way to say when there is an output, with constant and adjustable steps; how
/// often each is killed.
pub(super) const VARIANTS: &[(Tutorial, Mode, u32)] = &[
    (cavity("cavity as shipped", "writePrecision 17;"), Mode::Serial, 2),
    (CAVITY, Mode::Serial, 2),
    (CAVITY, Mode::Parallel, 1),
    (
        cavity(
            "cavity, adjustable",
            "writePrecision 17; writeControl adjustable; writeInterval 0.12;",
        ),
        Mode::Serial,
        2,
    ),
    (
        cavity(
            "cavity, adjustableRunTime, purgeWrite 2, binary, runTimeModifiable no",
            "writeControl adjustableRunTime; writeInterval 0.08; purgeWrite 2; writeFormat binary; \
             runTimeModifiable no;",
        ),
        Mode::Serial,
        3,
    ),
    (
        cavity(
            "cavity, an output at every step",
            "writePrecision 17; writeInterval 1; purgeWrite 20;",
        ),
        Mode::Serial,
        1,
    ),
    (
        by_clock(cavity(
            "cavity, clockTime",
            "writeControl clockTime; writeInterval 1;",
        )),
        Mode::Serial,
        1,
    ),
    (
        by_clock(cavity(
            "cavity, cpuTime",
            "writeControl cpuTime; writeInterval 1;",
        )),
        Mode::Serial,
        1,
    ),
    (PITZ_DAILY, Mode::Serial, 1),
    (DAM_BREAK, Mode::Serial, 2),
    (DAM_BREAK, Mode::Parallel, 1),
    (
        Tutorial {
            name: "damBreak, constant steps",
            step: Some(0.001),
            control: "writePrecision 17; endTime 0.09; adjustTimeStep no; writeControl runTime; writeInterval 0.03;",
            ..DAM_BREAK
        },
        Mode::Serial,
        2,
    ),
    (
        Tutorial {
            name: "damBreak, runTime, purgeWrite 2",
            control: "writePrecision 17; endTime 0.15; writeControl runTime; writeInterval 0.03; purgeWrite 2;",
            ..DAM_BREAK
        },
        Mode::Serial,
        2,
    ),
];
