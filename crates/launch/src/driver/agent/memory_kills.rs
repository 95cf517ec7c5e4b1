//! Tells if the kernel ended a rank because there was no memory left. A process that ends so cannot tell, and
//! its parent sees a SIGKILL like any other; the only traces are the kernel's count of such ends, and the
//! limits that were reached.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ropewalk_launch_core::MemoryShortage;

/// How many processes of this host the kernel has ended so, and for how many of them a rank was found.
#[derive(Debug)]
pub(super) struct MemoryKills {
    /// Nothing if this kernel does not count (before 4.13).
    counted: Option<u64>,
    counted_at: Instant,
    /// Those of which no rank was told yet: several ranks may be ended before the first is looked at.
    unclaimed: u64,
    /// When the last of them was counted.
    last: Instant,
    groups: Vec<ControlGroup>,
}

impl MemoryKills {
    /// How often it is counted, at least, if there is a reason to wake.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// For so long a kill may be a rank's whose end is still to be seen: its memory is freed first. Of what was killed
    /// before, somebody else's process on this host, a rank is not the victim that somebody kills later.
    const CLAIM_MAX: Duration = Duration::from_secs(5);

    /// Counts from now on.
    pub(super) fn watch() -> Self {
        let now = Instant::now();
        Self {
            counted: count_of_host(),
            counted_at: now,
            unclaimed: 0,
            last: now,
            groups: ControlGroup::own(),
        }
    }

    /// Looks whether there are more, now and then.
    pub(super) fn handle_time(&mut self, now: Instant) {
        if now >= self.counted_at + Self::INTERVAL
            && let Some(count) = count_of_host()
        {
            self.count(now, count);
        }
    }

    /// A rank was killed, and not by us: whether it was for lack of memory.
    pub(super) fn claim(&mut self) -> Option<MemoryShortage> {
        self.count(Instant::now(), count_of_host()?);
        self.claim_counted()?;
        let reached = self.groups.iter().filter_map(ControlGroup::limit_reached).min();
        Some(match reached {
            Some(limit_bytes) => MemoryShortage::ControlGroup { limit_bytes },
            None => MemoryShortage::Host,
        })
    }

    fn count(&mut self, now: Instant, count: u64) {
        let Some(before) = self.counted.replace(count) else {
            return;
        };
        self.counted_at = now;
        if now > self.last + Self::CLAIM_MAX {
            self.unclaimed = 0;
        }
        if count > before {
            self.unclaimed = self.unclaimed.saturating_add(count - before);
            self.last = now;
        }
    }

    fn claim_counted(&mut self) -> Option<()> {
        self.unclaimed = self.unclaimed.checked_sub(1)?;
        Some(())
    }
}

/// On the whole host, in control groups or not.
fn count_of_host() -> Option<u64> {
    counter(&read(Path::new("/proc/vmstat"))?, "oom_kill")
}

/// Reads a file of the kernel's at one go: such files do not say how long they are.
fn read(path: &Path) -> Option<String> {
    let mut text = String::with_capacity(TEXT_SIZE);
    let mut file = File::open(path).ok()?.take(TEXT_SIZE_MAX);
    file.read_to_string(&mut text).ok()?;
    Some(text)
}

/// More than most of them have.
const TEXT_SIZE: usize = 8 << 10;
const TEXT_SIZE_MAX: u64 = 1 << 20;

/// A control group that this process is in, and its ranks are unless they went elsewhere.
#[derive(Debug)]
struct ControlGroup {
    version: Version,
    folder: PathBuf,
    /// The counts of the group when this agent first looked at it.
    before: Option<Counts>,
}

/// How often a limit was reached, and how often a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    reached: u64,
    /// The same as `reached` for version 1: there a group counts only the processes that are killed in
    /// itself, and its limit may be that of a group above.
    kills: u64,
}

impl ControlGroup {
    /// All that have a say in memory.
    fn own() -> Vec<Self> {
        let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let groups = places(&own).into_iter().map(|(version, folder)| {
            let mut group = Self {
                version,
                folder,
                before: None,
            };
            group.before = group.counts();
            group
        });
        groups.collect()
    }

