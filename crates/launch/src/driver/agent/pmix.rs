//! The PMIx server of the host: a process of its own with libpmix, which is started if a program needs it.

use std::{
    collections::BTreeMap,
    env,
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use ropewalk_launch_core::{
    Segment,
    host_agent::HostAgent,
    pmix::{FromHelper, Incoming, MessageError, ToHelper, encode},
};
use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
    process::{Pid, Signal, kill_process},
    system::uname,
};

use super::{
    groups::{Groups, OwnGroup},
    poller::{Poller, Source},
    starting::StartKit,
};
use crate::driver::{
    agent_process::HELPER_VARIABLE,
    process::{self, Inherited, ProcessOptions, Program},
};

/// The PMIx server of this host, if a program needs it.
#[derive(Default)]
pub(super) struct PmixServer {
    helper: Option<Helper>,
}

/// The process with libpmix, as its agent reaches it.
struct Helper {
    pid: Pid,
    socket: OwnedFd,
    incoming: Incoming,
    unsent: Vec<u8>,
    buffer: Vec<u8>,
    /// Its files, and those of its clients.
    directory: PathBuf,
    /// The variables of each process, by its group and the rank there.
    environments: BTreeMap<(u32, u32), Vec<CString>>,
    /// It must have answered by then, if somebody waits to be started.
    answer_by: Option<Instant>,
}

/// How much of what the helper says is read at once.
const BUFFER_SIZE: usize = 64 << 10;
/// How long libpmix may take to start, and to take a process group.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to remove files.
const END: Duration = Duration::from_millis(500);
/// The exit code of a job whose helper died.
pub(super) const LOST: i32 = 125;

impl PmixServer {
    /// Has a process group served, if a program of it here may need that.
    pub(super) fn serve(&mut self, number: usize, kit: &mut StartKit, mind: &mut HostAgent, poller: &Poller) {
        let Some(group) = kit.groups.all.get(number) else {
            return;
        };
        let libraries = group
            .programs
            .iter()
            .flatten()
            .find_map(|started| started.pmix.clone());
        if let (None, Some(libraries)) = (&self.helper, &libraries)
            && kit.plan.pmi.singleton.is_none()
        {
            match Helper::start(libraries, kit, poller) {
                Ok(helper) => self.helper = Some(helper),
                Err(error) => {
                    let reason = format!("its PMIx server cannot be started: {error}");
                    return kit.groups.refuse_pmix(&reason);
                }
            }
            // What was spawned from elsewhere before.
            for known in 0..number {
                self.register_namespace(known, kit, mind);
            }
        }
        if self.helper.is_some() {
            self.register_namespace(number, kit, mind);
        }
    }

    fn register_namespace(&mut self, number: usize, kit: &StartKit, mind: &mut HostAgent) {
        let own_name = uname().nodename().to_string_lossy().into_owned();
        let group = &kit.groups.all[number].plan;
        mind.register_namespace(kit.plan.namespace(group, kit.host, &own_name));
        if let Some(helper) = &mut self.helper {
            helper.answer_by = Some(Instant::now() + PATIENCE);
        }
    }

    /// The variables that a rank gets from the server.
    pub(super) fn environment(&self, group: &OwnGroup, rank: Rank) -> &[CString] {
        let own_rank = rank.0 - group.plan.first.0;
        let helper = self.helper.as_ref();
        helper
            .and_then(|helper| helper.environments.get(&(group.plan.id, own_rank)))
            .map_or(&[], |variables| variables)
    }

    /// Returns true if there is a helper.
    pub(super) fn is_running(&self) -> bool {
        self.helper.is_some()
    }

    /// Returns true if a process is the helper.
    pub(super) fn is_helper(&self, pid: Pid) -> bool {
        self.helper.as_ref().is_some_and(|helper| helper.pid == pid)
    }

