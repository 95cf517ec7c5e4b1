//! The process that starts an agent, here or on another host, and its life line.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    rc::Rc,
    time::Duration,
};

use ropewalk_launch_core::{StartMethod, placement::HostPlan, protocol::Plan};
use ropewalk_membership::Cause;
use rustix::{
    io::{Errno, read, write},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid},
};

use super::{
    command_keeper::{CommandKeeper, Kept},
    session::{self, Spawned},
};

/// A process that runs an agent, or the client of a command that does on another host.
pub(super) struct Starter {
    what: String,
    pid: Pid,
    pidfd: OwnedFd,
    /// Its end ends the agent.
    life_line: Option<OwnedFd>,
    unsent: Vec<u8>,
    stderr: Option<OwnedFd>,
    /// The end of what it wrote there.
    said: Vec<u8>,
    ended: Option<Ended>,
    /// Until it has ended, since its number may be another's after that, or its agent runs.
    kept: Option<Kept>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Signalled(i32),
    /// Somebody else asked first.
    Unknown,
}

impl From<Cause> for Ended {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Exited(code) => Self::Exited(code),
            Cause::Signalled(signal) => Self::Signalled(signal),
            _ => Self::Unknown,
        }
    }
}

impl Starter {
    /// How much of what it writes to standard error is kept.
    const SAID_MAX: usize = 4 << 10;

    /// Starts the agent of a host, and writes `bootstrap` to its standard input as it takes it. With a
    /// `keeper`, it does not outlive this process.
    pub(super) fn start(
        plan: &Plan,
        host: &HostPlan,
        bootstrap: Vec<u8>,
        keeper: Option<&Rc<CommandKeeper>>,
    ) -> io::Result<Self> {
        let words = command(plan, host);
        let started = session::spawn(&words).map_err(|error| {
            let what = words[0].display();
            io::Error::new(error.kind(), format!("cannot start {what}: {error}"))
        })?;
        let kept = keeper.map(|keeper| keeper.keep(started.pid));
        Self::new(&words[0], started, bootstrap, kept)
    }

    /// For the agent of this host that a fork is.
    pub(super) fn of_fork(plan: &Plan, agent: Spawned) -> io::Result<Self> {
        Self::new(&plan.agents.executable, agent, Vec::new(), None)
    }

