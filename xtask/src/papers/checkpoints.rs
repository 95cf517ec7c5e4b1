//! The tables and figures of the paper on checkpoints of OpenFOAM.

use std::fmt::Write;

use anyhow::Context;
use ropewalk_openfoam_trials::{PaperCase, kill};
use serde_json::Value;

use super::{
    Extent, Made,
    chart::{self, Left, Line, Panel},
    rehearsals::{PaperRow, ROWS, Times, interval_of, paper_row, rehearse},
    setup::Setup,
};

/// The cases: mesh, steps, time of the run and of a save.
pub(super) fn table2(setup: &Setup) -> anyhow::Result<Made> {
    let mut text = String::from(
        "| case | cells | steps | T | Ts | Ts / T | from a failure to the next step |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        writeln!(
            text,
            "| {}, the paper, 200 cores | {} | {} | {} s | {:.2} s | {:.2} % | |",
            row.name,
            row.cells,
            row.steps,
            row.total,
            row.save,
            100.0 * row.save / row.total
        )?;
    }
    for case in setup.cases()? {
        let (least, most) = case.save_range;
        writeln!(
            text,
            "| {}, {} | {} | {} | {:.2} s | {:.0} ms ({:.0} to {:.0}) | {:.2} % | {:.2} s |",
            case.name,
            ranks(case),
            case.cells,
            case.steps.len(),
            case.total(),
            case.save * 1e3,
            least * 1e3,
            most * 1e3,
            100.0 * case.save / case.total(),
            case.restart
        )?;
    }
    Ok(Made { text, picture: None })
}

/// The intervals that follow from the paper's times, by equation 5 and by the usual formulas.
pub(super) fn intervals(setup: &Setup) -> anyhow::Result<Made> {
    let mut text = String::from(
        "| case, MTBF | the paper | equation 5 | Young | Daly, first order | Daly, higher order |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        for (mtbf, printed) in MTBFS.into_iter().zip(row.intervals) {
            let plan = super::rehearsals::plan(setup, row.save, mtbf)?;
            let seconds = |policy: &str| -> anyhow::Result<String> {
                let found = interval_of(&plan, policy)?;
                Ok(format!("{found:.3} s"))
            };
            writeln!(
                text,
                "| {}, {mtbf} s | {} | {} | {} | {} | {} |",
                row.name,
                printed.map_or_else(String::new, |printed| format!("{printed} s")),
                seconds("equation 5")?,
                seconds("Young")?,
                seconds("Daly, first order")?,
                seconds("Daly, higher order")?,
            )?;
        }
    }
    Ok(Made { text, picture: None })
}

/// The time of each step.
pub(super) fn figure5(setup: &Setup) -> anyhow::Result<Made> {
    let cases = setup.cases()?;
    let mut text = String::from(
        "| case | first step | steps 2 to 5 | median | shortest | longest |\n|---|---|---|---|---|---|\n",
    );
    for case in cases {
        let mut sorted = case.steps.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let early = &case.steps[1..case.steps.len().min(5)];
        let early = early.iter().sum::<f64>() / early.len() as f64;
        write!(text, "| {}, {} |", case.name, ranks(case))?;
        let (first, last) = (sorted.first(), sorted.last());
        let (least, most) = first.zip(last).context("a run has steps")?;
        for seconds in [case.steps[0], early, sorted[sorted.len() / 2], *least, *most] {
            write!(text, " {:.1} ms |", seconds * 1e3)?;
        }
        text.push('\n');
    }
    let panel = |row: &PaperRow| Panel {
        title: format!("{}, each step", row.name),
        left: Left::Time,
        below: "step",
        is_logarithmic: false,
        lines: cases
            .iter()
            .filter(|case| case.name == row.case)
            .map(|case| Line {
                name: ranks(case),
                points: (1..).map(f64::from).zip(case.steps.iter().copied()).collect(),
            })
            .collect(),
    };
    let panels: Vec<Panel> = ROWS.iter().map(panel).collect();
    Ok(Made {
        text,
        picture: Some(chart::draw("time of each step", &panels, |step| step.to_string())),
    })
}

