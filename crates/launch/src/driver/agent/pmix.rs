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
    pmix::{FromHelper, Incoming, ToHelper, encode},
    protocol::{Report, StartError, StartErrorKind},
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

use super::{Agent, groups::OwnGroup, poller::Source};
use crate::driver::{
    agent_process::HELPER_VARIABLE,
    process::{self, Inherited, ProcessOptions, Program},
};

/// The helper, as its agent reaches it.
pub(super) struct Helper {
    pid: Pid,
    socket: OwnedFd,
    incoming: Incoming,
    unsent: Vec<u8>,
    /// Its files, and those of its clients.
    directory: PathBuf,
    /// The variables of each process, by its group and the rank there.
    environments: BTreeMap<(u32, u32), Vec<CString>>,
    /// It must have answered by then, if somebody waits to be started.
    answer_by: Option<Instant>,
}

/// How long libpmix may take to start, and to take a process group.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to remove files.
const END: Duration = Duration::from_millis(500);
/// The exit code of a job whose helper died.
const LOST: i32 = 125;

impl Helper {
    /// The variables of a process.
    pub(super) fn environment(&self, group: u32, rank: u32) -> &[CString] {
        self.environments
            .get(&(group, rank))
            .map_or(&[], |variables| variables)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answer_by
    }

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

impl Agent {
    /// Has the PMIx server serve a process group, if a program of it here may need that.
    pub(super) fn serve_pmix(&mut self, number: usize) {
        let Some(group) = self.kit.groups.get(number) else {
            return;
        };
        let libraries = group
            .programs
            .iter()
            .flatten()
            .find_map(|started| started.pmix.clone());
        let is_served = self.pmix.is_some();
        if let (false, Some(libraries)) = (is_served, &libraries)
            && self.plan.pmi.singleton.is_none()
        {
            match self.start_helper(libraries) {
                Ok(helper) => self.pmix = Some(helper),
                Err(error) => {
                    return self.refuse_pmix(&format!("its PMIx server cannot be started: {error}"));
                }
            }
            // What was spawned from elsewhere before.
            for known in 0..number {
                self.register_namespace(known);
            }
        }
        if self.pmix.is_some() {
            self.register_namespace(number);
        }
    }

    fn register_namespace(&mut self, number: usize) {
        let own_name = uname().nodename().to_string_lossy().into_owned();
        let namespace = self
            .plan
            .namespace(&self.kit.groups[number].plan, self.host, &own_name);
        self.mind.register_namespace(namespace);
        if let Some(helper) = &mut self.pmix {
            helper.answer_by = Some(Instant::now() + PATIENCE);
        }
    }

