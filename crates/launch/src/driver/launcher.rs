//! The launcher, as a library: a thread that drives a [`Supervisor`], and the queue of events it fills.

use std::{
    collections::VecDeque,
    env, io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread,
    time::{Duration, Instant},
};

use ropewalk_fabric::{JobKey, TraceEvent};
use ropewalk_group::{HostId, JobId, Rank};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
    system::uname,
};
use tokio::{io::Interest, sync::mpsc, time::sleep_until};

use super::{
    branch::{Branch, BranchEvent, Position},
    descendants,
    input::Input,
    interface,
    interrupts::{Signals, next_signal},
    launch_error::{LaunchError, system},
    watched::{Watched, watch},
};
use crate::{
    event::{JobEvent, OutputStream},
    job::{JobSpec, StdinSource},
    plan::{self, Surroundings},
    protocol::{BOOTSTRAP_SIZE_MAX, Down, Plan, Report, Up},
    supervisor::{Action, Supervisor},
    tree::NodeId,
};

/// Runs one job.
///
/// Take its events with [`next_event`](Self::next_event) until [`JobEvent::Finished`]. Output that nobody takes
/// makes the ranks wait; nothing else does. Dropping the launcher ends the job at once.
///
/// ```no_run
/// # use ropewalk_launch::{JobEvent, JobSpec, Launcher};
/// let spec = JobSpec { ranks: 2, ..JobSpec::new("/usr/bin/ropewalk", "hostname") };
/// let mut launcher = Launcher::start(spec)?;
/// while let Some(event) = launcher.next_event(None)? {
///     match event {
///         JobEvent::Output { rank, line, .. } => print!("{rank}: {}", String::from_utf8_lossy(&line)),
///         JobEvent::Finished(verdict) => println!("exit code {}", verdict.exit_code()),
///         _ => {}
///     }
/// }
/// # Ok::<(), ropewalk_launch::LaunchError>(())
/// ```
#[derive(Debug)]
pub struct Launcher {
    deliveries: blocking::Receiver<Vec<Delivery>>,
    delivered: VecDeque<Delivery>,
    requests: mpsc::UnboundedSender<Request>,
    trace_bytes: Arc<AtomicUsize>,
    plan: Arc<Plan>,
    thread: Option<thread::JoinHandle<()>>,
    lines: VecDeque<JobEvent>,
    taken: usize,
    over: bool,
}

impl Launcher {
    /// How many bytes of trace events wait to be taken, about; more are dropped.
    const TRACE_BYTES_MAX: usize = 16 << 20;

