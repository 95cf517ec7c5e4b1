//! The launcher, as a library: a thread that drives a [`Supervisor`], and the queue of events it fills.

use std::{
    collections::VecDeque,
    env, fs, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread,
    time::{Duration, Instant},
};

use ropewalk_fabric::JobKey;
use ropewalk_group::{JobId, Rank};
use rustix::process::Signal;
use thiserror::Error;
use tokio::{
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    signal::unix::{self, SignalKind},
    sync::mpsc,
    time::{sleep, sleep_until},
};

use super::{control, descendants, input::Input, session};
use crate::{
    event::{JobEvent, OutputStream},
    job::{JobSpec, OnFailure, StdinSource},
    plan,
    protocol::{FRAME_SIZE_MAX, Order, Report, Start},
    supervisor::{Action, Supervisor},
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
    deliveries: blocking::Receiver<Delivery>,
    requests: mpsc::UnboundedSender<Request>,
    traces_queued: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
    lines: VecDeque<JobEvent>,
    taken: usize,
    over: bool,
}

/// Why a job could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The agent could not be started.
    #[error("cannot start the agent {path:?}")]
    Agent {
        /// Its executable.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The number of ranks is none that a job may have.
    #[error("a job has 1 to {} ranks, not {ranks}", JobSpec::RANKS_MAX)]
    Ranks {
        /// The number asked for.
        ranks: u32,
    },
    /// The signal is none.
    #[error("{signal} is no signal")]
    Signal {
        /// The number given.
        signal: i32,
    },
    /// The system refused what a launcher needs.
    #[error("the system refused {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The description of the job is larger than a frame.
    #[error("program, arguments and environment together are larger than {FRAME_SIZE_MAX} bytes")]
    TooLarge,
}

impl Launcher {
    /// How long the agent has to end itself once the job is over.
    const AGENT_END_MAX: Duration = Duration::from_secs(2);
    /// How many trace events wait to be taken; more are dropped.
    const TRACES_QUEUED_MAX: usize = 1 << 16;

