//! Collective calls of the ranks of one host beside those of MPI.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::{
    debian, project,
    shell::{cargo, output, program, run},
};

/// Measures, and writes the table of `docs/benchmarks_of_reductions.md` anew.
///
/// # Errors
/// If something cannot be built or run, or a result is wrong.
pub(crate) fn bench_reduce() -> anyhow::Result<()> {
    debian::provide()?;
    let bench = Bench::build()?;
    let machine = machine()?;
    let mut rows = Vec::new();
    for ranks in RANKS {
        for call in CALLS {
            eprintln!("==> {call} on {ranks} ranks");
            rows.push(Row {
                ranks,
                call,
                times: bench.measure(ranks, call)?,
            });
        }
    }
    let table = table(&rows)?;
    println!("{table}");
    let path = project::root().join("docs/benchmarks_of_reductions.md");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let section = format!("{table}\n{machine}\n");
    fs::write(&path, replace_section(&page, &section)?)?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Ropewalk,
    OpenMpi,
    Mpich,
}

/// A way to run a program of theirs or ours. The better one of each counts.
struct Way {
    who: Who,
    /// The words before `-n RANKS`.
    command: &'static [&'static str],
    /// With the preloaded library that lets ranks wait instead of spin.
    short_waits: bool,
}

const OPEN_MPI: &[&str] = &[
    "mpirun.openmpi",
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
];
const OPEN_MPI_YIELDS: &[&str] = &[
    "mpirun.openmpi",
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
];
const MPICH: &[&str] = &["mpiexec.hydra", "-disable-auto-cleanup"];

const WAYS: [Way; 5] = [
    Way {
        who: Who::Ropewalk,
        command: &[],
        short_waits: false,
    },
    Way {
        who: Who::OpenMpi,
        command: OPEN_MPI,
        short_waits: false,
    },
    Way {
        who: Who::OpenMpi,
        command: OPEN_MPI_YIELDS,
        short_waits: false,
    },
    Way {
        who: Who::Mpich,
        command: MPICH,
        short_waits: false,
    },
    Way {
        who: Who::Mpich,
        command: MPICH,
        short_waits: true,
    },
];

/// The medians of one call, in nanoseconds: the best of each contestant. One that did not end in time has none.
struct Row {
    ranks: u32,
    call: &'static str,
    times: Vec<(Who, BTreeMap<u64, u64>)>,
}

struct Bench {
    ropewalk: PathBuf,
    open_mpi: PathBuf,
    mpich: PathBuf,
    short_waits: PathBuf,
}

impl Bench {
    fn build() -> anyhow::Result<Self> {
        run(cargo(&["build", "--release", "--locked", "-p", "ropewalk-cli"]))?;
        let target = project::target()?;
        let folder = target.join("bench-reduce");
        fs::create_dir_all(&folder)?;
        let bench = Self {
            ropewalk: target.join("release/ropewalk"),
            open_mpi: folder.join("open_mpi"),
            mpich: folder.join("mpich"),
            short_waits: folder.join("short_waits.so"),
        };
        let program = ["-O2", "-DDOUBLES"];
        let library = ["-O2", "-shared", "-fPIC"];
        for (compiler, flags, source, target) in [
            ("mpicc.openmpi", &program[..], "mpi_collective.c", &bench.open_mpi),
            ("mpicc.mpich", &program[..], "mpi_collective.c", &bench.mpich),
            ("gcc", &library[..], "short_waits.c", &bench.short_waits),
        ] {
            run(compile(compiler, flags, source, target))?;
        }
        Ok(bench)
    }

    /// Runs all contestants, one after the other.
    fn measure(&self, ranks: u32, call: &str) -> anyhow::Result<Vec<(Who, BTreeMap<u64, u64>)>> {
        let mut times = vec![
            (Who::Ropewalk, BTreeMap::new()),
            (Who::OpenMpi, BTreeMap::new()),
            (Who::Mpich, BTreeMap::new()),
        ];
        for (way, (rounds, sizes)) in WAYS.iter().flat_map(|way| SIZES.map(|sizes| (way, sizes))) {
            let text = output(self.command(way, ranks, call, rounds, sizes));
            let measured = match (&text, way.who) {
                (Ok(text), Who::Ropewalk) => parse_rows(text, sizes)?,
                (Ok(text), _) => parse_lines(text, sizes)?,
                (Err(error), Who::Ropewalk) => bail!("ropewalk failed: {error:#}"),
                // Ranks that spin may take minutes where processors are few.
                (Err(error), _) => {
                    eprintln!("{call} on {ranks} ranks: {error:#}");
                    continue;
                }
            };
            for (_, best) in times.iter_mut().filter(|(who, _)| *who == way.who) {
                for (&size, &time) in &measured {
                    let least = best.get(&size).map_or(time, |&best: &u64| best.min(time));
                    best.insert(size, least);
                }
            }
        }
        Ok(times)
    }

