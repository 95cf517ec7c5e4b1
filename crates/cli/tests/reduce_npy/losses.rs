//! Processes of `ropewalk reduce` that are killed or stopped.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{arrays, listing};

/// A command whose executable is a file of its own, so that its processes can be told from others.
struct Own {
    folder: TempDir,
    executable: PathBuf,
    expected: Vec<u8>,
}

impl Own {
    /// With six arrays of some MiB, and their sum.
    fn new() -> Self {
        let folder = arrays(
            "
parts = [rng.normal(size=500_000) for i in range(6)]
for i, part in enumerate(parts):
    np.save(f'{i}.npy', part)
",
        );
        let executable = folder.path().join("ropewalk");
        fs::copy(env!("CARGO_BIN_EXE_ropewalk"), &executable).unwrap();
        let mut own = Self {
            folder,
            executable,
            expected: Vec::new(),
        };
        let ran = own.finish(own.start("-n 3"));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        own.expected = fs::read(own.output()).unwrap();
        own
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.npy")
    }

    fn start(&self, words: &str) -> Child {
        let _ = fs::remove_file(self.output());
        let mut command = Command::new(&self.executable);
        command
            .args(["reduce", "--op", "sum", "-o", "out.npy"])
            .args(words.split(' '));
        command
            .args((0..6).map(|at| format!("{at}.npy")))
            .current_dir(self.folder.path());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits for the end, and for that of all processes.
    fn finish(&self, command: Child) -> Output {
        let ran = command.wait_with_output().unwrap();
        let deadline = Instant::now() + Duration::from_secs(2);
        while let Some(left) = self.processes().first() {
            assert!(Instant::now() < deadline, "process {left} is left");
            sleep(Duration::from_millis(10));
        }
        ran
    }

    fn processes(&self) -> Vec<u32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.executable))
            .collect()
    }

    fn workers(&self) -> Vec<u32> {
        let mut workers = self.processes();
        workers.retain(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).nth(1) == Some(b"reduce-worker")
        });
        workers
    }

    fn wait_for_workers(&self, count: usize) -> Vec<u32> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let workers = self.workers();
            if workers.len() >= count {
                return workers;
            }
            assert!(Instant::now() < deadline, "there are {} workers", workers.len());
        }
    }

    fn assert_result(&self, ran: &Output) {
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{}: {said}", ran.status);
        assert!(
            fs::read(self.output()).unwrap() == self.expected,
            "the result differs: {said}"
        );
        self.assert_no_files(1);
    }

    /// Nothing but the arrays, the executable, and outputs.
    fn assert_no_files(&self, outputs: usize) {
        let files = listing(self.folder.path());
        assert_eq!(files.len(), 7 + outputs, "{files:?}");
    }
}

fn signal(signal: &str, pid: u32) {
    // Who is gone needs no signal.
    let _ = Command::new("kill")
        .args([signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// One or two workers that die at any moment cost time, also the only ones; the result is the same to the last bit.
#[test]
fn killed_workers_cost_time_only() {
    let own = Own::new();
    let mut named = 0;
    for step in 0..24 {
        let processes = [1, 2, 3, 5][step % 4];
        let job = own.start(&format!("-n {processes}"));
        let workers = own.wait_for_workers(1);
        sleep(Duration::from_millis(3 * step as u64));
        let victims = 1 + step / 4 % 2;
        for &victim in workers
            .iter()
            .chain(&own.workers())
            .rev()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(victims)
        {
            signal("-KILL", victim);
        }
        let ran = own.finish(job);
        own.assert_result(&ran);
        named += usize::from(String::from_utf8_lossy(&ran.stderr).contains("was killed by signal 9"));
    }
    assert!(named > 4, "{named} were killed in time");
}

/// A worker that stands still is named and done without after `--detect`.
#[test]
fn stopped_workers_are_done_without() {
    let own = Own::new();
    for processes in [2, 3] {
        let begin = Instant::now();
        let job = own.start(&format!("-n {processes} --detect 0.5"));
        signal("-STOP", own.wait_for_workers(1)[0]);
        let ran = own.finish(job);
        own.assert_result(&ran);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("stopped by signal 19"), "{said}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }
}

/// A worker that is frozen, which is no stop by a signal, is named and ended too.
#[test]
fn frozen_workers_are_done_without() {
    let Some(freezer) = Freezer::new() else {
        eprintln!("skipped: no control groups of version 2 here");
        return;
    };
    let own = Own::new();
    let mut job = own.start("-n 3 --detect 0.5");
    fs::write(
        freezer.0.join("cgroup.procs"),
        own.wait_for_workers(3)[1].to_string(),
    )
    .unwrap();
    fs::write(freezer.0.join("cgroup.freeze"), "1").unwrap();
    // If it was not done by then.
    let is_done = job.try_wait().unwrap().is_some();
    let ran = own.finish(job);
    own.assert_result(&ran);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        is_done || said.is_empty() || said.contains("is ended: it said nothing for 1 s"),
        "{said}"
    );
}

/// A control group whose processes stand still.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let root = fields.find(|fields| fields[2] == "cgroup2")?[1].to_owned();
        let folder = Path::new(&root).join(format!("ropewalk-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self(folder);
        made.0.join("cgroup.freeze").exists().then_some(made)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.freeze"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Without the command, or the agent of its only host, there is no result, and nothing is left.
#[test]
fn without_command_or_agent_nothing_is_left() {
    let own = Own::new();
    for (step, is_agent) in (0..12).map(|step| (step, step % 2 == 0)) {
        let job = own.start("-n 2");
        let workers = own.wait_for_workers(1);
        sleep(Duration::from_millis(step));
        let victim = match is_agent {
            true => parent(workers[0]),
            false => Some(job.id()),
        };
        let Some(victim) = victim.filter(|&pid| pid > 1) else {
            own.finish(job);
            continue;
        };
        signal("-KILL", victim);
        let ran = own.finish(job);
        let is_there = own.output().exists();
        assert_eq!(
            ran.status.success(),
            is_there,
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        own.assert_no_files(usize::from(is_there));
    }
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
