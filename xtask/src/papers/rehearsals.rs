//! Runs with failures, rehearsed by `ropewalk rehearse` and planned by `ropewalk plan`.

use std::io::Write;

use anyhow::Context;
use serde_json::Value;

use super::{Extent, checkpoints::number, setup::Setup};
use crate::shell::{output, program};

/// A case as the paper has it (table 2 and section 4.3).
pub(super) struct PaperRow {
    pub(super) name: &'static str,
    /// The name of the tutorial.
    pub(super) case: &'static str,
    pub(super) cells: &'static str,
    pub(super) steps: u32,
    pub(super) total: f64,
    pub(super) save: f64,
    /// The intervals that the paper prints for its three MTBFs.
    pub(super) intervals: [Option<f64>; 3],
}

pub(super) const ROWS: [PaperRow; 3] = [
    PaperRow {
        name: "Cavity",
        case: "cavity",
        cells: "150 x 150 x 150",
        steps: 100,
        total: 214.43,
        save: 0.60,
        intervals: [Some(5.085), Some(7.35), Some(10.56)],
    },
    PaperRow {
        name: "PitzDaily",
        case: "pitzDaily",
        cells: "4190334",
        steps: 200,
        total: 888.14,
        save: 0.85,
        intervals: [None; 3],
    },
    PaperRow {
        name: "Dambreak",
        case: "damBreak",
        cells: "46 x 46 x 46",
        steps: 1000,
        total: 167.09,
        save: 0.27,
        intervals: [None; 3],
    },
];

pub(super) fn paper_row(case: &str) -> anyhow::Result<&'static PaperRow> {
    let row = ROWS.iter().find(|row| row.case == case);
    row.with_context(|| format!("the paper has no case {case}"))
}

/// The times of one run under all ways to save.
pub(super) struct Times {
    /// The computing alone, in seconds.
    pub(super) total: f64,
    /// By which part the mean of a rule may differ from that of very many runs.
    pub(super) confidence: f64,
    pub(super) rows: Vec<(String, Time)>,
}

/// Seconds.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// The mean of the rehearsed runs; nothing if they would take too long to rehearse.
    pub(super) mean: Option<f64>,
    /// By the formula.
    expected: Option<f64>,
}

impl Time {
    pub(super) fn text(self) -> String {
        match (self.mean, self.expected) {
            (Some(mean), _) => seconds(mean),
            (None, Some(expected)) => format!("({})", seconds(expected)),
            (None, None) => "beyond numbers".to_owned(),
        }
    }
}

impl Times {
    pub(super) fn mean(&self, policy: &str) -> Option<f64> {
        self.rows.iter().find(|(name, _)| name == policy)?.1.mean
    }

    /// Says if a policy has the least mean, but for the best plan, which nobody knows beforehand.
    pub(super) fn is_least(&self, policy: &str, mean: f64) -> bool {
        if policy == BEST_PLAN {
            return false;
        }
        let others = self.rows.iter().filter(|(name, _)| name != BEST_PLAN);
        others
            .filter_map(|(_, time)| time.mean)
            .all(|other| mean <= other)
    }

    /// The numbers of steps between two saves, and the means that came of them.
    pub(super) fn fixed(&self) -> impl Iterator<Item = (f64, f64)> {
        self.rows.iter().filter_map(|(name, time)| {
            let every = name.strip_prefix("every ")?.strip_suffix(" steps")?;
            Some((every.parse().ok()?, time.mean?))
        })
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        ..100.0 => format!("{seconds:.2} s"),
        ..10_000.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.1e} s"),
    }
}

