//! One run: a job, and what is done to it.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use ropewalk_launch::{JobEvent, JobSpec, Launcher, OnFailure, OnStopped, Segment, hosts::parse_hosts};
use ropewalk_names::Rank;
use ropewalk_rig::{Direction, Network, within};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use tempfile::TempDir;

use super::{
    cells::{Expected, Shortage, Workload},
    judge::{Outcome, Seen},
    steps::{Act, Draw, Layout, Moment, Step},
};

/// The executables of all runs: copies, so that what runs of them belongs to this process.
pub(super) struct Programs {
    folder: TempDir,
    agent: PathBuf,
    worker: PathBuf,
    /// The program of [returns](super::returns).
    pub(super) returning: PathBuf,
}

impl Programs {
    /// Copies them from where they were built.
    pub(super) fn copy(built: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let copy = |name: &str, to: &str| -> anyhow::Result<PathBuf> {
            let (from, to) = (built.join(name), folder.path().join(to));
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            Ok(to)
        };
        Ok(Self {
            agent: copy("ropewalk", "ropewalk")?,
            worker: copy("examples/chaos_worker", "chaos_worker")?,
            returning: copy("examples/reduce_returning", "reduce_returning")?,
            folder,
        })
    }

    /// The numbers of the processes that run them.
    fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ours = entries.filter(|entry| {
            let executable = fs::read_link(entry.path().join("exe"));
            executable.is_ok_and(|path| path.starts_with(self.folder.path()))
        });
        let numbers = ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }
}

/// The collective of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Reduce,
    Allreduce,
    Broadcast,
    Gather,
    Allgather,
}

impl Call {
    pub(super) const REDUCTIONS: [Self; 3] = [Self::Reduce, Self::Reduce, Self::Allreduce];
    pub(super) const ALL: [Self; 6] = [
        Self::Reduce,
        Self::Reduce,
        Self::Allreduce,
        Self::Broadcast,
        Self::Gather,
        Self::Allgather,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::Allgather => "allgather",
        }
    }

    fn is_for_all(self) -> bool {
        matches!(self, Self::Allreduce | Self::Broadcast | Self::Allgather)
    }

    /// Bytes of each contribution to a result of so many `bytes`.
    fn contribution_bytes(self, bytes: u64, ranks: u32) -> u64 {
        match self {
            Self::Gather | Self::Allgather => bytes / u64::from(ranks),
            Self::Reduce | Self::Allreduce | Self::Broadcast => bytes,
        }
    }
}

/// The collective of a run, and how it is called.
#[derive(Clone, Copy)]
pub(super) struct Collective {
    pub(super) is_ordered: bool,
    pub(super) is_sum: bool,
    pub(super) call: Call,
    pub(super) root: Rank,
    /// The rank that follows the root. It calls late, if one does.
    pub(super) next: Rank,
}

/// The choices of a run.
pub(super) struct Trial<'a> {
    pub(super) programs: &'a Programs,
    /// Where the hosts are, if they are not this machine as it is.
    pub(super) network: Option<&'a Network>,
    pub(super) layout: Layout,
    pub(super) workload: Workload,
    pub(super) collective: Collective,
    pub(super) detect: Duration,
    pub(super) steps: Vec<Step>,
    pub(super) shortage: Option<(Shortage, u32)>,
    /// A rank that stays stopped is killed.
    pub(super) kills_stopped: bool,
    pub(super) expected: Expected,
    /// The job has ended so long after the first step.
    pub(super) time_max: Duration,
}

/// Something that the run hears of.
pub(super) enum Event {
    Job(JobEvent),
    Moment(Rank, Pid, String, u64),
    Failed(anyhow::Error),
}

impl<'a> Trial<'a> {
    /// A run as it was drawn.
    pub(super) fn new(programs: &'a Programs, draw: &Draw, steps: Vec<Step>) -> Self {
        Self {
            programs,
            network: None,
            layout: draw.layout,
            workload: Workload::new(0),
            collective: Collective {
                is_ordered: false,
                is_sum: true,
                call: Call::Reduce,
                root: draw.root,
                next: draw.next,
            },
            detect: Duration::from_secs(1),
            steps,
            shortage: None,
            kills_stopped: false,
            expected: Expected::Exact,
            time_max: Duration::from_secs(20),
        }
    }

