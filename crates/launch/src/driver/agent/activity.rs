//! Sees if the ranks of a host make progress, on which `--stall` depends.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ropewalk_launch_core::{Stall, protocol::Plan};

use super::super::tcp_counters;

/// The progress of the ranks since the launcher was last told.
///
/// Processor time is no progress unless the user says so: ranks of MPI libraries that wait for a message
/// spin. The system calls by which they look for one move no bytes, so bytes are counted.
pub(super) struct Activity {
    /// How often is looked.
    interval: Duration,
    /// When; never if nobody wants to know.
    next: Option<Instant>,
    counts_cpu: bool,
    /// A request, a message or output came.
    seen: bool,
    /// The bytes that the processes of the ranks moved and, if that counts, the time they took.
    work: u64,
    /// The bytes that their connections moved, once they were looked at.
    tcp_bytes: Option<u64>,
}

impl Activity {
    /// So many looks fall into the time after which a job counts as stalled.
    const LOOKS: u32 = 4;
    /// The processor time is counted in hundredths of a second on most systems.
    const INTERVAL_MIN: Duration = Duration::from_millis(50);

    pub(super) fn new(plan: &Plan) -> Self {
        let (Stall::After(limit) | Stall::AfterLoss(limit)) = plan.reactions.stall.limit else {
            return Self::of(Duration::ZERO, None, false);
        };
        let interval = (limit / Self::LOOKS).max(Self::INTERVAL_MIN);
        let next = matches!(plan.reactions.stall.limit, Stall::After(_)).then(Instant::now);
        Self::of(interval, next, plan.reactions.stall.counts_cpu)
    }

    fn of(interval: Duration, next: Option<Instant>, counts_cpu: bool) -> Self {
        Self {
            interval,
            next,
            counts_cpu,
            seen: false,
            work: 0,
            tcp_bytes: None,
        }
    }

    /// The launcher wants to know from now on.
    pub(super) fn watch(&mut self) {
        self.next.get_or_insert_with(Instant::now);
    }

    /// A rank made progress that the agent sees by itself: it wrote output, made a PMI request, or sent
    /// something over its link, such as the step that it has reached.
    pub(super) fn note(&mut self) {
        self.seen = true;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks, if it is time, whether the ranks made progress since the last look. Each leads a session of its own.
    pub(super) fn look_if_due(&mut self, now: Instant, is_rank: impl Fn(i32) -> bool) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        self.next = Some(now + self.interval);
        self.look(is_rank)
    }

    fn look(&mut self, is_rank: impl Fn(i32) -> bool) -> bool {
        let seen = std::mem::take(&mut self.seen);
        let processes = processes_of(is_rank);
        let work = processes.iter().fold(0_u64, |sum, process| {
            sum.wrapping_add(process.work(self.counts_cpu))
        });
        if std::mem::replace(&mut self.work, work) != work || seen {
            return true;
        }
        // Many connections take a while to look at, which is spared where there is other progress.
        let inodes: BTreeSet<u32> = processes.iter().flat_map(Process::sockets).collect();
        let bytes = tcp_counters::bytes_moved(&inodes);
        let before = self.tcp_bytes.replace(bytes);
        before.is_some_and(|before| before != bytes)
    }
}

/// A process of a rank.
struct Process {
    /// In /proc.
    folder: PathBuf,
    /// Its processor time, in clock ticks.
    ticks: u64,
}

impl Process {
    /// A number that grows with the work of the process. The processor time counts if the bytes may not be
    /// seen, as those of another user's process: nobody is ended for what could not be seen.
    fn work(&self, counts_cpu: bool) -> u64 {
        let io = fs::read_to_string(self.folder.join("io")).ok();
        match io.and_then(|io| bytes_of(&io)) {
            Some(bytes) if !counts_cpu => bytes,
            bytes => bytes.unwrap_or_default().wrapping_add(self.ticks),
        }
    }

    /// The inodes of its sockets.
    fn sockets(&self) -> impl Iterator<Item = u32> {
        let descriptors = fs::read_dir(self.folder.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        descriptors.filter_map(|descriptor| inode_of(&fs::read_link(descriptor.path()).ok()?))
    }
}

/// The processes of some sessions.
fn processes_of(is_ours: impl Fn(i32) -> bool) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    entries
        .filter(|entry| is_process(&entry.file_name()))
        .filter_map(|entry| {
            let folder = entry.path();
            let stat = fs::read_to_string(folder.join("stat")).ok()?;
            let ticks = ticks_of(&stat, &is_ours)?;
            Some(Process { folder, ticks })
        })
        .collect()
}

/// "PID (NAME) STATE PPID PGRP SESSION .. UTIME STIME ..", where the name may hold anything (proc(5)).
fn ticks_of(stat: &str, is_ours: impl Fn(i32) -> bool) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let session = fields.get(3)?.parse().ok()?;
    let time = |index: usize| fields.get(index)?.parse::<u64>().ok();
    is_ours(session).then_some(time(11)? + time(12)?)
}

/// The bytes of read(2), write(2) and the like, to and from any descriptor, by the lines "rchar: N" and
/// "wchar: N" among others (proc(5)). Calls that found nothing add nothing, and neither do send(2) and
/// recv(2).
fn bytes_of(io: &str) -> Option<u64> {
    let counter = |name: &str| {
        let mut lines = io.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some(counter("rchar:")?.wrapping_add(counter("wchar:")?))
}

/// "socket:[INODE]"
fn inode_of(link: &Path) -> Option<u32> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The times are those of the session's processes, whatever they are called.
    #[test]
    fn times_are_found() {
        let stat = "7 (a) S (b) R 1 7 42 0 -1 4194304 110 0 0 0 31 11 0 0 20 0 1 0 9 1 1";
        assert_eq!(ticks_of(stat, |session| session == 42), Some(42));
        assert_eq!(ticks_of(stat, |session| session == 7), None);
        assert_eq!(ticks_of("7 (a) S 1", |_| true), None);
    }

    /// Bytes read and written count, and not what reached a disk or how many calls there were.
    #[test]
    fn bytes_are_found() {
        let io = "rchar: 73106\nwchar: 4302086\nsyscr: 309\nsyscw: 88\nread_bytes: 5\nwrite_bytes: 7\n";
        assert_eq!(bytes_of(io), Some(73_106 + 4_302_086));
        assert_eq!(bytes_of("rchar: 1\n"), None);
        assert_eq!(inode_of(Path::new("socket:[4711]")), Some(4711));
        assert_eq!(inode_of(Path::new("/a/socket:[4711]")), None);
    }

    proptest! {
        /// Whatever stands in such files, nothing panics.
        #[test]
        fn any_text_is_read(text in "\\PC*") {
            ticks_of(&text, |_| true);
            bytes_of(&text);
            inode_of(Path::new(&text));
        }
    }
}
