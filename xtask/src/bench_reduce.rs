//! The reduction beside MPI's, measured in turns on this machine.

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

/// Measures, and writes the table of `docs/benchmarks.md` anew.
///
/// # Errors
/// If something cannot be built or run, or a result is wrong.
pub(crate) fn bench_reduce() -> anyhow::Result<()> {
    debian::provide()?;
    let bench = Bench::build()?;
    let machine = machine()?;
    let mut times: BTreeMap<(u64, usize), Vec<u64>> = BTreeMap::new();
    for round in 1..=ROUNDS {
        eprintln!("==> round {round} of {ROUNDS}");
        for (at, contestant) in CONTESTANTS.iter().enumerate() {
            let text =
                output(bench.command(contestant)).with_context(|| format!("{} failed", contestant.name))?;
            for (size, nanoseconds) in parse(&text)? {
                times.entry((size, at)).or_default().push(nanoseconds);
            }
        }
    }
    let table = table(&times)?;
    println!("{table}");
    let path = project::root().join("docs/benchmarks.md");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let section = format!("{table}\n{machine}\n");
    fs::write(&path, replace_section(&page, &section)?)?;
    Ok(())
}

struct Contestant {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// Ours, with this first argument.
    Ropewalk(&'static str),
    /// MPICH's, with or without the preloaded library that lets ranks wait instead of spin.
    Mpich { short_waits: bool },
}

const CONTESTANTS: &[Contestant] = &[
    Contestant {
        name: "ropewalk, any order",
        kind: Kind::Ropewalk("any"),
    },
    Contestant {
        name: "ropewalk, ordered",
        kind: Kind::Ropewalk("ordered"),
    },
    Contestant {
        name: "MPICH",
        kind: Kind::Mpich { short_waits: false },
    },
    Contestant {
        name: "MPICH, short waits",
        kind: Kind::Mpich { short_waits: true },
    },
];

struct Bench {
    ropewalk: PathBuf,
    ours: PathBuf,
    mpi: PathBuf,
    short_waits: PathBuf,
}

impl Bench {
    fn build() -> anyhow::Result<Self> {
        let words = "build --release --locked -p ropewalk-cli -p reduce-vs-mpi";
        run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
        let target = project::target()?;
        let folder = target.join("bench-reduce");
        fs::create_dir_all(&folder)?;
        let (mpi, short_waits) = (folder.join("mpi_collective"), folder.join("short_waits.so"));
        run(compile("mpicc.mpich", &["-O2"], "mpi_collective.c", &mpi))?;
        run(compile(
            "gcc",
            &["-O2", "-shared", "-fPIC"],
            "short_waits.c",
            &short_waits,
        ))?;
        let release = target.join("release");
        Ok(Self {
            ropewalk: release.join("ropewalk"),
            ours: release.join("reduce-vs-mpi"),
            mpi,
            short_waits,
        })
    }

    fn command(&self, contestant: &Contestant) -> Command {
        // Everything runs under a limit of time: MPI ranks that wait for each other do so for ever.
        let mut command = program("timeout", &[TIME_MAX_SECONDS]);
        match contestant.kind {
            Kind::Ropewalk(order) => {
                command.arg(&self.ropewalk).args(["run", "-n", RANKS]);
                command.arg(&self.ours).arg(order);
            }
            Kind::Mpich { short_waits } => {
                command.args(["mpiexec.hydra", "-disable-auto-cleanup", "-n", RANKS]);
                if short_waits {
                    command.args(["-env", "LD_PRELOAD"]).arg(&self.short_waits);
                }
                command.arg(&self.mpi);
            }
        }
        command.args(SIZES.map(|size| size.to_string()));
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
fn parse(text: &str) -> anyhow::Result<Vec<(u64, u64)>> {
    let lines = text.lines().map(|line| {
        let (size, nanoseconds) = line.split_once(' ')?;
        Some((size.parse().ok()?, nanoseconds.parse().ok()?))
    });
    match lines.collect::<Option<Vec<_>>>() {
        Some(lines) if lines.iter().map(|line| line.0).eq(SIZES) => Ok(lines),
        _ => bail!("expected a time for each of {SIZES:?}, got {text:?}"),
    }
}

fn table(times: &BTreeMap<(u64, usize), Vec<u64>>) -> anyhow::Result<String> {
    let mut table = String::from("| vector |");
    for contestant in CONTESTANTS {
        write!(table, " {} |", contestant.name)?;
    }
    write!(table, "\n|---|{}\n", "---|".repeat(CONTESTANTS.len()))?;
    for size in SIZES {
        write!(table, "| {} MiB |", size >> 20)?;
        for at in 0..CONTESTANTS.len() {
            let mut times = times[&(size, at)].clone();
            times.sort_unstable();
            let milliseconds = |at: usize| times[at] as f64 / 1e6;
            let (least, median, most) = (
                milliseconds(0),
                milliseconds(times.len() / 2),
                milliseconds(times.len() - 1),
            );
            write!(table, " **{median:.1} ms** ({least:.1} to {most:.1}) |")?;
        }
        table.push('\n');
    }
    Ok(table)
}

/// What the times are measured on, and how busy that is.
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
    let load = fs::read_to_string("/proc/loadavg")?;
    let date = output(program("date", &["--iso-8601"]))?;
    Ok(format!(
        "Measured on {}, on {} x {}, {}, with MPICH {mpich}; load average at the start {}.",
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
        bail!("docs/benchmarks.md lacks the lines {BEGIN:?} and {END:?}, between which the table goes");
    };
    Ok(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

const BEGIN: &str = "<!-- written by cargo xtask bench-reduce -->";
const END: &str = "<!-- end -->";
const RANKS: &str = "4";
const ROUNDS: usize = 9;
const SIZES: [u64; 3] = [1 << 20, 4 << 20, 16 << 20];
const TIME_MAX_SECONDS: &str = "60";

#[cfg(test)]
mod tests {
    use super::*;

    /// A time for each size is read; output that lacks one, or says something else, is an error.
    #[test]
    fn reads_times() {
        let text = "1048576 5\n4194304 6\n16777216 7\n";
        assert_eq!(parse(text).unwrap(), [(1 << 20, 5), (4 << 20, 6), (16 << 20, 7)]);
        assert!(parse("1048576 5\n").is_err());
        assert!(parse(&text.replace('6', "x")).is_err());
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