    /// Starts the agents, and with them the job.
    ///
    /// # Errors
    /// If the ranks cannot be placed, or the system refuses what a launcher needs. An agent or a program that cannot be
    /// started is told by the verdict.
    pub fn start(spec: JobSpec) -> Result<Self, LaunchError> {
        let ranks = spec
            .more
            .iter()
            .fold(spec.ranks, |sum, more| sum.saturating_add(more.ranks));
        let has_empty = spec.ranks == 0 || spec.more.iter().any(|segment| segment.ranks == 0);
        if has_empty || !(1..=JobSpec::RANKS_MAX).contains(&ranks) {
            return Err(LaunchError::Ranks { ranks });
        }
        let plan = make_plan(&spec)?;
        let key = JobKey::generate().map_err(|source| system("random numbers", source))?;
        let encoded_plan = postcard::to_allocvec(&plan).map_err(|_| LaunchError::TooLarge)?;
        if encoded_plan.len() > BOOTSTRAP_SIZE_MAX - BOOTSTRAP_OVERHEAD {
            return Err(LaunchError::TooLarge);
        }
        let plan = Arc::new(plan);
        let (delivery_sender, deliveries) = blocking::channel();
        let (requests, request_queue) = mpsc::unbounded_channel();
        let trace_bytes = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            supervisor: Supervisor::new(&plan, spec.on_failure, spec.timeout),
            stdin_taken: vec![0; plan.hosts.len()],
            stdin_told: 0,
            plan: plan.clone(),
            started: Instant::now(),
            deliveries: delivery_sender,
            waiting: Vec::new(),
            trace_bytes: trace_bytes.clone(),
            finished: None,
            was_abandoned: false,
        };
        let position = Position {
            node: NodeId::ROOT,
            key,
            plan: plan.clone(),
            encoded_plan,
            parent: None,
        };
        let thread = thread::Builder::new()
            .name("ropewalk-launch".to_owned())
            .spawn(move || worker.run(position, request_queue, spec.forward_signals))
            .map_err(|source| system("a thread", source))?;
        Ok(Self {
            deliveries,
            delivered: VecDeque::new(),
            requests,
            trace_bytes,
            plan,
            thread: Some(thread),
            lines: VecDeque::new(),
            taken: 0,
            over: false,
        })
    }

    /// Waits for the next event, at most for `timeout`. `None` if there was none in that time, or if the job
    /// is over and all was told.
    ///
    /// # Errors
    /// If the launcher itself failed; the job is ended then.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<JobEvent>, LaunchError> {
        if let Some(line) = self.lines.pop_front() {
            return Ok(Some(line));
        }
        if self.over {
            return Ok(None);
        }
        if self.delivered.is_empty() {
            let received = match self.deliveries.try_recv() {
                Err(blocking::TryRecvError::Empty) => {
                    self.return_credit();
                    match timeout {
                        Some(timeout) => self.deliveries.recv_timeout(timeout),
                        None => self.deliveries.recv().map_err(blocking::RecvTimeoutError::from),
                    }
                }
                result => result.map_err(|_| blocking::RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(deliveries) => self.delivered.extend(deliveries),
                Err(blocking::RecvTimeoutError::Timeout) => return Ok(None),
                Err(blocking::RecvTimeoutError::Disconnected) => {}
            }
        }
        match self.delivered.pop_front() {
            Some(Delivery::Event(event)) => {
                match &event {
                    JobEvent::Finished(_) => self.over = true,
                    JobEvent::Trace { event, .. } => {
                        self.trace_bytes.fetch_sub(trace_size(event), Ordering::Relaxed);
                    }
                    _ => {}
                }
                Ok(Some(event))
            }
            Some(Delivery::Failed(error)) => {
                self.over = true;
                Err(error)
            }
            Some(Delivery::Output { rank, stream, lines }) => {
                self.taken += lines.len();
                if self.taken >= CREDIT_RETURNED_MIN {
                    self.return_credit();
                }
                self.lines
                    .extend(lines.split_inclusive(|&byte| byte == b'\n').map(|line| {
                        let line = line.to_vec();
                        JobEvent::Output { rank, stream, line }
                    }));
                Ok(self.lines.pop_front())
            }
            None => {
                self.over = true;
                Err(system(
                    "a thread",
                    io::Error::other("the launcher's thread ended"),
                ))
            }
        }
    }

    /// The name of the host of a rank, as the hosts were named; `None` if the job has no such rank.
    pub fn host_of(&self, rank: Rank) -> Option<&str> {
        let host = self.plan.node_of(rank)?.host()?;
        Some(&self.plan.hosts.get(host.0 as usize)?.name)
    }

    /// Sends a signal to the process group of a rank. Nothing happens if the rank is gone.
    ///
    /// # Errors
    /// If there is no such signal.
    pub fn signal(&self, rank: Rank, signal: i32) -> Result<(), LaunchError> {
        let _: Signal = Signal::from_named_raw(signal).ok_or(LaunchError::Signal { signal })?;
        // Once the job is over nobody is there to take it.
        let _ = self.requests.send(Request::Signal(rank, signal));
        Ok(())
    }

    /// Ends the job as this signal to the launcher would: it goes to all ranks, and SIGKILL after it.
    ///
    /// # Errors
    /// If there is no such signal.
    pub fn interrupt(&self, signal: i32) -> Result<(), LaunchError> {
        let _: Signal = Signal::from_named_raw(signal).ok_or(LaunchError::Signal { signal })?;
        let _ = self.requests.send(Request::Interrupt(signal));
        Ok(())
    }

    fn return_credit(&mut self) {
        if self.taken > 0 {
            let _ = self.requests.send(Request::OutputTaken(self.taken));
            self.taken = 0;
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The thread takes a closed queue for the wish that the job end now.
        self.requests = mpsc::unbounded_channel().0;
        if let Some(thread) = self.thread.take() {
            // A panic there was told on standard error.
            let _ = thread.join();
        }
    }
}

/// Returning credit byte by byte would cost a frame each.
const CREDIT_RETURNED_MIN: usize = 256 << 10;

#[derive(Debug)]
enum Delivery {
    Event(JobEvent),
    Failed(LaunchError),
    Output {
        rank: Rank,
        stream: OutputStream,
        lines: Vec<u8>,
    },
}

#[derive(Debug)]
enum Request {
    Interrupt(i32),
    OutputTaken(usize),
    Signal(Rank, i32),
}

/// What the launcher's thread has.
struct Worker {
    plan: Arc<Plan>,
    supervisor: Supervisor,
    started: Instant,
    deliveries: blocking::Sender<Vec<Delivery>>,
    /// What is delivered at the end of this turn.
    waiting: Vec<Delivery>,
    trace_bytes: Arc<AtomicUsize>,
    /// How much input the ranks of each host took, and how much of that was told to whoever reads it.
    stdin_taken: Vec<u64>,
    stdin_told: u64,
    /// The last event, kept back until the agents are gone too.
    finished: Option<JobEvent>,
    /// Agents were lost or given up: what they left behind is looked for.
    was_abandoned: bool,
}