    fn new(what: &OsStr, started: Spawned, bootstrap: Vec<u8>, kept: Option<Kept>) -> io::Result<Self> {
        let Spawned { pid, stdin, stderr } = started;
        // It is our child and nobody has reaped it, so that its number is still its own.
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        let (life_line, stderr) = (Some(stdin), Some(stderr));
        for descriptor in life_line.iter().chain(&stderr) {
            rustix::io::ioctl_fionbio(descriptor, true)?;
        }
        Ok(Self {
            what: what.to_string_lossy().into_owned(),
            pid,
            pidfd,
            life_line,
            unsent: bootstrap,
            stderr,
            said: Vec::new(),
            ended: None,
            kept,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Readable once the process is gone.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Writable while the agent still has to be told something.
    pub(super) fn life_line(&self) -> Option<BorrowedFd<'_>> {
        self.life_line.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    /// Writes what the agent can take now; returns whether something is left.
    pub(super) fn write(&mut self) -> bool {
        let Some(life_line) = &self.life_line else {
            return false;
        };
        while !self.unsent.is_empty() {
            match write(life_line, &self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // It is gone, or will say why it does not listen.
                Err(_) => self.unsent.clear(),
            }
        }
        // The bootstrap holds the job's secret.
        self.unsent = Vec::new();
        false
    }

    /// Takes what the process complains of. Returns whether more may come.
    pub(super) fn read(&mut self) -> bool {
        let Some(stderr) = &self.stderr else {
            return false;
        };
        let mut bytes = [0u8; 4096];
        loop {
            match read(stderr, &mut bytes) {
                Ok(length @ 1..) => {
                    self.said.extend_from_slice(&bytes[..length]);
                    let surplus = self.said.len().saturating_sub(Self::SAID_MAX);
                    self.said.drain(..surplus);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Ok(_) | Err(_) => {
                    self.stderr = None;
                    return false;
                }
            }
        }
    }

    /// Ends the life line: the agent ends soon.
    pub(super) fn let_go(&mut self) {
        self.life_line = None;
    }

    /// Ends the process itself, and on this host those that it started with it.
    pub(super) fn kill(&mut self) {
        if self.ended.is_none() {
            // It leads its group; gone already is what we want.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// How the process ended, if it has.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            self.ended = match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Ok(None) => None,
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Some(Ended::Exited(code)),
                    (None, Some(signal)) => Some(Ended::Signalled(signal)),
                    (None, None) => Some(Ended::Unknown),
                },
                Err(Errno::INTR) => None,
                Err(_) => Some(Ended::Unknown),
            };
            if self.ended.is_some() {
                self.kept = None;
            }
        }
        self.ended
    }

    /// The agent has connected. It has a keeper of its own, which the process of this starter may be, and
    /// which is not to be killed over its work.
    pub(super) fn handle_connected(&mut self) {
        self.kept = None;
    }

    /// Somebody who reaps all children saw how it ended.
    pub(super) fn set_ended(&mut self, ended: Ended) {
        self.ended.get_or_insert(ended);
        self.kept = None;
    }

    /// How it ended, and the last that it said, as the end of a sentence about an agent that had connected.
    pub(super) fn how_it_ended(&mut self, ended: Ended) -> String {
        self.read();
        let how = match ended {
            // What shells make of a signal, and keepers of agents too.
            Ended::Exited(code @ 129..=192) => format!("was killed by signal {}", code - 128),
            Ended::Exited(code) => format!("exited with code {code}"),
            Ended::Signalled(signal) => format!("was killed by signal {signal}"),
            Ended::Unknown => "is gone".to_owned(),
        };
        how + &self.last_words()
    }

    /// The same about one that never connected.
    pub(super) fn how_it_failed(&mut self, ended: Ended) -> String {
        let how = match ended {
            Ended::Exited(code) => format!("exited with code {code}"),
            Ended::Signalled(signal) => format!("was killed by signal {signal}"),
            Ended::Unknown => "is gone".to_owned(),
        };
        self.read();
        let advice = match (ended, env::var_os("SLURM_JOB_ID")) {
            (SSH_FAILED, Some(_)) if self.what == SSH => {
                "; -launcher slurm starts agents on the hosts of this Slurm allocation without ssh"
            }
            _ => "",
        };
        format!(
            "could not be started: {} {how}{}{advice}",
            self.what,
            self.last_words()
        )
    }

    /// The last line that is not empty, behind a colon.
    pub(super) fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.said);
        let said = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        // Slurm's srun adds that its task failed, which is known.
        let last = said()
            .rfind(|line| !line.starts_with("srun: error:"))
            .or_else(|| said().next_back());
        last.map_or_else(String::new, |line| format!(": {}", line.escape_debug()))
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.kill();
    }
}

const SSH: &str = "ssh";
/// "ssh exits with the exit status of the remote command or with 255 if an error occurred" (ssh(1)).
const SSH_FAILED: Ended = Ended::Exited(255);

/// The command that runs the agent of a host.
fn command(plan: &Plan, host: &HostPlan) -> Vec<OsString> {
    let agent = [plan.agents.executable.clone(), "agent".into()];
    if host.is_local {
        return agent.to_vec();
    }
    let remote = [quoted(&plan.agents.executable), "agent".into()];
    let name = OsString::from(&host.name);
    let mut words: Vec<OsString> = match &plan.agents.method {
        StartMethod::Command(words) => words.iter().cloned().chain([name]).collect(),
        StartMethod::Srun(further) => {
            let node = format!("--nodelist={}", host.name);
            // The step gets no part of the allocation to itself: the job's ranks share it as they like.
            let options = [
                "--nodes=1",
                "--ntasks=1",
                "--overlap",
                "--mpi=none",
                "--quiet",
                &node,
            ];
            let words = ["srun"].into_iter().chain(options).map(OsString::from);
            return words.chain(further.iter().cloned()).chain(agent).collect();
        }
        StartMethod::Ssh(further) => {
            let timeout = format!("ConnectTimeout={}", seconds_up(plan.detect));
            let options = [SSH, "-x", "-T", "-o", "BatchMode=yes", "-o", &timeout];
            let options = options.map(OsString::from).into_iter();
            options
                .chain(further.iter().cloned())
                .chain(["--".into(), name])
                .collect()
        }
    };
    words.extend(remote);
    words
}

fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// A word as a shell on another host takes it for one.
fn quoted(word: &OsStr) -> OsString {
    let bytes = word.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return word.to_owned();
    }
    let mut quoted = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that a shell would take for more than a word reaches it quoted.
    #[test]
    fn words_for_a_shell_are_quoted() {
        assert_eq!(quoted(OsStr::new("/usr/bin/ropewalk")), "/usr/bin/ropewalk");
        assert_eq!(quoted(OsStr::new("/a b/it's")), "'/a b/it'\\''s'");
        assert_eq!(quoted(OsStr::new("$(id)")), "'$(id)'");
    }
}
