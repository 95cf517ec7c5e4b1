//! Ending the processes that ranks leave behind.

use std::{fs, thread, time::Duration};

use ropewalk_launch_core::plan::JOB_VARIABLE;
use ropewalk_names::JobId;
use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
        set_child_subreaper, wait, waitid,
    },
};

/// From now on processes whose parents die become children of this one, if they descend from it.
pub(super) fn adopt_orphans() {
    // Linux has had it since 3.4; without it the worst is that an orphan of an orphan survives.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Kills all children of this process, and theirs, until there are none. Says of each how it ended.
pub(super) fn kill_all(mut gone: impl FnMut(Pid, WaitStatus)) {
    for _ in 0..ROUNDS_MAX {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => gone(pid, status),
                Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        for child in children() {
            // A child that is gone in the meantime is what we want.
            let _ = kill_process(child, Signal::KILL);
        }
        thread::sleep(ROUND);
    }
}

/// Kills the children of this process but for those that are spared. Returns whether there were none.
pub(super) fn kill_others(is_spared: impl Fn(Pid) -> bool) -> bool {
    let children: Vec<_> = match waitid(WaitId::All, PEEK) {
        // Nobody is our child, not even a dead one.
        Err(Errno::CHILD) => return true,
        _ => children()
            .into_iter()
            .filter(|&child| !is_spared(child))
            .collect(),
    };
    for &child in &children {
        // One that is gone in the meantime is what we want.
        let _ = kill_process(child, Signal::KILL);
    }
    children.is_empty()
}

const PEEK: WaitIdOptions = WaitIdOptions::EXITED
    .union(WaitIdOptions::NOHANG)
    .union(WaitIdOptions::NOWAIT);

/// Kills all processes of a job on this host, whoever their parents are by now, until there are none. They are
/// known by the job's number in their environment.
pub(super) fn kill_job(job: JobId) {
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
        thread::sleep(ROUND);
    }
}

const ROUND: Duration = Duration::from_millis(1);
/// Two seconds: what the kernel cannot kill by then hangs in a device, and waiting longer does not help.
const ROUNDS_MAX: usize = 2000;

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
