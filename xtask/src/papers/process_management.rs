//! Figures 2 to 5 of the paper on process management (PMI).

use std::{collections::BTreeMap, fmt::Write, fs, thread};

use anyhow::Context;
use serde::Deserialize;

use super::{
    Extent, Made,
    chart::{self, Left, Line, Panel},
    executables::Executables,
    reduction::time,
};

/// All ranks learn the hosts of all: one attribute in PMI-2, a request for each rank in PMI-1.
pub(super) fn figure2(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    #[derive(Deserialize)]
    struct Row {
        ranks: u32,
        manager: String,
        way: String,
        seconds: Vec<f64>,
        requests: u64,
    }
    let rows: Vec<Row> = executables.rivals(match extent {
        Extent::Full => "mapping --ranks 16,64,256,512 --repetitions 3",
        Extent::Quick => "mapping --ranks 16,64 --repetitions 1",
    })?;
    let name = |row: &Row| match &*row.way {
        "attribute" => format!("{}, PMI-2", row.manager),
        _ => format!("{}, PMI-1", row.manager),
    };
    let mut times = Series::default();
    let mut requests = Series::default();
    let mut table = Table::default();
    for row in &rows {
        let (ranks, name) = (f64::from(row.ranks), name(row));
        times.add(&name, ranks, middle(&row.seconds)?);
        requests.add(&name, ranks, row.requests as f64);
        table.set(&row.ranks.to_string(), &name, spread(&row.seconds)?);
    }
    for row in &rows {
        let version = match &*row.way {
            "attribute" => "PMI-2",
            _ => "PMI-1",
        };
        let column = format!("requests, {version}");
        table.set(&row.ranks.to_string(), &column, row.requests.to_string());
    }
    let simulated = simulated_starts(extent, executables)?;
    let panels = [
        times.panel("a: until all ranks have ended", "ranks", Left::Time),
        requests.panel("b: requests of all ranks", "ranks", Left::Count),
    ];
    Ok(Made {
        text: format!(
            "{}Medians, and the least and greatest in parentheses:\n\n{}\n{simulated}",
            machine()?,
            table.text("ranks")?
        ),
        picture: Some(chart::draw("learning the hosts of all ranks", &panels, whole)),
    })
}

/// The start of larger jobs, and the requests that their ranks would make.
fn simulated_starts(extent: Extent, executables: &Executables) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Row {
        hosts: u64,
        ranks: u64,
        known_s: f64,
    }
    // Each simulated agent keeps four bytes for each rank: 10,000 hosts with 1,000,000 ranks would take 40 GB.
    let hosts: &[u32] = match extent {
        Extent::Full => &[10, 100, 1000, 2000],
        Extent::Quick => &[10, 100],
    };
    let mut text = String::from(
        "Simulated starts in a tree of arity 16, and the requests that such ranks would make, calculated:\n\n\
         | ranks | hosts | all ranks known to the launcher | requests, PMI-2 | requests, PMI-1 |\n\
         |---|---|---|---|---|\n",
    );
    for hosts in hosts {
        let words = format!("sim launch --hosts {hosts} --ranks {} --arity 16", hosts * 100);
        for row in executables.ropewalk::<Row>(&words)? {
            let Row {
                hosts,
                ranks,
                known_s,
            } = row;
            // A put, a fence, and a get for each rank.
            let gets = ranks * (ranks + 2);
            writeln!(text, "| {ranks} | {hosts} | {known_s:.3} s | {ranks} | {gets} |")?;
        }
    }
    Ok(text)
}

