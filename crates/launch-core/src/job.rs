//! The description of a job.

use core::net::IpAddr;
use std::{ffi::OsString, iter, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    hosts::HostSlots,
    inherited::{Inherited, RankNetwork},
    mpi::service::PmiChoice,
    names::NameServerAccess,
    placement::Placement,
};

/// A job for a launcher.
///
/// ```
/// # use ropewalk_launch_core::{JobSpec, OnFailure, Segment};
/// let sleepers = Segment {
///     arguments: vec!["60".into()],
///     ranks: 4,
///     ..Segment::new("sleep")
/// };
/// let spec = JobSpec {
///     reactions: OnFailure::Continue.into(),
///     ..JobSpec::new("/usr/bin/ropewalk", sleepers)
/// };
/// ```
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The program of the first ranks.
    pub first: Segment,
    /// Further programs of the same job, whose ranks follow those of the first.
    pub more: Vec<Segment>,
    /// The variables of all ranks.
    pub environment: JobEnvironment,
    /// The hosts to run on; only this one if there are none.
    pub hosts: Vec<HostSlots>,
    /// Which rank goes to which host, and there to which processors.
    pub placement: Placement,
    /// The agents, one on each host.
    pub agents: AgentStart,
    /// The first agent on this host is a fork of this process, as long as that has one thread, and not an execution of
    /// [`AgentStart::executable`]: that is faster, and shares memory. Another fork ends commands like ssh that
    /// hang when this process is killed. For programs that do nothing else, since what they have in memory
    /// these have too; to start a job may then take as long as it takes to find the address of another host.
    pub fork_agent: bool,
    /// How launcher, agents and ranks reach each other.
    pub network: JobNetwork,
    /// How long parts of the job may take.
    pub time_limits: TimeLimits,
    /// The reactions to ranks that fail, stop or make no progress.
    pub reactions: Reactions,
    /// Who reads the standard input of this process. The others read nothing.
    pub stdin: StdinSource,
    /// Standard output and standard error of each rank are two pseudo-terminals of its own, and not pipes: programs
    /// write each line at once, so that one that is killed loses none, and in colours. A host has as many terminals
    /// as `/proc/sys/kernel/pty/max` says.
    pub has_terminals: bool,
    /// Hand SIGINT, SIGTERM, SIGHUP and SIGQUIT on to the ranks, and end them if they stay for
    /// [`TimeLimits::grace`]; with SIGTERM a job with an advisor of checkpoints is asked to save first. A
    /// second such signal kills them at once, and ends this process if the launcher is still there a second
    /// after [`JobEvent::Finished`](crate::JobEvent::Finished). SIGUSR1 and SIGUSR2 are handed on, and that
    /// is all, but for SIGUSR1 in a job with such an advisor: it saves, however long that takes, and is ended
    /// then. SIGTSTP, as ^Z sends it, stops the ranks and then this process, until SIGCONT lets it go on, and
    /// them; ranks of jobs of this process that hand on no signals go on meanwhile, without a launcher. All
    /// but the first two stay ignored if they are, as SIGHUP is under nohup(1).
    pub forward_signals: bool,
    /// Kill ranks on purpose.
    pub injection: Option<Injection>,
    /// The process management interface that ranks get.
    pub pmi: PmiOptions,
}

impl JobSpec {
    /// How many ranks a job may have.
    pub const RANKS_MAX: u32 = 1 << 20;
    /// How many agents each node of the tree starts, unless told otherwise.
    pub const ARITY: u32 = 16;
    /// How long an agent may be silent, unless told otherwise.
    pub const DETECT: Duration = Duration::from_secs(3);
    /// How long ranks have to end when they are asked to, unless told otherwise.
    pub const GRACE: Duration = Duration::from_secs(10);

    /// The ranks of one program, which read nothing. The name of a program alone stands for one rank of it without
    /// arguments ([`Segment::new`]), and a path for agents that are started from there by ssh ([`AgentStart::new`]).
    pub fn new(agents: impl Into<AgentStart>, first: impl Into<Segment>) -> Self {
        Self {
            first: first.into(),
            more: Vec::new(),
            environment: JobEnvironment::default(),
            hosts: Vec::new(),
            placement: Placement::default(),
            agents: agents.into(),
            fork_agent: false,
            network: JobNetwork::default(),
            time_limits: TimeLimits::default(),
            reactions: Reactions::default(),
            stdin: StdinSource::Null,
            has_terminals: false,
            forward_signals: false,
            injection: None,
            pmi: PmiOptions::default(),
        }
    }

    /// The programs, in order of their ranks.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        iter::once(&self.first).chain(&self.more)
    }

    /// How many ranks the programs have together; `u32::MAX` if that is more.
    pub fn size(&self) -> u32 {
        self.segments()
            .fold(0, |size: u32, segment| size.saturating_add(segment.ranks))
    }
}

/// The variables that all ranks of a job get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnvironment {
    /// The variables of the launcher that the ranks of programs get for which nothing else is said
    /// ([`Segment::inherited`]).
    pub inherited: Inherited,
    /// Further variables of all ranks.
    pub variables: Vec<(OsString, OsString)>,
}

