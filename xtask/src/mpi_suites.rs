//! The test suites of MPI libraries, under our launcher and under those of the libraries.

mod mpich;
mod open_mpi;
mod page;
mod part;
mod result;
mod sources;

use std::{fs, path::PathBuf};

use anyhow::{Context, bail, ensure};

use self::{
    mpich::Mpich,
    open_mpi::OpenMpi,
    part::{Part, Suite},
    result::{Compared, Test},
};
use crate::{book, debian, project};

/// The parts of the suites that are run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rows of the table, as `coll` or `open-mpi`; by default all
    parts: Vec<String>,
    /// Seconds that a test may take, if the suite grants it no more
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Runs tests under the libraries' own launchers again, instead of taking their results of an earlier run
    #[arg(long)]
    fresh: bool,
    /// Runs nothing: compares the results of earlier runs
    #[arg(long, conflicts_with = "fresh")]
    kept: bool,
    /// Where `ropewalk` is, if it is not to be built
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Runs the tests, prints the differences, and writes the page of the book with the kept results of all parts.
///
/// # Errors
/// If a test passes only under the library's own launcher and the page has no reason for it, or a suite cannot be had
/// or compiled.
pub(crate) fn mpi_suites(options: &Options) -> anyhow::Result<()> {
    let folder = project::target()?.join("mpi-suites");
    let chosen = chosen(&options.parts)?;
    if !options.kept {
        let bench = Bench::provide(options, folder.clone())?;
        for part in &chosen {
            bench.run(part, options)?;
        }
    }
    for part in &chosen {
        println!("{}", Compared::load(&folder, part)?);
    }
    let all: Vec<_> = part::PARTS
        .iter()
        .filter_map(|part| Compared::load(&folder, part).ok())
        .collect();
    let path = project::root().join(book::PAGES).join("reference/suites.md");
    fs::write(&path, page::page(&all)).with_context(|| format!("cannot write {}", path.display()))?;
    let worse: Vec<_> = all.iter().flat_map(page::unexplained).collect();
    ensure!(
        worse.is_empty(),
        "these pass only under the library's own launcher: {}",
        worse.join(", ")
    );
    Ok(())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Part>> {
    if names.is_empty() {
        return Ok(part::PARTS.to_vec());
    }
    let known = |name: &String| part::PARTS.iter().find(|part| part.name() == *name).copied();
    let mut chosen = Vec::new();
    for name in names {
        match known(name) {
            Some(part) => chosen.push(part),
            None => {
                let names: Vec<_> = part::PARTS.iter().map(Part::name).collect();
                bail!("there is no part {name}: the parts are {}", names.join(", "))
            }
        }
    }
    Ok(chosen)
}

/// The suites, compiled, and the command.
struct Bench {
    folder: PathBuf,
    ropewalk: PathBuf,
    mpich: Mpich,
    open_mpi: OpenMpi,
}

impl Bench {
    fn provide(options: &Options, folder: PathBuf) -> anyhow::Result<Self> {
        debian::provide_suites()?;
        let built = match &options.built {
            Some(built) => std::path::absolute(built)?,
            None => project::build()?,
        };
        fs::create_dir_all(&folder)?;
        Ok(Self {
            mpich: Mpich::provide(&folder)?,
            open_mpi: OpenMpi::provide(&folder)?,
            ropewalk: built.join("ropewalk"),
            folder,
        })
    }

    /// Runs a part under both launchers and keeps the results; those of the library's launcher only if there are none.
    fn run(&self, part: &Part, options: &Options) -> anyhow::Result<()> {
        if options.fresh || !result::path(&self.folder, part, THEIRS).exists() {
            let tests = self.test(part, &self.launcher(part.suite), options.seconds)?;
            result::keep(&self.folder, part, THEIRS, &tests)?;
        }
        let ours = format!("{} run", self.ropewalk.display());
        let tests = self.test(part, &ours, options.seconds)?;
        result::keep(&self.folder, part, OURS, &tests)
    }

    /// The library's own launcher.
    fn launcher(&self, suite: Suite) -> String {
        match suite {
            Suite::Mpich | Suite::MpichWheel => self.mpich.launcher(suite),
            Suite::OpenMpi => "mpirun.openmpi --allow-run-as-root --oversubscribe".to_owned(),
        }
    }

    fn test(&self, part: &Part, launcher: &str, seconds: u32) -> anyhow::Result<Vec<Test>> {
        eprintln!("==> {} under {launcher}", part.name());
        match part.suite {
            Suite::Mpich | Suite::MpichWheel => self.mpich.test(part, launcher, seconds),
            Suite::OpenMpi => self.open_mpi.test(launcher, seconds),
        }
    }
}

const OURS: &str = "ropewalk";
const THEIRS: &str = "theirs";
