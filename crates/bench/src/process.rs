//! A process that the bench starts.

use std::{
    env, fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    ops::Range,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use ropewalk_rpc::{Address, JobKey};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};

use super::{
    floors::shared_memory::ForeignBytes,
    provider::Provider,
    target::{Order, Part},
};

/// A process at the other end, killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    /// A target, and its address.
    pub(super) fn target(key: &JobKey, provider: &Provider) -> anyhow::Result<(Self, Address)> {
        let mut process = Self::start(key, provider, Part::Target)?;
        let address = process.hear(READY_TIMEOUT)?;
        Ok((process, address.parse()?))
    }

    /// Clients of these numbers that are connected to the target, and the address at which they are told what to do.
    pub(super) fn crowd(
        key: &JobKey,
        provider: &Provider,
        clients: Range<u32>,
        target: &Address,
    ) -> anyhow::Result<(Self, Address)> {
        let target = target.clone();
        let mut process = Self::start(key, provider, Part::Crowd { clients, target })?;
        let address = process.hear(CROWD_TIMEOUT)?;
        Ok((process, address.parse()?))
    }

    /// Starts a process that reads bytes of this one's memory, and returns its answer: the first byte or the
    /// error.
    pub(crate) fn reader(key: &JobKey, bytes: ForeignBytes) -> anyhow::Result<String> {
        Self::start(key, &Provider::Tcp, Part::Reader { bytes })?.hear(READY_TIMEOUT)
    }

    fn start(key: &JobKey, provider: &Provider, part: Part) -> anyhow::Result<Self> {
        let myself = env::current_exe().context("cannot find my own executable")?;
        let mut child = Command::new(myself)
            .arg("bench-target")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a target")?;
        let stdout = child.stdout.take().expect("it was asked to be piped");
        let mut stdin = child.stdin.take().expect("it was asked to be piped");
        let process = Self {
            child,
            said: BufReader::new(stdout),
        };
        let order = Order {
            key: key.clone(),
            provider: provider.clone(),
            parent: std::process::id(),
            part,
        };
        let mut order = serde_json::to_string(&order)?;
        order.push('\n');
        (stdin.write_all(order.as_bytes())).context("the target does not take its order")?;
        Ok(process)
    }

    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process without an id")?, signal)?)
    }

    /// The next line that it writes.
    fn hear(&mut self, timeout: Duration) -> anyhow::Result<String> {
        let timeout = Timespec::try_from(timeout)?;
        let mut ready = [PollFd::new(self.said.get_ref(), PollFlags::IN)];
        let heard = loop {
            match poll(&mut ready, Some(&timeout)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                heard => break heard?,
            }
        };
        ensure!(heard > 0, "the target is silent");
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the target ended before it was ready");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_left_by(self.child.id());
    }
}

/// Removes what libfabric's `shm` leaves behind when its process is killed: files of megabytes, in memory.
fn remove_left_by(pid: u32) {
    let Ok(files) = fs::read_dir("/dev/shm") else {
        return;
    };
    let name = format!("{pid}:");
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(&name) {
            // Somebody else's of the same name stays.
            let _ = fs::remove_file(file.path());
        }
    }
}

const READY_TIMEOUT: Duration = Duration::from_secs(20);
const CROWD_TIMEOUT: Duration = Duration::from_secs(60);