/// Noise: fixed work below managers and below nobody, and wake-ups of the managers while ranks sleep.
pub(super) fn figure3(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Row {
        Work {
            manager: String,
            ranks: u32,
            seconds: Vec<Vec<f64>>,
        },
        Idle {
            manager: String,
            hosts: u8,
            processes: usize,
            threads: usize,
            idle_s: f64,
            wakes: Vec<f64>,
        },
    }
    let rows: Vec<Row> = executables.rivals(match extent {
        Extent::Full => "noise --pieces 100 --repetitions 3 --idle 5",
        Extent::Quick => "noise --pieces 10 --repetitions 1 --idle 2",
    })?;
    let mut work = String::from(
        "| | ranks | pieces | mean | standard deviation | worst | slowest rank / fastest - 1 |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let mut idle = String::from(
        "| | hosts | processes of the manager | threads | wake-ups of all threads, a second |\n|---|---|---|---|---|\n",
    );
    let mut series = Series::default();
    for row in &rows {
        match row {
            Row::Work {
                manager,
                ranks,
                seconds,
            } => {
                let all = sorted(&seconds.concat());
                let mean = all.iter().sum::<f64>() / all.len() as f64;
                let squares = all.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
                let deviation = (squares / all.len() as f64).sqrt();
                let worst = all.last().context("nothing was computed")?;
                let sums = seconds.iter().map(|rank| rank.iter().sum());
                let sums = sorted(&sums.collect::<Vec<f64>>());
                let differ = sums[sums.len() - 1] / sums[0] - 1.0;
                writeln!(
                    work,
                    "| {manager} | {ranks} | {} | {} | {:.2} % | {} | {:.1} % |",
                    all.len(),
                    time(mean),
                    deviation / mean * 100.0,
                    time(*worst),
                    differ * 100.0
                )?;
                for percent in 0..=100_usize {
                    let at = percent * (all.len() - 1) / 100;
                    series.add(manager, percent as f64, all[at]);
                }
            }
            Row::Idle {
                manager,
                hosts,
                processes,
                threads,
                idle_s,
                wakes,
            } => {
                let wakes: Vec<f64> = wakes.iter().map(|wakes| wakes / idle_s).collect();
                let wakes = range(&wakes, |wakes| format!("{wakes:.1}"))?;
                writeln!(
                    idle,
                    "| {manager} | {hosts} | {processes} | {threads} | {wakes} |"
                )?;
            }
        }
    }
    let mut panel = series.panel(
        "pieces of fixed work, sorted",
        "per cent of the pieces",
        Left::Time,
    );
    panel.is_logarithmic = false;
    Ok(Made {
        text: format!(
            "{}Pieces of fixed work:\n\n{work}\nTwo ranks that sleep:\n\n{idle}",
            machine()?
        ),
        picture: Some(chart::draw("a computation in a job", &[panel], whole)),
    })
}

/// Threads that publish and withdraw services.
pub(super) fn figure4(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    #[derive(Deserialize)]
    struct Row {
        contestant: String,
        threads: u32,
        per_second: Vec<f64>,
    }
    let mut panels = Vec::new();
    let mut text = format!(
        "{}Microseconds a request, medians, and the least and greatest in parentheses.\n",
        machine()?
    );
    for (delay, title) in [(0, "near"), (200, "200 us away")] {
        let turns = match extent {
            Extent::Full => "--threads 1,2,4,8,16 --rounds 7 --turn-ms 100",
            Extent::Quick => "--threads 1,4 --rounds 1 --turn-ms 50",
        };
        let words = format!("pmi --requests publish --delay-us {delay} {turns}");
        let rows: Vec<Row> = executables.rivals(&words)?;
        let mut series = Series::default();
        let mut table = Table::default();
        for row in rows {
            let times: Vec<f64> = row.per_second.iter().map(|rate| 1.0 / rate).collect();
            series.add(&row.contestant, row.threads.into(), middle(&times)?);
            let shown = range(&times, |time| format!("{:.1}", time * 1e6))?;
            table.set(&row.threads.to_string(), &row.contestant, shown);
        }
        write!(
            text,
            "\nThe process manager is {title}:\n\n{}",
            table.text("threads")?
        )?;
        let title = format!("time a request, {title}");
        panels.push(series.panel(&title, "threads of one process", Left::Time));
    }
    Ok(Made {
        text,
        picture: Some(chart::draw("requests of several threads", &panels, whole)),
    })
}

