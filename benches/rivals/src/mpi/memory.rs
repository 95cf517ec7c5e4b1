//! The memory of launcher and agent while many processes run.

use std::{fs, process::Child};

use anyhow::Context;

use super::Arguments;
use crate::{
    family::{above_sleepers, end, name_of},
    manager::Manager,
};

/// The memory that a process has made its own.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// Pages that were written to; a page that several processes share counts for each by its part.
    dirty_kib: u64,
    descriptors: usize,
}

pub(super) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    println!(
        "| memory while {} processes run | Pss_Dirty, KiB | descriptors |",
        arguments.processes
    );
    println!("|---|---|---|");
    let ours = measure_manager(Manager::Ropewalk, "ropewalk", arguments.processes)?;
    let hydra = measure_manager(Manager::Hydra, "Hydra", arguments.processes)?;
    println!(
        "| ropewalk / Hydra | {:.2} (goal: at most 1) | {:.2} |",
        ours.dirty_kib as f64 / hydra.dirty_kib as f64,
        ours.descriptors as f64 / hydra.descriptors as f64
    );
    Ok(())
}

fn measure_manager(manager: Manager, name: &str, processes: u32) -> anyhow::Result<Memory> {
    let mut command = manager.command()?;
    command.args(["-n", &processes.to_string(), "sleep", "1000"]);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let measured = measure_job(&child, processes);
    // SIGTERM: each ends its processes then.
    end(&mut child)?;
    let mut all = Memory::default();
    for (part, memory) in measured? {
        println!(
            "| {name}: {part} | {} | {} |",
            memory.dirty_kib, memory.descriptors
        );
        all.dirty_kib += memory.dirty_kib;
        all.descriptors += memory.descriptors;
    }
    println!("| {name}: all | {} | {} |", all.dirty_kib, all.descriptors);
    Ok(all)
}

fn measure_job(child: &Child, processes: u32) -> anyhow::Result<Vec<(String, Memory)>> {
    let above = above_sleepers(child.id(), processes)?;
    let look =
        |(index, pid): (usize, &u32)| Ok((format!("{} {}", name_of(*pid)?, index + 1), memory_of(*pid)?));
    above.iter().enumerate().map(look).collect()
}

fn memory_of(pid: u32) -> anyhow::Result<Memory> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(Memory {
        dirty_kib: dirty_kib(&rollup)
            .context("the kernel tells no Pss_Dirty, which is there since Linux 6.0")?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
    })
}

fn dirty_kib(rollup: &str) -> Option<u64> {
    let value = rollup.lines().find_map(|line| line.strip_prefix("Pss_Dirty:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dirty memory is read from the line of that name, and is none where there is no such line.
    #[test]
    fn dirty_memory_is_read() {
        let rollup = "Rss:  2464 kB\nPss:  347 kB\nPss_Dirty:  108 kB\nPrivate_Dirty:  96 kB\n";
        assert_eq!(dirty_kib(rollup), Some(108));
        assert_eq!(dirty_kib("Pss:  347 kB\n"), None);
    }
}
