//! The agent of a host, as a process.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    AgentLink, AgentLinkError, Endpoint, EndpointOptions, FromAgent, HoldId, Identity, Role, ToAgent,
    memfd::HeldMemfd,
};
use ropewalk_group::{Incarnation, Rank};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, Shutdown, send, shutdown},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit},
    system::{sysinfo, uname},
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, mpsc},
    task::{JoinHandle, yield_now},
    time::{sleep_until, timeout},
};

use super::{
    control, descendants,
    output::Outputs,
    rank_process::{RankProcess, RankProcessOptions, system_error},
    rank_watch::{RankEvent, RankWatch},
    watched::{Watched, watch},
};
use crate::{
    event::OutputStream,
    host_agent::{Action, HostAgent},
    plan,
    protocol::{Order, Report, Start, StartError},
};

/// What `ropewalk agent` runs: the agent of one host, which a [`Launcher`](crate::Launcher) starts with a
/// socket as standard input. Nobody starts it by hand.
pub fn agent_main() -> ExitCode {
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk agent: {error}");
            ExitCode::from(125)
        }
    }
}

async fn run() -> io::Result<()> {
    let by_hand = |error: io::Error| {
        let hint = "an agent is started by a launcher, with a socket as standard input, and not by hand";
        io::Error::other(format!("{error}; {hint}"))
    };
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.set_nonblocking(true)?;
    let control = tokio::net::UnixStream::from_std(control).map_err(by_hand)?;
    let (mut orders, reports) = control.into_split();
    let start = match timeout(START_TIMEOUT, control::read(&mut orders)).await {
        Ok(Ok(Some(Order::Start(start)))) => *start,
        Ok(Err(error)) => return Err(by_hand(error)),
        Ok(Ok(_)) | Err(_) => return Err(io::Error::other("the launcher did not say what to start")),
    };
    Agent::run(start, orders, reports).await
}

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How many events wait for the main loop; who has more waits.
const EVENTS_QUEUED_MAX: usize = 1024;
/// How many trace events wait for the launcher; more are dropped.
const TRACES_QUEUED_MAX: usize = 4096;
/// How often dead orphans are looked for, at most.
const REAP_PERIOD: Duration = Duration::from_secs(10);

/// What an agent waits for.
#[derive(Debug)]
pub(super) enum AgentEvent {
    LauncherLost,
    Order(Order),
    Rank(Rank, RankEvent),
    Swept,
}

struct Agent {
    start: Arc<Start>,
    mind: HostAgent,
    endpoint: Endpoint,
    ranks: BTreeMap<Rank, RankIo>,
    /// Memory of ranks that live; that of the dead is with the endpoint.
    held: BTreeMap<(Rank, HoldId), HeldMemfd>,
    /// Until all input is there.
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Until rank 0 is started.
    input_queue: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    /// Until all ranks are gone.
    outputs: Option<Outputs>,
    output_window: Arc<Semaphore>,
    reports: Reports,
    events: mpsc::Sender<AgentEvent>,
    /// The limit that this process had before it raised its own.
    descriptors: Rlimit,
    finished: bool,
}

/// What the agent has of a rank that lives.
struct RankIo {
    pid: Pid,
    pmi: Arc<Watched<UnixStream>>,
    link: mpsc::UnboundedSender<FromAgent>,
}

impl Agent {
    async fn run(start: Start, orders: OwnedReadHalf, reports: OwnedWriteHalf) -> io::Result<()> {
        descendants::adopt_orphans();
        let descriptors = raise_descriptor_limit();
        let identity = Identity {
            role: Role::Agent,
            rank: Rank(start.host.0),
            incarnation: Incarnation(0),
        };
        let options = EndpointOptions::new(start.job, start.key.clone(), identity);
        let endpoint = Endpoint::bind(options).map_err(io::Error::other)?;
        let reports = Reports::new(reports);
        reports.send(Report::Ready {
            host_name: uname().nodename().to_string_lossy().into_owned(),
        });
        let (events, event_queue) = mpsc::channel(EVENTS_QUEUED_MAX);
        tokio::spawn(read_orders(orders, events.clone()));
        let outputs = Outputs::new(reports.queue.clone());
        // Input may come before rank 0 is there.
        let (input, input_queue) = start.has_stdin.then(mpsc::unbounded_channel).unzip();
        let agent = Self {
            mind: HostAgent::new(start.clone(), endpoint.address().clone(), held_bytes_max()),
            start: Arc::new(start),
            endpoint,
            ranks: BTreeMap::new(),
            held: BTreeMap::new(),
            input,
            input_queue,
            output_window: outputs.window(),
            outputs: Some(outputs),
            reports,
            events,
            descriptors,
            finished: false,
        };
        agent.work(event_queue).await
    }

