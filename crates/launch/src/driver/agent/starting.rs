//! Starting the ranks of a host.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    time::Instant,
};

use ropewalk_fabric::AgentLink;
use ropewalk_launch_core::{
    StdinSource, WholeLines,
    host_agent::HostAgent,
    mpi,
    placement::{BindingError, Bindings},
    plan::INCARNATION_VARIABLE,
    protocol::{Plan, Report, StartError, StartErrorKind},
};
use ropewalk_names::{HostId, Incarnation, Rank};
use rustix::{io::Errno, pipe::fcntl_setpipe_size, process::Rlimit};

use super::{
    groups::{Groups, OwnGroup},
    pmi_port,
    pmix::PmixServer,
    programs::{start_error, variable},
    rank_io::{Output, RankIo, Sockets, pipe_for_reading, pipe_for_writing, terminal_for_reading},
    rank_table::RankTable,
    start_advice::advise,
    topology,
};
use crate::driver::{
    idle_memory::IdleMemory,
    keeper,
    process::{self, Inherited, LINK_FD, PMI_FD, ProcessError, ProcessOptions, Slots},
};

/// The means by which ranks are started.
pub(super) struct StartKit {
    pub(super) plan: Arc<Plan>,
    pub(super) host: HostId,
    pub(super) groups: Groups,
    pub(super) slots: Slots,
    /// The limit that this process had before it raised its own.
    pub(super) descriptors: Rlimit,
    /// If ranks are bound to them.
    bindings: Result<Bindings, BindingError>,
    memory: IdleMemory,
}

/// A rank that is to be started.
pub(super) struct NewRank<'a> {
    pub(super) rank: Rank,
    /// Its number on this host.
    pub(super) index: usize,
    pub(super) incarnation: Incarnation,
    pub(super) has_input: bool,
    /// How its advisors and stores find the agent.
    pub(super) advisors: Option<String>,
    pub(super) pmix: &'a PmixServer,
}

impl StartKit {
    pub(super) fn new(
        plan: Arc<Plan>,
        host: HostId,
        ranks: usize,
        slots: Slots,
        descriptors: Rlimit,
    ) -> Self {
        let first = OwnGroup::new(&plan, plan.first_group(), host, 0..ranks);
        Self {
            groups: Groups::new(first),
            slots,
            descriptors,
            bindings: topology::bindings(&plan),
            memory: IdleMemory::default(),
            host,
            plan,
        }
    }

    /// Returns true if ranks may be started although the node above is not connected yet: on the launcher's own host
    /// it will be, and the life line is enough to end the agent meanwhile.
    pub(super) fn may_start_alone(&self) -> bool {
        let host = self.plan.hosts.get(self.host.0 as usize);
        host.is_some_and(|host| host.is_local) && !keeper::has_life_line_ended()
    }

    /// A rank was started.
    pub(super) fn handle_started(&mut self, rank: Rank, now: Instant) {
        self.groups.handle_started(rank, now);
        self.memory.handle_started(now);
    }

