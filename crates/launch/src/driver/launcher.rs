//! The launcher, as a library: a thread that runs attempts, and the queue of events it fills.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread,
    time::Duration,
};

use ropewalk_fabric::TraceEvent;
use ropewalk_launch_core::{
    JobEvent, JobSpec, OutputStream, group_plan::GroupPlan, protocol::Plan, restart::BetweenAttempts,
};
use ropewalk_names::Rank;
use rustix::process::Signal;
use tokio::sync::mpsc;

use super::{
    attempts::Attempts,
    idle_memory::share_heap,
    launch_error::{LaunchError, system},
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
    /// Of the attempt whose events are being taken.
    plan: Arc<Plan>,
    attempt: u32,
    /// What programs spawned, the latest last.
    groups: VecDeque<Arc<GroupPlan>>,
    thread: Option<thread::JoinHandle<()>>,
    lines: VecDeque<JobEvent>,
    taken: usize,
    over: bool,
}

impl Launcher {
    /// How many bytes of trace events wait to be taken, about; more are dropped.
    pub(super) const TRACE_BYTES_MAX: usize = 16 << 20;

    /// Starts the agents, and with them the job.
    ///
    /// # Errors
    /// If the ranks cannot be placed, or the system refuses what a launcher needs. An agent or a program that cannot be
    /// started is told by the verdict.
    pub fn start(spec: JobSpec) -> Result<Self, LaunchError> {
        Self::start_with(spec, ())
    }

    /// The same for a job that is prepared before each attempt: see [`restart`](ropewalk_launch_core::restart).
    ///
    /// # Errors
    /// As for [`start`](Self::start), or if the first attempt is refused.
    pub fn start_with(spec: JobSpec, between: impl BetweenAttempts + 'static) -> Result<Self, LaunchError> {
        let (delivery_sender, deliveries) = blocking::channel();
        let (requests, request_queue) = mpsc::unbounded_channel();
        let trace_bytes = Arc::new(AtomicUsize::new(0));
        let forks = spec.fork_agent;
        let mut attempts = Attempts::new(spec, Box::new(between), delivery_sender, trace_bytes.clone());
        let mut first = attempts.prepare(1)?;
        if forks {
            share_heap();
        }
        if forks && first.plan.hosts.first().is_some_and(|host| host.is_local) {
            first.fork_agent();
        }
        let plan = first.plan.clone();
        let thread = thread::Builder::new()
            .name("ropewalk-launch".to_owned())
            .spawn(move || attempts.run(first, request_queue))
            .map_err(|source| system("a thread", source))?;
        Ok(Self {
            deliveries,
            delivered: VecDeque::new(),
            requests,
            trace_bytes,
            plan,
            attempt: 1,
            groups: VecDeque::new(),
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
        while self.delivered.is_empty() {
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
                Err(blocking::RecvTimeoutError::Disconnected) => break,
            }
            self.take_notice();
        }
        let delivery = self.delivered.pop_front();
        self.take_notice();
        match delivery {
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
            // Notices were taken above.
            Some(Delivery::Began { .. } | Delivery::Group(_)) | None => {
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
        let spawned = || self.groups.iter().find_map(|group| group.node_of(rank));
        let host = self.plan.node_of(rank).or_else(spawned)?.host()?;
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

    /// Takes notice of attempts and process groups whose events come next.
    fn take_notice(&mut self) {
        let is_notice =
            |delivery: &mut Delivery| matches!(delivery, Delivery::Began { .. } | Delivery::Group(_));
        while let Some(notice) = self.delivered.pop_front_if(is_notice) {
            match notice {
                Delivery::Began { attempt, plan } => {
                    // What was taken of the output of an attempt that is over concerns nobody any more.
                    self.taken = 0;
                    self.attempt = attempt;
                    self.plan = plan;
                    self.groups.clear();
                }
                Delivery::Group(group) => {
                    if self.groups.len() == GROUPS_REMEMBERED {
                        self.groups.pop_front();
                    }
                    self.groups.push_back(group);
                }
                _ => {}
            }
        }
    }

    fn return_credit(&mut self) {
        if self.taken > 0 {
            let _ = self.requests.send(Request::OutputTaken {
                attempt: self.attempt,
                size: self.taken,
            });
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

/// A group whose processes are all gone may still have output to be taken; of so many groups the hosts are known.
const GROUPS_REMEMBERED: usize = 8192;
/// Returning credit byte by byte would cost a frame each.
const CREDIT_RETURNED_MIN: usize = 256 << 10;

/// What whoever takes events gets.
#[derive(Debug)]
pub(super) enum Delivery {
    /// All that follows is about this attempt.
    Began {
        attempt: u32,
        plan: Arc<Plan>,
    },
    Event(JobEvent),
    Failed(LaunchError),
    /// There are ranks of a further process group from now on.
    Group(Arc<GroupPlan>),
    Output {
        rank: Rank,
        stream: OutputStream,
        lines: Vec<u8>,
    },
}

/// What whoever takes events wants.
#[derive(Debug)]
pub(super) enum Request {
    Interrupt(i32),
    OutputTaken { attempt: u32, size: usize },
    Signal(Rank, i32),
}

/// What an event takes while it waits, about.
pub(super) fn trace_size(event: &TraceEvent) -> usize {
    let label = match event {
        TraceEvent::Progress(progress) => &progress.label,
        TraceEvent::Span { label, .. } | TraceEvent::Mark { label, .. } => label,
    };
    size_of::<Delivery>() + label.len()
}
