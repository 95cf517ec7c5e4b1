//! `ropewalk plan`: when to save, and what that costs.

mod failures;
mod picture;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use ropewalk_bench::output::print;
use ropewalk_checkpoint::{
    Costs, FixedSeconds, FixedSteps, MtbfEstimate, Nearest, Paper, Plan, Policy, Rate, TwoLevels,
    TwoLevelsInSteps, daly_first_order, daly_higher_order, young,
};
use ropewalk_output_file::OutputFile;
use serde::Serialize;

use self::failures::FromLog;
use super::times::{part, seconds, shown, with_seconds};

/// Say how often a long computation should save, and how long it will take
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the overhead over the interval into this file; - is the standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The run that is planned or rehearsed.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("failure rate").args(["mtbf", "failures"]).required(true))]
pub(super) struct RunArguments {
    /// How long a save takes: seconds, or a time such as 500ms, 10m, 1h30m or 2d, as all times here
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    save: f64,
    /// How long a restore takes; by default as long as a save
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    restore: Option<f64>,
    /// If saves are written in the background: how long after the part that the program waits for, which is
    /// what --save says then, a save protects
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value_t = 0.0)]
    commit: f64,
    /// The mean time between failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    mtbf: Option<f64>,
    /// A log of failures, from which the mean time between failures follows: one time a line, as RFC 3339 or in seconds
    /// since 1970, or what `sacct --parsable2 --format=JobID,State,End` writes, whose rows with NODE_FAIL count
    #[arg(
        long,
        value_name = "FILE",
        value_parser = failures::read,
        value_hint = clap::ValueHint::FilePath
    )]
    failures: Option<MtbfEstimate>,
    /// How long a save takes that some failures leave nothing of, as one that stays on its own host; --save is
    /// then one that survives all
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "commit")]
    fast_save: Option<f64>,
    /// Which part of the failures such a fast save survives, from 0 to 1
    #[arg(
        long,
        value_name = "PART",
        requires = "fast_save",
        conflicts_with = "host_mtbf"
    )]
    fast_covers: Option<f64>,
    /// The mean time between losses of a host, which a fast save does not survive
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "fast_save")]
    host_mtbf: Option<f64>,
    /// How long each time step takes: a text file whose lines end with a number of seconds, after commas or blanks. A
    /// first line of other text is passed over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["step", "total"])]
    steps: Option<PathBuf>,
    /// How long every time step takes; without it one can save at any moment
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    step: Option<f64>,
    /// How long the computation takes without failures and saves; by default a hundred times the MTBF
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    total: Option<f64>,
}

impl RunArguments {
    pub(super) fn costs(&self) -> anyhow::Result<Costs> {
        let costs = Costs::new(self.save, self.restore.unwrap_or(self.save), self.mtbf()?)?;
        Ok(costs.written_in_background(self.commit)?)
    }

    /// How long a fast save takes, and which part of the failures it survives; nothing if there is none.
    pub(super) fn fast(&self) -> anyhow::Result<Option<(f64, f64)>> {
        let Some(save) = self.fast_save else {
            return Ok(None);
        };
        let covers = match (self.fast_covers, self.host_mtbf) {
            (Some(part), _) => {
                ensure!(
                    (0.0..=1.0).contains(&part),
                    "--fast-covers has to be a number from 0 to 1, not {part}"
                );
                part
            }
            (None, Some(host_mtbf)) => {
                (1.0 - self.mtbf()? / positive("--host-mtbf", host_mtbf)?).clamp(0.0, 1.0)
            }
            (None, None) => bail!("--fast-save wants --fast-covers PART or --host-mtbf SECONDS too"),
        };
        Ok(Some((positive("--fast-save", save)?, covers)))
    }