    /// When to call [`handle_time`](Self::handle_time).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.memory
            .deadline()
            .into_iter()
            .chain(self.groups.deadline())
            .min()
    }

    /// Does what is due a while after ranks were started. Returns what the user is to be told of ranks.
    pub(super) fn handle_time(
        &mut self,
        now: Instant,
        ranks: &RankTable,
        mind: &HostAgent,
    ) -> Vec<(Rank, String)> {
        self.memory.handle_timeout(now);
        self.groups.look_if_due(now, ranks, mind)
    }

    /// Starts a rank. Returns it with the pipe to its standard input, if it has one.
    pub(super) fn start(&mut self, new: &NewRank<'_>) -> Result<(RankIo, Option<OwnedFd>), StartError> {
        let NewRank { rank, index, .. } = *new;
        let no_program = || system_error("the job has no program for it", &Errno::INVAL.into());
        let group = self.groups.of(rank).ok_or_else(no_program)?;
        let (number, program) = group.plan.program_of(rank).ok_or_else(no_program)?;
        let segment = &program.segment;
        let started = match &group.programs[number] {
            Ok(started) => started,
            Err(error) => return Err(error.clone()),
        };
        let pmi = PmiConnection::new(self.plan.pmi.by_port, &mut self.slots).map_err(no_descriptors)?;
        let (link, rank_link) = AgentLink::pair().map_err(no_descriptors)?;
        let (stdout, rank_stdout) = self.output()?;
        let (stderr, rank_stderr) = self.output()?;
        let (rank_stdin, stdin) = if new.has_input {
            let (reader, writer) = pipe_for_writing().map_err(no_descriptors)?;
            if self.plan.stdin == StdinSource::Inherit {
                // Fewer turns for the same input. The system may refuse it to a user with many large pipes; it is for
                // one rank only, so as not to make it refuse.
                let _ = fcntl_setpipe_size(&writer, STDIN_PIPE_SIZE);
            }
            (reader, Some(writer))
        } else {
            (self.slots.null().map_err(no_descriptors)?, None)
        };
        let own = self.own_variables(group, new, pmi.port).map_err(no_descriptors)?;
        let of_pmix = match started.pmix {
            Some(_) => new.pmix.environment(group, rank),
            None => &[],
        };
        let environment: Vec<&CStr> = started
            .environment
            .iter()
            .chain(of_pmix)
            .chain(&own)
            .map(CString::as_c_str)
            .collect();
        let processors = self.processors(index)?;
        let pid = process::start(
            &started.program,
            &mut self.slots,
            &ProcessOptions {
                inherited: Inherited {
                    stdin: rank_stdin,
                    stdout: rank_stdout,
                    stderr: rank_stderr,
                    pmi: pmi.of_rank,
                    link: rank_link.into(),
                },
                environment: &environment,
                descriptors: self.descriptors,
                processors: processors.as_deref(),
                blocks_signals: false,
            },
        );
        let pid = pid.map_err(|error| match error {
            ProcessError::Directory(error) => StartError {
                kind: StartErrorKind::NotFound,
                reason: format!(
                    "the working directory {:?} cannot be used: {error}",
                    segment.working_directory.clone().unwrap_or_default()
                ),
            },
            ProcessError::Execute(error) => advise(start_error(&error), segment),
            ProcessError::System(error) => system_error("cannot make its process", &error),
        })?;
        let output = |pipe| {
            let lines = WholeLines::default();
            Some(Output { pipe, lines })
        };
        let mut sockets = Sockets::new(pmi.of_agent, link);
        sockets.listens = pmi.port.is_some();
        let io = RankIo {
            rank,
            pid,
            foreign: None,
            was_killed: false,
            sockets: Some(sockets),
            outputs: [output(stdout), output(stderr)],
        };
        Ok((io, stdin))
    }

    /// The processors that the `index`-th rank of this host is bound to; `None` if it is bound nowhere.
    fn processors(&self, index: usize) -> Result<Option<Vec<u32>>, StartError> {
        let bindings = self.bindings.as_ref().map_err(Clone::clone);
        let processors = bindings.and_then(|bindings| bindings.of(index));
        processors.map_err(|error| system_error("cannot be bound", &io::Error::other(error)))
    }

    /// The report of the processors that a rank was started on, if somebody wants to know.
    pub(super) fn bound(&self, rank: Rank, index: usize) -> Option<Report> {
        if !self.plan.tells_bindings {
            return None;
        }
        let bound = self.processors(index).ok()?;
        Some(Report::Bound {
            rank,
            is_bound: bound.is_some(),
            processors: bound.or_else(|| topology::allowed().ok()).unwrap_or_default(),
        })
    }

    /// A pipe or a pseudo-terminal that a rank writes to: (the end to read, the end to write).
    fn output(&self) -> Result<(OwnedFd, OwnedFd), StartError> {
        match self.plan.has_terminals {
            true => terminal_for_reading().map_err(|error| system_error("cannot make its terminals", &error)),
            false => pipe_for_reading().map_err(no_descriptors),
        }
    }

    /// The variables of one rank only.
    fn own_variables(
        &self,
        group: &OwnGroup,
        new: &NewRank<'_>,
        port: Option<SocketAddr>,
    ) -> io::Result<Vec<CString>> {
        let local = new.index - group.indices.start;
        let of_rank = self
            .plan
            .rank_variables(&group.plan, self.host, new.rank, local, group.indices.len());
        let choice = self.plan.pmi.protocol;
        let of_rank = of_rank
            .iter()
            .filter(|(name, _)| !mpi::service::is_left_out(choice, name))
            .map(|(name, value)| variable(OsStr::new(name), OsStr::new(value)));
        // The clients of MPICH connect only if there is no descriptor.
        let connection = match port {
            Some(address) => {
                let id = new.rank.0 - group.plan.first.0;
                vec![("PMI_PORT", address.to_string()), ("PMI_ID", id.to_string())]
            }
            None => vec![("PMI_FD", PMI_FD.to_string())],
        };
        let numbers = [
            (AgentLink::VARIABLE, LINK_FD as usize),
            (INCARNATION_VARIABLE, new.incarnation.0 as usize),
            // Unlike the local rank, it counts the processes of all groups.
            ("OMPI_COMM_WORLD_NODE_RANK", new.index),
        ];
        let numbers = numbers
            .map(|(name, number)| (name, number.to_string()))
            .into_iter()
            .chain(connection)
            .filter(|(name, _)| !mpi::service::is_left_out(choice, name))
            .map(|(name, value)| variable(OsStr::new(name), OsStr::new(&value)));
        let advisors = new.advisors.as_ref();
        let advisors =
            advisors.map(|value| variable(OsStr::new(ropewalk_agent_link::VARIABLE), OsStr::new(value)));
        of_rank.chain(numbers).chain(advisors).collect()
    }
}

/// The means of a rank and its agent to speak PMI.
struct PmiConnection {
    /// A socket, or the listener at the port.
    of_agent: OwnedFd,
    /// The descriptor that the rank inherits.
    of_rank: OwnedFd,
    /// Where the rank connects, if it inherits no socket.
    port: Option<SocketAddr>,
}

impl PmiConnection {
    fn new(by_port: bool, slots: &mut Slots) -> io::Result<Self> {
        if by_port {
            let (of_agent, address) = pmi_port::listen()?;
            return Ok(Self {
                of_agent,
                of_rank: slots.null()?,
                port: Some(address),
            });
        }
        let (of_agent, of_rank) = UnixStream::pair()?;
        Ok(Self {
            of_agent: of_agent.into(),
            of_rank: of_rank.into(),
            port: None,
        })
    }
}

/// The size of the pipe to the rank that reads standard input, in bytes.
const STDIN_PIPE_SIZE: usize = 256 << 10;

/// The sockets and pipes of a rank could not be made.
pub(super) fn no_descriptors(error: io::Error) -> StartError {
    system_error("cannot make its sockets and pipes", &error)
}

/// Something that a rank needs could not be made.
pub(super) fn system_error(what: &str, error: &io::Error) -> StartError {
    StartError {
        kind: StartErrorKind::System,
        reason: format!("{what}: {error}"),
    }
}