/// What drives a job besides its agents.
struct Surface {
    requests: mpsc::UnboundedReceiver<Request>,
    signals: Option<Signals>,
    input: Option<Input>,
    input_queue: mpsc::UnboundedReceiver<Down>,
}

impl Worker {
    fn run(mut self, position: Position, requests: mpsc::UnboundedReceiver<Request>, forward_signals: bool) {
        let result = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(self.supervise(position, requests, forward_signals)));
        if let Err(source) = result {
            descendants::kill_job(self.plan.job);
            let failed = system("what a launcher needs", source);
            let _ = self.deliveries.send(vec![Delivery::Failed(failed)]);
        }
    }

    async fn supervise(
        &mut self,
        position: Position,
        requests: mpsc::UnboundedReceiver<Request>,
        forward_signals: bool,
    ) -> io::Result<()> {
        let (inputs, input_queue) = mpsc::unbounded_channel();
        let mut surface = Surface {
            requests,
            signals: if forward_signals {
                Some(Signals::listen()?)
            } else {
                None
            },
            input: match self.plan.stdin {
                StdinSource::Null => None,
                StdinSource::Inherit | StdinSource::InheritAll => Some(Input::start(inputs)?),
            },
            input_queue,
        };
        let mut branch = Branch::start(position, interface::of_launcher(&self.plan)?)?;
        let descriptor = watch(branch.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        let mut interrupted = false;
        let mut give_up_at = None;
        loop {
            self.settle(&mut branch, &surface);
            let is_over = self.supervisor.is_over() && !branch.relay().has_waiting();
            if is_over && branch.are_starters_gone() {
                break;
            }
            if is_over && give_up_at.is_none() {
                // Agents end themselves once they know that all is over; those that do not are ended.
                surface.input = None;
                give_up_at = Some(Instant::now() + self.plan.detect);
            }
            if give_up_at.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            let deadline = self.supervisor.deadline();
            // A time limit beyond what the clock can show is none.
            let deadline = deadline.and_then(|after| self.started.checked_add(after));
            let deadline = branch
                .next_deadline()
                .into_iter()
                .chain(deadline)
                .chain(give_up_at)
                .min();
            match self.next_happening(&descriptor, deadline, &mut surface).await? {
                Happening::Branch => {
                    branch.progress();
                    self.supervisor.handle_timeout(self.now());
                }
                Happening::Request(Request::Interrupt(signal)) => {
                    self.supervisor.handle_interrupt(self.now(), signal);
                }
                Happening::Request(Request::OutputTaken(size)) => branch.send(Down::Credit(size as u32)),
                Happening::Request(Request::Signal(rank, signal)) => {
                    if let Some(node) = self.plan.node_of(rank) {
                        let rank = Some(rank);
                        branch.send(Down::To(node, Box::new(Down::Signal { rank, signal })));
                    }
                }
                Happening::Dropped => {
                    self.was_abandoned = true;
                    break;
                }
                Happening::Input(down) => self.send_input(&mut branch, down),
                Happening::Signal(signal) => {
                    if interrupted {
                        branch.end_now();
                        descendants::kill_job(self.plan.job);
                        std::process::exit(128 + signal);
                    }
                    interrupted = true;
                    self.supervisor.handle_interrupt(self.now(), signal);
                }
            }
        }
        branch.end_now();
        if self.was_abandoned {
            descendants::kill_job(self.plan.job);
        }
        if let Some(finished) = self.finished.take() {
            let _ = self.deliveries.send(vec![Delivery::Event(finished)]);
        }
        if surface.signals.is_some() {
            // Whoever takes the events may be stuck in writing what came before the last.
            tokio::select! {
                signal = next_signal(&mut surface.signals) => std::process::exit(128 + signal),
                () = closed(&mut surface.requests) => {}
            }
        }
        Ok(())
    }

    /// Hands on what came, until nothing is left.
    fn settle(&mut self, branch: &mut Branch, surface: &Surface) {
        loop {
            let mut is_quiet = true;
            while let Some(event) = branch.poll_event() {
                is_quiet = false;
                match event {
                    BranchEvent::Up(up) => self.handle_up(up, surface.input.as_ref()),
                    BranchEvent::Pmi(child, up) => self.supervisor.handle_pmi(self.now(), child, up),
                    BranchEvent::ChildLost(child) => self.supervisor.handle_child_lost(self.now(), child),
                    // The launcher has no host of its own and nobody above.
                    BranchEvent::Down(_) | BranchEvent::ParentLost(_) => {}
                }
            }
            while let Some(action) = self.supervisor.poll_action() {
                is_quiet = false;
                match action {
                    Action::AbandonAgents => {
                        self.was_abandoned = true;
                        branch.abandon_all();
                    }
                    Action::Event(event @ JobEvent::Finished(_)) => self.finished = Some(event),
                    Action::Event(event) => self.deliver(event),
                    Action::Send(down) => branch.send(down),
                    Action::SendPmi(child, down) => branch.send_pmi(child, down),
                }
            }
            if is_quiet {
                break;
            }
        }
        branch.flush();
        if !self.waiting.is_empty() {
            let _ = self.deliveries.send(std::mem::take(&mut self.waiting));
        }
    }

    async fn next_happening(
        &self,
        descriptor: &Watched<OwnedFd>,
        deadline: Option<Instant>,
        surface: &mut Surface,
    ) -> io::Result<Happening> {
        let timer = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = descriptor.readable() => {
                let mut ready = ready?;
                // The runtime learns of a change only, and one turn need not use up what is ready.
                if !is_readable(descriptor.get_ref()) {
                    ready.clear_ready();
                }
                Ok(Happening::Branch)
            }
            request = surface.requests.recv() => Ok(request.map_or(Happening::Dropped, Happening::Request)),
            Some(down) = surface.input_queue.recv() => Ok(Happening::Input(down)),
            signal = next_signal(&mut surface.signals) => Ok(Happening::Signal(signal)),
            () = timer => Ok(Happening::Branch),
        }
    }

    fn handle_up(&mut self, up: Up, input: Option<&Input>) {
        match up.report {
            Report::Output { rank, stream, lines } => {
                self.waiting.push(Delivery::Output { rank, stream, lines });
            }
            Report::StdinTaken(size) => self.add_taken(up.host, size, input),
            Report::Lost { .. } => {
                self.was_abandoned = true;
                self.supervisor.handle_up(self.now(), up);
            }
            _ => self.supervisor.handle_up(self.now(), up),
        }
    }

    /// The slowest host sets the pace; a host that is over has no pace.
    fn add_taken(&mut self, host: HostId, size: u32, input: Option<&Input>) {
        let Some(taken) = self.stdin_taken.get_mut(host.0 as usize) else {
            return;
        };
        *taken += u64::from(size);
        let taken = match self.plan.stdin {
            StdinSource::InheritAll => self.stdin_taken.iter().min(),
            _ => self.stdin_taken.iter().max(),
        };
        let taken = taken.copied().unwrap_or_default();
        if let Some(input) = input
            && taken > self.stdin_told
        {
            input.add_credit((taken - self.stdin_told) as usize);
            self.stdin_told = taken;
        }
    }

    fn send_input(&self, branch: &mut Branch, down: Down) {
        match (self.plan.stdin, self.plan.node_of(Rank(0))) {
            (StdinSource::Inherit, Some(node)) => branch.send(Down::To(node, Box::new(down))),
            _ => branch.send(down),
        }
    }

    fn deliver(&mut self, event: JobEvent) {
        if let JobEvent::Trace { event, .. } = &event {
            let size = trace_size(event);
            if self.trace_bytes.load(Ordering::Relaxed) + size > Launcher::TRACE_BYTES_MAX {
                return;
            }
            self.trace_bytes.fetch_add(size, Ordering::Relaxed);
        }
        self.waiting.push(Delivery::Event(event));
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

enum Happening {
    /// A neighbour in the tree, or the clock.
    Branch,
    /// Nobody wants the job any more.
    Dropped,
    Input(Down),
    Request(Request),
    Signal(i32),
}

/// What an event takes while it waits, about.
fn trace_size(event: &TraceEvent) -> usize {
    let label = match event {
        TraceEvent::Progress(progress) => &progress.label,
        TraceEvent::Span { label, .. } | TraceEvent::Mark { label, .. } => label,
    };
    size_of::<Delivery>() + label.len()
}

/// Whether reading would find something now. If that cannot be told, trying does no harm.
fn is_readable(descriptor: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&at_once)) != Ok(0)
}

/// Waits until the launcher is dropped.
async fn closed(requests: &mut mpsc::UnboundedReceiver<Request>) {
    while requests.recv().await.is_some() {}
}

/// What stands in a bootstrap besides the plan, at most.
const BOOTSTRAP_OVERHEAD: usize = 1 << 10;

fn make_plan(spec: &JobSpec) -> Result<Plan, LaunchError> {
    let mut job = [0; 16];
    getrandom::fill(&mut job).map_err(|error| system("random numbers", io::Error::other(error)))?;
    let around = Surroundings {
        job: JobId(job),
        host_name: uname().nodename().to_string_lossy().into_owned(),
        environment: env::vars_os().collect(),
        working_directory: env::current_dir().ok().map(Into::into),
    };
    Ok(plan::plan(spec, around)?)
}
