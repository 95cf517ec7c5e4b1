//! The count of a cell's runs, and the files that keep it.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use super::{
    cells::{Cell, Expected},
    judge::{Kills, Outcome, Seen},
};
use crate::{
    project,
    shell::{output, program},
};

/// The outcomes of the runs of one cell.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) runs: u64,
    exact: u64,
    named: u64,
    after_the_end: u64,
    lost: u64,
    wrong: u64,
    hung: u64,
    broken: u64,
    kills: Kills,
    /// Runs whose first step came before the end.
    hit: u64,
    /// The times of reductions that lost a rank, and their multiples of the undisturbed ones.
    times: Vec<f64>,
    ratios: Vec<f64>,
    excess_ms: Vec<f64>,
    slowest: Duration,
    /// The seeds that failed, and why.
    pub(super) failed: Vec<(u64, Outcome)>,
}

impl Tally {
    /// Counts a run.
    pub(super) fn count(&mut self, seed: u64, seen: &Seen, outcome: Outcome, usual: Duration) {
        self.runs += 1;
        let kills = seen.kills();
        self.kills.counted += kills.counted;
        self.kills.early += kills.early;
        self.kills.late += kills.late;
        self.hit += u64::from(seen.recovery().is_some() || seen.disturbed.is_none());
        self.slowest = self.slowest.max(seen.recovery().unwrap_or_default());
        match &outcome {
            Outcome::Exact { elapsed, has_lost } => {
                self.exact += 1;
                if *has_lost {
                    let (time, usual) = (elapsed.as_secs_f64() * 1e3, usual.as_secs_f64() * 1e3);
                    self.times.push(time);
                    self.ratios.push(time / usual);
                    self.excess_ms.push(time - usual);
                }
            }
            Outcome::Named => self.named += 1,
            Outcome::AfterTheEnd => self.after_the_end += 1,
            Outcome::Lost(_) => self.lost += 1,
            Outcome::Wrong(_) => self.wrong += 1,
            Outcome::Hung(_) => self.hung += 1,
            Outcome::Broken(_) => self.broken += 1,
        }
        if outcome.is_failure() {
            self.failed.push((seed, outcome));
        }
    }

    /// Lines for a person.
    pub(super) fn print(&mut self, cell: &Cell) {
        let Kills { counted, early, late } = self.kills;
        println!(
            "{}: {} runs, {} hit in time, {} exact, {} named, {} after the end; {} lost, {} wrong, {} hung, {} broken",
            cell.name,
            self.runs,
            self.hit,
            self.exact,
            self.named,
            self.after_the_end,
            self.lost,
            self.wrong,
            self.hung,
            self.broken
        );
        println!(
            "  ranks hit: {counted} counted, {} missed ({early} before the return, {late} after the end); \
             slowest end {:.2} s after the first step",
            early + late,
            self.slowest.as_secs_f64()
        );
        if let (Some(time), Some(ratio), Some(excess)) = (
            median(&mut self.times),
            median(&mut self.ratios),
            median(&mut self.excess_ms),
        ) {
            println!(
                "  with a loss: median {time:.1} ms, {ratio:.2} times undisturbed, {excess:+.1} ms ({} reductions)",
                self.times.len()
            );
        }
    }