    /// How long each step takes; nothing if one can save at any moment.
    pub(super) fn steps(&self) -> anyhow::Result<Option<Vec<f64>>> {
        match (&self.steps, self.step) {
            (Some(path), _) => read_steps(path).map(Some),
            (None, Some(step)) => self.equal_steps(positive("--step", step)?).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// As many equal steps as the computation has.
    pub(super) fn equal_steps(&self, step: f64) -> anyhow::Result<Vec<f64>> {
        equal_steps(step, self.total()?)
    }

    fn total(&self) -> anyhow::Result<f64> {
        positive("--total", self.total.unwrap_or(100.0 * self.mtbf()?))
    }

    fn mtbf(&self) -> anyhow::Result<f64> {
        let from_log = self.failures.map(|estimate| estimate.mtbf);
        self.mtbf
            .or(from_log)
            .context("--mtbf TIME or --failures FILE is wanted")
    }

    /// How long all steps take.
    pub(super) fn total_of(&self, steps: &[f64]) -> f64 {
        steps.iter().sum()
    }
}

/// Everything there is to say.
#[derive(Debug, Serialize)]
struct Answer {
    save_s: f64,
    restore_s: f64,
    /// How long after its blocking part a save protects.
    commit_s: f64,
    mtbf_s: f64,
    /// The failures that it follows from; nothing if it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_log: Option<FromLog>,
    /// The compute time without failures and saves.
    total_s: f64,
    /// The best time between two saves if one could save at any moment.
    interval_s: f64,
    /// True if it is best to use the fast way to save too; nothing if there is no fast way.
    fast_pays: Option<bool>,
    recommended: &'static str,
    /// The mean compute time between two saves of the row that is recommended; nothing if that is not to save at all.
    recommended_interval_s: Option<f64>,
    rows: Vec<Row>,
}

/// The costs of one way of saving.
#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    /// Mean compute time between two saves.
    interval_s: f64,
    saves: u64,
    expected_total_s: f64,
    /// How much longer than the compute time alone; 0.1 is ten percent.
    overhead: f64,
    /// Further information about this way.
    remark: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match answer_and_show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk plan: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn answer_and_show(arguments: &Arguments) -> anyhow::Result<()> {
    let svg = arguments.svg.as_deref().map(OutputFile::prepare).transpose()?;
    let answer = answer(arguments)?;
    if let Some(svg) = svg {
        svg.write(picture::draw(&answer, &curve(&arguments.run)?))?;
    }
    show(arguments, &answer)
}

fn answer(arguments: &Arguments) -> anyhow::Result<Answer> {
    let run = &arguments.run;
    let costs = run.costs()?;
    let total = run.total()?;
    let steps = run.steps()?;
    let (total, mut recommended, mut rows) = match &steps {
        Some(steps) => (run.total_of(steps), "rate", rows_of_steps(&costs, steps)),
        None => (total, "equation 5", rows_at_any_moment(&costs, total)),
    };
    let mut fast_pays = None;
    if let Some((save, covers)) = run.fast()? {
        let two = match &steps {
            Some(steps) => costs
                .two_levels_in_steps(save, covers, steps)
                .map(|two| row_of_two_levels_in_steps(&two, total)),
            None => costs
                .two_levels(save, covers)
                .map(|two| row_of_two_levels(&two, total)),
        };
        let one = rows.iter().find(|row| row.policy == recommended);
        let pays = two
            .as_ref()
            .zip(one)
            .is_some_and(|(two, one)| two.saves > 0 && two.expected_total_s < one.expected_total_s);
        fast_pays = Some(pays);
        if pays {
            recommended = TWO_LEVELS;
        }
        rows.extend(two);
    }
    let recommended_interval_s = rows
        .iter()
        .find(|row| row.policy == recommended && row.saves > 0)
        .map(|row| row.interval_s);
    Ok(Answer {
        save_s: costs.save(),
        restore_s: costs.restore(),
        commit_s: costs.commit(),
        mtbf_s: costs.mtbf(),
        from_log: run.failures.map(|estimate| FromLog::new(&estimate, costs.save())),
        total_s: total,
        interval_s: costs.interval(),
        fast_pays,
        recommended,
        recommended_interval_s,
        rows,
    })
}

/// Fast saves between full ones, by the clock.
fn row_of_two_levels(two: &TwoLevels, total: f64) -> Row {
    Row {
        policy: TWO_LEVELS,
        interval_s: two.fast_interval,
        saves: (total / two.fast_interval) as u64,
        expected_total_s: total * (1.0 + two.overhead),
        overhead: two.overhead,
        remark: format!("one that survives all every {}", shown(two.full_interval)),
    }
}

/// Fast saves between full ones, at the ends of steps.
fn row_of_two_levels_in_steps(two: &TwoLevelsInSteps, total: f64) -> Row {
    let full = match two.full_saves {
        0 => "none that survives all".to_owned(),
        _ => format!("one that survives all every {}", two.full_steps),
    };
    let plural = if two.fast_steps == 1 { "step" } else { "steps" };
    Row {
        policy: TWO_LEVELS,
        interval_s: total / (two.saves + 1) as f64,
        saves: two.saves as u64,
        expected_total_s: two.expected_time,
        overhead: two.expected_time / total - 1.0,
        remark: format!("every {} {plural}, {full}", two.fast_steps),
    }
}

fn positive(option: &str, seconds: f64) -> anyhow::Result<f64> {
    ensure!(
        seconds > 0.0 && seconds.is_finite(),
        "{option} has to be a positive number of seconds, not {seconds}"
    );
    Ok(seconds)
}

fn equal_steps(step: f64, total: f64) -> anyhow::Result<Vec<f64>> {
    let count = (total / step).round().max(1.0);
    ensure!(
        count <= STEPS_MAX as f64,
        "{count} steps are more than the {STEPS_MAX} that can be planned; give a shorter --total"
    );
    Ok(vec![step; count as usize])
}

fn read_steps(path: &Path) -> anyhow::Result<Vec<f64>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Some editors and spreadsheets begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut steps = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let last = line.rsplit([',', ';', ' ', '\t']).find(|field| !field.is_empty());
        let Some(last) = last else { continue };
        match last.parse::<f64>() {
            Ok(step) if step > 0.0 && step.is_finite() => steps.push(step),
            Err(_) if number == 1 && !begins_as_a_number(line) => {}
            _ => bail!(
                "{}, line {number}: expected a positive number of seconds, found {last:?}",
                path.display()
            ),
        }
    }
    ensure!(!steps.is_empty(), "{} has no steps in it", path.display());
    ensure!(
        steps.len() <= STEPS_MAX,
        "{} has {} steps, more than the {STEPS_MAX} that can be planned",
        path.display(),
        steps.len()
    );
    Ok(steps)
}