    /// When to call [`handle_time`](Self::handle_time).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.helper.as_ref()?.answer_by
    }

    /// A helper that does not answer is ended.
    pub(super) fn handle_time(&mut self, now: Instant) {
        if let Some(helper) = &mut self.helper
            && helper.answer_by.take_if(|due| *due <= now).is_some()
        {
            helper.kill();
        }
    }

    pub(super) fn tell(&mut self, message: &ToHelper, poller: &Poller) {
        if let Some(helper) = &mut self.helper {
            helper.unsent.extend(encode(message));
            self.send(poller);
        }
    }

    /// Sends what the helper takes now.
    pub(super) fn send(&mut self, poller: &Poller) {
        let Some(helper) = &mut self.helper else {
            return;
        };
        let flags = match helper.send() {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        // One that is not watched any more is gone.
        let _ = poller.modify(&helper.socket, Source::Helper, flags);
    }

    /// Takes bytes that the helper has sent. Returns true if there were some.
    pub(super) fn receive(&mut self, poller: &Poller) -> bool {
        let Some(helper) = &mut self.helper else {
            return false;
        };
        loop {
            match recv(&helper.socket, &mut helper.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => {
                    helper.incoming.push(&helper.buffer[..length]);
                    return true;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Ok(_) | Err(_) => {
                    // Its end is told by its process.
                    poller.delete(&helper.socket);
                    return false;
                }
            }
        }
    }

    /// The next message that has come, if it is whole. A helper that sends anything else is killed.
    pub(super) fn next_message(&mut self, groups: &mut Groups) -> Result<Option<FromHelper>, MessageError> {
        let Some(helper) = &mut self.helper else {
            return Ok(None);
        };
        let message = helper.incoming.next_message().inspect_err(|_| helper.kill())?;
        match &message {
            Some(FromHelper::Registered { group, environments }) => {
                helper.answer_by = None;
                for (rank, variables) in environments {
                    let variables = variables
                        .iter()
                        .filter_map(|text| CString::new(text.as_str()).ok());
                    helper.environments.insert((*group, *rank), variables.collect());
                }
            }
            Some(FromHelper::Failed { reason }) => groups.refuse_pmix(reason),
            _ => {}
        }
        Ok(message)
    }

    /// No rank is left: the helper is to end by itself, and is killed if it does not.
    pub(super) fn end(&mut self, now: Instant, poller: &Poller) {
        self.tell(&ToHelper::End, poller);
        if let Some(helper) = &mut self.helper {
            helper.answer_by = Some(now + END);
        }
    }

    /// Removes the files of the helper, which is gone, and of its clients.
    pub(super) fn forget(&mut self) {
        if let Some(helper) = self.helper.take() {
            let _ = fs::remove_dir_all(&helper.directory);
        }
    }
}

impl Helper {
    fn start(libraries: &[PathBuf], kit: &mut StartKit, poller: &Poller) -> io::Result<Self> {
        let failed = |error| match error {
            process::ProcessError::Directory(error)
            | process::ProcessError::Execute(error)
            | process::ProcessError::System(error) => error,
        };
        let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let directory = temporary.join(format!("ropewalk-pmix-{}-{}", kit.plan.job, kit.host.0));
        let mut words = directory.clone().into_os_string();
        for library in libraries {
            words.push("\n");
            words.push(library);
        }
        let segment = Segment {
            arguments: vec!["agent".into()],
            ..Segment::new(kit.plan.agents.executable.clone())
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let program = Program::new(&segment, &path)?;
        // Of an outer job it knows nothing.
        let inherited = env::vars_os().filter(|(name, _)| !belongs_to_outer_job(name));
        let own = [
            // Shared memory is faster for a thousand ranks, and stays behind when somebody is killed.
            ("PMIX_MCA_gds", OsString::from("hash")),
            // What processes log is to come to the agent, and neither to the helper's own output nor to its host.
            ("PMIX_MCA_plog", OsString::from("^stdfd,syslog,smtp")),
            (HELPER_VARIABLE, words),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), value));
        let environment: Vec<CString> = inherited
            .chain(own)
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?;
        let environment: Vec<_> = environment.iter().map(CString::as_c_str).collect();
        let (socket, its_socket) = UnixStream::pair()?;
        let null = || kit.slots.null();
        let inherited = Inherited {
            stdin: its_socket.into(),
            stdout: null()?,
            stderr: rustix::stdio::stderr().try_clone_to_owned()?,
            pmi: null()?,
            link: null()?,
        };
        let options = ProcessOptions {
            inherited,
            environment: &environment,
            descriptors: kit.descriptors,
            processors: None,
            // A batch system sends them to all processes of a step; what they ask for, the agent does.
            blocks_signals: true,
        };
        let pid = process::start(&program, &mut kit.slots, &options).map_err(failed)?;
        poller.add(&socket, Source::Helper, EventFlags::IN)?;
        Ok(Self {
            pid,
            socket: socket.into(),
            incoming: Incoming::default(),
            unsent: Vec::new(),
            buffer: vec![0; BUFFER_SIZE],
            directory,
            environments: BTreeMap::new(),
            answer_by: None,
        })
    }

    fn kill(&self) {
        // One that is gone in the meantime is what we want.
        let _ = kill_process(self.pid, Signal::KILL);
    }

    /// Sends what the helper takes now. Returns true if something is left.
    fn send(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match send(
                &self.socket,
                &self.unsent,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // Its end is told by its process.
                Err(_) => self.unsent.clear(),
            }
        }
        false
    }
}

fn belongs_to_outer_job(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"PMIX_") && !name.starts_with(b"PMIX_MCA_")
}

/// Why programs that need the server cannot go on after its end.
pub(super) fn loss(cause: Cause) -> String {
    let how = match cause {
        Cause::Exited(code) => format!("ended with exit code {code}"),
        Cause::Signalled(signal) => format!("was killed by signal {signal}"),
        _ => "is gone".to_owned(),
    };
    format!("the PMIx server of its host {how}")
}
