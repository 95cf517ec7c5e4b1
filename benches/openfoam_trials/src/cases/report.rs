//! The results of a case, as text, JSON and picture.

use std::{fs, path::Path};

use anyhow::Context;
use ropewalk_plot::{Anchor, Picture};
use serde_json::{Value, json};

use super::{
    Spread,
    gaps::{Gaps, Moment},
    model::{Mean, Outcome, Parts, Saves},
};

/// The results of a case until now.
pub(super) struct Report {
    pub(super) study: String,
    /// The mean time between failures, in seconds.
    pub(super) mtbf: f64,
    pub(super) seed: u64,
    pub(super) parts: Parts,
    /// How long each run without failures and saves took, in seconds.
    pub(super) undisturbed: Vec<f64>,
    /// After how many steps each policy saves; nothing for the one that saves when it is best.
    pub(super) policies: Vec<Option<usize>>,
    pub(super) measured: Vec<Measured>,
}

/// One run with failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) every: Option<usize>,
    /// Where the failures were when it began.
    pub(super) from: Moment,
    pub(super) seconds: f64,
    pub(super) failures: usize,
    /// How long its steps took, as a multiple of what the same steps take without failures.
    pub(super) speed: f64,
}

/// The results of a policy.
struct Row {
    name: String,
    saves: usize,
    expected: f64,
    runs: Vec<Measured>,
    /// The time that each run should have taken with its failures, in seconds.
    replays: Vec<f64>,
}

impl Report {
    pub(super) fn gaps(&self) -> Gaps {
        Gaps {
            seed: self.seed,
            mtbf: self.mtbf,
        }
    }

    pub(super) fn saves(&self, every: Option<usize>) -> Saves {
        match every {
            Some(every) => Saves::every(every, &self.parts),
            None => Saves::advised(self.mtbf, &self.parts),
        }
    }

    /// A line of text with the time and the failures of one run, measured and by the model.
    pub(super) fn line(&self, measured: &Measured) -> String {
        let replay = self.replay(measured);
        format!(
            "{}: {:.2} s with {} failures; by the model {:.2} s with {}; steps took {:.3} times as long as alone",
            name(measured.every),
            measured.seconds,
            measured.failures,
            replay.seconds,
            replay.failures,
            measured.speed
        )
    }

    /// The time and the failures that a run should have had, if the machine had been as fast as it was in
    /// this run.
    pub(super) fn replay(&self, run: &Measured) -> Outcome {
        let parts = self.parts.at_speed(run.speed);
        self.saves(run.every).replay(&parts, self.gaps().from(run.from))
    }

    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let row = |&every: &Option<usize>| {
            let saves = self.saves(every);
            let runs: Vec<Measured> = self
                .measured
                .iter()
                .filter(|run| run.every == every)
                .copied()
                .collect();
            let replay = |run: &Measured| self.replay(run).seconds;
            Ok(Row {
                name: name(every),
                saves: saves.len(),
                expected: saves.expected(&self.parts, self.mtbf)?,
                replays: runs.iter().map(replay).collect(),
                runs,
            })
        };
        self.policies.iter().map(row).collect()
    }

    /// Prints a table of all policies.
    ///
    /// # Errors
    /// If what was measured means nothing.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        println!(
            "| {} | saves | expected s | measured s | by the model for these failures and this speed s \
             | measured/model | without luck s |",
            self.study
        );
        println!("|---|---|---|---|---|---|---|");
        for row in self.rows()? {
            let Row {
                name,
                saves,
                expected,
                ..
            } = &row;
            if row.runs.is_empty() {
                println!("| {name} | {saves} | {expected:.2} | | | | |");
                continue;
            }
            println!(
                "| {name} | {saves} | {expected:.2} | {} | {:.2} | {} | {} |",
                Spread(row.measured()),
                Mean::of(&row.replays).mean,
                Spread(row.ratio()),
                Spread(row.without_luck())
            );
        }
        Ok(())
    }

    /// Adds the case to `cases.json` in a folder, in the place of what was found of it before, and draws all of them.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join("cases.json");
        let before = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Vec<Value>>(&text).ok());
        let mut all = before.unwrap_or_default();
        all.retain(|case| case["case"] != self.study);
        all.push(self.json()?);
        fs::write(&path, serde_json::to_string_pretty(&all)?)?;
        Ok(fs::write(folder.join("cases.svg"), draw(&all))?)
    }

    /// The results of an earlier run of the command for a case, with this seed.
    ///
    /// # Errors
    /// If it was not found, or the file is not ours.
    pub(super) fn read(folder: &Path, study: &str, seed: u64) -> anyhow::Result<Self> {
        let path = folder.join("cases.json");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let all: Vec<Value> = serde_json::from_slice(&text)?;
        let case = all.iter().find(|case| case["case"] == study);
        let case = case.with_context(|| format!("{} has no {study}", path.display()))?;
        let number = |value: &Value| value.as_f64().context("a number is missing");
        let list = |value: &Value| -> anyhow::Result<Vec<f64>> {
            value
                .as_array()
                .context("a list is missing")?
                .iter()
                .map(number)
                .collect()
        };
        let parts = Parts {
            steps: list(&case["steps_s"])?,
            save: number(&case["save_s"])?,
            start: number(&case["start_s"])?,
            restart: number(&case["restart_s"])?,
            end: number(&case["end_s"])?,
        };
        let mut report = Self {
            study: study.to_owned(),
            mtbf: number(&case["mtbf_s"])?,
            seed,
            parts,
            undisturbed: list(&case["undisturbed_s"])?,
            policies: Vec::new(),
            measured: Vec::new(),
        };
        for row in case["policies"].as_array().context("policies are missing")? {
            let steps = row["policy"].as_str().and_then(|name| name.split(' ').nth(1));
            let every = steps.and_then(|steps| steps.parse().ok());
            report.policies.push(every);
            for run in row["runs"].as_array().context("runs are missing")? {
                let from = Moment {
                    left: number(&run["until_failure_s"])?,
                    begun: number(&run["failures_before"])? as usize + 1,
                };
                report.measured.push(Measured {
                    every,
                    from,
                    seconds: number(&run["seconds"])?,
                    failures: number(&run["failures"])? as usize,
                    speed: number(&run["speed"])?,
                });
            }
        }
        Ok(report)
    }

    fn json(&self) -> anyhow::Result<Value> {
        let rows = self.rows()?.into_iter().map(|row| {
            let runs = row.runs.iter().zip(&row.replays).map(|(run, replay)| {
                json!({
                    "seconds": run.seconds, "failures": run.failures, "model_s": replay, "speed": run.speed,
                    "until_failure_s": run.from.left, "failures_before": run.from.begun - 1,
                })
            });
            json!({
                "policy": row.name, "saves": row.saves, "expected_s": row.expected, "seconds": row.measured().mean,
                "error_s": row.measured().error, "runs": runs.collect::<Vec<_>>(),
            })
        });
        let Parts {
            steps,
            save,
            start,
            restart,
            end,
        } = &self.parts;
        Ok(json!({
            "case": self.study, "mtbf_s": self.mtbf, "undisturbed_s": self.undisturbed, "save_s": save,
            "start_s": start,
            "restart_s": restart, "end_s": end, "steps_s": steps, "policies": rows.collect::<Vec<_>>(),
        }))
    }
}

