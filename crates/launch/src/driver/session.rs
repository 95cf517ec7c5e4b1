//! Starting a process in a session of its own.

use std::{os::unix::process::CommandExt, process::Command};

use rustix::process::setsid;

/// Makes the process lead a new session, and in it a new process group.
///
/// As under Hydra: what the terminal sends reaches agents and ranks only through the launcher, what a rank
/// starts is found by its process group, and Linux's automatic grouping (sched(7)) gives the agent and each
/// rank a fair share of the cores, however busy the session is in which the launcher runs.
pub(super) fn start_own(command: &mut Command) {
    let prepare = || {
        setsid()?;
        Ok(())
    };
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed; this is a plain
    // system call, and its error a number.
    unsafe { command.pre_exec(prepare) };
}
