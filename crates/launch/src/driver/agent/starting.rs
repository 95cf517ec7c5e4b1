//! Starting the ranks of a host.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsStr, OsString},
    io,
    os::unix::{ffi::OsStringExt, net::UnixStream},
    time::Instant,
};

use ropewalk_fabric::AgentLink;
use ropewalk_launch_core::{
    WholeLines,
    group_plan::{GroupPlan, GroupProgram},
    mpi::{
        self, Flavour,
        service::{Kind, PmiChoice, Service},
    },
    plan::INCARNATION_VARIABLE,
    protocol::{Plan, StartError, StartErrorKind},
};
use ropewalk_names::{HostId, Incarnation, Rank};
use rustix::{io::Errno, thread::sched_getaffinity};

use super::{
    Agent,
    groups::Started,
    pmix,
    rank_io::{Output, RankIo, Sockets, pipe_for_reading, pipe_for_writing},
};
use crate::driver::{
    keeper,
    mpi_programs::{self, MpiHost},
    process::{self, Inherited, LINK_FD, PMI_FD, ProcessError, ProcessOptions, Program},
};

/// The programs of a process group, looked for on this host.
pub(super) fn programs(plan: &Plan, group: &GroupPlan, host: HostId) -> Vec<Result<Started, StartError>> {
    let own = plan.rank_variables(group, host, group.first, 0, 0);
    let own: Vec<&OsStr> = own.iter().map(|(name, _)| OsStr::new(name)).collect();
    let mut set = plan
        .environment
        .inheritable
        .iter()
        .chain(&plan.environment.common.variables);
    let named = set.rfind(|(name, _)| name == mpi::LIBRARY_VARIABLE);
    let ranks = plan
        .hosts
        .get(host.0 as usize)
        .map_or(0, |host| host.ranks().count());
    let processors = sched_getaffinity(None).map_or(usize::MAX, |set| set.count() as usize);
    let mpi_host = MpiHost::new(named.map(|(_, folder)| folder.as_os_str()));
    let mut others = Vec::new();
    let prepare = |GroupProgram { segment, path: first }: &GroupProgram| {
        // What stands last counts.
        let environment: BTreeMap<_, _> = plan.program_variables(segment).collect();
        let path = environment
            .get(&OsString::from("PATH"))
            .map(|path| path.as_os_str());
        let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
        let path = match first {
            Some(first) => [first, path].join(OsStr::new(":")),
            None => path.to_owned(),
        };
        let program = Program::new(segment, &path).map_err(|error| start_error(&error))?;
        let mut service = Service::Pmi;
        let mut is_open = false;
        let mut found = Flavour::None;
        let mut libraries = Vec::new();
        if plan.pmi.singleton.is_none()
            && let Some(file) = program.file()
        {
            let kind = mpi_programs::kind_of(&file);
            is_open = kind == Kind::Open;
            found = mpi_host.flavour(&file, &environment);
            let may_need = plan.pmi.protocol == PmiChoice::Pmix || found.speaks_pmix() || kind == Kind::Open;
            if may_need && matches!(plan.pmi.protocol, PmiChoice::Auto | PmiChoice::Pmix) {
                libraries = mpi_host.pmix_libraries(&file, &found, &environment);
            }
            let means = mpi_host.means(&found, !libraries.is_empty());
            let decided = mpi::service::service(plan.pmi.protocol, kind, &found, means);
            let refused = decided.clone().err().or_else(|| found.refusal_beside(&others));
            // One rank alone is what such a program is without us, too.
            if let (true, Some(refusal)) = (group.size > 1, refused) {
                let (kind, reason) = (StartErrorKind::NotExecutable, refusal.to_string());
                return Err(StartError { kind, reason });
            }
            service = decided.unwrap_or(Service::Pmi);
            others.push(found.clone());
        }
        let inherited = environment
            .iter()
            .filter(|(name, _)| !own.contains(&name.as_os_str()));
        let inherited = inherited.map(|(name, value)| variable(name, value));
        // Open MPI's ranks spin while they wait; where there are more of them than processors, each would keep the one
        // that it waits for from running: a solver took 60 s instead of 3. Its own launcher sets this too.
        let yields = OsString::from("OMPI_MCA_mpi_yield_when_idle");
        let is_crowded = ranks > processors;
        let yields =
            (is_crowded && !environment.contains_key(&yields)).then(|| variable(&yields, OsStr::new("1")));
        let flux = mpi_host.library(group.size).map(|library| {
            let job = mpi::open_mpi_job(plan.job);
            (job, library.to_string_lossy().into_owned())
        });
        let of_service = mpi::service::variables(plan.pmi.protocol, service, flux);
        let of_service = of_service
            .into_iter()
            .filter(|(name, _)| !environment.contains_key(&OsString::from(name)))
            .map(|(name, value)| variable(OsStr::new(name), OsStr::new(&value)));
        let environment = inherited
            .chain(yields)
            .chain(of_service)
            .collect::<Result<_, _>>();
        let environment = environment.map_err(|error| start_error(&error))?;
        Ok(Started {
            program,
            environment,
            pmix: service.has_pmix().then_some(libraries),
            needs_pmix: service == Service::Pmix,
            is_open,
            silent_end: (group.size > 1)
                .then(|| mpi::service::silent_end(&found))
                .flatten(),
        })
    };
    group.programs.iter().map(prepare).collect()
}