/// The cavity at each of the paper's MTBFs: rehearsed, and for one of them with a real solver that is killed.
pub(super) fn figure6(setup: &Setup) -> anyhow::Result<Made> {
    let (mut text, panels) = compared(setup, &["cavity"])?;
    text += &killed(setup)?;
    Ok(made(text, &panels))
}

/// The other two cases.
pub(super) fn figure7(setup: &Setup) -> anyhow::Result<Made> {
    let (text, panels) = compared(setup, &["pitzDaily", "damBreak"])?;
    Ok(made(text, &panels))
}

fn made(text: String, panels: &[Panel]) -> Made {
    Made {
        text,
        picture: Some(chart::draw(
            "time with failures over the steps between two saves",
            panels,
            |steps| steps.to_string(),
        )),
    }
}

/// Tables and panels of some cases: with the steps as measured but scaled to the paper's times, and all as measured.
fn compared(setup: &Setup, names: &[&str]) -> anyhow::Result<(String, Vec<Panel>)> {
    let cases = setup.cases()?;
    let chosen = |case: &&PaperCase| names.contains(&case.name);
    let mut text = String::new();
    let mut panels = Vec::new();
    let mut columns = Vec::new();
    for case in cases.iter().filter(chosen).filter(|case| case.ranks == 1) {
        let paper = paper_row(case.name)?;
        let scale = paper.total / case.total();
        let steps: Vec<f64> = case.steps.iter().map(|step| step * scale).collect();
        for mtbf in MTBFS {
            let times = rehearse(setup, &steps, (paper.save, paper.save, mtbf))?;
            panels.push(panel(format!("{}, MTBF {mtbf} s", paper.name), &times));
            columns.push((format!("{}, MTBF {mtbf} s", paper.name), times));
        }
    }
    write!(
        text,
        "Steps as measured, scaled to the paper's T; saves and restores of the paper's Ts:\n\n{}",
        table(&columns)?
    )?;
    for case in cases.iter().filter(chosen) {
        let paper = paper_row(case.name)?;
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        for mtbf in MTBFS {
            let own = mtbf * case.total() / paper.total;
            if case.restart > own {
                left_out.push(format!("{own:.2} s (the paper's {mtbf})"));
                continue;
            }
            let times = rehearse(setup, &case.steps, (case.save, case.restart, own))?;
            if case.ranks == 1 {
                panels.push(panel(
                    format!("{} as measured, MTBF {own:.1} s", paper.name),
                    &times,
                ));
            }
            columns.push((format!("MTBF {own:.2} s (the paper's {mtbf})"), times));
        }
        if !columns.is_empty() {
            write!(
                text,
                "\n{}, {}, all times as measured, and MTBFs that are the paper's part of the run:\n\n{}",
                paper.name,
                ranks(case),
                table(&columns)?
            )?;
        }
        if !left_out.is_empty() {
            writeln!(
                text,
                "\nNot rehearsed for {}, {}: MTBFs of {}.\nA restart takes {:.2} s.",
                paper.name,
                ranks(case),
                left_out.join(" and "),
                case.restart
            )?;
        }
    }
    Ok((text, panels))
}