    async fn work(mut self, mut events: mpsc::Receiver<AgentEvent>) -> io::Result<()> {
        let endpoint = self.endpoint.as_fd().try_clone_to_owned()?;
        let endpoint = watch(endpoint, Interest::READABLE)?;
        let mut children = signal(SignalKind::child())?;
        let mut orphans_looked_for = Instant::now();
        loop {
            self.perform_actions();
            if self.finished {
                break;
            }
            let endpoint_deadline = self.endpoint.next_deadline();
            let endpoint_timer = async {
                match endpoint_deadline {
                    Some(deadline) => sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = events.recv() => self.handle_event(event),
                ready = endpoint.readable() => {
                    let mut ready = ready?;
                    self.drive_endpoint();
                    // The runtime learns of a change only, and one turn need not use up what is ready.
                    if !is_readable(self.endpoint.as_fd()) {
                        ready.clear_ready();
                    }
                }
                () = endpoint_timer => {
                    self.drive_endpoint();
                }
                _ = children.recv() => {
                    if orphans_looked_for.elapsed() >= REAP_PERIOD {
                        orphans_looked_for = Instant::now();
                        descendants::reap_orphans(|pid| self.ranks.values().any(|rank| rank.pid == pid));
                    }
                }
                // One rank in a turn, so that orders and deaths are not kept waiting by a long start.
                () = yield_now(), if self.mind.is_spawning() => self.spawn(),
            }
        }
        let Self { reports, input, .. } = self;
        drop(input);
        reports.finish().await;
        Ok(())
    }

    fn handle_event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::LauncherLost => {
                // Nobody is there to take what is still unsent.
                self.output_window.close();
                self.mind.handle_launcher_lost();
            }
            AgentEvent::Order(order) => self.handle_order(order),
            AgentEvent::Rank(rank, event) => self.handle_rank_event(rank, event),
            AgentEvent::Swept => self.mind.handle_swept(),
        }
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::OutputTaken(size) => self.output_window.add_permits(size as usize),
            Order::Signal { rank, signal } => self.mind.handle_signal(rank, signal),
            // A second start has no meaning; the launcher does not send one.
            Order::Start(_) => {}
            Order::Stdin(bytes) => {
                if let Some(input) = &self.input {
                    // Rank 0 may have closed its end; what it does not want is dropped.
                    let _ = input.send(bytes);
                }
            }
            Order::StdinEnd => self.input = None,
        }
    }

    fn handle_rank_event(&mut self, rank: Rank, event: RankEvent) {
        match event {
            RankEvent::Exited { cause, at_ns } => {
                self.mind.handle_exit(rank, cause, at_ns);
                self.ranks.remove(&rank);
            }
            RankEvent::Link(message, memory) => {
                let size = memory.as_ref().map(|memory| memory.length() as u64);
                let id = match &message {
                    ToAgent::Hold(held) => Some(held.id),
                    _ => None,
                };
                let keep = self.mind.handle_link(rank, message, size);
                if let (true, Some(id), Some(memory)) = (keep, id, memory) {
                    self.held.insert((rank, id), memory);
                }
            }
            RankEvent::LinkBroken(error) => self.mind.handle_link_broken(rank, &error),
            RankEvent::Pmi(bytes) => self.mind.handle_pmi(rank, &bytes),
            RankEvent::PmiClosed => self.mind.handle_pmi_closed(rank),
        }
    }

    fn perform_actions(&mut self) {
        while let Some(action) = self.mind.poll_action() {
            match action {
                Action::ClosePmi(rank) => {
                    if let Some(io) = self.ranks.get(&rank) {
                        // A connection that is closed already is what we want.
                        let _ = shutdown(&**io.pmi.get_ref(), Shutdown::Both);
                    }
                }
                Action::Expose(rank, held) => {
                    let memory = self.held.remove(&(rank, held.id));
                    let memory = memory.expect("the mind exposes only what it said to keep, and once");
                    let bytes = memory.into_bytes().unwrap_or_else(|error| {
                        // Whoever wants to read it is told that it is not there.
                        let text = format!("what it left cannot be read: {error}");
                        self.reports.send(Report::Notice { rank, text });
                        Bytes::new()
                    });
                    let handle = self.endpoint.expose(bytes);
                    self.mind.handle_exposed(rank, held, handle);
                }
                Action::Forget(rank, id) => {
                    self.held.remove(&(rank, id));
                }
                Action::Report(report) => {
                    self.finished |= matches!(report, Report::Finished);
                    self.reports.send(report);
                }
                Action::SendLink(rank, message) => {
                    if let Some(io) = self.ranks.get(&rank) {
                        // The rank may have closed its end.
                        let _ = io.link.send(message);
                    }
                }
                Action::SendPmi(rank, bytes) => self.send_pmi(rank, &bytes),
                Action::Signal(rank, signal) => {
                    if let (Some(io), Some(signal)) = (self.ranks.get(&rank), Signal::from_named_raw(signal))
                    {
                        // The group is gone if its leader is and nobody has been told yet.
                        let _ = kill_process_group(io.pid, signal);
                    }
                }
                Action::Sweep => self.sweep(),
            }
        }
    }

    /// A client has one request at a time, so that its answers always fit into the socket's buffer unless it
    /// breaks the protocol and never reads them.
    fn send_pmi(&self, rank: Rank, bytes: &[u8]) {
        let Some(io) = self.ranks.get(&rank) else {
            return;
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if send(&**io.pmi.get_ref(), bytes, flags) != Ok(bytes.len()) {
            let _ = shutdown(&**io.pmi.get_ref(), Shutdown::Both);
        }
    }

    fn sweep(&mut self) {
        let (outputs, events) = (self.outputs.take(), self.events.clone());
        tokio::spawn(async move {
            descendants::kill_all().await;
            if let Some(outputs) = outputs {
                outputs.finish().await;
            }
            // Without a receiver the agent is at its end already.
            let _ = events.send(AgentEvent::Swept).await;
        });
    }

    fn drive_endpoint(&mut self) {
        self.endpoint.progress();
        // Ranks only read the memory that is exposed; nothing of what else they may send is for us.
        while self.endpoint.poll_event().is_some() {}
    }

    fn spawn(&mut self) {
        let Some(rank) = self.mind.poll_spawn() else {
            return;
        };
        match self.start_rank(rank) {
            Ok(pid) => self.mind.handle_spawned(rank, pid),
            Err(error) => self.mind.handle_not_spawned(rank, error),
        }
    }

    fn start_rank(&mut self, rank: Rank) -> Result<u32, StartError> {
        let failed = |error: io::Error| system_error("cannot make its sockets and pipes", &error);
        let (pmi, rank_pmi) = UnixStream::pair().map_err(failed)?;
        let pmi = Arc::new(watch(pmi, Interest::READABLE).map_err(failed)?);
        let (link, rank_link) = AgentLink::pair().map_err(failed)?;
        link.send(&self.mind.welcome(rank), None)
            .map_err(|error| failed(io::Error::other(error)))?;
        let link = Arc::new(watch(link, Interest::READABLE | Interest::WRITABLE).map_err(failed)?);
        let (stdout, rank_stdout) = output_pipe().map_err(failed)?;
        let (stderr, rank_stderr) = output_pipe().map_err(failed)?;
        let (input, rank_stdin) = match self.input_queue.take_if(|_| rank == Rank(0)) {
            Some(queue) => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
                let writer = pipe::Sender::from_owned_fd(writer).map_err(failed)?;
                (Some((writer, queue)), Stdio::from(reader))
            }
            None => (None, Stdio::null()),
        };
        let process = RankProcess::start(RankProcessOptions {
            start: &self.start,
            variables: plan::rank_variables(&self.start, rank),
            pmi: rank_pmi.into(),
            link: rank_link,
            stdin: rank_stdin,
            stdout: rank_stdout,
            stderr: rank_stderr,
            descriptors: self.descriptors,
        })?;
        let pid = process.pid;
        let watch = RankWatch {
            // What was started and cannot be watched is left to the sweep that follows a failed start.
            pidfd: watch(process.pidfd, Interest::READABLE).map_err(failed)?,
            pmi: pmi.clone(),
            link: link.clone(),
        };
        tokio::spawn(watch.run(rank, self.events.clone()));
        if let Some(outputs) = &mut self.outputs {
            outputs.read(rank, OutputStream::Stdout, stdout);
            outputs.read(rank, OutputStream::Stderr, stderr);
        }
        if let Some((pipe, queue)) = input {
            tokio::spawn(write_input(pipe, queue, self.reports.queue.clone()));
        }
        let (sender, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_link(link, queue));
        let link = sender;
        self.ranks.insert(rank, RankIo { pid, pmi, link });
        Ok(pid.as_raw_nonzero().get().cast_unsigned())
    }
}

