//! Figures 6 to 9 of the papers on reduction.

use std::fmt::Write;

use ropewalk_sim::reduction::Setting;

use super::{
    Extent, Made,
    chart::{self, Left, Line, Panel},
    points::{
        HOSTS, Load, Point, Policy, Times, drawn, mean_seconds, on_all_processors, ours, simulated,
        with_slow_receivers,
    },
};

/// Ideal: reductions of all lengths, and several at once, with nothing else on the hosts.
pub(super) fn figure6(extent: Extent) -> anyhow::Result<Made> {
    let by_length = |hosts: u32| {
        lengths(extent)
            .into_iter()
            .map(move |bytes| ideal(hosts, bytes, 1))
    };
    let most = hosts(extent);
    let groups = quarters(extent);
    let single: Vec<Point> = groups.into_iter().flat_map(by_length).collect();
    let several = counts(extent)
        .into_iter()
        .map(|calls| ideal(most, CONCURRENT_BYTES, calls));
    let several: Vec<Point> = several.collect();
    let (single_times, several_times) = (simulated(&single)?, simulated(&several)?);
    let is_largest = |(point, _): &(Point, Times)| point.hosts == most;
    let single: Vec<_> = single.into_iter().zip(single_times).collect();
    let several: Vec<_> = several.into_iter().zip(several_times).collect();
    let largest: Vec<_> = single.iter().copied().filter(is_largest).collect();
    let panels = [
        panel(
            format!("a: one reduction, {most} hosts"),
            &largest,
            Quantity::Length,
        ),
        panel(
            format!("b: reductions of 8 MiB at once, {most} hosts"),
            &several,
            Quantity::Count,
        ),
    ];
    let named = |(point, times): &(Point, Times)| {
        let name = format!("{}, {}", point.hosts, length(point.bytes as f64));
        (name, *times)
    };
    let chosen = single
        .iter()
        .filter(|(point, _)| point.hosts == most || is_in_short(point.bytes));
    let rows: Vec<_> = chosen.map(named).collect();
    let several: Vec<_> = several
        .iter()
        .map(|(point, times)| (point.calls.to_string(), *times))
        .collect();
    Ok(Made {
        text: format!(
            "{}\n{}\nReductions of 8 MiB at once, until the last is complete, on {most} hosts:\n\n{}",
            table("hosts, length", &rows)?,
            first_calls(&largest)?,
            table("at once", &several)?
        ),
        picture: Some(chart::draw(
            "reductions on hosts of their own",
            &panels,
            length_or_count,
        )),
    })
}

/// The first call of a group beside the same call made again, where that is planned ahead.
fn first_calls(points: &[(Point, Times)]) -> anyhow::Result<String> {
    const PLANNED_MAX: u64 = 4 << 20;
    let mut text = String::from(
        "A call that was made before is planned ahead up to 4 MiB. ropewalk's first call beside it:\n\n\
         | length | first | again |\n|---|---|---|\n",
    );
    for (point, times) in points.iter().filter(|(point, _)| point.bytes <= PLANNED_MAX) {
        let first = ours(&drawn(*point, 0))?.time.as_seconds();
        writeln!(
            text,
            "| {} | {} | {} |",
            length(point.bytes as f64),
            time(first),
            time(times[0])
        )?;
    }
    Ok(text)
}

/// Interference on a part of the hosts.
pub(super) fn figure7(extent: Extent) -> anyhow::Result<Made> {
    under_load(extent, "one reduction", Quantity::Length, |loaded| {
        let point = |bytes| Point {
            load: Load::On {
                hosts: loaded,
                draws: match extent {
                    // "Each result is the mean of nine runs."
                    Extent::Full => 9,
                    Extent::Quick => 1,
                },
            },
            ..ideal(hosts(extent), bytes, 1)
        };
        lengths(extent).into_iter().map(point).collect()
    })
}

/// How often the scheduler changes its plan under interference and around slow hosts, and the time with its first plan
/// only.
pub(super) fn plans(extent: Extent) -> anyhow::Result<Made> {
    let draws = match extent {
        Extent::Full => 9,
        Extent::Quick => 1,
    };
    let most = hosts(extent);
    let columns = "rates reported | messages of the scheduler / hosts | only the first plan | messages / hosts | \
                   MPI, pipeline |\n|---|---|---|---|---|---|\n";
    let mut text = format!(
        "{most} hosts, means of {draws} draws. The scheduler sends each of the hosts a row of each plan, and the \
         end.\n\nInterference that changes, 32 MiB:\n\n| hosts with interference | {columns}"
    );
    for loaded in [1].into_iter().chain([most / 20]).chain(quarters(extent)) {
        let load = Load::On { hosts: loaded, draws };
        let point = Point {
            load,
            ..ideal(most, 32 << 20, 1)
        };
        write!(text, "| {loaded} |")?;
        text += &with_and_without_reports(draws, |draw| drawn(point, draw))?;
    }
    text += "\nHosts that receive at a tenth of the rate all the time, which nobody knew:\n\n";
    write!(text, "| slow hosts, length | {columns}")?;
    for bytes in [8 << 20, 32 << 20, 128 << 20] {
        for slow in [1, 4] {
            write!(text, "| {slow}, {} |", length(bytes as f64))?;
            text += &with_and_without_reports(draws, |draw| with_slow_receivers(most, bytes, slow, draw))?;
        }
    }
    Ok(Made { text, picture: None })
}

