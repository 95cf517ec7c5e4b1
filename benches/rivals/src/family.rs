//! Processes and who started them.

use std::{
    collections::BTreeMap,
    fs,
    process::Child,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::bail;

/// A process and all that descends from it, each behind its parent.
pub(crate) fn with_descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent_of(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(pid) = family.get(next) {
        family.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    family
}

/// The name of its program, as the kernel keeps it.
pub(crate) fn name_of(pid: u32) -> anyhow::Result<String> {
    Ok(fs::read_to_string(format!("/proc/{pid}/comm"))?.trim().to_owned())
}

/// Waits until so many processes named `sleep` run below this one, and gives those above them.
pub(crate) fn above_sleepers(root: u32, sleepers: u32) -> anyhow::Result<Vec<u32>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let is_sleep = |pid: &u32| name_of(*pid).is_ok_and(|name| name == "sleep");
        let (leaves, above): (Vec<_>, Vec<_>) = with_descendants(root).into_iter().partition(is_sleep);
        if leaves.len() == sleepers as usize {
            // What they had to say about it must have arrived.
            sleep(Duration::from_millis(500));
            return Ok(above);
        }
        if Instant::now() > deadline {
            bail!("only {} of {sleepers} processes run", leaves.len());
        }
        sleep(Duration::from_millis(100));
    }
}

/// Ends a process manager and its job with SIGTERM.
pub(crate) fn end(manager: &mut Child) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_child(manager);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    manager.wait()?;
    Ok(())
}

/// By `/proc/PID/stat` (proc(5)), in which a name in parentheses may have anything in it.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process descends from its parent.
    #[test]
    fn descendants_are_found() {
        let own = std::process::id();
        let family = with_descendants(parent_of(own).unwrap());
        assert!(family.contains(&own));
    }
}