/// The way to the launcher. Unbounded, because whoever sends much waits for its turn: output by its window,
/// and trace events are dropped when many wait.
struct Reports {
    queue: mpsc::UnboundedSender<Report>,
    traces_queued: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
}

impl Reports {
    fn new(mut stream: OwnedWriteHalf) -> Self {
        let (queue, mut reports) = mpsc::unbounded_channel();
        let traces_queued = Arc::new(AtomicUsize::new(0));
        let counter = traces_queued.clone();
        let writer = tokio::spawn(async move {
            let mut connected = true;
            while let Some(report) = reports.recv().await {
                if matches!(report, Report::Trace { .. }) {
                    counter.fetch_sub(1, Ordering::Relaxed);
                }
                // Without a launcher reports go nowhere; the agent learns of it by reading.
                connected = connected && control::write(&mut stream, &report).await.is_ok();
            }
        });
        Self {
            queue,
            traces_queued,
            writer,
        }
    }

    fn send(&self, report: Report) {
        if matches!(report, Report::Trace { .. }) {
            if self.traces_queued.load(Ordering::Relaxed) >= TRACES_QUEUED_MAX {
                return;
            }
            self.traces_queued.fetch_add(1, Ordering::Relaxed);
        }
        // The writer lives as long as this.
        let _ = self.queue.send(report);
    }

