//! Programs of MPI libraries in every way that users start them.

mod flavour;
mod outcome;
mod page;
mod way;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use ropewalk_rig::Network;

use self::{
    flavour::{FLAVOURS, Flavour, Programs},
    outcome::{Ended, Outcome},
    way::Way,
};
use crate::{book, debian, project};

/// Which libraries are tried.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only the libraries that Debian has, without the pools of mpi4py; the page stays as it is
    #[arg(long)]
    short: bool,
    /// Where `ropewalk` is, if it is not to be built
    #[arg(long)]
    built: Option<PathBuf>,
}

impl Options {
    /// The options for the libraries of Debian, which take half a minute.
    pub(crate) fn short() -> Self {
        Self {
            short: true,
            built: None,
        }
    }
}

/// Starts all programs, and writes the page of the book.
///
/// # Errors
/// If a cell is wrong, or something cannot be installed, compiled or started. It takes root, for the hosts.
pub(crate) fn flavours(options: &Options) -> anyhow::Result<()> {
    debian::provide()?;
    let built = match &options.built {
        Some(built) => std::path::absolute(built)?,
        None => project::build()?,
    };
    let trial = Trial {
        ropewalk: built.join("ropewalk"),
        network: Network::new(HOSTS, MBIT)?,
        folder: tempfile::tempdir()?,
    };
    let mut rows = Vec::new();
    for flavour in FLAVOURS {
        if options.short && !flavour.is_of_debian() {
            continue;
        }
        // Where a library cannot spawn, a pool waits for ever.
        let ways = Way::ALL
            .into_iter()
            .filter(|&way| !(options.short && way == Way::Pool));
        rows.push(trial.row(flavour, ways)?);
    }
    if !options.short {
        let path = project::root().join(book::PAGES).join("reference/flavours.md");
        fs::write(&path, page::page(&rows)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let wrong = rows.iter().flat_map(Row::wrong).collect::<Vec<_>>();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A library and its cells.
struct Row {
    flavour: Flavour,
    cells: Vec<(Way, Outcome)>,
}

impl Row {
    /// A line for each cell that is wrong.
    fn wrong(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter_map(|(way, outcome)| match outcome {
            Outcome::Wrong(why) => Some(format!("{}, {}: {why}", self.flavour.name, way.name())),
            _ => None,
        })
    }
}

/// The command and the hosts that it starts programs on.
struct Trial {
    ropewalk: PathBuf,
    network: Network,
    folder: tempfile::TempDir,
}

impl Trial {
    fn row(&self, flavour: Flavour, ways: impl Iterator<Item = Way>) -> anyhow::Result<Row> {
        let programs = flavour.provide()?;
        let mut cells = Vec::new();
        for way in ways {
            let under_ours = self.execute(&self.ours(way), &flavour, &programs, way)?;
            let outcome = Outcome::judge(way, flavour.version, &under_ours, || {
                self.execute(&self.theirs(way, &programs), &flavour, &programs, way)
            })?;
            println!("{}, {}: {outcome:?}", flavour.name, way.name());
            cells.push((way, outcome));
        }
        Ok(Row { flavour, cells })
    }

    /// The words by which ropewalk starts a job.
    fn ours(&self, way: Way) -> Vec<String> {
        let ropewalk = [self.ropewalk.to_string_lossy().into_owned(), "run".to_owned()];
        match way {
            Way::TwoHosts => {
                let command = self.network.command().to_string_lossy().into_owned();
                let hosts = self.network.hosts_with_ranks(RANKS_PER_HOST);
                let options = ["-launcher-exec".to_owned(), command, "-hosts".to_owned(), hosts];
                [self.on_first_host(), ropewalk.to_vec(), options.to_vec()].concat()
            }
            _ => ropewalk.to_vec(),
        }
    }

    /// The words by which the library's own launcher starts a job. A job of several hosts has one host there: it is
    /// compared only to tell whose failure it is.
    fn theirs(&self, way: Way, programs: &Programs) -> Vec<String> {
        match way {
            Way::TwoHosts => [self.on_first_host(), programs.launcher().to_vec()].concat(),
            _ => programs.launcher().to_vec(),
        }
    }

    fn on_first_host(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.network.namespace(0)]
            .map(str::to_owned)
            .to_vec()
    }

    /// Runs a job to its end. timeout(1) ends it in time, with all its processes.
    fn execute(
        &self,
        launcher: &[String],
        flavour: &Flavour,
        programs: &Programs,
        way: Way,
    ) -> anyhow::Result<Ended> {
        let (stdout, stderr) = (
            self.folder.path().join("stdout"),
            self.folder.path().join("stderr"),
        );
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after", "5", SECONDS_MAX])
            .args(launcher)
            .args(["-n", &way.ranks().to_string()])
            .args(programs.words(way))
            .envs(programs.variables().iter().map(|(name, value)| (name, value)))
            .envs(flavour.settings(way).map(|setting| (setting.name, setting.value)))
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        let status = command
            .status()
            .context("cannot start timeout, which is of the package coreutils")?;
        Ok(Ended {
            code: status.code(),
            stdout: read(&stdout)?,
            stderr: read(&stderr)?,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

const HOSTS: u8 = 2;
const RANKS_PER_HOST: u16 = 2;
const MBIT: u32 = 400;
/// A job takes some seconds.
const SECONDS_MAX: &str = "40";
