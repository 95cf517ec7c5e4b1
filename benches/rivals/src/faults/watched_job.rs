//! A job all of whose processes are watched, so that the end of the last is seen as it happens.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    iter,
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{family::with_descendants, manager::Manager};

/// A job whose ranks sleep. Dropped, it is killed with all that it has started.
pub(super) struct WatchedJob {
    launcher: Child,
    /// The launcher too.
    processes: BTreeMap<u32, OwnedFd>,
    last: RankOfJob,
    lines: mpsc::Receiver<(Instant, String)>,
}

/// A rank and whose child it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankOfJob {
    rank: usize,
    pid: u32,
    agent: u32,
}

/// The times observed after a fault.
pub(super) struct Outcome {
    /// After this time a line named the culprit.
    pub(super) verdict: Option<Duration>,
    /// After this time the last process was gone.
    pub(super) nothing_left: Option<Duration>,
}

/// A process of a job that something is done to.
pub(super) struct Target<'a> {
    job: &'a WatchedJob,
    rank: RankOfJob,
}

const START_MAX: Duration = Duration::from_secs(20);

impl WatchedJob {
    /// Waits until all ranks run. Those that are deaf ignore requests to end.
    pub(super) fn start(
        manager: Manager,
        options: Vec<OsString>,
        ranks: usize,
        deaf: bool,
    ) -> anyhow::Result<Self> {
        let trap = if deaf { "trap '' INT TERM; " } else { "" };
        let script = format!("{trap}echo up $PMI_RANK $$ $PPID; exec sleep 1000");
        let mut command = manager.command()?;
        command
            .args(options)
            .args(["-n", &ranks.to_string(), "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut launcher = command
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let (sender, lines) = mpsc::channel();
        let stdout = launcher.stdout.take().context("it was asked to be piped")?;
        let stderr = launcher.stderr.take().context("it was asked to be piped")?;
        send_lines(stdout, sender.clone());
        send_lines(stderr, sender);
        let mut job = Self {
            processes: BTreeMap::new(),
            last: RankOfJob {
                rank: 0,
                pid: 0,
                agent: 0,
            },
            launcher,
            lines,
        };
        let deadline = Instant::now() + START_MAX;
        for _ in 0..ranks {
            job.last = job.await_rank(deadline)?.max_by_rank(job.last);
        }
        job.processes = with_descendants(job.launcher.id())
            .into_iter()
            .filter_map(|pid| Some((pid, pidfd_open(to_pid(pid)?, PidfdFlags::empty()).ok()?)))
            .collect();
        for pid in [job.last.pid, job.last.agent] {
            ensure!(
                job.processes.contains_key(&pid),
                "process {pid} does not descend from the launcher"
            );
        }
        Ok(job)
    }

    /// The rank with the highest number.
    pub(super) fn last_rank(&self) -> Target<'_> {
        Target {
            job: self,
            rank: self.last,
        }
    }

    /// Sends the launcher a signal.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.send(self.launcher.id(), signal)
    }

    /// Waits for the line that names the culprit, if there is to be one, and for the end of all processes.
    pub(super) fn watch(
        &mut self,
        struck: Instant,
        part: Option<&str>,
        patience: Duration,
    ) -> anyhow::Result<Outcome> {
        let deadline = struck + patience;
        // One after the other, for lines are stamped as they come.
        let nothing_left = self.await_end(deadline)?.then(|| struck.elapsed());
        let mut lines = iter::from_fn(|| self.lines.recv_timeout(LAST_LINES).ok());
        let named = part.and_then(|part| lines.find(|(_, line)| line.contains(part)));
        Ok(Outcome {
            verdict: named.map(|(at, _)| at.saturating_duration_since(struck)),
            nothing_left,
        })
    }

    /// Returns whether all processes are gone.
    fn await_end(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        let mut left: Vec<&OwnedFd> = self.processes.values().collect();
        while !left.is_empty() {
            let timeout = deadline.saturating_duration_since(Instant::now());
            if timeout.is_zero() {
                return Ok(false);
            }
            let mut polled: Vec<_> = left
                .iter()
                .map(|pidfd| PollFd::new(*pidfd, PollFlags::IN))
                .collect();
            match poll(&mut polled, Some(&Timespec::try_from(timeout)?)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let gone: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
            let mut gone = gone.into_iter();
            left.retain(|_| !gone.next().unwrap_or_default());
        }
        Ok(true)
    }

    fn await_rank(&mut self, deadline: Instant) -> anyhow::Result<RankOfJob> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((_, line)) = self.lines.recv_timeout(left) else {
                bail!("the ranks did not start within {} s", START_MAX.as_secs());
            };
            if let Some(rank) = RankOfJob::parse(&line) {
                return Ok(rank);
            }
        }
    }

    fn send(&self, pid: u32, signal: Signal) -> anyhow::Result<()> {
        let pidfd = self.processes.get(&pid).context("no process of the job")?;
        pidfd_send_signal(pidfd, signal).with_context(|| format!("cannot send {signal:?} to process {pid}"))
    }
}

impl Drop for WatchedJob {
    fn drop(&mut self) {
        for pidfd in self.processes.values() {
            // Gone already is what we want.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

impl Target<'_> {
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.job.send(self.rank.pid, signal)
    }

    /// Sends it to the process that started the rank.
    pub(super) fn signal_agent(&self, signal: Signal) -> anyhow::Result<()> {
        self.job.send(self.rank.agent, signal)
    }
}

impl RankOfJob {
    /// Parses the line in which a rank reports its number, its process and the process that started it.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("up ")?.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        Some(Self {
            rank: number()? as usize,
            pid: number()?,
            agent: number()?,
        })
    }

    fn max_by_rank(self, other: Self) -> Self {
        if other.pid != 0 && other.rank > self.rank {
            other
        } else {
            self
        }
    }
}

/// How long lines may take behind the end of the process that wrote them.
const LAST_LINES: Duration = Duration::from_millis(100);

fn send_lines(from: impl Read + Send + 'static, to: mpsc::Sender<(Instant, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank is read from what it says, and from nothing else; the one with the highest number is the last.
    #[test]
    fn ranks_tell_who_they_are() {
        let first = RankOfJob::parse("up 0 17 16").unwrap();
        let second = RankOfJob::parse("up 1 18 16").unwrap();
        assert_eq!((second.rank, second.pid, second.agent), (1, 18, 16));
        assert_eq!(first.max_by_rank(second), second);
        assert_eq!(second.max_by_rank(first), second);
        assert_eq!(RankOfJob::parse("up 1 18"), None);
        assert_eq!(RankOfJob::parse("a warning"), None);
    }
}