/// How agents are started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStart {
    /// The executable that is run as `<executable> agent`; it must call `agent_main` of `ropewalk-launch`.
    pub executable: OsString,
    /// How they are started on other hosts.
    pub method: StartMethod,
    /// How many agents each node of the tree starts at most.
    pub arity: u32,
}

impl AgentStart {
    /// By ssh without further options, [`JobSpec::ARITY`] of them by each node.
    pub fn new(executable: impl Into<OsString>) -> Self {
        Self {
            executable: executable.into(),
            method: StartMethod::Ssh(Vec::new()),
            arity: JobSpec::ARITY,
        }
    }
}

impl<E: Into<OsString>> From<E> for AgentStart {
    fn from(executable: E) -> Self {
        Self::new(executable)
    }
}

/// How the processes of a job reach each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNetwork {
    /// The address by which agents reach the launcher, and listen on; found by itself if `None`.
    pub interface: Option<IpAddr>,
    /// The network that ranks are told to use among themselves.
    pub rank_network: RankNetwork,
    /// Encrypt all that launcher, agents and ranks with a fabric of ours send each other over TCP. What other libraries
    /// send by themselves, as MPI's do, is not encrypted, and the job's key is only as secret as what
    /// [`AgentStart::method`] carries to other hosts: ssh is, rsh is not.
    pub encrypt: bool,
}

/// How long parts of a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// How long an agent may be silent before it is taken for dead. All other time-outs derive from it.
    pub detect: Duration,
    /// How long a host may take to bring its agent up, logins and all, before it counts as lost; ten times
    /// [`detect`](Self::detect) if `None`. After `detect` it is told that it is waited for
    /// ([`JobEvent::HostLate`](crate::JobEvent::HostLate)).
    pub start_timeout: Option<Duration>,
    /// How long ranks have from the request to end until SIGKILL. An advisor of checkpoints that is told of
    /// the end has this time for a last save.
    pub grace: Duration,
    /// How long the batch system lets this process run from now on, if that is known: advisors are told, and
    /// a job that has one is ended early enough.
    pub allocation: Option<Duration>,
    /// End the job after this time, all its attempts together. The time in which the job is suspended does not count.
    pub timeout: Option<Duration>,
}

impl Default for TimeLimits {
    /// [`JobSpec::DETECT`] and [`JobSpec::GRACE`], and no end.
    fn default() -> Self {
        Self {
            detect: JobSpec::DETECT,
            start_timeout: None,
            grace: JobSpec::GRACE,
            allocation: None,
            timeout: None,
        }
    }
}

/// The reactions of a job to ranks that fail, stop or make no progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reactions {
    /// The reaction to the failure of a rank.
    pub on_failure: OnFailure,
    /// The reaction to a rank that stays stopped by a signal for longer than [`TimeLimits::detect`].
    pub on_stopped: OnStopped,
    /// The end of the job if its ranks make no progress.
    pub stall: StallDetection,
}

impl From<OnFailure> for Reactions {
    /// This reaction to failures, and the usual ones to all else.
    fn from(on_failure: OnFailure) -> Self {
        Self {
            on_failure,
            ..Self::default()
        }
    }
}

/// The detection of a job whose ranks make no progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallDetection {
    /// When the job ends because its ranks make no progress.
    pub limit: Stall,
    /// Processor time of the ranks is progress too. Ranks of MPI libraries that wait spin, so that with this
    /// a job of them whose ranks wait for each other for ever makes progress.
    pub counts_cpu: bool,
}

/// The process management interface that ranks get: by which protocol they find each other, and what they learn and
/// share by it.
#[derive(Clone, Debug, Default)]
pub struct PmiOptions {
    /// The protocol by which ranks find each other.
    pub protocol: PmiChoice,
    /// The room for processes (`MPI_UNIVERSE_SIZE`) that is told to programs that want to start others.
    pub universe: UniverseSize,
    /// Where names that programs publish are kept, for all jobs that name the same. With `None` this job has
    /// names of its own.
    pub name_server: Option<NameServerAccess>,
    /// Ranks connect to a port of their host for PMI-1 and PMI-2, and inherit no descriptor for it: for programs whose
    /// descriptors a wrapper closes.
    pub by_port: bool,
    /// Rank 0 runs already, and waits to be served: [`JobSpec::first`] is not started. The job has no other
    /// rank and no other host but what it spawns.
    pub singleton: Option<Singleton>,
}

/// A process that nobody started and that had its process manager started to serve it (`mpiexec -pmi_args`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Singleton {
    /// Where it waits for a connection, on the loopback interface.
    pub port: u16,
    /// Its number.
    pub pid: u32,
}

/// The fate of the other ranks when a rank fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are ended.
    #[default]
    Abort,
    /// They go on. The job's exit code is still that of the first failure.
    Continue,
    /// It gets another process, a new incarnation of the same rank, on the same host; the others go on meanwhile. One
    /// that fails too often ends the job. If a host is lost its ranks do not come back, and the others go on.
    Respawn(RespawnPolicy),
    /// They are ended, and the whole job is started again: see [`restart`](crate::restart).
    Restart(RestartPolicy),
}