    /// Runs the job, does the steps, and judges.
    ///
    /// # Errors
    /// If this process cannot do its part.
    pub(super) fn run(&self) -> anyhow::Result<(Seen, Outcome)> {
        let limited = self.shortage.map(|_| ControlGroup::new()).transpose()?;
        let spec = self.spec(limited.as_ref())?;
        let (sender, events) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        let socket_path = self.programs.folder.path().join("moments");
        let _ = fs::remove_file(&socket_path);
        let socket = UnixDatagram::bind(&socket_path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut run = Run::new(self);
        let mut outcome = thread::scope(|scope| {
            let (moments, is_over) = (sender.clone(), &is_over);
            scope.spawn(move || hear_moments(&socket, &moments, is_over));
            scope.spawn(move || {
                let job = || follow_job(spec, &sender, is_over);
                let ended = match self.network {
                    Some(network) => within(&network.namespace(0), job),
                    None => job(),
                };
                if let Err(error) = ended {
                    // The other side waits for it until the run is over.
                    let _ = sender.send(Event::Failed(error));
                }
            });
            let outcome = run.follow(&events);
            is_over.store(true, Ordering::Relaxed);
            outcome
        })?;
        if let Some(left) = self.wait_until_nothing_is_left(&run)
            && !outcome.is_failure()
        {
            outcome = Outcome::Broken(left);
        }
        let steps = run.waiting.iter().map(|step| step.act);
        let undone = steps.chain(run.due.iter().map(|(_, act)| *act));
        run.seen.undone = undone.filter(|act| matches!(act, Act::Kill(_))).count() as u64;
        for process in self.programs.processes() {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(process, Signal::KILL);
        }
        if let Some(network) = self.network {
            network.heal()?;
        }
        Ok((run.seen, outcome))
    }

    fn spec(&self, limited: Option<&ControlGroup>) -> anyhow::Result<JobSpec> {
        let Programs { folder, worker, .. } = self.programs;
        let Workload {
            bytes,
            copies,
            late_ms,
            is_group,
            before,
        } = self.workload;
        let Collective {
            is_ordered,
            is_sum,
            call,
            root,
            next,
        } = self.collective;
        let arguments = [
            format!("bytes={}", call.contribution_bytes(bytes, self.layout.ranks)),
            format!("order={}", if is_ordered { "ordered" } else { "any" }),
            format!("operation={}", if is_sum { "sum" } else { "xor" }),
            format!("call={}", call.word()),
            format!("root={root}"),
            format!("next={next}"),
            format!("copies={copies}"),
            "buffers=odd".to_owned(),
            format!("late={next}"),
            format!("late-ms={late_ms}"),
            format!("before={before}"),
            format!("group={}", if is_group { "reversed" } else { "world" }),
        ];
        let mut arguments: Vec<_> = arguments.map(Into::into).into();
        let mut program = worker.clone();
        if let (Some((shortage, number)), Some(group)) = (self.shortage, limited) {
            let victim = self.layout.ranks - 1;
            let limit = match shortage {
                Shortage::Descriptors => format!("ulimit -n {number}"),
                Shortage::Memory => format!("echo $$ > {}/cgroup.procs", group.0.display()),
            };
            if shortage == Shortage::Memory {
                group.limit(MEMORY_BESIDE + 4 * bytes)?;
                arguments.push(format!("hog={victim}").into());
            }
            program = folder.path().join("limited");
            let worker = worker.display();
            let script =
                format!("#!/bin/sh\nif [ \"$RANK\" = {victim} ]; then {limit}; fi\nexec {worker} \"$@\"\n");
            fs::write(&program, script)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        let program = Segment {
            arguments,
            ranks: self.layout.ranks,
            environment: vec![("CHAOS_SOCKET".into(), folder.path().join("moments").into())],
            ..Segment::new(program)
        };
        let mut spec = job_of(self.programs, self.network, self.layout, program)?;
        spec.reactions = OnFailure::Continue.into();
        spec.time_limits.detect = self.detect;
        if self.kills_stopped {
            spec.reactions.on_stopped = OnStopped::Fail;
        }
        Ok(spec)
    }

    /// A sentence about processes that stay too long.
    fn wait_until_nothing_is_left(&self, run: &Run<'_>) -> Option<String> {
        let end = Instant::now()
            + LEFT_MAX
            + if run.has_cut {
                10 * self.detect
            } else {
                Duration::ZERO
            };
        loop {
            let left = self.programs.processes();
            if left.is_empty() {
                return None;
            }
            if Instant::now() > end {
                let commands = left.iter().map(|process| {
                    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&command).replace('\0', " ")
                });
                let commands = commands.collect::<Vec<_>>().join(", ");
                return Some(format!("processes are left after the end of the job: {commands}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A run as it goes.
struct Run<'a> {
    trial: &'a Trial<'a>,
    seen: Seen,
    processes: Vec<Option<Pid>>,
    /// The steps that have a time.
    due: Vec<(Instant, Act)>,
    waiting: Vec<Step>,
    deadline: Instant,
    /// A host that was cut off has to find out by itself that it shall end.
    has_cut: bool,
}

impl<'a> Run<'a> {
    fn new(trial: &'a Trial<'a>) -> Self {
        let mut seen = Seen {
            is_for_all: trial.collective.call.is_for_all(),
            ..Seen::default()
        };
        if let Some((shortage, _)) = trial.shortage {
            seen.is_out_of_memory = shortage == Shortage::Memory;
            seen.victims.insert(Rank(trial.layout.ranks - 1), 0);
        }
        Self {
            trial,
            seen,
            processes: vec![None; trial.layout.ranks as usize],
            due: Vec::new(),
            waiting: trial.steps.clone(),
            deadline: Instant::now() + START_MAX.max(trial.time_max),
            has_cut: false,
        }
    }

    fn follow(&mut self, events: &mpsc::Receiver<Event>) -> anyhow::Result<Outcome> {
        loop {
            self.act_in_time()?;
            let now = Instant::now();
            if now >= self.deadline {
                return Ok(Outcome::Hung(self.seen.to_string()));
            }
            let next = self.due.iter().map(|(at, _)| *at).min().unwrap_or(self.deadline);
            let event = events.recv_timeout(next.min(self.deadline).saturating_duration_since(now));
            match event {
                Ok(Event::Job(JobEvent::Finished(outcome))) => {
                    self.seen.verdict = Some(outcome.verdict);
                    return Ok(self.seen.judge(self.trial.layout.ranks, self.trial.expected));
                }
                Ok(Event::Job(JobEvent::Output { rank, line, .. })) => {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    self.seen.said.entry(rank).or_default().push(line);
                }
                Ok(Event::Moment(rank, process, moment, at)) => self.hear_moment(rank, process, &moment, at),
                Ok(Event::Failed(error)) => return Err(error),
                _ => {}
            }
        }
    }

    fn hear_moment(&mut self, rank: Rank, process: Pid, moment: &str, at: u64) {
        if let Some(known) = self.processes.get_mut(rank.index()) {
            *known = Some(process);
        }
        let reached = match moment {
            "calls" => Moment::Calls(rank),
            "returned" => {
                self.seen.returned.insert(rank, at);
                if let Some((Shortage::Memory, _)) = self.trial.shortage {
                    self.seen.victims.entry(rank).and_modify(|death| *death = at);
                }
                Moment::Returned(rank)
            }
            _ => {
                self.seen.answered.insert(rank, at);
                return;
            }
        };
        let since = Duration::from_nanos(now_ns().saturating_sub(at));
        let then = Instant::now().checked_sub(since).unwrap_or_else(Instant::now);
        let steps = self.waiting.extract_if(.., |step| step.from == reached);
        self.due.extend(steps.map(|step| (then + step.delay, step.act)));
        self.due.sort_by_key(|(at, _)| *at);
    }

    fn act_in_time(&mut self) -> anyhow::Result<()> {
        while self.due.first().is_some_and(|(at, _)| *at <= Instant::now()) {
            let (_, act) = self.due.remove(0);
            let at = now_ns();
            if self.seen.disturbed.is_none() {
                self.seen.disturbed = Some(at);
                self.deadline = Instant::now() + self.trial.time_max;
            }
            for victim in act.victims(self.trial.layout) {
                self.seen.victims.entry(victim).or_insert(at);
            }
            self.act(act)?;
        }
        Ok(())
    }

    fn act(&mut self, act: Act) -> anyhow::Result<()> {
        let network = || {
            self.trial
                .network
                .context("hosts can be disturbed where these are namespaces")
        };
        match act {
            Act::Kill(rank) => self.signal(rank, Signal::KILL),
            Act::Stop(rank) => self.signal(rank, Signal::STOP),
            Act::Continue(rank) => self.signal(rank, Signal::CONT),
            Act::KillAgent(host) => signal(self.agent(network()?, host), Signal::KILL),
            Act::StopAgent(host) => signal(self.agent(network()?, host), Signal::STOP),
            Act::ContinueAgent(host) => signal(self.agent(network()?, host), Signal::CONT),
            Act::KillHost(host) => network()?.kill_host(host)?,
            Act::Cut(host) => {
                network()?.cut(host)?;
                self.has_cut = true;
            }
            Act::Mend(host) => network()?.mend(host)?,
            Act::CutOneWay(from, to) => network()?.cut_one_way(from, to)?,
            Act::SetRate(host, mbit) => network()?.set_rate(host, Direction::Both, mbit)?,
        }
        Ok(())
    }

    fn signal(&self, rank: Rank, with: Signal) {
        signal(self.processes.get(rank.index()).copied().flatten(), with);
    }

    /// The first of the processes on a host that run our executable.
    fn agent(&self, network: &Network, host: u8) -> Option<Pid> {
        let is_agent = |process: &Pid| {
            let executable = fs::read_link(format!("/proc/{process}/exe"));
            executable.is_ok_and(|path| path == self.trial.programs.agent)
        };
        let agents = network.processes(host).into_iter().filter(is_agent);
        agents.min_by_key(|process| process.as_raw_nonzero())
    }
}

/// Tells what the workers say of themselves.
fn hear_moments(socket: &UnixDatagram, events: &mpsc::Sender<Event>, is_over: &AtomicBool) {
    let mut buffer = [0; 256];
    while !is_over.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            // A child that has ended interrupts it too.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(_) => return,
        };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let words: Vec<&str> = text.split(' ').collect();
        if let [rank, process, moment, at] = words[..]
            && let (Ok(rank), Ok(process), Ok(at)) = (rank.parse(), process.parse(), at.parse())
            && let Some(process) = Pid::from_raw(process)
        {
            // The other side ends when the run is over.
            let _ = events.send(Event::Moment(Rank(rank), process, moment.to_owned(), at));
        }
    }
}

/// The job that runs the program on the hosts of the layout.
pub(super) fn job_of(
    programs: &Programs,
    network: Option<&Network>,
    layout: Layout,
    program: Segment,
) -> anyhow::Result<JobSpec> {
    let mut spec = JobSpec::new(&programs.agent, program);
    if let Some(network) = network {
        let slots = layout.slots();
        let hosts = (1..=layout.hosts).map(|host| format!("{}:{slots}", network.address(host)));
        spec.hosts = parse_hosts(&hosts.collect::<Vec<_>>().join(","))?;
        spec.agents.method = network.method();
    }
    Ok(spec)
}

/// Runs the job and tells its events.
pub(super) fn follow_job(
    spec: JobSpec,
    events: &mpsc::Sender<Event>,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut launcher = Launcher::start(spec)?;
    while !is_over.load(Ordering::Relaxed) {
        match launcher.next_event(Some(PATIENCE))? {
            Some(last @ JobEvent::Finished(_)) => {
                drop(launcher);
                // The other side ends when the run is over; so below.
                let _ = events.send(Event::Job(last));
                return Ok(());
            }
            Some(event) => drop(events.send(Event::Job(event))),
            None => {}
        }
    }
    Ok(())
}

fn signal(process: Option<Pid>, signal: Signal) {
    if let Some(process) = process {
        // One that is gone cannot be disturbed any more.
        let _ = kill_process(process, signal);
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, as workers tell them.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A control group (cgroups v1) whose memory is limited.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new() -> anyhow::Result<Self> {
        let path = Path::new(CONTROL_GROUPS).join(format!("ropewalk-chaos-{}", std::process::id()));
        let _ = fs::remove_dir(&path);
        fs::create_dir(&path).context("cannot make a control group: it takes cgroups v1 and root")?;
        Ok(Self(path))
    }

    fn limit(&self, bytes: u64) -> anyhow::Result<()> {
        Ok(fs::write(
            self.0.join("memory.limit_in_bytes"),
            bytes.to_string(),
        )?)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The control groups of memory (cgroups v1).
pub(super) const CONTROL_GROUPS: &str = "/sys/fs/cgroup/memory";
/// So often it is looked whether the run is over.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a job may take if nothing disturbs it.
const START_MAX: Duration = Duration::from_secs(30);
/// How long processes may stay after the end of their job.
const LEFT_MAX: Duration = Duration::from_secs(2);
/// The memory that a worker needs beside its data.
const MEMORY_BESIDE: u64 = 32 << 20;
