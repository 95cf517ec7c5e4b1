//! Whether the kernel ended a rank because there was no memory left. A process that it ends so cannot tell, and its parent
//! sees a SIGKILL like any other; what remains is the kernel's count of such ends, and the limits that were reached.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::verdict::MemoryShortage;

/// How many processes of this host the kernel has ended so, and for how many of them a rank was found.
#[derive(Debug)]
pub(super) struct MemoryKills {
    /// Nothing if this kernel does not count (before 4.13).
    counted: Option<u64>,
    /// Those since the start of which no rank was told yet: several ranks may be ended before the first is looked at.
    unclaimed: u64,
}

impl MemoryKills {
    /// Counts from now on.
    pub(super) fn watch() -> Self {
        Self {
            counted: count_of_host(),
            unclaimed: 0,
        }
    }

    /// A rank was killed, and not by us: whether it was for lack of memory.
    pub(super) fn claim(&mut self) -> Option<MemoryShortage> {
        self.claim_at(count_of_host()?)?;
        Some(match limit_reached() {
            Some(limit_bytes) => MemoryShortage::ControlGroup { limit_bytes },
            None => MemoryShortage::Host,
        })
    }

    fn claim_at(&mut self, count: u64) -> Option<()> {
        let before = self.counted.replace(count)?;
        self.unclaimed = self.unclaimed.saturating_add(count.saturating_sub(before));
        self.unclaimed = self.unclaimed.checked_sub(1)?;
        Some(())
    }
}

/// On the whole host, in control groups or not.
fn count_of_host() -> Option<u64> {
    counter(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

/// The smallest limit on the memory of this process's control groups that was reached. Ranks are in the agent's unless they
/// went elsewhere.
fn limit_reached() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = places(&own).into_iter().filter_map(|(version, folder)| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        match version {
            Version::One => {
                let limit = read("memory.limit_in_bytes")?;
                reached_one(&limit, &read("memory.failcnt")?)
            }
            Version::Two => {
                let limit = read("memory.max")?;
                reached_two(&limit, &read("memory.events")?)
            }
        }
    });
    limits.min()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The folders of the control groups with a say in memory, by `/proc/self/cgroup` (cgroups(7)): the own and those above.
/// A container may show its own as the root.
fn places(own: &str) -> Vec<(Version, PathBuf)> {
    let mut places = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (version, root) = if controllers.is_empty() {
            (Version::Two, "/sys/fs/cgroup")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (Version::One, "/sys/fs/cgroup/memory")
        } else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        places.extend(
            path.ancestors()
                .map(|folder| (version, Path::new(root).join(folder))),
        );
    }
    places
}

/// What no machine has counts as no limit: version 1 has a number for that.
const LIMIT_MAX: u64 = 1 << 62;

fn reached_one(limit: &str, failures: &str) -> Option<u64> {
    let limit = limit.trim().parse().ok().filter(|limit| *limit < LIMIT_MAX)?;
    let failures: u64 = failures.trim().parse().ok()?;
    (failures > 0).then_some(limit)
}

fn reached_two(limit: &str, events: &str) -> Option<u64> {
    // `max` is none.
    let limit = limit.trim().parse().ok()?;
    (counter(events, "oom_kill")? > 0).then_some(limit)
}

/// The number behind a name, which begins a line.
fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kill is claimed once, by the first rank that was killed after it; one that was not counted by nobody.
    #[test]
    fn each_kill_is_claimed_once() {
        let mut kills = MemoryKills {
            counted: Some(7),
            unclaimed: 0,
        };
        assert_eq!(kills.claim_at(7), None);
        assert_eq!(kills.claim_at(9), Some(()));
        assert_eq!(kills.claim_at(9), Some(()));
        assert_eq!(kills.claim_at(9), None);
        assert_eq!(kills.claim_at(10), Some(()));
        let mut uncounted = MemoryKills {
            counted: None,
            unclaimed: 0,
        };
        assert_eq!(uncounted.claim_at(1), None);
    }

    /// The own control group and all above it, of both versions.
    #[test]
    fn control_groups_are_found() {
        let own = "5:devices:/\n4:cpu,memory:/job/step\n0::/a\n";
        let found = places(own);
        let paths: Vec<_> = found.iter().map(|(_, path)| path.to_str().unwrap()).collect();
        let one = "/sys/fs/cgroup/memory";
        let two = "/sys/fs/cgroup";
        assert_eq!(
            paths,
            [
                format!("{one}/job/step"),
                format!("{one}/job"),
                format!("{one}/"),
                format!("{two}/a"),
                format!("{two}/")
            ]
        );
        assert_eq!((found[0].0, found[3].0), (Version::One, Version::Two));
    }

    /// A limit counts if there is one and it was reached.
    #[test]
    fn limits_that_were_reached() {
        assert_eq!(reached_one("67108864\n", "3\n"), Some(64 << 20));
        assert_eq!(reached_one("67108864\n", "0\n"), None);
        assert_eq!(reached_one("9223372036854771712\n", "3\n"), None);
        let events = "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(reached_two("67108864\n", events), Some(64 << 20));
        assert_eq!(reached_two("67108864\n", "oom 1\noom_kill 0\n"), None);
        assert_eq!(reached_two("max\n", events), None);
    }
}
