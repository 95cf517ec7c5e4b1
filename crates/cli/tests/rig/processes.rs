//! Processes of this machine, by proc(5).

use std::{
    fmt::Display,
    fs,
    path::Path,
    process::{Child, Command, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

use super::PATIENCE;

pub(crate) fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The processes whose arguments have the marker in them.
pub(crate) fn marked(marker: &str) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(marker)
    };
    all_pids().filter(is_marked).collect()
}

/// "Nothing left 2 s after exit": no process with the marker in its arguments.
pub(crate) fn assert_none_left(marker: &str) {
    assert_none_soon(Duration::from_secs(2), || marked(marker));
}

/// In this time all processes that are found are gone.
pub(crate) fn assert_none_soon(patience: Duration, find: impl Fn() -> Vec<u32>) {
    let deadline = Instant::now() + patience;
    loop {
        let left = find();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "processes {left:?} are left");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until something is so; otherwise the test fails with these words.
pub(crate) fn await_true(otherwise: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{otherwise}");
        sleep(Duration::from_millis(5));
    }
}

pub(crate) fn await_file(path: &Path) {
    await_true(&format!("{} does not appear", path.display()), || path.exists());
}

/// The exit status of a process, or a panic if it takes longer.
pub(crate) fn await_end(job: &mut Child, patience: Duration) -> ExitStatus {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = job.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = job.kill();
            panic!("the job did not end in {patience:?}");
        }
        sleep(Duration::from_millis(5));
    }
}

/// Sends a signal, as `TERM`, to a process that is there.
pub(crate) fn signal(name: &str, pid: impl Display) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} to {pid}");
}

/// The fields of /proc/PID/stat behind the name, which may have any letters; none if the process is gone.
fn stat(pid: impl Display) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The state of a process, as `T` for stopped and `Z` for ended.
pub(crate) fn state(pid: impl Display) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

pub(crate) fn parent(pid: impl Display) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}