    /// Starts the agent, and with it the job.
    ///
    /// # Errors
    /// If the agent cannot be started. A program that cannot is told by the verdict.
    pub fn start(spec: JobSpec) -> Result<Self, LaunchError> {
        let ranks = spec.ranks;
        if !(1..=JobSpec::RANKS_MAX).contains(&ranks) {
            return Err(LaunchError::Ranks { ranks });
        }
        let start = describe(&spec)?;
        let job = start.job;
        let order = Order::Start(Box::new(start));
        let size = postcard::experimental::serialized_size(&order);
        if size.is_ok_and(|size| size > FRAME_SIZE_MAX) {
            return Err(LaunchError::TooLarge);
        }
        let (control, agent_control) =
            UnixStream::pair().map_err(|source| system("a socket pair", source))?;
        let agent = start_agent(&spec, agent_control.into())?;
        let (delivery_sender, deliveries) = blocking::channel();
        let (requests, request_queue) = mpsc::unbounded_channel();
        let traces_queued = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            job,
            supervisor: Supervisor::new(
                ranks,
                spec.on_failure,
                spec.timeout,
                spec.program.to_string_lossy().into_owned(),
            ),
            started: Instant::now(),
            agent,
            deliveries: delivery_sender,
            traces_queued: traces_queued.clone(),
            finished: None,
        };
        let thread = thread::Builder::new()
            .name("ropewalk-launch".to_owned())
            .spawn(move || worker.run(control, order, request_queue, &spec))
            .map_err(|source| system("a thread", source))?;
        Ok(Self {
            deliveries,
            requests,
            traces_queued,
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
        let delivery = match self.deliveries.try_recv() {
            Err(blocking::TryRecvError::Empty) => {
                self.return_credit();
                match timeout {
                    Some(timeout) => self.deliveries.recv_timeout(timeout),
                    None => self.deliveries.recv().map_err(blocking::RecvTimeoutError::from),
                }
            }
            result => result.map_err(|_| blocking::RecvTimeoutError::Disconnected),
        };
        match delivery {
            Ok(Delivery::Event(event)) => {
                match &event {
                    JobEvent::Finished(_) => self.over = true,
                    JobEvent::Trace { .. } => {
                        self.traces_queued.fetch_sub(1, Ordering::Relaxed);
                    }
                    _ => {}
                }
                Ok(Some(event))
            }
            Ok(Delivery::Failed(error)) => {
                self.over = true;
                Err(error)
            }
            Ok(Delivery::Output { rank, stream, lines }) => {
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
            Err(blocking::RecvTimeoutError::Timeout) => Ok(None),
            Err(blocking::RecvTimeoutError::Disconnected) => {
                self.over = true;
                Err(system(
                    "a thread",
                    io::Error::other("the launcher's thread ended"),
                ))
            }
        }
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
    job: JobId,
    supervisor: Supervisor,
    started: Instant,
    agent: Child,
    deliveries: blocking::Sender<Delivery>,
    traces_queued: Arc<AtomicUsize>,
    /// The last event, kept back until the agent is gone too.
    finished: Option<JobEvent>,
}

impl Worker {
    fn run(
        mut self,
        control: UnixStream,
        start: Order,
        requests: mpsc::UnboundedReceiver<Request>,
        spec: &JobSpec,
    ) {
        let result = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| {
                runtime.block_on(async {
                    let result = self.supervise(control, start, requests, spec).await;
                    if result.is_err() {
                        self.kill_all().await;
                    }
                    result
                })
            });
        if let Err(source) = result {
            let failed = system("the connection to the agent", source);
            let _ = self.deliveries.send(Delivery::Failed(failed));
        }
    }

    async fn supervise(
        &mut self,
        control: UnixStream,
        start: Order,
        mut requests: mpsc::UnboundedReceiver<Request>,
        spec: &JobSpec,
    ) -> io::Result<()> {
        control.set_nonblocking(true)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(control)?.into_split();
        let (orders, order_queue) = mpsc::unbounded_channel();
        let (report_sender, mut reports) = mpsc::channel(64);
        tokio::spawn(read_reports(reader, report_sender));
        let writer = tokio::spawn(write_orders(writer, order_queue));
        let _ = orders.send(start);
        let input = match spec.stdin {
            StdinSource::Inherit => Some(Input::start(orders.clone())?),
            StdinSource::Null => None,
        };
        let mut signals = if spec.forward_signals {
            Some(Signals::listen()?)
        } else {
            None
        };
        let mut interrupted = false;
        while !self.supervisor.is_over() {
            // A time limit beyond what the clock can show is none.
            let deadline = self
                .supervisor
                .deadline()
                .and_then(|after| self.started.checked_add(after));
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                report = reports.recv() => match report {
                    Some(report) => self.handle_report(report, input.as_ref()),
                    None => {
                        let how = self.end_agent().await?;
                        self.supervisor.handle_agent_lost(how);
                    }
                },
                request = requests.recv() => match request {
                    Some(Request::Interrupt(signal)) => self.supervisor.handle_interrupt(self.now(), signal),
                    Some(Request::OutputTaken(size)) => {
                        let _ = orders.send(Order::OutputTaken(size as u32));
                    }
                    Some(Request::Signal(rank, signal)) => {
                        let _ = orders.send(Order::Signal { rank: Some(rank), signal });
                    }
                    None => break,
                },
                signal = next_signal(&mut signals) => {
                    if interrupted {
                        self.kill_all().await;
                        std::process::exit(128 + signal);
                    }
                    interrupted = true;
                    self.supervisor.handle_interrupt(self.now(), signal);
                }
                () = timer => self.supervisor.handle_timeout(self.now()),
            }
            self.perform_actions(&orders);
        }
        // The agent takes the end of the connection for the end of all; it is at its own end already if the
        // job is over.
        drop((input, orders));
        writer.abort();
        self.end_agent().await?;
        if let Some(finished) = self.finished.take() {
            let _ = self.deliveries.send(Delivery::Event(finished));
        }
        if signals.is_some() {
            // Whoever takes the events may be stuck in writing what came before the last.
            tokio::select! {
                signal = next_signal(&mut signals) => std::process::exit(128 + signal),
                () = closed(&mut requests) => {}
            }
        }
        Ok(())
    }

    fn handle_report(&mut self, report: Report, input: Option<&Input>) {
        match report {
            Report::Output { rank, stream, lines } => {
                let _ = self.deliveries.send(Delivery::Output { rank, stream, lines });
            }
            Report::StdinTaken(size) => {
                if let Some(input) = input {
                    input.add_credit(size as usize);
                }
            }
            report => self.supervisor.handle_report(self.started.elapsed(), report),
        }
    }

    fn perform_actions(&mut self, orders: &mpsc::UnboundedSender<Order>) {
        while let Some(action) = self.supervisor.poll_action() {
            match action {
                Action::Event(event @ JobEvent::Finished(_)) => self.finished = Some(event),
                Action::Event(event) => self.deliver(event),
                Action::KillAgent => {
                    // What follows comes with the end of its reports, also if it is gone already.
                    let _ = self.agent.kill();
                }
                Action::Order(order) => {
                    let _ = orders.send(order);
                }
            }
        }
    }

    fn deliver(&self, event: JobEvent) {
        if matches!(event, JobEvent::Trace { .. }) {
            if self.traces_queued.load(Ordering::Relaxed) >= Launcher::TRACES_QUEUED_MAX {
                return;
            }
            self.traces_queued.fetch_add(1, Ordering::Relaxed);
        }
        let _ = self.deliveries.send(Delivery::Event(event));
    }

    /// Waits until the agent is gone, and helps it if it takes long; then ends what it could not end any more.
    /// Says what became of it.
    async fn end_agent(&mut self) -> io::Result<String> {
        let deadline = Instant::now() + Launcher::AGENT_END_MAX;
        let mut killed = false;
        loop {
            if let Some(status) = self.agent.try_wait()? {
                if !status.success() {
                    descendants::kill_job(self.job).await;
                }
                let lost = "closed its connection to the launcher and did not end";
                return Ok(if killed {
                    lost.to_owned()
                } else {
                    how_it_ended(status)
                });
            }
            if !killed && Instant::now() >= deadline {
                killed = true;
                self.agent.kill()?;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Without asking anybody.
    async fn kill_all(&mut self) {
        // If it is gone already, so much the better.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        descendants::kill_job(self.job).await;
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The signals by which users and batch systems end a job.
struct Signals {
    /// Not if whoever started us wants it ignored, as nohup(1) does.
    hangup: Option<unix::Signal>,
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let hangup = SignalKind::hangup();
        Ok(Self {
            hangup: match is_ignored(hangup) {
                true => None,
                false => Some(unix::signal(hangup)?),
            },
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }
}

/// Whether this process ignores a signal so far, as /proc has it (proc(5)).
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

async fn next_signal(signals: &mut Option<Signals>) -> i32 {
    let Some(signals) = signals else {
        return std::future::pending().await;
    };
    let hangup = async {
        match &mut signals.hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(()) = hangup => SignalKind::hangup().as_raw_value(),
        Some(()) = signals.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        Some(()) = signals.terminate.recv() => SignalKind::terminate().as_raw_value(),
    }
}

/// Waits until the launcher is dropped.
async fn closed(requests: &mut mpsc::UnboundedReceiver<Request>) {
    while requests.recv().await.is_some() {}
}

async fn read_reports(mut stream: OwnedReadHalf, reports: mpsc::Sender<Report>) {
    while let Ok(Some(report)) = control::read(&mut stream).await {
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

async fn write_orders(mut stream: OwnedWriteHalf, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        if control::write(&mut stream, &order).await.is_err() {
            // Whoever reads reports sees the end of the connection too.
            return;
        }
    }
}

fn describe(spec: &JobSpec) -> Result<Start, LaunchError> {
    let mut job = [0; 16];
    getrandom::fill(&mut job).map_err(|error| system("random numbers", io::Error::other(error)))?;
    let key = JobKey::generate().map_err(|source| system("random numbers", source))?;
    let mut environment = plan::inheritable_environment(env::vars_os());
    environment.extend(spec.environment.iter().cloned());
    let [plan] = plan::place(spec);
    Ok(Start {
        job: JobId(job),
        key,
        host: plan.host,
        size: spec.ranks,
        ranks: plan.ranks,
        program: spec.program.clone(),
        arguments: spec.arguments.clone(),
        environment,
        working_directory: spec.working_directory.clone().map(PathBuf::into_os_string),
        continues: spec.on_failure == OnFailure::Continue,
        has_stdin: spec.stdin == StdinSource::Inherit,
    })
}

fn start_agent(spec: &JobSpec, control: OwnedFd) -> Result<Child, LaunchError> {
    let mut command = Command::new(&spec.agent);
    command.arg("agent").stdin(control).stdout(Stdio::null());
    session::start_own(&mut command);
    command.spawn().map_err(|source| LaunchError::Agent {
        path: spec.agent.clone(),
        source,
    })
}

fn how_it_ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "is gone".to_owned(),
    }
}

fn system(what: &'static str, source: io::Error) -> LaunchError {
    LaunchError::System { what, source }
}
