//! Running OpenFOAM's programs, and killing them.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_openfoam::{Case, CaseOptions, Prepared, project_directory};

/// How a solver is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Serial,
    /// Two ranks, each with files of its own.
    Parallel,
    /// Two ranks, whose files are written together.
    Collated,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Serial, Self::Parallel, Self::Collated];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Parallel => "2 ranks",
            Self::Collated => "collated",
        }
    }

    pub(super) fn ranks(self) -> Option<u32> {
        (self != Self::Serial).then_some(RANKS)
    }

    /// Where the files of a time are, below the case.
    pub(super) fn places(self) -> &'static [&'static str] {
        match self {
            Self::Serial => &[""],
            Self::Parallel => &["processor0", "processor1"],
            Self::Collated => &["processors2"],
        }
    }
}

/// A case that is run again and again.
#[derive(Clone, Debug)]
pub(super) struct Solver {
    pub(super) application: &'static str,
    pub(super) case: PathBuf,
    pub(super) mode: Mode,
}

/// A solver that runs. It is ended with this.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    mode: Mode,
    pub(super) began: Instant,
}

impl Solver {
    /// Opens the case for our store.
    pub(super) fn open(&self, options: CaseOptions) -> anyhow::Result<Case> {
        let options = CaseOptions {
            parallel: self.mode.ranks(),
            ..options
        };
        Ok(Case::open(&self.case, options)?)
    }

    /// Starts the solver; what it prints is appended to the file `log` of the case.
    pub(super) fn start(&self, prepared: Option<&Prepared>) -> anyhow::Result<Running> {
        let log = self.open_log()?;
        self.start_to(prepared, log.try_clone()?.into(), log)
    }

    /// The same, but what it prints can be taken from [`Running::output`].
    pub(super) fn start_watched(&self, prepared: Option<&Prepared>) -> anyhow::Result<Running> {
        self.start_to(prepared, Stdio::piped(), self.open_log()?)
    }

    pub(super) fn open_log(&self) -> anyhow::Result<File> {
        Ok(File::options()
            .create(true)
            .append(true)
            .open(self.case.join("log"))?)
    }

    fn start_to(&self, prepared: Option<&Prepared>, output: Stdio, log: File) -> anyhow::Result<Running> {
        let mut command = match self.mode {
            Mode::Serial => Command::new(self.application),
            Mode::Parallel | Mode::Collated => {
                let mut command = Command::new("mpirun.openmpi");
                command
                    .args(MPIRUN)
                    .arg(RANKS.to_string())
                    .arg(self.application)
                    .arg("-parallel");
                command
            }
        };
        if self.mode == Mode::Collated {
            command.args(["-fileHandler", "collated"]);
        }
        command
            .current_dir(&self.case)
            .env("WM_PROJECT_DIR", project_directory()?)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log);
        for (name, value) in prepared.iter().flat_map(|prepared| &prepared.environment) {
            command.env(name, value);
        }
        let began = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.application))?;
        Ok(Running {
            child,
            mode: self.mode,
            began,
        })
    }

    /// Waits until the solver, which was just started, has begun some steps more, and says when.
    pub(super) fn await_steps(&self, steps: usize) -> anyhow::Result<Instant> {
        self.await_steps_unless(steps, || false)?
            .context("nothing ends the waiting but the steps")
    }

    /// The same; nothing if the solver ends before.
    pub(super) fn await_steps_or_end(
        &self,
        steps: usize,
        running: &mut Running,
    ) -> anyhow::Result<Option<Instant>> {
        self.await_steps_unless(steps, || !matches!(running.child.try_wait(), Ok(None)))
    }

    fn await_steps_unless(
        &self,
        steps: usize,
        mut is_over: impl FnMut() -> bool,
    ) -> anyhow::Result<Option<Instant>> {
        let count = || self.log().matches("\nTime = ").count();
        let end = Instant::now() + TIME_MAX;
        let all = count() + steps;
        while count() < all {
            if is_over() {
                return Ok(None);
            }
            ensure!(
                Instant::now() < end,
                "{} makes no steps: {}",
                self.application,
                self.log()
            );
            thread::sleep(Duration::from_millis(2));
        }
        Ok(Some(Instant::now()))
    }

    /// Runs the solver to its end, and says how long that took.
    pub(super) fn finish(&self, prepared: Option<&Prepared>) -> anyhow::Result<Duration> {
        self.wait(self.start(prepared)?)
    }

    /// Waits for the end of the solver, and says how long it took.
    pub(super) fn wait(&self, mut running: Running) -> anyhow::Result<Duration> {
        let status = running.wait(Instant::now() + TIME_MAX)?;
        if !status.is_some_and(|status| status.success()) {
            bail!("{} did not succeed in {}", self.application, self.case.display());
        }
        Ok(running.began.elapsed())
    }

    /// The log of all starts so far, or the error if it cannot be read.
    pub(super) fn log(&self) -> String {
        fs::read(self.case.join("log")).map_or_else(
            |error| error.to_string(),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }

    /// The fields of a time, as names and contents.
    pub(super) fn fields(&self, time: &str) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut fields = Vec::new();
        for place in self.mode.places() {
            let folder = self.case.join(place).join(time);
            let mut names: Vec<_> = fs::read_dir(&folder)
                .with_context(|| format!("there is no {}", folder.display()))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.is_file())
                .collect();
            names.sort_unstable();
            for path in names {
                let mut content = fs::read(&path)?;
                if let Some(at) = content.windows(BLOCKS.len()).position(|bytes| bytes == BLOCKS) {
                    // The header of a file of several ranks has the path of the case.
                    content.drain(..at);
                }
                fields.push((path.strip_prefix(&self.case)?.to_owned(), content));
            }
        }
        Ok(fields)
    }
}

