//! Ending the processes that ranks leave behind.

use std::{fs, time::Duration};

use ropewalk_group::JobId;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

use crate::plan::JOB_VARIABLE;

/// From now on processes whose parents die become children of this one, if they descend from it.
pub(super) fn adopt_orphans() {
    // Linux has had it since 3.4; without it the worst is that an orphan of an orphan survives.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Kills all children of this process, and theirs, until there are none.
pub(super) async fn kill_all() {
    for _ in 0..ROUNDS_MAX {
        let children = children();
        if children.is_empty() {
            return;
        }
        for &child in &children {
            // A child that is gone in the meantime is what we want.
            let _ = kill_process(child, Signal::KILL);
        }
        tokio::time::sleep(ROUND).await;
        for child in children {
            let _ = waitpid(Some(child), WaitOptions::NOHANG);
        }
    }
}

/// Kills all processes of a job on this host, whoever their parents are by now, until there are none. They are
/// known by the job's number in their environment.
pub(super) async fn kill_job(job: JobId) {
    let variable = format!("{JOB_VARIABLE}={job}");
    let belongs = |pid: &Pid| {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == variable.as_bytes())
    };
    for _ in 0..ROUNDS_MAX {
        let processes: Vec<_> = processes().filter(belongs).collect();
        if processes.is_empty() {
            return;
        }
        for process in processes {
            // One that is gone in the meantime is what we want.
            let _ = kill_process(process, Signal::KILL);
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Reaps the dead children that are no ranks: orphans that were adopted. Whoever lives is left alone.
pub(super) fn reap_orphans(is_rank: impl Fn(Pid) -> bool) {
    for child in children() {
        if !is_rank(child) {
            let _ = waitpid(Some(child), WaitOptions::NOHANG);
        }
    }
}

const ROUND: Duration = Duration::from_millis(5);
/// Two seconds: what the kernel cannot kill by then hangs in a device, and waiting longer does not help.
const ROUNDS_MAX: usize = 400;

/// The kernel's own list of children is an option of its configuration; the parents in /proc always work.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    processes().filter(|&pid| parent(pid) == Some(own)).collect()
}

fn processes() -> impl Iterator<Item = Pid> {
    // Without /proc there is nothing to be found, and nothing else to be done.
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
}

fn parent(pid: Pid) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // "PID (NAME) STATE PARENT ..", where the name may hold anything, parentheses too (proc(5)).
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
