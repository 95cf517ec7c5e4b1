//! The processors of this host, as Linux shows them in sysfs.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::placement::Processor;

/// The processors that this process may run on, in order of memory node, socket and core.
pub(super) fn processors() -> Vec<Processor> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let mut processors: Vec<_> = (0..CpuSet::MAX_CPU as u32)
        .filter(|&number| allowed.is_set(number as usize))
        .map(describe)
        .collect();
    processors.sort_unstable();
    processors
}

/// What is not told counts as one: a host without sockets has one.
fn describe(number: u32) -> Processor {
    let folder = format!("/sys/devices/system/cpu/cpu{number}");
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{folder}/topology/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let entries = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let numa = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next();
    Processor {
        numa: numa.unwrap_or(0),
        socket: read("physical_package_id").unwrap_or(0),
        core: read("core_id").unwrap_or(number),
        number,
    }
}
