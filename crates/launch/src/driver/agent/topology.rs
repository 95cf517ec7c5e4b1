//! The processors of this host, as Linux shows them in sysfs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ropewalk_launch_core::{
    placement::{Binding, BindingError, Bindings, CacheKind, CountedParts, Part, Processor},
    protocol::Plan,
};
use rustix::thread::{CpuSet, sched_getaffinity};

/// The processors that the ranks of a job are bound to on this host, which has as many parts as the launcher counted.
pub(super) fn bindings(plan: &Plan) -> Result<Bindings, BindingError> {
    if let Some(counted) = plan.counted {
        counted.check(&processors()?)?;
    }
    if plan.binding == Binding::Nowhere {
        return Ok(Bindings::Nowhere);
    }
    Bindings::new(&plan.binding, &allowed()?, of_this_host)
}

/// Counts the parts of this host that this process may use.
pub fn count_parts(part: Part) -> Result<CountedParts, BindingError> {
    CountedParts::on(part, &processors()?)
}

fn processors() -> Result<Vec<Processor>, BindingError> {
    Ok(allowed()?.into_iter().map(of_this_host).collect())
}

fn of_this_host(number: u32) -> Processor {
    describe(Path::new("/sys/devices/system/cpu"), number)
}

/// The processors that this process may run on, by the kernel's numbers of them.
pub(super) fn allowed() -> Result<Vec<u32>, BindingError> {
    let allowed = sched_getaffinity(None).map_err(|errno| BindingError::Unknown {
        reason: errno.to_string(),
    })?;
    let numbers = 0..CpuSet::MAX_CPU as u32;
    Ok(numbers
        .filter(|&number| allowed.is_set(number as usize))
        .collect())
}

/// Describes a processor by the kernel's folder of it. A socket or a NUMA node that the kernel does not tell
/// counts as one: a host without sockets has one.
fn describe(all: &Path, number: u32) -> Processor {
    let folder = all.join(format!("cpu{number}"));
    let topology = |name: &str| number_in(&folder.join("topology").join(name));
    let numa = entries(&folder, "node").map(|(numa, _)| numa).next();
    Processor {
        number,
        socket: topology("physical_package_id").unwrap_or(0),
        die: topology("die_id"),
        numa: numa.unwrap_or(0),
        core: topology("core_id").unwrap_or(number),
        caches: caches(&folder),
    }
}

fn caches(folder: &Path) -> BTreeMap<CacheKind, u32> {
    let caches = entries(&folder.join("cache"), "index").filter_map(|(_, path)| {
        let text = fs::read_to_string(path.join("type")).ok()?;
        let kind = CacheKind {
            level: number_in(&path.join("level")).and_then(|level| level.try_into().ok())?,
            is_instruction: text.trim() == "Instruction",
        };
        Some((kind, number_in(&path.join("shared_cpu_list"))?))
    });
    caches.collect()
}

/// The entries of a folder whose names are `name` and a number, as numbers and paths.
fn entries(folder: &Path, name: &'static str) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(move |entry| {
        let file = entry.file_name();
        let number = file.to_str()?.strip_prefix(name)?.parse().ok()?;
        Some((number, entry.path()))
    })
}

/// The number that a file has, or the first of a list as `0-3,8`.
fn number_in(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    text.trim().split([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's description is understood. A value that it lacks counts as one or is not there.
    #[test]
    fn processors_are_described() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu9/topology/physical_package_id", "1\n");
        write("cpu9/topology/die_id", "2\n");
        write("cpu9/topology/core_id", "5\n");
        write("cpu9/node3/cpulist", "8-15\n");
        for (index, level, kind, shared) in [
            (0, "1\n", "Data\n", "9,13\n"),
            (1, "1\n", "Instruction\n", "8-9\n"),
            (3, "3\n", "Unified\n", "0-3,8-11\n"),
            (4, "moon\n", "Unified\n", "0-3,8-11\n"),
        ] {
            write(&format!("cpu9/cache/index{index}/level"), level);
            write(&format!("cpu9/cache/index{index}/type"), kind);
            write(&format!("cpu9/cache/index{index}/shared_cpu_list"), shared);
        }
        let cache = |level, is_instruction, first| {
            let kind = CacheKind {
                level,
                is_instruction,
            };
            (kind, first)
        };
        let caches = [cache(1, false, 9), cache(1, true, 8), cache(3, false, 0)];
        let whole = Processor {
            number: 9,
            socket: 1,
            die: Some(2),
            numa: 3,
            core: 5,
            caches: caches.into(),
        };
        assert_eq!(describe(root.path(), 9), whole);
        let bare = Processor {
            number: 4,
            socket: 0,
            die: None,
            numa: 0,
            core: 4,
            caches: BTreeMap::new(),
        };
        assert_eq!(describe(root.path(), 4), bare);
    }

    /// The processors of this process are those that the kernel says it has.
    #[test]
    fn this_process_has_the_processors_that_the_kernel_says() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let ranges = list.unwrap().trim().split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        });
        assert_eq!(allowed().unwrap(), ranges.flatten().collect::<Vec<_>>());
    }
}