/// When a job ends because its ranks make no progress, with exit code 124
/// ([`Ending::Stalled`](crate::Ending::Stalled)).
///
/// Progress is output, requests by PMI, messages to the agent, and bytes that ranks read, write, or send over
/// TCP, as the kernel counts them. Messages through shared memory and those that a network card moves by
/// itself cannot be seen, and neither can a program that only computes ([`StallDetection::counts_cpu`]): the
/// time must be longer than the longest such part of the program. It is seen within one and a half times as
/// long.
///
/// A job that goes on when a rank fails ([`OnFailure::Continue`], [`OnFailure::Respawn`]) is warned after
/// half of the time ([`JobEvent::Stalled`](crate::JobEvent::Stalled)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stall {
    /// After this time without progress.
    After(Duration),
    /// After this time without progress since a rank or a host was lost, if the job goes on without it and a
    /// rank lives that has begun with PMI and is not attached to its agent. Nobody tells such a rank of the
    /// loss: as a program of plain MPI, it waits for ever in its next collective operation.
    AfterLoss(Duration),
    /// Never.
    Never,
}

impl Default for Stall {
    /// A minute after a loss.
    fn default() -> Self {
        Self::AfterLoss(Duration::from_secs(60))
    }
}

/// The fate of a rank that a signal stopped and that does not go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStopped {
    /// It is killed, which is a failure like others ([`Reactions::on_failure`]).
    Fail,
    /// It is told ([`JobEvent::Stopped`](crate::JobEvent::Stopped)), and that is all: whoever stopped it may have a
    /// debugger.
    #[default]
    Notice,
}

/// How often ranks get another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RespawnPolicy {
    /// How many times each rank at most.
    pub per_rank: u32,
    /// The pause before the first time; it doubles with each.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for RespawnPolicy {
    fn default() -> Self {
        Self {
            per_rank: 3,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
        }
    }
}

/// When a failed job is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// How many times at most; as long as it is no crash loop if `None`.
    pub restarts_max: Option<u32>,
    /// The pause before the first restart, and after each attempt that came to something.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// How many attempts in a row may come to nothing.
    pub in_vain_max: u32,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            restarts_max: None,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            in_vain_max: 5,
        }
    }
}

impl RestartPolicy {
    /// At most so many restarts, however quickly attempts fail.
    pub fn at_most(restarts: u32) -> Self {
        Self {
            restarts_max: Some(restarts),
            in_vain_max: u32::MAX,
            ..Self::default()
        }
    }
}

/// Killing ranks on purpose, to see what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The mean time between two of them, in the whole job.
    pub mtbf: Duration,
    /// The seed from which times and ranks are drawn: equal seeds draw equally.
    pub seed: u64,
}

impl OnFailure {
    /// Returns true if a failure, which nobody makes good, ends the job, or this attempt of it.
    pub(crate) fn ends_job(self) -> bool {
        match self {
            Self::Abort | Self::Respawn(_) | Self::Restart(_) => true,
            Self::Continue => false,
        }
    }

    /// Returns true if the loss of a host ends the job, or this attempt of it.
    pub(crate) fn ends_job_with_host(self) -> bool {
        match self {
            Self::Abort | Self::Restart(_) => true,
            Self::Continue | Self::Respawn(_) => false,
        }
    }
}

/// How many processes the hosts have room for, `MPI_UNIVERSE_SIZE` (MPI standard, 11.10.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UniverseSize {
    /// As many as are wanted: nothing is said.
    #[default]
    Unknown,
    /// The slots of all hosts; without hosts the processors of this one.
    Slots,
    /// This many.
    Ranks(u32),
}

/// Who reads the standard input of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinSource {
    /// Rank 0.
    Inherit,
    /// All ranks, each of them all of it. The slowest sets the pace.
    InheritAll,
    /// Nobody.
    Null,
}

/// A program of a job and its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// How many processes of it, at least one.
    pub ranks: u32,
    /// Variables that these ranks get beside those of all.
    pub environment: Vec<(OsString, OsString)>,
    /// The variables of the launcher that these ranks get; as the job has it if `None`.
    pub inherited: Option<Inherited>,
    /// Where the ranks start; the directory of the launcher if `None`.
    pub working_directory: Option<PathBuf>,
}

impl Segment {
    /// One rank of `program` without arguments, with the variables and the directory of the job.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            ranks: 1,
            environment: Vec::new(),
            inherited: None,
            working_directory: None,
        }
    }
}

impl<P: Into<OsString>> From<P> for Segment {
    fn from(program: P) -> Self {
        Self::new(program)
    }
}

/// How agents are started on other hosts. On the launcher's own they are simply started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartMethod {
    /// These words, then the host's name, then the command: any program that is used like rsh(1).
    Command(Vec<OsString>),
    /// Slurm's srun(1) with further options, one job step for each host, inside an allocation.
    Srun(Vec<OsString>),
    /// ssh(1) with further options; it must not ask for a password.
    Ssh(Vec<OsString>),
}
