//! What is to be run.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// What a [`Launcher`](crate::Launcher) runs.
///
/// ```
/// # use ropewalk_launch::{JobSpec, OnFailure};
/// let spec = JobSpec {
///     arguments: vec!["60".into()],
///     ranks: 4,
///     on_failure: OnFailure::Continue,
///     ..JobSpec::new("/usr/bin/ropewalk", "sleep")
/// };
/// ```
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// How many processes of it, at least one.
    pub ranks: u32,
    /// Variables that the ranks get beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the ranks start; the directory of this process if `None`.
    pub working_directory: Option<PathBuf>,
    /// What happens when a rank fails.
    pub on_failure: OnFailure,
    /// What rank 0 reads. All others read nothing.
    pub stdin: StdinSource,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// Hand SIGINT, SIGTERM and SIGHUP on to the ranks, and end them if they stay; a second such signal ends
    /// the job and this process at once. SIGHUP stays ignored if it is, as under nohup(1).
    pub forward_signals: bool,
    /// The executable that is run as `<agent> agent`; it must call [`agent_main`](crate::agent_main).
    pub agent: PathBuf,
}

impl JobSpec {
    /// How many ranks a job may have on one host.
    pub const RANKS_MAX: u32 = 1 << 16;

    /// One rank of `program` without arguments, which reads nothing.
    pub fn new(agent: impl Into<PathBuf>, program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            ranks: 1,
            environment: Vec::new(),
            working_directory: None,
            on_failure: OnFailure::Abort,
            stdin: StdinSource::Null,
            timeout: None,
            forward_signals: false,
            agent: agent.into(),
        }
    }
}

/// What happens to the others when a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are ended.
    Abort,
    /// They go on. The job's exit code is still that of the first failure.
    Continue,
}

/// What rank 0 reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinSource {
    /// The standard input of this process.
    Inherit,
    /// Nothing.
    Null,
}
