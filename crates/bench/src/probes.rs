//! Probes that find out by trying what an operating system allows between processes, with the means of the
//! floors.

use std::{fs, thread};

use anyhow::{anyhow, ensure};
use ropewalk_rpc::JobKey;

use crate::{
    floors::shared_memory::{ForeignBytes, Owner, SharedMemory},
    process::Process,
};

/// Checks that the kernel tells of a process's death through shared memory.
///
/// # Errors
/// If it does not, or memory cannot be shared.
pub fn robust_mutexes() -> anyhow::Result<String> {
    let memory = SharedMemory::create(4096)?;
    let waiting = SharedMemory::open(memory.place())?;
    let ended = thread::spawn(move || memory.lock_robust().map(|()| memory)).join();
    let _memory = ended.map_err(|_| anyhow!("the probe failed"))??;
    let owner = waiting.wait_for_owner()?;
    ensure!(
        owner == Owner::Died,
        "the death of an owner is not told: {owner:?}"
    );
    Ok("the kernel tells of a process's death through shared memory".to_owned())
}

/// Checks that processes of one user may read each other's memory. A process that is not the parent of the
/// other may be forbidden what the parent is allowed.
///
/// # Errors
/// If they may not, or the other process cannot be started.
pub fn foreign_memory() -> anyhow::Result<String> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.map_or("no Yama".to_owned(), |scope| {
        format!("Yama ptrace_scope {}", scope.trim())
    });
    let bytes = Box::new([7; 64]);
    let said = Process::reader(&JobKey::generate()?, ForeignBytes::of(&*bytes))?;
    ensure!(
        said == "7",
        "a process of the same user may not read another's memory ({scope}): {said}"
    );
    Ok(format!(
        "processes of one user may read each other's memory ({scope})"
    ))
}
