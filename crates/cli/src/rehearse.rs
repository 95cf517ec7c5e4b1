//! `ropewalk rehearse`: runs with failures at random, in virtual time.

use std::{path::PathBuf, process::ExitCode};

use anyhow::ensure;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_bench::output::print;
use ropewalk_checkpoint::{
    AdvisorOptions, Costs, FastLevel, FixedSeconds, FixedSteps, Mtbf, Nearest, Paper, Plan, Rate, Rehearsal,
    Rehearsed, young,
};
use ropewalk_output_file::OutputFile;
use serde::Serialize;

use super::{
    bars::{Bar, draw_bars},
    plan,
    times::{part, seconds, shown, with_seconds},
};

/// Rehearse how long a computation takes that fails at random, under several ways to save
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: plan::RunArguments,
    /// How many runs of each way are simulated
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    runs: u32,
    /// The seed of the random numbers: the same number gives the same runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The guess of the mean time between failures that the learning advisor is told; by default the true one
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    told_mtbf: Option<f64>,
    /// Also saves each so many steps, one row for each number
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    every: Vec<u64>,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the rows with error bars into this file; - is the standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Answer {
    save_s: f64,
    restore_s: f64,
    mtbf_s: f64,
    total_s: f64,
    runs: u32,
    seed: u64,
    rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

/// A way to save that would take too long to rehearse.
#[derive(Debug, Serialize)]
struct LeftOut {
    policy: String,
    /// The expected time, which is a sum over the plan; nothing for advisors that learn, and if it is
    /// infinite.
    expected_total_s: Option<f64>,
}

/// How the runs of one way to save went.
#[derive(Debug, Serialize)]
struct Row {
    policy: String,
    mean_total_s: f64,
    /// The mean of as many runs again lies so far from this one in one case of twenty.
    confidence_95_s: f64,
    /// The expected time, which is a sum over the plan; nothing for advisors that learn.
    expected_total_s: Option<f64>,
    /// One of ten runs was not longer.
    p10_total_s: f64,
    /// Nine of ten runs were not longer.
    p90_total_s: f64,
    overhead: f64,
    saves: f64,
    failures: f64,
    lost_s: f64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match answer_and_show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk rehearse: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn answer_and_show(arguments: &Arguments) -> anyhow::Result<()> {
    let svg = arguments.svg.as_deref().map(OutputFile::prepare).transpose()?;
    show(arguments, svg, &answer(arguments)?)
}

fn answer(arguments: &Arguments) -> anyhow::Result<Answer> {
    let costs = arguments.run.costs()?;
    let (save, mtbf) = (costs.save(), costs.mtbf());
    let steps = match arguments.run.steps()? {
        Some(steps) => steps,
        // One that can save at nearly any moment.
        None => arguments.run.equal_steps(costs.interval() / 50.0)?,
    };
    let told = arguments.told_mtbf.unwrap_or(mtbf);
    ensure!(
        told > 0.0 && told.is_finite(),
        "--told-mtbf has to be a positive number of seconds, not {told}"
    );
    let total = arguments.run.total_of(&steps);
    let best = Plan::best(&costs, &steps);
    let patience = patience(arguments, total, mtbf, best.expected_time(&costs, &steps))?;
    let rehearsal = Rehearsal {
        steps: &steps,
        costs,
        fast: None,
    };
    let options = AdvisorOptions {
        mtbf: Mtbf::Learned(told),
        save: Some(save),
        restore: costs.restore(),
        steps: Some(steps.len() as u64),
        ..AdvisorOptions::default()
    };
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for (policy, plan) in &plans(arguments, &costs, &steps, best) {
        let expected = plan.expected_time(&costs, &steps);
        if expected * f64::from(arguments.runs) > patience {
            left_out.push(LeftOut {
                policy: policy.clone(),
                expected_total_s: expected.is_finite().then_some(expected),
            });
            continue;
        }
        let runs = rehearse(arguments, |uniform| rehearsal.planned(plan, uniform));
        rows.push(Row::of(policy, &runs, total, Some(expected)));
    }
    let mut learn = |policy: String, rehearsal: &Rehearsal<'_>, options: &AdvisorOptions| {
        // Nobody knows beforehand how long these take.
        let mut left = patience;
        let runs = rehearse(arguments, |uniform| {
            let run = rehearsal.advised_until(left, options, uniform);
            left -= run.total;
            run
        });
        match left >= 0.0 {
            true => rows.push(Row::of(&policy, &runs, total, None)),
            false => left_out.push(LeftOut {
                policy,
                expected_total_s: None,
            }),
        }
    };
    learn(
        format!("advisor, told {}", with_seconds(told)),
        &rehearsal,
        &options,
    );
    if let Some((save, covers)) = arguments.run.fast()? {
        let rehearsal = Rehearsal {
            fast: Some((save, covers)),
            ..rehearsal
        };
        let options = AdvisorOptions {
            fast: Some(FastLevel { save, covers }),
            ..options
        };
        learn("the same, two levels".to_owned(), &rehearsal, &options);
    }
    Ok(Answer {
        save_s: save,
        restore_s: costs.restore(),
        mtbf_s: mtbf,
        total_s: total,
        runs: arguments.runs,
        seed: arguments.seed,
        rows,
        left_out,
    })
}

/// The plans that are rehearsed, by name: the best one, those of simple policies, and those that were asked for.
fn plans(arguments: &Arguments, costs: &Costs, steps: &[f64], best: Plan) -> Vec<(String, Plan)> {
    let count = (costs.interval() * steps.len() as f64 / arguments.run.total_of(steps)).max(1.0) as u64;
    let mut plans = vec![
        ("best plan".to_owned(), best),
        ("rate".to_owned(), Plan::by(&Rate, costs, steps)),
        ("nearest".to_owned(), Plan::by(&Nearest, costs, steps)),
        ("paper".to_owned(), Plan::by(&Paper, costs, steps)),
        (
            "Young".to_owned(),
            Plan::by(&FixedSeconds(young(costs.save(), costs.mtbf())), costs, steps),
        ),
        (
            "half as often".to_owned(),
            Plan::by(&FixedSteps(2 * count), costs, steps),
        ),
        (
            "twice as often".to_owned(),
            Plan::by(&FixedSteps(count.div_ceil(2)), costs, steps),
        ),
    ];
    plans.extend(arguments.every.iter().map(|&every| {
        let plan = Plan::by(&FixedSteps(every), costs, steps);
        (format!("every {every} steps"), plan)
    }));
    plans
}

/// How many seconds all runs of one way may take together, for work that is nearly never done takes for ever
/// to rehearse. Refuses what would be rehearsed in vain even with the best plan, which is expected to take so
/// long.
fn patience(arguments: &Arguments, total: f64, mtbf: f64, expected: f64) -> anyhow::Result<f64> {
    let taken = match expected.is_finite() {
        true => format!("{expected:.0} s, more than {OVERHEAD_MAX} times as long"),
        false => "for ever".to_owned(),
    };
    ensure!(
        expected <= total * OVERHEAD_MAX,
        "even with the best plan, {total:.1} s of computing would take {taken}, which is not rehearsed; it wants a \
         longer --mtbf, or shorter saves, restores or steps"
    );
    let failures = expected / mtbf;
    ensure!(
        failures * f64::from(arguments.runs) <= FAILURES_MAX,
        "so many runs would see about {failures:.0} failures each; give fewer --runs or a shorter --total"
    );
    let runs = total * OVERHEAD_MAX * f64::from(arguments.runs);
    Ok(runs.min(FAILURES_MAX * mtbf * WORSE_MAX))
}

/// All runs of one way. Every way meets the same chance.
fn rehearse(
    arguments: &Arguments,
    mut run: impl FnMut(&mut dyn FnMut() -> f64) -> Rehearsed,
) -> Vec<Rehearsed> {
    let mut random = Pcg64::seed_from_u64(arguments.seed);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..arguments.runs).map(|_| run(&mut uniform)).collect()
}

