//! Shared memory that programs of MPICH leave behind when they are killed. MPICH gives each piece a name in a
//! folder of the system, and removes the name when all processes have the memory, or when MPICH finalizes.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::getuid;

/// Where the system keeps shared memory that has a name (shm_overview(7)).
const FOLDER: &str = "/dev/shm";
/// How MPICH's own begins.
const OF_MPICH: &str = "mpich_shar_tmp";

/// Ranks of this host that did not come to their end, and since when there were any.
#[derive(Debug)]
pub(super) struct Killed {
    since: SystemTime,
    pids: BTreeSet<i32>,
}

impl Killed {
    pub(super) fn new() -> Self {
        Self {
            since: SystemTime::now(),
            pids: BTreeSet::new(),
        }
    }

    pub(super) fn add(&mut self, pid: i32) {
        self.pids.insert(pid);
    }

    /// Removes what they left, if there were any. All ranks of this host are gone.
    pub(super) fn remove_leftovers(&self) {
        if !self.pids.is_empty() {
            self.remove_leftovers_in(Path::new(FOLDER));
        }
    }

    fn remove_leftovers_in(&self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let about = entry.metadata().ok()?;
            (self.may_be_left(&name) && self.may_be_ours(&about)).then_some((name, about.ino()))
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return;
        }
        // Whose MPICH's own are the names do not tell, and the PID in the others may be that of another process by
        // now, or of one in a container: they are of nobody who lives.
        let in_use = inodes_in_use(folder);
        for (name, _) in found.iter().filter(|(_, inode)| !in_use.contains(inode)) {
            // What is gone already is what we want.
            let _ = fs::remove_file(folder.join(name));
        }
    }

    fn may_be_left(&self, name: &str) -> bool {
        name.starts_with(OF_MPICH) || of_libfabric(name).is_some_and(|pid| self.pids.contains(&pid))
    }

    /// Returns true if the file is this user's and was made while the job ran. The file system's clock ticks
    /// in steps.
    fn may_be_ours(&self, about: &Metadata) -> bool {
        let seconds = u64::try_from(about.ctime()).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, about.ctime_nsec() as u32);
        about.is_file()
            && about.uid() == getuid().as_raw()
            && changed + Duration::from_millis(20) >= self.since
    }
}

/// Whose a segment of libfabric's provider for shared memory is, which is called PID:USER:ENDPOINT.
fn of_libfabric(name: &str) -> Option<i32> {
    let mut parts = name.split(':');
    let pid = parts.next()?.parse().ok()?;
    let rest = [parts.next()?, parts.next()?];
    let are_numbers = rest.iter().all(|part| part.parse::<u32>().is_ok());
    (are_numbers && parts.next().is_none()).then_some(pid)
}

/// The files of a folder that a process of this host has open or mapped, as far as we may know.
fn inodes_in_use(folder: &Path) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // Before the mappings: a file is open until it is mapped.
        let opened = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let opened =
            opened.filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(folder)));
        inodes.extend(opened.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.ino())));
        let maps = fs::read_to_string(process.path().join("maps")).unwrap_or_default();
        inodes.extend(maps.lines().filter_map(|line| mapped(line, folder)));
    }
    inodes
}

/// The inode of a mapping of a file of the folder: "RANGE MODE OFFSET DEVICE INODE PATH" (proc_pid_maps(5)).
fn mapped(line: &str, folder: &Path) -> Option<u64> {
    let mut words = line.split_whitespace();
    let inode = words.nth(4)?.parse().ok()?;
    Path::new(words.next()?).starts_with(folder).then_some(inode)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Files that killed ranks left are removed. Files that were there before, that others hold, or that have
    /// other names stay.
    #[test]
    fn only_what_killed_ranks_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| File::create(folder.path().join(name)).unwrap();
        make("mpich_shar_tmpBefore");
        std::thread::sleep(Duration::from_millis(50));
        let mut killed = Killed::new();
        killed.add(77);
        let _held = ["mpich_shar_tmpHeld", "77:0:9"].map(make);
        for name in [
            "mpich_shar_tmpOurs",
            "77:0:0",
            "78:0:0",
            "77:0",
            "77:x:0",
            "77:0:0:0",
            "other",
        ] {
            make(name);
        }
        killed.remove_leftovers_in(folder.path());
        let left = fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "77:0",
                "77:0:0:0",
                "77:0:9",
                "77:x:0",
                "78:0:0",
                "mpich_shar_tmpBefore",
                "mpich_shar_tmpHeld",
                "other"
            ]
        );
    }

    /// A mapping counts although its descriptor is closed.
    #[test]
    fn mappings_are_found() {
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:1a 4711   /dev/shm/mpich_shar_tmpAbCdEf";
        assert_eq!(mapped(line, Path::new("/dev/shm")), Some(4711));
        assert_eq!(mapped(line, Path::new("/dev/other")), None);
        assert_eq!(
            mapped("7f00-7f01 rw-p 00000000 00:00 0", Path::new("/dev/shm")),
            None
        );
    }
}