    fn read(&self, name: &str) -> Option<String> {
        read(&self.folder.join(name))
    }

    fn counts(&self) -> Option<Counts> {
        match self.version {
            Version::One => counts_one(&self.read("memory.failcnt")?),
            Version::Two => counts_two(&self.read("memory.events")?),
        }
    }

    /// Its limit, if that was reached since and a process killed.
    fn limit_reached(&self) -> Option<u64> {
        let (before, now) = (self.before?, self.counts()?);
        if now.reached == before.reached || now.kills == before.kills {
            return None;
        }
        match self.version {
            Version::One => limit(&self.read("memory.limit_in_bytes")?),
            Version::Two => limit(&self.read("memory.max")?),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The folders of the control groups with a say in memory, by `/proc/self/cgroup` (cgroups(7)): the group of
/// this process and those above. A container may show its own as the root.
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

/// More bytes than any machine has. Such a limit counts as none: version 1 writes a number for no limit, and
/// version 2 a word.
const LIMIT_MAX: u64 = 1 << 62;

fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < LIMIT_MAX)
}

fn counts_one(failures: &str) -> Option<Counts> {
    let reached = failures.trim().parse().ok()?;
    let kills = reached;
    Some(Counts { reached, kills })
}

fn counts_two(events: &str) -> Option<Counts> {
    Some(Counts {
        reached: counter(events, "oom")?,
        kills: counter(events, "oom_kill")?,
    })
}

/// The number behind a name, which begins a line.
fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn counted(counted: Option<u64>, now: Instant) -> MemoryKills {
        MemoryKills {
            counted,
            counted_at: now,
            unclaimed: 0,
            last: now,
            groups: Vec::new(),
        }
    }

    /// A kill is claimed once, by the first rank that was killed after it; one that was not counted by nobody.
    #[test]
    fn each_kill_is_claimed_once() {
        let now = Instant::now();
        let mut kills = counted(Some(7), now);
        let mut claim = |count| {
            kills.count(now, count);
            kills.claim_counted()
        };
        assert_eq!(claim(7), None);
        assert_eq!(claim(9), Some(()));
        assert_eq!(claim(9), Some(()));
        assert_eq!(claim(9), None);
        assert_eq!(claim(10), Some(()));
        let mut uncounted = counted(None, now);
        uncounted.count(now, 1);
        assert_eq!(uncounted.claim_counted(), None);
    }

    /// A kill of long ago was another's.
    #[test]
    fn old_kills_are_not_claimed() {
        let now = Instant::now();
        let mut kills = counted(Some(7), now);
        kills.count(now, 8);
        kills.count(now + MemoryKills::CLAIM_MAX, 8);
        assert_eq!(kills.unclaimed, 1);
        let later = now + 2 * MemoryKills::CLAIM_MAX;
        kills.count(later, 8);
        assert_eq!(kills.claim_counted(), None);
        kills.count(later, 9);
        assert_eq!(kills.claim_counted(), Some(()));
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

    /// The counts are read as the kernel writes them.
    #[test]
    fn counts_are_read() {
        let counts = Some(Counts { reached: 3, kills: 2 });
        let both = Counts { reached: 3, kills: 3 };
        assert_eq!(counts_one("3\n"), Some(both));
        assert_eq!(counts_one("?\n"), None);
        let events = "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(counts_two(events), counts);
        assert_eq!(limit("67108864\n"), Some(64 << 20));
        assert_eq!(limit("9223372036854771712\n"), None);
        assert_eq!(limit("max\n"), None);
    }

    /// The limit of a group is told if it was reached since.
    #[test]
    fn only_limits_that_were_reached_since_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "67108864\n");
        write("memory.events", "oom 3\noom_kill 2\n");
        let mut group = ControlGroup {
            version: Version::Two,
            folder: folder.path().to_owned(),
            before: None,
        };
        group.before = group.counts();
        assert_eq!(group.limit_reached(), None);
        // Killed for another's limit.
        write("memory.events", "oom 3\noom_kill 3\n");
        assert_eq!(group.limit_reached(), None);
        write("memory.events", "oom 4\noom_kill 3\n");
        assert_eq!(group.limit_reached(), Some(64 << 20));
    }
}