    /// Waits until all is written, or the launcher gone.
    async fn finish(self) {
        drop(self.queue);
        let _ = self.writer.await;
    }
}

async fn read_orders(mut stream: OwnedReadHalf, events: mpsc::Sender<AgentEvent>) {
    while let Ok(Some(order)) = control::read(&mut stream).await {
        if events.send(AgentEvent::Order(order)).await.is_err() {
            return;
        }
    }
    let _ = events.send(AgentEvent::LauncherLost).await;
}

/// Hands input on to rank 0 and tells how much of it was taken. A rank that closes its end gets no more, and
/// the launcher then reads no more.
async fn write_input(
    mut pipe: pipe::Sender,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    reports: mpsc::UnboundedSender<Report>,
) {
    while let Some(bytes) = queue.recv().await {
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
        let _ = reports.send(Report::StdinTaken(bytes.len() as u32));
    }
}

/// Tells a rank what it must hear, however slowly it reads.
async fn write_link(link: Arc<Watched<AgentLink>>, mut queue: mpsc::UnboundedReceiver<FromAgent>) {
    while let Some(message) = queue.recv().await {
        loop {
            let Ok(mut ready) = link.writable().await else {
                return;
            };
            match link.get_ref().send(&message, None) {
                Ok(()) => break,
                Err(AgentLinkError::Full) => ready.clear_ready(),
                Err(_) => return,
            }
        }
    }
}

/// Whether reading would find something now. If that cannot be told, trying does no harm.
fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(
        &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
        Some(&at_once),
    ) != Ok(0)
}

fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd(reader)?, writer))
}

/// Lets this process have as many descriptors as it may: it needs five for each rank. Returns what it had.
fn raise_descriptor_limit() -> Rlimit {
    let had = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    // If this fails, a rank that cannot be started says why.
    let _ = setrlimit(Resource::Nofile, raised);
    had
}

/// Half of the host's memory. What is held is shared with the rank that wrote it for as long as that has it
/// too, so that this bounds only what ranks would otherwise have given back.
fn held_bytes_max() -> u64 {
    let info = sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / 2
}