/// Returns true if a line is a step that was mistyped rather than a heading.
fn begins_as_a_number(line: &str) -> bool {
    line.trim_start()
        .starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
}

/// Ways to save at the ends of time steps.
fn rows_of_steps(costs: &Costs, steps: &[f64]) -> Vec<Row> {
    let row = |policy, plan: &Plan, remark: &str| {
        let total: f64 = steps.iter().sum();
        let expected = plan.expected_time(costs, steps);
        Row {
            policy,
            interval_s: total / (plan.saves().len() + 1) as f64,
            saves: plan.saves().len() as u64,
            expected_total_s: expected,
            overhead: expected / total - 1.0,
            remark: remark.to_owned(),
        }
    };
    let by = |policy: &dyn Policy| Plan::by(policy, costs, steps);
    let (count, fixed) = best_fixed_steps(costs, steps);
    vec![
        row(
            "best plan",
            &Plan::best(costs, steps),
            "if all steps were known beforehand",
        ),
        row("rate", &by(&Rate), "the default"),
        row("nearest", &by(&Nearest), ""),
        row("paper", &by(&Paper), "never longer than the interval"),
        row("Young", &by(&FixedSeconds(young(costs.save(), costs.mtbf()))), ""),
        row(
            "fixed steps",
            &fixed,
            &format!("every {count}, the best number, known only afterwards"),
        ),
        row("never", &Plan::default(), ""),
    ]
}

/// The best number of steps between two saves, among all that could be, and what comes of it.
fn best_fixed_steps(costs: &Costs, steps: &[f64]) -> (u64, Plan) {
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    let near = (costs.interval() / mean).max(1.0);
    // Far from the interval none is best, and to try all of many would take long.
    let most = (near * 4.0).ceil().min(steps.len() as f64).max(1.0);
    let counts = (near / 4.0).floor().clamp(1.0, most) as u64..=most as u64;
    let stride = ((counts.end() - counts.start()) / COUNTS_TRIED_MAX).max(1);
    let plans = counts
        .step_by(stride as usize)
        .map(|count| (count, Plan::by(&FixedSteps(count), costs, steps)));
    plans
        .min_by(|(_, a), (_, b)| {
            a.expected_time(costs, steps)
                .total_cmp(&b.expected_time(costs, steps))
        })
        .unwrap_or_default()
}