/// The columns after the first of a row of [`plans`].
fn with_and_without_reports(draws: u64, setting: impl Fn(u64) -> Setting + Sync) -> anyhow::Result<String> {
    let jobs = [true, false]
        .into_iter()
        .flat_map(|reported| (0..draws).map(move |draw| (reported, draw)));
    let jobs: Vec<_> = jobs.collect();
    let outcomes = on_all_processors(&jobs, |&(reported, draw)| {
        let mut setting = setting(draw);
        setting.are_rates_reported = reported;
        let outcome = ours(&setting)?;
        let messages = outcome.messages_from_scheduler as f64 / f64::from(setting.hosts);
        Ok((outcome.time.as_seconds(), messages))
    })?;
    let mut columns = String::new();
    for half in outcomes.chunks(draws as usize) {
        let mean = |part: fn(&(f64, f64)) -> f64| half.iter().map(part).sum::<f64>() / half.len() as f64;
        write!(
            columns,
            " {} | {:.1} |",
            time(mean(|outcome| outcome.0)),
            mean(|outcome| outcome.1)
        )?;
    }
    let settings: Vec<_> = (0..draws).map(setting).collect();
    let pipeline = mean_seconds(&settings, Policy::Pipeline)?;
    writeln!(columns, " {} |", time(pipeline))?;
    Ok(columns)
}

/// Several reductions at once, with interference on a part of the hosts.
pub(super) fn figure8(extent: Extent) -> anyhow::Result<Made> {
    under_load(extent, "reductions of 8 MiB at once", Quantity::Count, |loaded| {
        let point = |calls| Point {
            load: Load::On {
                hosts: loaded,
                // Nine, and more at once, would take hours.
                draws: 1,
            },
            ..ideal(hosts(extent), CONCURRENT_BYTES, calls)
        };
        counts(extent).into_iter().take(3).map(point).collect()
    })
}

/// Instead of a production cluster over seven days: interference on all hosts, drawn anew each time.
pub(super) fn figure9(extent: Extent) -> anyhow::Result<Made> {
    const BYTES: u64 = 32 << 20;
    const CALLS: u32 = 8;
    let draws = match extent {
        Extent::Full => 14,
        Extent::Quick => 2,
    };
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    for (calls, title) in [
        (1, "a: one reduction of 32 MiB"),
        (CALLS, "b: 8 reductions of 32 MiB at once"),
    ] {
        let point = |draw| Point {
            load: Load::Draw(draw),
            ..ideal(hosts(extent), BYTES, calls)
        };
        let points: Vec<Point> = (1..=draws).map(point).collect();
        let times: Vec<_> = points.iter().copied().zip(simulated(&points)?).collect();
        panels.push(panel(title.to_owned(), &times, Quantity::Draw));
        let all: Vec<Times> = times.iter().map(|(_, times)| *times).collect();
        let mean =
            std::array::from_fn(|at| all.iter().map(|times| times[at]).sum::<f64>() / all.len() as f64);
        let worst = std::array::from_fn(|at| all.iter().map(|times| times[at]).fold(0.0, f64::max));
        rows.push((format!("{calls} at once, mean"), mean));
        rows.push((format!("{calls} at once, worst"), worst));
    }
    let text = table("32 MiB", &rows)?;
    Ok(Made {
        text: format!("Of {draws} draws:\n\n{text}"),
        picture: Some(chart::draw(
            "reductions beside other programs",
            &panels,
            length_or_count,
        )),
    })
}

fn under_load(
    extent: Extent,
    title: &str,
    quantity: Quantity,
    points_of: impl Fn(u32) -> Vec<Point>,
) -> anyhow::Result<Made> {
    let most = hosts(extent);
    let mut panels = Vec::new();
    let mut text = String::new();
    let mut improved = Vec::new();
    for loaded in quarters(extent) {
        let points = points_of(loaded);
        let times: Vec<_> = points.iter().copied().zip(simulated(&points)?).collect();
        panels.push(panel(format!("interference on {loaded}"), &times, quantity));
        let rows = times.iter().map(|(point, times)| (quantity.named(point), *times));
        let rows: Vec<_> = rows.collect();
        write!(
            text,
            "\nInterference on {loaded} of {most} hosts:\n\n{}",
            table(quantity.column(), &rows)?
        )?;
        improved.push((loaded, rows));
    }
    let mut summary = String::from(
        "The most by which ropewalk improves on each, as the paper counts it: their time / ours - 1.\n\
         Below 0 it is slower everywhere.\n\n| hosts with interference | the paper's | MPI, binomial tree | \
         MPI, Rabenseifner | MPI, pipeline | the paper's on MPI |\n|---|---|---|---|---|---|\n",
    );
    for (loaded, rows) in &improved {
        let over = |own: usize, other: usize| {
            let parts = rows.iter().map(|(_, times)| times[other] / times[own] - 1.0);
            parts.fold(f64::NEG_INFINITY, f64::max)
        };
        write!(summary, "| {loaded} |")?;
        for other in 1..Policy::ALL.len() {
            write!(summary, " {:.2} |", over(0, other))?;
        }
        writeln!(summary, " {:.2} |", over(1, 3))?;
    }
    Ok(Made {
        text: format!("{summary}{text}"),
        picture: Some(chart::draw(title, &panels, length_or_count)),
    })
}

