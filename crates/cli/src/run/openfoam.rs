//! Jobs of OpenFOAM: before each attempt the case is prepared.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, bail};
use ropewalk_checkpoint::{Mtbf, START_VARIABLE};
use ropewalk_launch::{
    JobEvent, JobSpec, Launcher,
    restart::{Attempt, BetweenAttempts, Progress, Refusal},
};
use ropewalk_openfoam::{Case, CaseOptions, Loading, QUARANTINE_MAX, find_library};

use super::{
    checkpoints::{CheckpointOptions, Checkpoints},
    say,
};
use crate::watcher::Watcher;

/// The supervisor of a job's checkpoints that also prepares the case.
#[derive(Debug)]
pub(super) struct CaseKeeper {
    checkpoints: Checkpoints,
    root: PathBuf,
    options: CaseOptions,
}

impl CaseKeeper {
    /// Looks whether the job is one of OpenFOAM that can be saved.
    pub(super) fn new(
        checkpoints: Checkpoints,
        told: &CheckpointOptions,
        spec: &JobSpec,
    ) -> anyhow::Result<Self> {
        if !spec.more.is_empty() {
            bail!("--adapter openfoam is for one program, not for several in one job");
        }
        let is_parallel = spec
            .first
            .arguments
            .iter()
            .any(|argument| argument == "-parallel");
        if !is_parallel && spec.first.ranks > 1 {
            bail!(
                "{} ranks would all compute the same case: add -parallel to the solver's arguments, or leave out -n",
                spec.first.ranks
            );
        }
        if spec
            .first
            .arguments
            .iter()
            .any(|argument| argument == "-noFunctionObjects")
        {
            bail!("with -noFunctionObjects nothing would be saved: leave it out, or --adapter openfoam");
        }
        let executable = env::current_exe().context("cannot find my own executable")?;
        let root = folder(spec)?;
        let directory = told
            .directory
            .canonicalize()
            .with_context(|| format!("cannot find {}", told.directory.display()))?;
        let options = CaseOptions {
            parallel: is_parallel.then_some(spec.first.ranks),
            directory: Some(directory),
            // A guess comes with the environment.
            mtbf: match told.mtbf {
                Some(Mtbf::Known(mtbf)) => Some(mtbf),
                _ => None,
            },
            ..CaseOptions::new(find_library(&executable)?)
        };
        // Before anybody looks whether the saves are whole.
        Case::open(&root, options.clone())?.unpark()?;
        Ok(Self {
            checkpoints,
            root,
            options,
        })
    }

    /// The case, to be tidied up when the job is over.
    pub(super) fn case(&self) -> anyhow::Result<Case> {
        Ok(Case::open(&self.root, self.options.clone())?)
    }
}

impl BetweenAttempts for CaseKeeper {
    fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), Refusal> {
        self.checkpoints.prepare(number, last, spec)?;
        let start = spec
            .environment
            .variables
            .iter()
            .find(|(name, _)| name == START_VARIABLE);
        // The start is one, and counted once.
        self.options.start = start.and_then(|(_, start)| start.to_str()?.parse().ok());
        let prepared = Case::open(&self.root, self.options.clone()).and_then(|case| case.prepare())?;
        for path in &prepared.quarantined {
            say(&format!("put aside in {}", path.display()));
        }
        if prepared.dropped > 0 {
            say(&format!(
                "removed {} older things that were put aside: the newest {QUARANTINE_MAX} of each rank stay",
                prepared.dropped
            ));
        }
        say(&format!("the case begins at time {}", prepared.begin.name()));
        if is_crowded(spec) && !is_set(spec, YIELD) {
            // Ranks that wait for each other must not keep each other from running.
            spec.environment.variables.push((YIELD.into(), "1".into()));
        }
        for (name, value) in prepared.environment {
            spec.environment.variables.push((name.into(), value.into()));
        }
        Ok(())
    }

    fn progress(&mut self, attempt: &Attempt) -> Progress {
        self.checkpoints.progress(attempt)
    }
}

/// Returns true if ranks share cores, as far as that can be known from here.
fn is_crowded(spec: &JobSpec) -> bool {
    let room = match &spec.hosts[..] {
        [] => thread::available_parallelism().map_or(u64::MAX, |cores| cores.get() as u64),
        hosts => hosts.iter().map(|host| u64::from(host.slots)).sum(),
    };
    u64::from(spec.first.ranks) > room
}

/// Returns true if somebody has set a variable of the ranks. Such a value is not overruled.
fn is_set(spec: &JobSpec, name: &str) -> bool {
    env::var_os(name).is_some() || spec.environment.variables.iter().any(|(set, _)| set == name)
}

/// The variable that makes Open MPI give way while a message is awaited.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// The folder of the case: the one after `-case`, or where the job runs.
pub(super) fn folder(spec: &JobSpec) -> anyhow::Result<PathBuf> {
    let working = match &spec.first.working_directory {
        Some(directory) => directory.clone(),
        None => env::current_dir().context("cannot find the working directory")?,
    };
    let words = &spec.first.arguments;
    let given = words.iter().position(|word| word == OsStr::new("-case"));
    let given = given.and_then(|at| words.get(at + 1)).map(Path::new);
    Ok(given.map_or(working.clone(), |case| working.join(case)))
}

/// Ends a job whose solver does not load the function object.
impl Watcher for Loading {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Output { rank, line, .. } if rank.0 == 0 && self.is_missing_at(line) => {
                say(NOT_LOADED);
                Ok(launcher.interrupt(SIGTERM)?)
            }
            _ => Ok(()),
        }
    }
}

const SIGTERM: i32 = 15;

/// A run that is not saved is not what was asked for.
const NOT_LOADED: &str = "OpenFOAM has not loaded the function object that saves, and would go on without: \
     the job is ended. Its output says why, above; the library has to be built for this OpenFOAM \
     (`ropewalk openfoam build`)";