impl LeftOut {
    fn named(&self) -> String {
        match self.expected_total_s {
            Some(expected) => format!("{}, expected to take {}", self.policy, shown(expected)),
            None => self.policy.clone(),
        }
    }
}

impl Row {
    fn of(policy: &str, runs: &[Rehearsed], total: f64, expected: Option<f64>) -> Self {
        let count = runs.len() as f64;
        let mean = |of: fn(&Rehearsed) -> f64| runs.iter().map(of).sum::<f64>() / count;
        let mean_total = mean(|run| run.total);
        let squares: f64 = runs.iter().map(|run| (run.total - mean_total).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let mut totals: Vec<f64> = runs.iter().map(|run| run.total).collect();
        totals.sort_unstable_by(f64::total_cmp);
        Self {
            policy: policy.to_owned(),
            mean_total_s: mean_total,
            confidence_95_s: 1.96 * error,
            expected_total_s: expected,
            p10_total_s: totals[totals.len().div_ceil(10) - 1],
            p90_total_s: totals[(totals.len() * 9).div_ceil(10) - 1],
            overhead: mean_total / total - 1.0,
            saves: mean(|run| run.saves as f64),
            failures: mean(|run| run.failures as f64),
            lost_s: mean(|run| run.lost),
        }
    }
}

fn show(arguments: &Arguments, svg: Option<OutputFile>, answer: &Answer) -> anyhow::Result<()> {
    if let Some(svg) = svg {
        svg.write(draw(answer))?;
    }
    if arguments.json {
        return print(serde_json::to_string_pretty(answer)?);
    }
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "policy",
        "mean time",
        "expected",
        "9 of 10 below",
        "overhead",
        "saves",
        "failures",
        "lost",
    ]);
    for row in &answer.rows {
        table.add_row([
            row.policy.clone(),
            format!("{} ± {}", shown(row.mean_total_s), shown(row.confidence_95_s)),
            row.expected_total_s.map_or_else(String::new, shown),
            shown(row.p90_total_s),
            part(row.overhead),
            format!("{:.1}", row.saves),
            format!("{:.1}", row.failures),
            shown(row.lost_s),
        ]);
    }
    for column in 1..=7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    print(table)?;
    if !answer.left_out.is_empty() {
        let names: Vec<String> = answer.left_out.iter().map(LeftOut::named).collect();
        print(format_args!(
            "Left out, since it would take too long to rehearse: {}.",
            names.join("; ")
        ))?;
    }
    print(format_args!(
        "{} runs each of {} of computing, seed {}; ± is the 95 % confidence interval of the mean.",
        answer.runs,
        with_seconds(answer.total_s.round()),
        answer.seed
    ))
}

/// A bar for each row, of the time beyond the computing, with the spread of the runs and the confidence of their mean.
fn draw(answer: &Answer) -> String {
    let bars: Vec<Bar<'_>> = answer
        .rows
        .iter()
        .map(|row| Bar {
            name: &row.policy,
            mean: row.mean_total_s,
            confidence: row.confidence_95_s,
            spread: (row.p10_total_s, row.p90_total_s),
        })
        .collect();
    let below = format!(
        "{} of computing, {} runs each. Thin lines: 8 of 10 runs end there. Thick lines: 95 % confidence of the mean.",
        with_seconds(answer.total_s.round()),
        answer.runs
    );
    draw_bars(&bars, answer.total_s, &below)
}

/// Some seconds of work, of the best plan.
const FAILURES_MAX: f64 = 1e7;

/// So many times as many failures may any other way see.
const WORSE_MAX: f64 = 4.0;

/// Runs that take longer by more than this are not rehearsed.
const OVERHEAD_MAX: f64 = 100.0;