    fn command(&self, way: &Way, ranks: u32, call: &str, rounds: &str, sizes: &[u64]) -> Command {
        // Everything runs under a limit of time: MPI ranks that wait for each other do so for ever.
        let mut command = program("timeout", &[TIME_MAX_SECONDS]);
        let sizes: Vec<_> = sizes.iter().map(u64::to_string).collect();
        let ranks = ranks.to_string();
        let theirs = match way.who {
            Who::Ropewalk => {
                command.arg(&self.ropewalk).args(["bench", "reduce", "--json"]);
                command.args(["-n", &ranks, "--rounds", rounds, "--calls", call, "--bytes"]);
                command.arg(sizes.join(","));
                return command;
            }
            Who::OpenMpi => &self.open_mpi,
            Who::Mpich => &self.mpich,
        };
        command.args(way.command).args(["-n", &ranks]);
        if way.short_waits {
            command.args(["-env", "LD_PRELOAD"]).arg(&self.short_waits);
        }
        command.arg(theirs).args(["--rounds", rounds, call]).args(sizes);
        command
    }
}

/// The command that compiles a source of `benches/reduce_vs_mpi`.
pub(crate) fn compile(compiler: &str, flags: &[&str], source: &str, target: &Path) -> Command {
    let mut command = program(compiler, flags);
    command
        .arg("-o")
        .arg(target)
        .arg(Path::new("benches/reduce_vs_mpi").join(source));
    command
}

/// Reads one `SIZE NANOSECONDS` for each size.
fn parse_lines(text: &str, sizes: &[u64]) -> anyhow::Result<BTreeMap<u64, u64>> {
    let mut times = BTreeMap::<u64, Vec<u64>>::new();
    for line in text.lines() {
        let numbers = line.split_once(' ');
        let numbers =
            numbers.and_then(|(size, nanoseconds)| Some((size.parse().ok()?, nanoseconds.parse().ok()?)));
        let (size, nanoseconds) =
            numbers.with_context(|| format!("expected a size and a time, got {line:?}"))?;
        times.entry(size).or_default().push(nanoseconds);
    }
    let medians = times.into_iter().map(|(size, mut times)| {
        times.sort_unstable();
        (size, times[times.len() / 2])
    });
    whole(Some(medians.collect()), text, sizes)
}

/// Reads one JSON object of `ropewalk bench reduce` for each size.
fn parse_rows(text: &str, sizes: &[u64]) -> anyhow::Result<BTreeMap<u64, u64>> {
    let lines = text.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).ok()?;
        let seconds = row["median_s"].as_f64()?;
        Some((row["bytes"].as_u64()?, (seconds * 1e9) as u64))
    });
    whole(lines.collect(), text, sizes)
}

fn whole(times: Option<BTreeMap<u64, u64>>, text: &str, sizes: &[u64]) -> anyhow::Result<BTreeMap<u64, u64>> {
    match times {
        Some(times) if times.keys().eq(sizes) => Ok(times),
        _ => bail!("expected a time for each of {sizes:?}, got {text:?}"),
    }
}

fn table(rows: &[Row]) -> anyhow::Result<String> {
    let mut table = String::from("| ranks, call | |");
    let sizes = || SIZES.into_iter().flat_map(|(_, sizes)| sizes.iter().copied());
    for size in sizes() {
        write!(table, " {} |", size_text(size))?;
    }
    write!(table, "\n|---|---|{}\n", "---|".repeat(sizes().count()))?;
    for row in rows {
        for (who, times) in &row.times {
            match who {
                Who::Ropewalk => write!(table, "| {}, {} | ropewalk |", row.ranks, row.call)?,
                Who::OpenMpi => write!(table, "| | Open MPI |")?,
                Who::Mpich => write!(table, "| | MPICH |")?,
            }
            for size in sizes() {
                let others = row.times.iter().filter(|(other, _)| other != who);
                let is_best = |time: u64| {
                    let mut others = others.filter_map(|(_, times)| times.get(&size));
                    others.all(|&other| time <= other)
                };
                match times.get(&size) {
                    Some(&time) if is_best(time) => write!(table, " **{}** |", time_text(time))?,
                    Some(&time) => write!(table, " {} |", time_text(time))?,
                    None => write!(table, " |")?,
                }
            }
            table.push('\n');
        }
    }
    Ok(table)
}

fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn time_text(nanoseconds: u64) -> String {
    let microseconds = nanoseconds as f64 / 1e3;
    match nanoseconds {
        0..10_000 => format!("{microseconds:.1} us"),
        10_000..1_000_000 => format!("{microseconds:.0} us"),
        1_000_000..100_000_000 => format!("{:.1} ms", microseconds / 1e3),
        _ => format!("{:.0} ms", microseconds / 1e3),
    }
}

/// The machine on which the times are measured, and how busy it is.
fn machine() -> anyhow::Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let models: Vec<_> = cpus
        .lines()
        .filter_map(|line| line.strip_prefix("model name\t: "))
        .collect();
    let kernel = output(program("uname", &["-sr"]))?;
    let mpich = output(program("mpichversion", &["--version"]))?;
    let mpich = mpich
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().last())
        .unwrap_or("of unknown version");
    let open_mpi = output(program("mpirun.openmpi", &["--version"]))?;
    let open_mpi = open_mpi
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().last())
        .unwrap_or("of unknown version");
    let load = fs::read_to_string("/proc/loadavg")?;
    let date = output(program("date", &["--iso-8601"]))?;
    Ok(format!(
        "Measured on {}, on {} x {}, {}, with Open MPI {open_mpi} and MPICH {mpich};\nload average at the start {}.",
        date.trim(),
        models.len(),
        models.first().unwrap_or(&"a processor without a name"),
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
    ))
}

fn replace_section(page: &str, section: &str) -> anyhow::Result<String> {
    let parts = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!(
            "docs/benchmarks_of_reductions.md lacks the lines {BEGIN:?} and {END:?}, between which the table goes"
        );
    };
    Ok(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

const BEGIN: &str = "<!-- written by cargo xtask bench-reduce -->";
const END: &str = "<!-- end -->";
const RANKS: [u32; 3] = [2, 4, 8];
const CALLS: [&str; 3] = ["reduce", "allreduce", "broadcast"];
/// The numbers of rounds for these lengths. The first rounds of short calls find ranks that still sleep.
const SIZES: [(&str, &[u64]); 2] = [
    ("101", &[64, 1 << 10, 8 << 10, 64 << 10]),
    ("9", &[1 << 20, 8 << 20, 64 << 20]),
];
const TIME_MAX_SECONDS: &str = "60";

#[cfg(test)]
mod tests {
    use super::*;

    /// A time for each size is read; output that lacks one, or says something else, is an error.
    #[test]
    fn reads_times() {
        let sizes = [64, 1024];
        let lines = "64 128\n1024 2048\n";
        assert_eq!(parse_lines(lines, &sizes).unwrap()[&64], 128);
        assert!(parse_lines("64 5\n", &sizes).is_err());
        assert!(parse_lines(&lines.replace("128", "x"), &sizes).is_err());
        let rows = sizes
            .map(|size| format!("{{\"bytes\": {size}, \"median_s\": 0.5}}\n"))
            .concat();
        assert_eq!(parse_rows(&rows, &sizes).unwrap()[&64], 500_000_000);
        assert!(parse_rows(&rows.replace("median_s", "mean"), &sizes).is_err());
    }

    /// The shortest time of a column is set off, and who did not end in time has none.
    #[test]
    fn a_table_sets_off_the_best() {
        let times = |time| [(64, time), (1024, time)].into();
        let rows = [Row {
            ranks: 2,
            call: "reduce",
            times: vec![
                (Who::Ropewalk, times(1_500)),
                (Who::OpenMpi, times(2_000_000)),
                (Who::Mpich, BTreeMap::new()),
            ],
        }];
        let table = table(&rows).unwrap();
        assert!(table.contains("| 2, reduce | ropewalk | **1.5 us** |"), "{table}");
        assert!(table.contains("| | Open MPI | 2.0 ms |"), "{table}");
        assert!(table.contains("| | MPICH | | |"), "{table}");
    }

    /// Only what stands between the marks is replaced.
    #[test]
    fn replaces_its_section() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let expected = format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n");
        assert_eq!(replace_section(&page, "new\n").unwrap(), expected);
        assert!(replace_section("a\n", "new\n").is_err());
    }
}