fn ideal(hosts: u32, bytes: u64, calls: u32) -> Point {
    Point {
        hosts,
        bytes,
        calls,
        load: Load::None,
    }
}

/// 128 KiB to 128 MiB, as in the paper.
pub(super) fn lengths(extent: Extent) -> Vec<u64> {
    match extent {
        Extent::Full => (17..=27).map(|power| 1 << power).collect(),
        Extent::Quick => vec![128 << 10, 4 << 20],
    }
}

/// 4 to 28 reductions at once, as in the paper.
fn counts(extent: Extent) -> Vec<u32> {
    match extent {
        Extent::Full => (1..=7).map(|four| 4 * four).collect(),
        Extent::Quick => vec![4],
    }
}

/// 200, as in the paper.
fn hosts(extent: Extent) -> u32 {
    match extent {
        Extent::Full => HOSTS,
        Extent::Quick => HOSTS / 5,
    }
}

/// A quarter of the hosts, a half, three quarters, and all.
fn quarters(extent: Extent) -> [u32; 4] {
    [1, 2, 3, 4].map(|part| hosts(extent) * part / 4)
}

/// Lengths of the rows of fewer hosts.
fn is_in_short(bytes: u64) -> bool {
    [128 << 10, 4 << 20, 32 << 20, 128 << 20].contains(&bytes)
}

/// The quantity that changes from point to point.
#[derive(Clone, Copy)]
enum Quantity {
    Length,
    Count,
    Draw,
}

impl Quantity {
    fn of(self, point: &Point) -> f64 {
        match (self, point.load) {
            (Self::Draw, Load::Draw(draw)) => draw as f64,
            (Self::Length, _) => point.bytes as f64,
            _ => point.calls.into(),
        }
    }

    fn named(self, point: &Point) -> String {
        length_or_count(self.of(point))
    }

    fn column(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Count => "at once",
            Self::Draw => "draw",
        }
    }

    fn below(self) -> &'static str {
        match self {
            Self::Length => "bytes of each contribution",
            Self::Count => "reductions at once",
            Self::Draw => "draw of the interference",
        }
    }
}

fn panel(title: String, times: &[(Point, Times)], quantity: Quantity) -> Panel {
    let line = |(at, policy): (usize, Policy)| Line {
        name: policy.name().to_owned(),
        points: times
            .iter()
            .map(|(point, times)| (quantity.of(point), times[at]))
            .collect(),
    };
    Panel {
        title,
        below: quantity.below(),
        is_logarithmic: matches!(quantity, Quantity::Length),
        left: Left::Time,
        lines: Policy::ALL.into_iter().enumerate().map(line).collect(),
    }
}

/// A row of times for each name; the shortest of a row is set off.
fn table(column: &str, rows: &[(String, Times)]) -> anyhow::Result<String> {
    let names = Policy::ALL.map(Policy::name).join(" | ");
    let mut table = format!(
        "| {column} | {names} |\n|---|{}\n",
        "---|".repeat(Policy::ALL.len())
    );
    for (name, times) in rows {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        write!(table, "| {name} |")?;
        for &seconds in times {
            match seconds <= least {
                true => write!(table, " **{}** |", time(seconds))?,
                false => write!(table, " {} |", time(seconds))?,
            }
        }
        table.push('\n');
    }
    Ok(table)
}

/// Three digits.
pub(super) fn time(seconds: f64) -> String {
    let milliseconds = seconds * 1e3;
    match milliseconds {
        ..10.0 => format!("{milliseconds:.2} ms"),
        ..100.0 => format!("{milliseconds:.1} ms"),
        ..1000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{seconds:.2} s"),
    }
}

pub(super) fn length(bytes: f64) -> String {
    match bytes {
        ..1_048_576.0 => format!("{} KiB", bytes / 1024.0),
        _ => format!("{} MiB", bytes / 1_048_576.0),
    }
}

/// Lengths are much greater than counts.
fn length_or_count(value: f64) -> String {
    match value {
        ..1024.0 => value.to_string(),
        _ => length(value),
    }
}

/// The length of reductions of which several run at once, as in the paper.
const CONCURRENT_BYTES: u64 = 8 << 20;