/// Ways to save by the clock, for programs that can do so at any moment.
fn rows_at_any_moment(costs: &Costs, total: f64) -> Vec<Row> {
    let (save, mtbf) = (costs.save(), costs.mtbf());
    let row = |policy, interval: f64, remark: &str| {
        // A run that is over before its first save makes none.
        let expected = match interval > total {
            true => costs.unsaved(total),
            false => costs.run(total, interval),
        };
        Row {
            policy,
            interval_s: interval,
            saves: (total / interval) as u64,
            expected_total_s: expected,
            overhead: expected / total - 1.0,
            remark: remark.to_owned(),
        }
    };
    let mut rows = vec![
        row(
            "equation 5",
            costs.interval(),
            "the paper's approximation: whole segments, each with a save",
        ),
        row("Young", young(save, mtbf), ""),
        row("Daly, higher order", daly_higher_order(save, mtbf), ""),
    ];
    let first_order = daly_first_order(save, mtbf);
    if first_order > 0.0 {
        rows.push(row("Daly, first order", first_order, ""));
    }
    rows
}

fn show(arguments: &Arguments, answer: &Answer) -> anyhow::Result<()> {
    if arguments.json {
        return print(serde_json::to_string_pretty(answer)?);
    }
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["policy", "interval", "saves", "expected time", "overhead", ""]);
    for row in &answer.rows {
        table.add_row([
            row.policy.to_owned(),
            interval(row.interval_s),
            row.saves.to_string(),
            shown(row.expected_total_s),
            part(row.overhead),
            row.remark.clone(),
        ]);
    }
    for column in 1..=4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    print(table)?;
    if let Some(from_log) = &answer.from_log {
        print(from_log.text())?;
    }
    let recommended = answer.rows.iter().find(|row| row.policy == answer.recommended);
    if answer.fast_pays == Some(false) {
        print("Fast saves would not pay: they cost too much for the failures that they survive.")?;
    }
    if let Some(row) = recommended {
        let advice = match answer.recommended_interval_s {
            Some(every) => format!("Save about every {} of computing", interval(every)),
            None => "Do not save: the run is too short for it".to_owned(),
        };
        print(format_args!(
            "{advice} (policy: {}). {} of computing then take about {}.",
            row.policy,
            whole(answer.total_s),
            whole(row.expected_total_s)
        ))?;
    }
    Ok(())
}

/// The overhead of saving at equal intervals, for intervals around the best one in seconds.
fn curve(run: &RunArguments) -> anyhow::Result<Vec<(f64, f64)>> {
    let costs = run.costs()?;
    let best = costs.interval();
    let intervals = (-CURVE_POINTS..=CURVE_POINTS)
        .map(|index| best * CURVE_WIDTH.powf(f64::from(index) / f64::from(CURVE_POINTS)));
    let Some(steps) = run.steps()? else {
        let total = run.total()?;
        return Ok(intervals
            .filter(|interval| *interval <= total)
            .map(|interval| (interval, costs.run(total, interval) / total - 1.0))
            .collect());
    };
    let total = run.total_of(&steps);
    let mean = total / steps.len() as f64;
    let mut counts: Vec<u64> = intervals
        .map(|interval| (interval / mean).round() as u64)
        .filter(|count| (1..=steps.len() as u64).contains(count))
        .collect();
    counts.dedup();
    Ok(counts
        .into_iter()
        .map(|count| {
            let plan = Plan::by(&FixedSteps(count), &costs, &steps);
            (
                count as f64 * mean,
                plan.expected_time(&costs, &steps) / total - 1.0,
            )
        })
        .collect())
}

/// An interval, to the millisecond if that is not much.
fn interval(seconds: f64) -> String {
    match seconds < 7200.0 {
        true => format!("{seconds:.3} s"),
        false => shown(seconds),
    }
}

fn whole(seconds: f64) -> String {
    with_seconds(seconds.round())
}

const TWO_LEVELS: &str = "two levels";

const STEPS_MAX: usize = 1_000_000;
const COUNTS_TRIED_MAX: u64 = 400;

/// The curve goes from the best interval divided by this to the best times this.
const CURVE_WIDTH: f64 = 12.0;
/// So many points are on each side of the best.
const CURVE_POINTS: i32 = 60;
