//! The description of a job.

use core::net::IpAddr;
use std::{ffi::OsString, path::PathBuf, time::Duration};

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
/// # use ropewalk_launch_core::{JobSpec, OnFailure};
/// let spec = JobSpec {
///     arguments: vec!["60".into()],
///     ranks: 4,
///     on_failure: OnFailure::Continue,
///     ..JobSpec::new("/usr/bin/ropewalk", "sleep")
/// };
/// ```
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// How many processes of it, at least one.
    pub ranks: u32,
    /// Variables that all ranks get beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables that only the ranks of this program get, and not those of [`more`](Self::more).
    pub own_environment: Vec<(OsString, OsString)>,
    /// The variables of this process that the ranks of programs get for which nothing else is said.
    pub inherited: Inherited,
    /// Those that the ranks of this program get instead, and not those of [`more`](Self::more).
    pub own_inherited: Option<Inherited>,
    /// Where the ranks start; the directory of this process if `None`.
    pub working_directory: Option<PathBuf>,
    /// Further programs of the same job, whose ranks follow those of the first.
    pub more: Vec<Segment>,
    /// The hosts to run on; only this one if there are none.
    pub hosts: Vec<HostSlots>,
    /// Which rank goes to which host, and there to which cores.
    pub placement: Placement,
    /// How agents are started on other hosts.
    pub method: StartMethod,
    /// The address by which agents reach the launcher, and listen on; found by itself if `None`.
    pub interface: Option<IpAddr>,
    /// The network that ranks are told to use among themselves.
    pub rank_network: RankNetwork,
    /// How many graphics processors each rank gets, by `CUDA_VISIBLE_DEVICES`: the first of a host those from
    /// number 0 on, the next those that follow. With 0 it gets none, with `None` nothing is said.
    pub gpus_per_rank: Option<u16>,
    /// Encrypt all that launcher, agents and ranks with a fabric of ours send each other over TCP. What other libraries
    /// send by themselves, as MPI's do, is not encrypted, and the job's key is only as secret as what
    /// [`method`](Self::method) carries to other hosts: ssh is, rsh is not.
    pub encrypt: bool,
    /// The room for processes (`MPI_UNIVERSE_SIZE`) that is told to programs that want to start others.
    pub universe: UniverseSize,
    /// How many agents each node of the tree starts at most.
    pub arity: u32,
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
    /// The reaction to the failure of a rank.
    pub on_failure: OnFailure,
    /// The reaction to a rank that stays stopped by a signal for longer than [`detect`](Self::detect).
    pub on_stopped: OnStopped,
    /// Who reads the standard input of this process. The others read nothing.
    pub stdin: StdinSource,
    /// End the job after this time, all its attempts together. The time in which the job is suspended does not count.
    pub timeout: Option<Duration>,
    /// Hand SIGINT, SIGTERM, SIGHUP and SIGQUIT on to the ranks, and end them if they stay for
    /// [`grace`](Self::grace); with SIGTERM a job with an advisor of checkpoints is asked to save first. A
    /// second such signal kills them at once, and ends this process if the launcher is still there a second
    /// after [`JobEvent::Finished`](crate::JobEvent::Finished). SIGUSR1 and SIGUSR2 are handed on, and that
    /// is all, but for SIGUSR1 in a job with such an advisor: it saves, however long that takes, and is ended
    /// then. SIGTSTP, as ^Z sends it, stops the ranks and then this process, until SIGCONT lets it go on, and
    /// them; ranks of jobs of this process that hand on no signals go on meanwhile, without a launcher. All
    /// but the first two stay ignored if they are, as SIGHUP is under nohup(1).
    pub forward_signals: bool,
    /// When the job ends because its ranks make no progress.
    pub stall: Stall,
    /// Processor time of the ranks is progress too. Ranks of MPI libraries that wait spin, so that with this
    /// a job of them whose ranks wait for each other for ever makes progress.
    pub stall_counts_cpu: bool,
    /// Kill ranks on purpose.
    pub injection: Option<Injection>,
    /// Rank 0 runs already, and waits to be served: [`program`](Self::program) is not started. The job has no other
    /// rank and no other host but what it spawns.
    pub singleton: Option<Singleton>,
    /// Where names that programs publish are kept, for all jobs that name the same. With `None` this job has
    /// names of its own.
    pub name_server: Option<NameServerAccess>,
    /// The protocol by which ranks find each other.
    pub pmi: PmiChoice,
    /// The executable that is run as `<agent> agent`; it must call `agent_main` of `ropewalk-launch`.
    pub agent: PathBuf,
    /// The first agent on this host is a fork of this process, as long as that has one thread, and not an execution of
    /// [`agent`](Self::agent): that is faster, and shares memory. Another fork ends commands like ssh that
    /// hang when this process is killed. For programs that do nothing else, since what they have in memory
    /// these have too; to start a job may then take as long as it takes to find the address of another host.
    pub fork_agent: bool,
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

    /// One rank of `program` without arguments, which reads nothing.
    pub fn new(agent: impl Into<PathBuf>, program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            ranks: 1,
            environment: Vec::new(),
            own_environment: Vec::new(),
            inherited: Inherited::All,
            own_inherited: None,
            working_directory: None,
            more: Vec::new(),
            hosts: Vec::new(),
            placement: Placement::default(),
            method: StartMethod::Ssh(Vec::new()),
            interface: None,
            rank_network: RankNetwork::HostName,
            gpus_per_rank: None,
            encrypt: false,
            universe: UniverseSize::Unknown,
            arity: Self::ARITY,
            detect: Self::DETECT,
            start_timeout: None,
            grace: Self::GRACE,
            allocation: None,
            on_failure: OnFailure::Abort,
            on_stopped: OnStopped::Notice,
            stdin: StdinSource::Null,
            timeout: None,
            forward_signals: false,
            stall: Stall::default(),
            stall_counts_cpu: false,
            injection: None,
            singleton: None,
            name_server: None,
            pmi: PmiChoice::Auto,
            agent: agent.into(),
            fork_agent: false,
        }
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are ended.
    Abort,
    /// They go on. The job's exit code is still that of the first failure.
    Continue,
    /// It gets another process, a new incarnation of the same rank, on the same host; the others go on meanwhile. One
    /// that fails too often, or whose host is lost, ends the job.
    Respawn(RespawnPolicy),
    /// They are ended, and the whole job is started again: see [`restart`](crate::restart).
    Restart(RestartPolicy),
}

/// When a job ends because its ranks make no progress, with exit code 124
/// ([`Ending::Stalled`](crate::Ending::Stalled)).
///
/// Progress is output, requests by PMI, messages to the agent, and bytes that ranks read, write, or send over
/// TCP, as the kernel counts them. Messages through shared memory and those that a network card moves by
/// itself cannot be seen, and neither can a program that only computes ([`JobSpec::stall_counts_cpu`]): the
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStopped {
    /// It is killed, which is a failure like others ([`JobSpec::on_failure`]).
    Fail,
    /// It is told ([`JobEvent::Stopped`](crate::JobEvent::Stopped)), and that is all: whoever stopped it may have a
    /// debugger.
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
    /// Returns true if a failure ends the job, or this attempt of it.
    pub(crate) fn ends_job(self) -> bool {
        match self {
            Self::Abort | Self::Respawn(_) | Self::Restart(_) => true,
            Self::Continue => false,
        }
    }
}

/// How many processes the hosts have room for, `MPI_UNIVERSE_SIZE` (MPI standard, 11.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniverseSize {
    /// As many as are wanted: nothing is said.
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
