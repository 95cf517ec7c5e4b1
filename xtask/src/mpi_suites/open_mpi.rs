//! Open MPI's examples, and the tests of its runtime that are MPI programs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    result::{Test, Verdict},
    sources,
};
use crate::shell::{program, run};

/// The programs, compiled.
pub(super) struct OpenMpi {
    folder: PathBuf,
}

impl OpenMpi {
    /// Unpacks and compiles them.
    ///
    /// # Errors
    /// If Debian's sources cannot be had, or a program does not compile.
    pub(super) fn provide(folder: &Path) -> anyhow::Result<Self> {
        let sources = sources::unpack("libopenmpi-dev", folder)?;
        let folder = folder.join("open-mpi");
        fs::create_dir_all(&folder)?;
        for name in PROGRAMS {
            let paths = ["examples", "orte/test/mpi"].map(|sub| sources.join(sub).join(format!("{name}.c")));
            let path = paths.iter().find(|path| path.exists()).unwrap_or(&paths[0]);
            let mut compile = program("mpicc.openmpi", &["-w", "-o"]);
            compile.arg(folder.join(name)).arg(path);
            run(compile)?;
        }
        Ok(Self { folder })
    }

    /// Runs the programs.
    ///
    /// # Errors
    /// If the launcher cannot be started.
    pub(super) fn test(&self, launcher: &str, seconds: u32) -> anyhow::Result<Vec<Test>> {
        // timeout(1) ends a job in time, with all its processes.
        let launcher = format!("timeout --kill-after 10 {seconds} {launcher}");
        let run = |(words, succeeds): &(&str, bool)| self.run(&launcher, words, *succeeds);
        JOBS.iter().map(run).collect()
    }

    fn run(&self, launcher: &str, words: &str, succeeds: bool) -> anyhow::Result<Test> {
        let log = self.folder.join("log");
        let file = File::create(&log)?;
        let mut launcher = launcher.split(' ');
        let status = Command::new(launcher.next().unwrap_or_default())
            .args(launcher)
            .arg("-n")
            .args(words.split(' '))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()?;
        let verdict = match status.code() {
            Some(TIMED_OUT | KILLED) => Verdict::TimedOut,
            _ if status.success() == succeeds => Verdict::Passed,
            _ => Verdict::Failed,
        };
        let said = match verdict {
            Verdict::Passed => String::new(),
            _ => format!("{status}\n{}", String::from_utf8_lossy(&fs::read(&log)?)),
        };
        Ok(Test {
            name: words.replace("./", ""),
            verdict,
            said,
        })
    }
}

/// The programs that can run: others are for servers of names, for one process alone, or need the runtime's headers.
const PROGRAMS: [&str; 20] = [
    "abort",
    "bad_exit",
    "concurrent_spawn",
    "connectivity_c",
    "crisscross",
    "delayed_abort",
    "hello_barrier",
    "hello_c",
    "info_spawn",
    "loop_child",
    "loop_spawn",
    "mpi_barrier",
    "mpi_no_op",
    "multi_abort",
    "pubsub",
    "ring_c",
    "sendrecv_blaster",
    "simple_spawn",
    "spawn_multiple",
    "spc_example",
];
/// The words after `-n`, and true if the job must succeed.
const JOBS: [(&str, bool); 24] = [
    ("4 ./hello_c", true),
    ("4 ./ring_c", true),
    ("4 ./connectivity_c", true),
    (
        "2 --mca mpi_spc_attach all --mca mpi_spc_dump_enabled true ./spc_example 10 1000",
        true,
    ),
    ("4 ./mpi_no_op", true),
    ("4 ./mpi_barrier", true),
    ("4 ./hello_barrier", true),
    ("1 ./simple_spawn", true),
    ("2 ./simple_spawn", true),
    ("1 ./concurrent_spawn", true),
    ("2 ./concurrent_spawn", true),
    ("1 ./spawn_multiple", true),
    ("2 ./spawn_multiple", true),
    ("1 ./loop_spawn 5", true),
    ("1 ./info_spawn env:A=1", true),
    ("2 ./pubsub", true),
    ("4 ./pubsub local", true),
    ("2 ./sendrecv_blaster iterations=1000", true),
    ("4 ./crisscross 10000 2", true),
    ("1 ./abort", false),
    ("4 ./abort", false),
    ("4 ./multi_abort", false),
    ("4 ./delayed_abort", false),
    ("4 ./bad_exit", false),
];
/// The exit codes of timeout(1).
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;