impl Agent {
    /// Returns true if ranks may be started: not before the agent can tell somebody. On the launcher's own
    /// host it will be able to, and the life line is enough to end it meanwhile.
    pub(super) fn may_start(&self) -> bool {
        let is_beside_launcher = || {
            let host = self.plan.hosts.get(self.host.0 as usize);
            host.is_some_and(|host| host.is_local)
        };
        self.branch.is_connected() || (is_beside_launcher() && !keeper::has_life_line_ended())
    }

    /// Starts the next rank, if one is to be started.
    pub(super) fn start_next(&mut self) {
        let Some(rank) = self.mind.poll_spawn() else {
            return;
        };
        let started = match self.plan.pmi.singleton {
            Some(singleton) if rank == Rank(0) => self.adopt(rank, singleton),
            _ => self.start_rank(rank),
        };
        match started {
            Ok(pid) => {
                self.mind.handle_spawned(rank, pid);
                self.begin_looks(rank, Instant::now());
                self.memory.handle_started(Instant::now());
            }
            Err(error) => self.mind.handle_not_spawned(rank, error),
        }
    }

    fn start_rank(&mut self, rank: Rank) -> Result<u32, StartError> {
        let failed = |error: io::Error| system_error("cannot make its sockets and pipes", &error);
        let index = *self
            .ranks
            .indices
            .get(&rank)
            .expect("the mind starts ranks of this host only");
        let report = |report| self.branch.report(report);
        self.ranks.retire(index, &mut self.buffer, report);
        let no_program = || system_error("the job has no program for it", &Errno::INVAL.into());
        let group = self.kit.groups.iter().find(|group| group.plan.has(rank));
        let group = group.ok_or_else(no_program)?;
        let (number, program) = group.plan.program_of(rank).ok_or_else(no_program)?;
        let segment = &program.segment;
        let started = match &group.programs[number] {
            Ok(started) => started,
            Err(error) => return Err(error.clone()),
        };
        let (pmi, rank_pmi) = UnixStream::pair().map_err(failed)?;
        let (link, rank_link) = AgentLink::pair().map_err(failed)?;
        let (stdout, rank_stdout) = pipe_for_reading().map_err(failed)?;
        let (stderr, rank_stderr) = pipe_for_reading().map_err(failed)?;
        let incarnation = self.mind.incarnation(rank);
        // What the process before has read is not there any more.
        let (rank_stdin, stdin) = if self.inputs.has(index) && incarnation == Incarnation(0) {
            let (reader, writer) = pipe_for_writing().map_err(failed)?;
            (reader, Some(writer))
        } else {
            (self.kit.slots.null().map_err(failed)?, None)
        };
        let (plan, local) = (&group.plan, index - group.indices.start);
        let own = self
            .plan
            .rank_variables(plan, self.host, rank, local, group.indices.len());
        let choice = self.plan.pmi.protocol;
        let own = own
            .iter()
            .filter(|(name, _)| !mpi::service::is_left_out(choice, name))
            .map(|(name, value)| variable(OsStr::new(name), OsStr::new(value)));
        let descriptors = [
            ("PMI_FD", PMI_FD),
            (AgentLink::VARIABLE, LINK_FD),
            (INCARNATION_VARIABLE, incarnation.0.cast_signed()),
        ];
        let descriptors = descriptors
            .into_iter()
            .filter(|(name, _)| !mpi::service::is_left_out(choice, name))
            .map(|(name, number)| variable(OsStr::new(name), OsStr::new(&number.to_string())));
        let advisors = self.advisors.value_for(rank);
        let advisors =
            advisors.map(|value| variable(OsStr::new(ropewalk_agent_link::VARIABLE), OsStr::new(&value)));
        let own: Vec<CString> = own
            .chain(descriptors)
            .chain(advisors)
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let of_pmix = match started.pmix {
            Some(_) => pmix::environment(self.pmix.as_ref(), group, rank),
            None => &[],
        };
        let environment: Vec<&CStr> = started
            .environment
            .iter()
            .chain(of_pmix)
            .chain(&own)
            .map(CString::as_c_str)
            .collect();
        let processors = self.kit.bindings.as_ref().map_err(Clone::clone);
        let processors = processors.and_then(|bindings| bindings.of(index));
        let processors =
            processors.map_err(|error| system_error("cannot be bound", &io::Error::other(error)))?;
        let pid = process::start(
            &started.program,
            &mut self.kit.slots,
            &ProcessOptions {
                inherited: Inherited {
                    stdin: rank_stdin,
                    stdout: rank_stdout,
                    stderr: rank_stderr,
                    pmi: rank_pmi.into(),
                    link: rank_link.into(),
                },
                environment: &environment,
                descriptors: self.kit.descriptors,
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
            ProcessError::Execute(error) => start_error(&error),
            ProcessError::System(error) => system_error("cannot make its process", &error),
        })?;
        let output = |pipe| {
            let lines = WholeLines::default();
            Some(Output { pipe, lines })
        };
        let io = RankIo {
            rank,
            pid,
            foreign: None,
            was_killed: false,
            sockets: Some(Sockets::new(pmi.into(), link)),
            outputs: [output(stdout), output(stderr)],
        };
        // A rank that runs and cannot be watched is left to the sweep that follows a failed start.
        self.ranks
            .insert(index, io, &self.poller, &self.outputs)
            .map_err(failed)?;
        if let Some(stdin) = stdin {
            self.inputs.set_pipe(index, stdin);
            self.inputs.write_to(index, &self.poller, &mut self.branch);
        }
        Ok(pid.as_raw_nonzero().get().cast_unsigned())
    }
}

fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    Ok(CString::new(text.into_vec())?)
}

fn start_error(error: &io::Error) -> StartError {
    use io::ErrorKind::{NotADirectory, NotFound, OutOfMemory, QuotaExceeded, WouldBlock};
    let kind = match (error.kind(), error.raw_os_error().map(Errno::from_raw_os_error)) {
        (NotFound | NotADirectory, _) => StartErrorKind::NotFound,
        (OutOfMemory | QuotaExceeded | WouldBlock, _) => StartErrorKind::System,
        (_, Some(Errno::MFILE | Errno::NFILE | Errno::SRCH)) => StartErrorKind::System,
        _ => StartErrorKind::NotExecutable,
    };
    let reason = error.to_string();
    StartError { kind, reason }
}

/// Something that a rank needs could not be made.
pub(super) fn system_error(what: &str, error: &io::Error) -> StartError {
    StartError {
        kind: StartErrorKind::System,
        reason: format!("{what}: {error}"),
    }
}