    fn start_helper(&mut self, libraries: &[PathBuf]) -> io::Result<Helper> {
        let failed = |error| match error {
            process::ProcessError::Directory(error)
            | process::ProcessError::Execute(error)
            | process::ProcessError::System(error) => error,
        };
        let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let directory = temporary.join(format!("ropewalk-pmix-{}-{}", self.plan.job, self.host.0));
        let mut words = directory.clone().into_os_string();
        for library in libraries {
            words.push("\n");
            words.push(library);
        }
        let segment = Segment {
            arguments: vec!["agent".into()],
            ..Segment::new(self.plan.agents.executable.clone())
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let program = Program::new(&segment, &path)?;
        // Of an outer job it knows nothing.
        let inherited = env::vars_os().filter(|(name, _)| !belongs_to_outer_job(name));
        let own = [
            // Shared memory is faster for a thousand ranks, and stays behind when somebody is killed.
            ("PMIX_MCA_gds", OsString::from("hash")),
            (HELPER_VARIABLE, words),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), value));
        let environment: Vec<CString> = inherited
            .chain(own)
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?;
        let environment: Vec<_> = environment.iter().map(CString::as_c_str).collect();
        let (socket, its_socket) = UnixStream::pair()?;
        let null = || self.kit.slots.null();
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
            descriptors: self.kit.descriptors,
            processors: None,
            // A batch system sends them to all processes of a step; what they ask for, the agent does.
            blocks_signals: true,
        };
        let pid = process::start(&program, &mut self.kit.slots, &options).map_err(failed)?;
        self.poller.add(&socket, Source::Helper, EventFlags::IN)?;
        Ok(Helper {
            pid,
            socket: socket.into(),
            incoming: Incoming::default(),
            unsent: Vec::new(),
            directory,
            environments: BTreeMap::new(),
            answer_by: None,
        })
    }

    pub(super) fn tell_helper(&mut self, message: &ToHelper) {
        let Some(helper) = &mut self.pmix else {
            return;
        };
        helper.unsent.extend(encode(message));
        self.send_to_helper();
    }

    pub(super) fn send_to_helper(&mut self) {
        let Some(helper) = &mut self.pmix else {
            return;
        };
        let flags = match helper.send() {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        // One that is not watched any more is gone.
        let _ = self.poller.modify(&helper.socket, Source::Helper, flags);
    }

    /// Takes all that the helper says.
    pub(super) fn read_helper(&mut self) {
        loop {
            let Some(helper) = &mut self.pmix else {
                return;
            };
            match recv(&helper.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => helper.incoming.push(&self.buffer[..length]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => {
                    // Its end is told by its process.
                    self.poller.delete(&helper.socket);
                    return;
                }
            }
            self.activity.note();
            loop {
                let Some(helper) = &mut self.pmix else {
                    return;
                };
                match helper.incoming.next_message() {
                    Ok(Some(message)) => self.handle_helper_message(message),
                    Ok(None) => break,
                    Err(_) => {
                        self.kill_helper();
                        return;
                    }
                }
            }
        }
    }

    fn handle_helper_message(&mut self, message: FromHelper) {
        match &message {
            FromHelper::Registered { group, environments } => {
                if let Some(helper) = &mut self.pmix {
                    helper.answer_by = None;
                    for (rank, variables) in environments {
                        let variables = variables
                            .iter()
                            .filter_map(|text| CString::new(text.as_str()).ok());
                        helper.environments.insert((*group, *rank), variables.collect());
                    }
                }
            }
            FromHelper::Failed { reason } => {
                let reason = reason.clone();
                self.refuse_pmix(&reason);
            }
            _ => {}
        }
        self.mind.handle_helper(message);
        self.settle();
    }

    /// Programs that cannot do without PMIx are not started.
    fn refuse_pmix(&mut self, reason: &str) {
        let programs = self.kit.groups.iter_mut().flat_map(|group| &mut group.programs);
        for program in programs {
            if program.as_ref().is_ok_and(|started| started.needs_pmix) {
                *program = Err(StartError {
                    kind: StartErrorKind::NotExecutable,
                    reason: format!("it needs PMIx, and {reason}"),
                });
            }
        }
    }

    fn kill_helper(&self) {
        if let Some(helper) = &self.pmix {
            // One that is gone in the meantime is what we want.
            let _ = kill_process(helper.pid, Signal::KILL);
        }
    }

    /// Returns true if a process that is gone was the helper; if so, ranks that it served cannot go on.
    pub(super) fn handle_helper_gone(&mut self, pid: Pid, cause: Cause) -> bool {
        if self.pmix.as_ref().is_none_or(|helper| helper.pid != pid) {
            return false;
        }
        self.read_helper();
        self.forget_helper();
        let how = match cause {
            Cause::Exited(code) => format!("ended with exit code {code}"),
            Cause::Signalled(signal) => format!("was killed by signal {signal}"),
            _ => "is gone".to_owned(),
        };
        let reason = format!("the PMIx server of its host {how}");
        self.refuse_pmix(&reason);
        if let Some(rank) = self.mind.handle_helper_lost() {
            self.branch.report(Report::Aborted {
                rank,
                exit_code: LOST,
                message: reason,
            });
        }
        true
    }

    /// A rank that ended well, needs others, and never asked for them was probably a job of its own.
    pub(super) fn notice_silent_end(&mut self, rank: Rank, cause: Cause) {
        if cause != Cause::Exited(0) || self.mind.has_spoken(rank) {
            return;
        }
        let group = self.kit.groups.iter().find(|group| group.plan.has(rank));
        let started = group.and_then(|group| {
            let (number, _) = group.plan.program_of(rank)?;
            group.programs.get(number)?.as_ref().ok()
        });
        if let Some(text) = started.and_then(|started| started.silent_end.clone()) {
            self.branch.report(Report::Notice { rank, text });
        }
    }

    /// No rank is left: the helper is to end by itself, and is killed if it does not.
    pub(super) fn end_helper(&mut self, now: Instant) {
        self.tell_helper(&ToHelper::End);
        if let Some(helper) = &mut self.pmix {
            helper.answer_by = Some(now + END);
        }
    }

    /// Returns true if a process is the helper.
    pub(super) fn is_helper(&self, pid: Pid) -> bool {
        self.pmix.as_ref().is_some_and(|helper| helper.pid == pid)
    }

    /// A helper that does not answer is ended.
    pub(super) fn look_at_helper(&mut self, now: Instant) {
        let answer_by = self.pmix.as_ref().and_then(Helper::deadline);
        if answer_by.is_some_and(|deadline| deadline <= now) {
            if let Some(helper) = &mut self.pmix {
                helper.answer_by = None;
            }
            self.kill_helper();
        }
    }

    /// Removes the files of the helper and of its clients.
    pub(super) fn forget_helper(&mut self) {
        if let Some(helper) = self.pmix.take() {
            let _ = fs::remove_dir_all(&helper.directory);
        }
    }
}

fn belongs_to_outer_job(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"PMIX_") && !name.starts_with(b"PMIX_MCA_")
}

/// The variables that a rank gets from the PMIx server.
pub(super) fn environment<'a>(pmix: Option<&'a Helper>, group: &OwnGroup, rank: Rank) -> &'a [CString] {
    let own_rank = rank.0 - group.plan.first.0;
    pmix.map_or(&[], |helper| helper.environment(group.plan.id, own_rank))
}