/// A row for each way to save; the least time of each column is set off, without the best plan.
fn table(columns: &[(String, Times)]) -> anyhow::Result<String> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut table = format!(
        "| | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(columns.len())
    );
    let (_, first) = columns.first().context("there are cases")?;
    for (at, (policy, _)) in first.rows.iter().enumerate() {
        write!(table, "| {policy} |")?;
        for (_, times) in columns {
            let time = times.rows.get(at).context("all columns have the same rows")?.1;
            match time.mean {
                Some(mean) if times.is_least(policy, mean) => write!(table, " **{}** |", time.text())?,
                _ => write!(table, " {} |", time.text())?,
            }
        }
        table.push('\n');
    }
    let widest = columns
        .iter()
        .map(|(_, times)| times.confidence)
        .fold(0.0, f64::max);
    writeln!(
        table,
        "\nMeans of rehearsed runs. The 95 % confidence intervals of the rules are ± {:.1} % or less.\n\
         In parentheses: expected, by exact sums.",
        100.0 * widest
    )?;
    Ok(table)
}

/// The cavity's solver, killed.
fn killed(setup: &Setup) -> anyhow::Result<String> {
    let counts: &[usize] = match setup.extent {
        Extent::Full => &[2, 4, 8, 16],
        Extent::Quick => &[8],
    };
    let policies: Vec<Option<usize>> = [None]
        .into_iter()
        .chain(counts.iter().copied().map(Some))
        .collect();
    let share = MTBF_OF_KILLS / paper_row("cavity")?.total;
    let killed = kill(
        setup.function_object()?,
        share,
        &policies,
        setup.extent == Extent::Quick,
    )?;
    let mut text = format!(
        "\nThe solver itself, serial, one run of each, killed at an MTBF of {:.2} s (the paper's {MTBF_OF_KILLS}).\n\
         Without saves and failures it takes {:.1} s:\n\n\
         | | measured | failures | by the model, for these failures | expected of many runs |\n|---|---|---|---|---|\n",
        killed.mtbf, killed.undisturbed
    );
    for row in &killed.rows {
        let name = row.every.map_or_else(
            || "ropewalk, advisor".to_owned(),
            |every| format!("every {every} steps"),
        );
        writeln!(
            text,
            "| {name} | {:.1} s | {} | {:.1} s | {:.1} s |",
            row.seconds, row.failures, row.by_model, row.expected
        )?;
    }
    Ok(text)
}

/// The fixed numbers of steps as a curve, and the rules as levels.
fn panel(title: String, times: &Times) -> Panel {
    let shown = |ratio: &f64| *ratio <= RATIO_MAX;
    let fixed: Vec<(f64, f64)> = times
        .fixed()
        .filter_map(|(every, mean)| Some((every, mean / times.total)).filter(|(_, ratio)| shown(ratio)))
        .collect();
    let ends = fixed.first().zip(fixed.last());
    let level = |(name, policy): (&str, &str)| {
        let ratio = times.mean(policy).map(|mean| mean / times.total).filter(shown);
        let points = ends
            .zip(ratio)
            .map(|((first, last), ratio)| vec![(first.0, ratio), (last.0, ratio)]);
        Line {
            name: name.to_owned(),
            points: points.unwrap_or_default(),
        }
    };
    let rules = [
        ("the paper's rule", "the paper's rule"),
        ("ropewalk, advisor", "ropewalk, advisor"),
    ];
    let lines = rules.map(level);
    let fixed = Line {
        name: "every so many steps".to_owned(),
        points: fixed,
    };
    Panel {
        title,
        left: Left::Ratio,
        below: "steps between two saves",
        is_logarithmic: true,
        lines: [fixed].into_iter().chain(lines).collect(),
    }
}

fn ranks(case: &PaperCase) -> String {
    match case.ranks {
        1 => "serial".to_owned(),
        ranks => format!("{ranks} ranks"),
    }
}

/// A number of a JSON object.
pub(super) fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    value[name]
        .as_f64()
        .with_context(|| format!("there is no number {name} in {value}"))
}

/// The mean times between failures of the paper, in seconds.
pub(super) const MTBFS: [f64; 3] = [25.0, 50.0, 100.0];

/// The one at which a real solver is killed.
const MTBF_OF_KILLS: f64 = 100.0;

/// Pictures end here: longer runs would press all others together.
const RATIO_MAX: f64 = 3.0;
