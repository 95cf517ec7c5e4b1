//! Control groups (cgroups v1) of hosts: a part of a processor, and pauses.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A group for the processes that are started on a host while it exists. They end with it.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

/// A kind of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// The time of processors.
    Cpu,
    /// Pauses.
    Freezer,
}

impl Controller {
    const ALL: [Self; 2] = [Self::Cpu, Self::Freezer];

    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Freezer => "freezer",
        }
    }
}

impl ControlGroup {
    /// # Errors
    /// If the system refuses.
    pub(crate) fn new(controller: Controller, name: &str) -> anyhow::Result<Self> {
        let path = Path::new(PLACE).join(controller.name()).join(name);
        fs::create_dir(&path).with_context(|| {
            format!(
                "cannot make the control group {}: it takes cgroups v1 and root",
                path.display()
            )
        })?;
        Ok(Self(path))
    }

    /// Gives it so many hundredths of one processor, in periods of 0.1 s.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn limit(&self, percent: u32) -> anyhow::Result<()> {
        self.set("cpu.cfs_period_us", "100000")?;
        self.set("cpu.cfs_quota_us", &(1_000 * percent).to_string())
    }

    /// Stops all its processes, or lets them go on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn freeze(&self, is_frozen: bool) -> anyhow::Result<()> {
        self.set("freezer.state", if is_frozen { "FROZEN" } else { "THAWED" })
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// The shell command by which a process goes into all groups of this name that exist.
    pub(crate) fn joining(name: &str) -> String {
        format!("for group in {PLACE}/*/{name}; do [ ! -d $group ] || echo $$ > $group/cgroup.procs; done")
    }

    /// All groups with names that fit, as if they were this program's.
    pub(crate) fn left(is_left: impl Fn(&str) -> bool) -> Vec<Self> {
        let folders = Controller::ALL.map(|controller| Path::new(PLACE).join(controller.name()));
        let entries = folders
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
            .flatten();
        let left = entries.filter(|entry| is_left(&entry.file_name().to_string_lossy()));
        left.map(|entry| Self(entry.path())).collect()
    }

    fn processes(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A group of another kind cannot freeze, and what is not frozen need not be thawed.
        let _ = self.freeze(false);
        for _ in 0..TRIES {
            for process in self.processes() {
                // One that is gone by itself is what is wanted.
                let _ = kill_process(process, Signal::KILL);
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(PATIENCE);
        }
    }
}

const PLACE: &str = "/sys/fs/cgroup";
/// How often the end of killed processes is waited for.
const TRIES: u32 = 100;
const PATIENCE: Duration = Duration::from_millis(10);
