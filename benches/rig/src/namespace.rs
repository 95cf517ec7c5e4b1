//! Network namespaces, and work that is done inside.

use std::{
    fs::{self, File},
    os::{fd::AsFd, unix::fs::MetadataExt},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Where iproute2 keeps namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";

/// Does something in a namespace, by a thread of its own. Threads that it starts are there too.
///
/// # Errors
/// If there is no such namespace, or the work fails.
pub fn within<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let path = format!("{NAMESPACES}/{namespace}");
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    let inside = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter {path}"))?;
        work()
    };
    let ended = thread::scope(|scope| scope.spawn(inside).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs ip(8) with these words.
///
/// # Errors
/// With what it says.
pub(crate) fn ip(words: &str) -> anyhow::Result<()> {
    execute("ip", words)
}

/// Runs tc(8) with these words.
///
/// # Errors
/// With what it says.
pub(crate) fn tc(words: &str) -> anyhow::Result<()> {
    execute("tc", words)
}

/// Runs a program of iproute2 with these words.
///
/// # Errors
/// With what it says.
pub(crate) fn execute(program: &str, words: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    let output = command
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}; it is of the package iproute2"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {words}: {}", said.trim());
    }
    Ok(())
}

/// The names of all namespaces.
pub(crate) fn namespaces() -> Vec<String> {
    names_in(NAMESPACES)
}

/// The names of the network interfaces outside of all namespaces.
pub(crate) fn interfaces() -> Vec<String> {
    names_in("/sys/class/net")
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

/// The processes in a namespace.
pub(crate) fn processes_in(namespace: &str) -> Vec<Pid> {
    let Ok(metadata) = fs::metadata(format!("{NAMESPACES}/{namespace}")) else {
        return Vec::new();
    };
    let inside = format!("net:[{}]", metadata.ino());
    let own = std::process::id();
    let numbers = names_in("/proc").into_iter().filter_map(|name| name.parse().ok());
    let others = numbers.filter(|&number: &i32| number > 0 && number.cast_unsigned() != own);
    let there = others.filter(|number| {
        let link = fs::read_link(format!("/proc/{number}/ns/net"));
        link.is_ok_and(|link| link.as_os_str() == inside.as_str())
    });
    there.filter_map(Pid::from_raw).collect()
}

/// Kills all processes in a namespace.
pub(crate) fn kill_all_in(namespace: &str) {
    for process in processes_in(namespace) {
        // One that is gone by itself is what is wanted.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Removes a namespace and everything in it.
pub(crate) fn remove(namespace: &str) {
    kill_all_in(namespace);
    let _ = ip(&format!("netns del {namespace}"));
}