/// From the start of a job to its end, beside other process managers.
pub(super) fn figure5(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    #[derive(Deserialize)]
    struct Row {
        manager: String,
        hosts: u8,
        ranks: u32,
        seconds: Vec<f64>,
    }
    let (here, on_hosts) = match extent {
        Extent::Full => (
            "mpi --only init --ranks 1,4,16,64 --repetitions 3",
            "mpi --only init-hosts --hosts 16 --ranks 4,16,64 --repetitions 3",
        ),
        Extent::Quick => (
            "mpi --only init --ranks 1,4 --repetitions 1",
            "mpi --only init-hosts --hosts 4 --ranks 4 --repetitions 1",
        ),
    };
    let mut rows: Vec<Row> = executables.rivals(here)?;
    rows.extend(executables.rivals::<Row>(on_hosts)?);
    let mut table = Table::default();
    let mut by_hosts: BTreeMap<u8, Series> = BTreeMap::new();
    for row in &rows {
        let (hosts, ranks) = (row.hosts, row.ranks);
        let series = by_hosts.entry(hosts).or_default();
        series.add(&row.manager, ranks.into(), middle(&row.seconds)?);
        table.set(&format!("{hosts}, {ranks}"), &row.manager, spread(&row.seconds)?);
    }
    let panel = |(hosts, series): (&u8, &Series)| {
        let title = match hosts {
            1 => "one host".to_owned(),
            _ => format!("{hosts} hosts"),
        };
        series.panel(&title, "ranks", Left::Time)
    };
    let panels: Vec<Panel> = by_hosts.iter().map(panel).collect();
    Ok(Made {
        text: format!(
            "{}Medians, and the least and greatest in parentheses:\n\n{}",
            machine()?,
            table.text("hosts, ranks")?
        ),
        picture: Some(chart::draw("start and end of MPI programs", &panels, whole)),
    })
}

/// Lines of a panel, in the order in which they came.
#[derive(Default)]
struct Series {
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Series {
    fn add(&mut self, name: &str, x: f64, y: f64) {
        match self.lines.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => points.push((x, y)),
            None => self.lines.push((name.to_owned(), vec![(x, y)])),
        }
    }

    fn panel(&self, title: &str, below: &'static str, left: Left) -> Panel {
        let line = |(name, points): &(String, Vec<(f64, f64)>)| Line {
            name: name.clone(),
            points: points.clone(),
        };
        Panel {
            title: title.to_owned(),
            below,
            is_logarithmic: true,
            left,
            lines: self.lines.iter().map(line).collect(),
        }
    }
}

/// Cells by the names of their row and column, in the order in which these came.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    columns: Vec<String>,
    cells: BTreeMap<(String, String), String>,
}

impl Table {
    fn set(&mut self, row: &str, column: &str, text: String) {
        for (names, name) in [(&mut self.rows, row), (&mut self.columns, column)] {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        self.cells.insert((row.to_owned(), column.to_owned()), text);
    }

    fn text(&self, corner: &str) -> anyhow::Result<String> {
        let columns = self.columns.join(" | ");
        let mut text = format!(
            "| {corner} | {columns} |\n|---|{}\n",
            "---|".repeat(self.columns.len())
        );
        for row in &self.rows {
            write!(text, "| {row} |")?;
            for column in &self.columns {
                let cell = self.cells.get(&(row.clone(), column.clone()));
                write!(text, " {} |", cell.map_or("", |cell| cell))?;
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The median; the upper one of an even number.
fn middle(values: &[f64]) -> anyhow::Result<f64> {
    let sorted = sorted(values);
    sorted
        .get(sorted.len() / 2)
        .copied()
        .context("nothing was measured")
}

/// The median with the least and the greatest.
fn range(values: &[f64], text: impl Fn(f64) -> String) -> anyhow::Result<String> {
    let sorted = sorted(values);
    let (least, most) = (
        sorted.first().context("nothing was measured")?,
        sorted.last().context("nothing was measured")?,
    );
    Ok(format!(
        "{} ({}-{})",
        text(middle(values)?),
        text(*least),
        text(*most)
    ))
}

/// The median with the least and the greatest, in milliseconds.
fn spread(seconds: &[f64]) -> anyhow::Result<String> {
    let milliseconds = |seconds: f64| match seconds * 1e3 {
        short @ ..100.0 => format!("{short:.1}"),
        long => format!("{long:.0}"),
    };
    Ok(format!("{} ms", range(seconds, milliseconds)?))
}

/// The machine of a measurement, as the beginning of its text.
fn machine() -> anyhow::Result<String> {
    let processors = thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release = kernel.split('-').next().unwrap_or_default().trim();
    Ok(format!("{processors} processors, Linux {release}. "))
}

fn whole(value: f64) -> String {
    value.to_string()
}