    /// Adds a line to `docs/soak.jsonl`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn append(&mut self, cell: &Cell, seed: u64) -> anyhow::Result<()> {
        let mut arguments: Vec<String> = std::env::args().skip(1).collect();
        if let Some(at) = arguments.iter().position(|word| word == "--built") {
            // A path of this machine.
            arguments.drain(at..(at + 2).min(arguments.len()));
        }
        let line = json!({
            "commit": commit()?, "command": format!("cargo xtask {}", arguments.join(" ")), "seed": seed,
            "cell": cell.name, "runs": self.runs, "hit": self.hit, "exact": self.exact, "named": self.named,
            "after_the_end": self.after_the_end, "counted": self.kills.counted,
            "missed": self.kills.early + self.kills.late, "lost": self.lost, "wrong": self.wrong, "hung": self.hung,
            "broken": self.broken, "median_times_undisturbed": median(&mut self.ratios),
        });
        let path = soak_path();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        writeln!(file, "{line}").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes the cell's row of `docs/faults.md` anew.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub(super) fn write_row(&mut self, cell: &Cell) -> anyhow::Result<()> {
        let path = project::root().join("docs/faults.md");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let expected = match cell.expected {
            Expected::Exact => "E",
            Expected::ExactOrNamed => "E or V",
        };
        let failures = failures([self.lost, self.wrong, self.hung, self.broken]);
        let ever = since_ever(&fs::read_to_string(soak_path())?, cell.name)?;
        let ratio = median(&mut self.ratios).map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        let row = format!(
            "| `{}` | {} | {expected} | {} | {} | {} | {} | {} | {failures} | {:.2} s | {ratio} | {} | {ever} |",
            cell.name,
            cell.fault,
            self.runs,
            self.hit,
            self.exact,
            self.named,
            self.after_the_end,
            self.slowest.as_secs_f64(),
            commit()?
        );
        Ok(fs::write(path, with_row(&text, cell.name, &row))?)
    }
}

fn soak_path() -> PathBuf {
    project::root().join("docs/soak.jsonl")
}

/// The runs that failed, by kind: lost, wrong, hung, broken.
fn failures(counts: [u64; 4]) -> String {
    let named = counts.into_iter().zip(FAILURES).filter(|(count, _)| *count > 0);
    let named: Vec<String> = named.map(|(count, name)| format!("{count} {name}")).collect();
    match named.is_empty() {
        true => "0".to_owned(),
        false => named.join(", "),
    }
}

/// All runs of a cell in the lines of `docs/soak.jsonl`, and those of them that failed.
fn since_ever(lines: &str, cell: &str) -> anyhow::Result<String> {
    let (mut runs, mut counts) = (0, [0; 4]);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).context("a line of docs/soak.jsonl is no JSON")?;
        if line["cell"] == cell {
            let number = |name| line[name].as_u64().unwrap_or_default();
            runs += number("runs");
            counts = std::array::from_fn(|kind| counts[kind] + number(FAILURES[kind]));
        }
    }
    Ok(match counts {
        [0, 0, 0, 0] => format!("{runs}"),
        counts => format!("{runs}; {}", failures(counts)),
    })
}

const FAILURES: [&str; 4] = ["lost", "wrong", "hung", "broken"];

/// The text with this row in the place of the cell's old one, or at the end of the table.
fn with_row(text: &str, name: &str, row: &str) -> String {
    let begin = format!("| `{name}` |");
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines
        .iter()
        .rposition(|line| line.starts_with('|'))
        .map_or(lines.len(), |at| at + 1);
    match lines.iter().position(|line| line.starts_with(&begin)) {
        Some(at) => lines[at] = row,
        None => lines.insert(last, row),
    }
    lines.join("\n") + "\n"
}

fn commit() -> anyhow::Result<String> {
    let name = output(program("git", &["rev-parse", "--short", "HEAD"]))?;
    Ok(name.trim().to_owned())
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of all lines of a cell are summed, and failures named.
    #[test]
    fn runs_are_summed() {
        let lines = [
            r#"{"cell":"kill","runs":5,"lost":1}"#,
            r#"{"cell":"stop","runs":3}"#,
            r#"{"cell":"kill","runs":2,"hung":2}"#,
        ];
        let lines = lines.join("\n");
        assert_eq!(since_ever(&lines, "kill").unwrap(), "7; 1 lost, 2 hung");
        assert_eq!(since_ever(&lines, "stop").unwrap(), "3");
    }

    /// A row takes the place of the one before it, and a new one stands below all others.
    #[test]
    fn rows_are_written_in_place() {
        let text = "a\n\n| cell |\n|---|\n| `kill` | old |\n| `stop` | old |\n\nb\n";
        let text = with_row(text, "kill", "| `kill` | new |");
        assert_eq!(
            text,
            "a\n\n| cell |\n|---|\n| `kill` | new |\n| `stop` | old |\n\nb\n"
        );
        let text = with_row(&text, "cut", "| `cut` | new |");
        assert!(
            text.contains("| `stop` | old |\n| `cut` | new |\n\nb\n"),
            "{text}"
        );
    }
}