/// Rehearses a run with these steps, saves, restores and failures, in seconds.
pub(super) fn rehearse(
    setup: &Setup,
    steps: &[f64],
    (save, restore, mtbf): (f64, f64, f64),
) -> anyhow::Result<Times> {
    let mut file = tempfile::NamedTempFile::new()?;
    for step in steps {
        writeln!(file, "{step}")?;
    }
    file.flush()?;
    let runs = match setup.extent {
        Extent::Full => RUNS,
        Extent::Quick => RUNS / 10,
    };
    let answer = |words: &[String]| -> anyhow::Result<Value> {
        let mut command = program(&setup.ropewalk()?.to_string_lossy(), &["rehearse", "--json"]);
        command.args(["--steps".as_ref(), file.path().as_os_str()]);
        for (name, value) in [("--save", save), ("--restore", restore), ("--mtbf", mtbf)] {
            command.arg(name).arg(value.to_string());
        }
        command.arg("--runs").arg(runs.to_string()).args(words);
        Ok(serde_json::from_str(&output(command)?)?)
    };
    let never = steps.len();
    let every: Vec<usize> = COUNTS.into_iter().filter(|count| *count < never).collect();
    let counts: Vec<String> = every.iter().chain([&never]).map(usize::to_string).collect();
    let found = answer(&["--every".to_owned(), counts.join(",")])?;
    let wrong = answer(&["--told-mtbf".to_owned(), (WRONG_BY * mtbf).to_string()])?;
    let mut rows = vec![(
        "no saves".to_owned(),
        time_of(&found, &format!("every {never} steps")),
    )];
    for every in every {
        let name = format!("every {every} steps");
        rows.push((name.clone(), time_of(&found, &name)));
    }
    for (name, policy) in [
        ("the paper's rule", "paper"),
        ("ropewalk, rate rule", "rate"),
        ("ropewalk, advisor", "advisor"),
    ] {
        rows.push((name.to_owned(), time_of(&found, policy)));
    }
    let name = format!("ropewalk, advisor, guess {WRONG_BY} times too long");
    rows.push((name, time_of(&wrong, "advisor")));
    rows.push((BEST_PLAN.to_owned(), time_of(&found, "best plan")));
    // Means of so many runs still differ by chance: of plans the expected time is known exactly.
    for (name, policy) in [
        ("the paper's rule, expected", "paper"),
        ("ropewalk, rate rule, expected", "rate"),
        ("best plan, expected", "best plan"),
    ] {
        let of = |list| find(&found, list, policy)["expected_total_s"].as_f64();
        let expected = of("rows").or_else(|| of("left_out"));
        rows.push((name.to_owned(), Time { mean: None, expected }));
    }
    let confidence = ["paper", "rate", "advisor"].map(|policy| {
        let row = find(&found, "rows", policy);
        let parts = row["confidence_95_s"].as_f64().zip(row["mean_total_s"].as_f64());
        parts.map_or(0.0, |(confidence, mean)| confidence / mean)
    });
    Ok(Times {
        total: number(&found, "total_s")?,
        confidence: confidence.into_iter().fold(0.0, f64::max),
        rows,
    })
}

fn time_of(answer: &Value, policy: &str) -> Time {
    Time {
        mean: find(answer, "rows", policy)["mean_total_s"].as_f64(),
        expected: find(answer, "left_out", policy)["expected_total_s"].as_f64(),
    }
}

/// The entry of a policy in a list, or nothing. The name of the advisor goes on with its guess.
fn find<'a>(answer: &'a Value, list: &str, policy: &str) -> &'a Value {
    let mut rows = answer[list].as_array().into_iter().flatten();
    let named = |row: &&Value| {
        let name = row["policy"].as_str().unwrap_or_default();
        name == policy || policy == "advisor" && name.starts_with("advisor,")
    };
    rows.find(named).unwrap_or(&Value::Null)
}

/// The plan for a program that can save at any moment.
pub(super) fn plan(setup: &Setup, save: f64, mtbf: f64) -> anyhow::Result<Value> {
    let mut command = program(&setup.ropewalk()?.to_string_lossy(), &["plan", "--json"]);
    command.arg("--save").arg(save.to_string());
    command.arg("--mtbf").arg(mtbf.to_string());
    Ok(serde_json::from_str(&output(command)?)?)
}

/// The interval of a row of a plan.
pub(super) fn interval_of(plan: &Value, policy: &str) -> anyhow::Result<f64> {
    let mut rows = plan["rows"].as_array().into_iter().flatten();
    let row = rows.find(|row| row["policy"] == policy);
    number(
        row.with_context(|| format!("the plan has no row {policy}"))?,
        "interval_s",
    )
}

const BEST_PLAN: &str = "best plan, made afterwards";

/// Steps between two saves.
const COUNTS: [usize; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 64];

/// The runs of each way.
const RUNS: u32 = 2000;

/// A guess of the MTBF that is wrong by this.
const WRONG_BY: f64 = 10.0;
