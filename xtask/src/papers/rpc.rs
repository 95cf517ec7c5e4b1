//! Table I and figures 4 and 5 of the paper on remote calls, and the price of its encoding.

use std::{collections::BTreeSet, fmt::Write, fs};

use anyhow::Context;
use serde::Deserialize;

use super::{
    Extent, Made,
    chart::{self, Left, Line, Panel},
    executables::Executables,
    reduction::length,
};

/// A row of `ropewalk bench rpc`.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    provider: String,
    mode: String,
    size: Option<u64>,
    in_flight: u64,
    value: f64,
    least: Option<f64>,
    most: Option<f64>,
    floor: Option<f64>,
}

/// Writes of 16 MiB by one client, which the server pulls buffer by buffer.
pub(super) fn table1(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    let mut text = machine()?;
    let rows = over_all(&["tcp", "shm", "ofi"], "bulk_pipelined", extent, executables)?;
    let providers = names(&rows, |row| &row.provider);
    let modes = names(&rows, |row| &row.mode);
    text.push_str(
        "The best depth and buffer of each, beside the best of the floors; and, with 4 buffers in flight, the worst \
         part of the\nfloor of the same buffer:\n\n\
         | transport | memory | best, GB/s | depth, buffer | of the best floor | worst at depth 4 |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut spreads = Vec::new();
    let mut tables = String::new();
    for provider in &providers {
        for mode in &modes {
            let chosen: Vec<&Row> = rows
                .iter()
                .filter(|row| row.provider == *provider && row.mode == *mode)
                .collect();
            let best = chosen.iter().max_by(|a, b| a.value.total_cmp(&b.value));
            let best = best.with_context(|| format!("no rows over {provider}, {mode}"))?;
            let floor = chosen.iter().filter_map(|row| row.floor).max_by(f64::total_cmp);
            let at_four = chosen
                .iter()
                .filter(|row| row.in_flight == 4)
                .filter_map(|row| row.part());
            let worst = at_four.min_by(f64::total_cmp);
            writeln!(
                text,
                "| {provider} | {mode} | {} | {}, {} | {} | {} |",
                best.range(1.0),
                best.in_flight,
                buffer(best)?,
                percent(floor.map(|floor| best.value / floor)),
                percent(worst)
            )?;
            write!(tables, "\n{provider}, {mode}:\n\n{}", by_depth(&chosen)?)?;
            spreads.extend(chosen.iter().filter_map(|row| row.spread()));
        }
    }
    spreads.sort_by(f64::total_cmp);
    let middle = spreads.get(spreads.len() / 2).context("no row has a range")?;
    write!(
        text,
        "\nGB/s, medians of the rounds, and in brackets the part of the floor: as many bytes over a bare TCP \
         connection,\nor copied out of mapped memory, into one buffer of that size. Half of the points have rounds \
         that differ by at\nmost {:.0} % of their median.\n{tables}",
        middle * 100.0
    )?;
    Ok(Made { text, picture: None })
}

/// A row for each size of buffers, a column for each depth.
fn by_depth(rows: &[&Row]) -> anyhow::Result<String> {
    let depths: BTreeSet<u64> = rows.iter().map(|row| row.in_flight).collect();
    let sizes: BTreeSet<u64> = rows.iter().filter_map(|row| row.size).collect();
    let mut table = String::from("| buffer |");
    for depth in &depths {
        write!(table, " depth {depth} |")?;
    }
    writeln!(table, " floor |\n|---|---|{}", "---|".repeat(depths.len()))?;
    for size in sizes {
        let of_size: Vec<_> = rows.iter().filter(|row| row.size == Some(size)).collect();
        let first = of_size.first().context("a size without rows")?;
        write!(table, "| {} |", buffer(first)?)?;
        for depth in &depths {
            let row = of_size.iter().find(|row| row.in_flight == *depth);
            let row = row.with_context(|| format!("no row of depth {depth}"))?;
            write!(table, " {} ({}) |", number(row.value), percent(row.part()))?;
        }
        writeln!(table, " {} |", first.floor.map_or(String::new(), number))?;
    }
    Ok(table)
}

/// One server over TCP and libfabric with ever more clients.
pub(super) fn figure4(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    many_clients(&["tcp", "ofi"], "one server over TCP", extent, executables)
}

/// The same over shared memory.
pub(super) fn figure5(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    many_clients(&["shm"], "one server over shared memory", extent, executables)
}

fn many_clients(
    providers: &[&str],
    title: &str,
    extent: Extent,
    executables: &Executables,
) -> anyhow::Result<Made> {
    let mut text = machine()?;
    let rows = over_all(providers, "many_clients", extent, executables)?;
    let mut panels = [
        panel("a: written by all clients", Left::Rate),
        panel("b: millions of calls a second", Left::Count),
    ];
    for provider in names(&rows, |row| &row.provider) {
        let of = |mode: &str| -> Vec<&Row> {
            let is_wanted = |row: &&Row| row.provider == provider && row.mode == mode;
            rows.iter().filter(is_wanted).collect()
        };
        let (calls, writes) = (of("calls"), of("writes"));
        for (panel, rows, unit) in [(0, &writes, 1.0), (1, &calls, 1e6)] {
            let point = |row: &&Row, value: f64| (row.in_flight as f64, value / unit);
            panels[panel].lines.push(Line {
                name: provider.clone(),
                points: rows.iter().map(|row| point(row, row.value)).collect(),
            });
            let floors = rows.iter().filter_map(|row| Some(point(row, row.floor?)));
            panels[panel].lines.push(Line {
                name: format!("floor beside {provider}"),
                points: floors.collect(),
            });
        }
        write!(
            text,
            "{provider}:\n\n| clients | thousand calls/s | of the floor | slowest client | writes, GB/s | of the \
             floor | slowest client | server's memory | per client |\n|---|---|---|---|---|---|---|---|---|\n"
        )?;
        for (index, (calls, writes)) in calls.iter().zip(&writes).enumerate() {
            let single = |mode: &str| {
                let found = of(mode).get(index).map(|row| row.value);
                found.with_context(|| format!("no {mode} of {} clients", calls.in_flight))
            };
            writeln!(
                text,
                "| {} | {} | {} | {:.0} % | {} | {} | {:.0} % | {:.0} MiB | {:.0} KiB |",
                calls.in_flight,
                calls.range(1e3),
                percent(calls.part()),
                single("calls_slowest")?,
                writes.range(1.0),
                percent(writes.part()),
                single("writes_slowest")?,
                single("memory")?,
                single("memory_per_client")?
            )?;
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(Made {
        text,
        picture: Some(chart::draw(title, &panels, |clients| clients.to_string())),
    })
}

fn panel(title: &str, left: Left) -> Panel {
    Panel {
        title: title.to_owned(),
        below: "clients",
        is_logarithmic: true,
        left,
        lines: Vec::new(),
    }
}

/// Typed arguments beside raw bytes.
pub(super) fn encoding(extent: Extent, executables: &Executables) -> anyhow::Result<Made> {
    let mut text = machine()?;
    let rows = over_all(&["tcp", "shm", "ofi"], "encoding", extent, executables)?;
    text.push_str(
        "| transport | arguments | in memory | encoded | encode and decode | two copies of the bytes | call | call \
         with raw bytes |\n|---|---|---|---|---|---|---|---|\n",
    );
    for provider in names(&rows, |row| &row.provider) {
        for (kind, name) in [("arguments", "8 fields"), ("doubles", "1,024 doubles")] {
            let of = |part: &str| {
                let mode = format!("{kind}_{part}");
                let found = rows
                    .iter()
                    .find(|row| row.provider == provider && row.mode == mode);
                found.with_context(|| format!("no {mode} over {provider}"))
            };
            let (encoded, coding, call) = (of("encoded")?, of("coding")?, of("call")?);
            let floor = |row: &Row| row.floor.map_or(String::new(), number);
            writeln!(
                text,
                "| {provider} | {name} | {} B | {} B | {} us | {} us | {} us | {} us |",
                floor(encoded),
                number(encoded.value),
                coding.range(1.0),
                floor(coding),
                call.range(1.0),
                floor(call)
            )?;
        }
    }
    Ok(Made { text, picture: None })
}

/// The rows of the case over each transport. One of libfabric's that is not there is left out.
fn over_all(
    providers: &[&str],
    case: &str,
    extent: Extent,
    executables: &Executables,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for provider in providers {
        let mut words = vec!["--case", case, "--provider", provider];
        if extent == Extent::Quick {
            words.push("--quick");
        }
        match executables.bench_rpc::<Row>(&words) {
            Ok(measured) => rows.extend(measured),
            Err(error) if *provider == "ofi" => eprintln!("libfabric is left out: {error:#}"),
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

impl Row {
    /// Its part of the floor.
    fn part(&self) -> Option<f64> {
        self.floor
            .filter(|floor| *floor > 0.0)
            .map(|floor| self.value / floor)
    }

    /// By how much its rounds differ, as a part of their median.
    fn spread(&self) -> Option<f64> {
        Some((self.most? - self.least?) / self.value)
    }

    /// The median, and in brackets the least and most of the rounds.
    fn range(&self, unit: f64) -> String {
        let value = number(self.value / unit);
        match (self.least, self.most) {
            (Some(least), Some(most)) => {
                format!("{value} ({} to {})", number(least / unit), number(most / unit))
            }
            _ => value,
        }
    }
}

/// Each name once, in the order in which they come.
fn names(rows: &[Row], name: fn(&Row) -> &String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(name(row)) {
            names.push(name(row).clone());
        }
    }
    names
}

fn machine() -> anyhow::Result<String> {
    let processors = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let mut models = processors
        .lines()
        .filter_map(|line| line.strip_prefix("model name\t: "));
    let model = models.next().unwrap_or("a processor without a name");
    let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("unknown");
    Ok(format!(
        "{} x {model}, load average {load} at the start.\n\n",
        models.count() + 1
    ))
}

fn buffer(row: &Row) -> anyhow::Result<String> {
    Ok(length(row.size.context("a row without a size")? as f64))
}

fn percent(part: Option<f64>) -> String {
    part.map_or(String::new(), |part| format!("{:.0} %", part * 100.0))
}

/// Three digits.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(in_flight: u64, value: f64) -> Row {
        Row {
            provider: "tcp".to_owned(),
            mode: "contiguous".to_owned(),
            size: Some(64 << 10),
            in_flight,
            value,
            least: Some(value / 2.0),
            most: Some(value * 2.0),
            floor: Some(4.0),
        }
    }

    /// A column for each depth, with the part of the floor.
    #[test]
    fn depths_are_columns() {
        let rows = [row(1, 2.0), row(4, 3.0)];
        let table = by_depth(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(
            table,
            "| buffer | depth 1 | depth 4 | floor |\n|---|---|---|---|\n| 64 KiB | 2.00 (50 %) | 3.00 (75 %) | 4.00 |\n"
        );
        assert_eq!(rows[0].range(1.0), "2.00 (1.00 to 4.00)");
    }
}
