//! Ending the processes that ranks leave behind.

use std::{fs, time::Duration};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

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
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent(pid) == Some(own))
        .filter_map(Pid::from_raw)
        .collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "PID (NAME) STATE PARENT ..", where the name may hold anything, parentheses too (proc(5)).
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
