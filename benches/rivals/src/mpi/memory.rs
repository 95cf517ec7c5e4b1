//! The memory of launcher and agent while many processes run.

use std::{
    collections::BTreeMap,
    fs,
    process::Child,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{Arguments, Manager};

/// What the kernel says about a process, in KiB.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// Shared pages count by the number of those that share them.
    proportional: u64,
    private: u64,
    descriptors: usize,
}

pub(super) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    println!(
        "| memory while {} processes run | PSS, KiB | private, KiB | descriptors |",
        arguments.processes
    );
    println!("|---|---|---|---|");
    for (manager, name) in [(Manager::Ropewalk, "ropewalk"), (Manager::Hydra, "Hydra")] {
        let mut command = manager.command()?;
        command.args(["-n", &arguments.processes.to_string(), "sleep", "1000"]);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let measured = measure_job(&child, arguments.processes);
        // SIGTERM: each ends its processes then.
        end(&mut child)?;
        let parts = measured?;
        let mut all = Memory::default();
        for (part, memory) in &parts {
            println!(
                "| {name}: {part} | {} | {} | {} |",
                memory.proportional, memory.private, memory.descriptors
            );
            all.proportional += memory.proportional;
            all.private += memory.private;
            all.descriptors += memory.descriptors;
        }
        println!(
            "| {name}: all | {} | {} | {} |",
            all.proportional, all.private, all.descriptors
        );
    }
    Ok(())
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    child.wait()?;
    Ok(())
}

/// Waits until all processes run, and looks at those above them.
fn measure_job(child: &Child, processes: u32) -> anyhow::Result<Vec<(String, Memory)>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let family = descendants(child.id());
        let (leaves, above): (Vec<_>, Vec<_>) = family.into_iter().partition(|pid| is_sleep(*pid));
        if leaves.len() == processes as usize {
            // What they had to say about it must have arrived.
            sleep(Duration::from_millis(500));
            let look = |(index, pid): (usize, &u32)| {
                Ok((format!("{} {}", name_of(*pid)?, index + 1), memory_of(*pid)?))
            };
            return above.iter().enumerate().map(look).collect();
        }
        if Instant::now() > deadline {
            bail!("only {} of {processes} processes run", leaves.len());
        }
        sleep(Duration::from_millis(100));
    }
}

/// A process and all below it, in order of their numbers.
fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

fn name_of(pid: u32) -> anyhow::Result<String> {
    Ok(fs::read_to_string(format!("/proc/{pid}/comm"))?.trim().to_owned())
}

fn is_sleep(pid: u32) -> bool {
    name_of(pid).is_ok_and(|name| name == "sleep")
}

fn memory_of(pid: u32) -> anyhow::Result<Memory> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let sum = |names: &[&str]| -> u64 {
        let lines = rollup.lines().filter_map(|line| line.split_once(':'));
        let wanted = lines.filter(|(name, _)| names.contains(name));
        wanted
            .filter_map(|(_, value)| value.trim().split(' ').next()?.parse::<u64>().ok())
            .sum()
    };
    Ok(Memory {
        proportional: sum(&["Pss"]),
        private: sum(&["Private_Clean", "Private_Dirty"]),
        descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
    })
}