impl Running {
    /// Takes the standard output of a watched solver; once.
    pub(super) fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until all processes are gone, or until a moment.
    pub(super) fn wait(&mut self, until: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the solver at a moment, or one rank of it. Returns whether it was still running.
    pub(super) fn kill_at(mut self, moment: Instant, random: &mut Pcg64) -> anyhow::Result<bool> {
        if let Some(status) = self.wait(moment)? {
            return match status.success() {
                true => Ok(false),
                false => bail!("the solver failed before it was killed: {status}"),
            };
        }
        let ranks = self.ranks();
        let victim = match ranks.len() {
            // It is still being started.
            0 => self.child.id(),
            ranks_len => ranks[random.next_u32() as usize % ranks_len],
        };
        kill(victim)?;
        // mpirun ends the others, unless it hangs, which it does in one of some hundred runs.
        if self.wait(Instant::now() + MPIRUN_MAX)?.is_none() {
            eprintln!("mpirun does not end after one of its ranks was killed, and is killed too");
            for &rank in &ranks {
                kill(rank)?;
            }
            self.child.kill()?;
            self.child.wait()?;
        }
        let end = Instant::now() + TIME_MAX;
        while ranks.iter().any(|&rank| is_running(rank)) {
            if Instant::now() > end {
                bail!("a rank stays after its mpirun ended");
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(true)
    }

    /// The processes of the solver itself.
    fn ranks(&self) -> Vec<u32> {
        let parent = self.child.id();
        if self.mode == Mode::Serial {
            return vec![parent];
        }
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ranks = self.ranks();
        if matches!(self.child.try_wait(), Ok(None)) {
            for rank in ranks {
                let _ = kill(rank);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Copies a folder with all that is in it.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

fn kill(pid: u32) -> anyhow::Result<()> {
    let status = Command::new("kill")
        .args(["-9", &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    // It may have ended just now.
    status.map(drop).context("cannot start kill")
}

fn is_running(pid: u32) -> bool {
    match fs::metadata(format!("/proc/{pid}")) {
        Err(error) => error.kind() != ErrorKind::NotFound,
        Ok(_) => true,
    }
}

const RANKS: u32 = 2;

/// Where the blocks of the ranks begin in a file of several.
const BLOCKS: &[u8] = b"// Processor0";

const MPIRUN: &[&str] = &[
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    // Ranks that wait for each other must not keep each other from running.
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "-n",
];

/// Longer than mpirun takes to end ranks, which it asks first.
const MPIRUN_MAX: Duration = Duration::from_secs(30);

/// Longer than any solver takes here, on a busy machine too.
const TIME_MAX: Duration = Duration::from_secs(300);