impl Row {
    fn measured(&self) -> Mean {
        Mean::of(&self.runs.iter().map(|run| run.seconds).collect::<Vec<_>>())
    }

    /// How much longer the runs took than they should have with their failures.
    fn ratio(&self) -> Mean {
        let ratios = self.runs.iter().zip(&self.replays);
        Mean::of(
            &ratios
                .map(|(run, replay)| run.seconds / replay)
                .collect::<Vec<_>>(),
        )
    }

    /// The time of runs on average, whatever failures struck those that were measured and however fast the
    /// machine was then: the ratio estimator, with the model beside.
    fn without_luck(&self) -> Mean {
        let Mean { mean, error } = self.ratio();
        Mean {
            mean: mean * self.expected,
            error: error * self.expected,
        }
    }
}

fn name(every: Option<usize>) -> String {
    every.map_or("when it is best".to_owned(), |every| {
        format!("every {every} steps")
    })
}

/// Bars for each case, each with a line at what was expected.
fn draw(found: &[Value]) -> String {
    let number = |value: &Value, name: &str| value[name].as_f64().unwrap_or(0.0);
    let rows = |case: &Value| case["policies"].as_array().cloned().unwrap_or_default();
    // A title and a blank line for each case, and the last line.
    let lines: usize = found.iter().map(|case| rows(case).len() + 2).sum();
    let mut picture = Picture::new(
        ROW * (lines + 2) as f64,
        "Time of runs of OpenFOAM's cases with failures",
    );
    let mut y = 0.0;
    for case in found {
        let rows = rows(case);
        let most = rows
            .iter()
            .map(|row| number(row, "seconds").max(number(row, "expected_s")))
            .fold(1e-9, f64::max);
        let width = |seconds: f64| BAR_MAX * seconds / most;
        y += ROW;
        picture.text(
            (LEFT, y),
            Anchor::Start,
            case["case"].as_str().unwrap_or_default(),
        );
        for row in rows {
            y += ROW;
            let seconds = number(&row, "seconds");
            picture.text(
                (LEFT, y),
                Anchor::Start,
                row["policy"].as_str().unwrap_or_default(),
            );
            picture.rectangle("bar", (BARS, y - 13.0), (width(seconds), 16.0));
            let expected = BARS + width(number(&row, "expected_s"));
            picture.line("expected", (expected, y - 15.0), (expected, y + 5.0));
            let behind = (BARS + width(seconds)).max(expected) + 8.0;
            picture.text((behind, y), Anchor::Start, &format!("{seconds:.1} s"));
        }
        y += ROW;
    }
    let words = "Total time with failures: bars are measured, lines are what was expected.";
    picture.text((LEFT, y + ROW), Anchor::Start, words);
    picture.finish()
}

/// The height of a line.
const ROW: f64 = 24.0;

/// Where text and bars begin, and how long the longest bar is.
const LEFT: f64 = 10.0;
const BARS: f64 = 160.0;
const BAR_MAX: f64 = 860.0;
