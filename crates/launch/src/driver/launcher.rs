//! The launcher, as a library: a thread that runs attempts, and the queue of events it fills.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, mpsc as blocking},
    thread,
    time::Duration,
};

use ropewalk_launch_core::{
    JobEvent, JobSpec, group_plan::GroupPlan, protocol::Plan, restart::BetweenAttempts,
};
use ropewalk_names::{HostId, JobId, Rank};
use rustix::process::Signal;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    watch,
};

use super::{
    attempts::Attempts,
    deliveries::{self, Delivery, deliveries},
    idle_memory::share_heap,
    launch_error::{LaunchError, system},
    requests::{REQUESTS_MAX, Request, Taken},
};

/// Runs one job.
///
/// Take its events with [`next_event`](Self::next_event) until [`JobEvent::Finished`]. Output that nobody
/// takes makes the ranks wait; nothing else does. Of fences, notices and traces that nobody takes, the latest
/// are dropped; a job with millions of other events that nobody takes is ended. Dropping the launcher ends
/// the job at once.
///
/// ```no_run
/// # use ropewalk_launch::{JobEvent, JobSpec, Launcher, Segment};
/// let program = Segment { ranks: 2, ..Segment::new("hostname") };
/// let spec = JobSpec::new("/usr/bin/ropewalk", program);
/// let mut launcher = Launcher::start(spec)?;
/// while let Some(event) = launcher.next_event(None)? {
///     match event {
///         JobEvent::Output { rank, line, .. } => print!("{rank}: {}", String::from_utf8_lossy(&line)),
///         JobEvent::Finished(outcome) => println!("exit code {}", outcome.exit_code()),
///         _ => {}
///     }
/// }
/// # Ok::<(), ropewalk_launch::LaunchError>(())
/// ```
#[derive(Debug)]
pub struct Launcher {
    deliveries: deliveries::Receiver,
    delivered: VecDeque<Delivery>,
    requests: mpsc::Sender<Request>,
    /// Of the attempt whose events are being taken.
    plan: Arc<Plan>,
    /// The process groups that programs spawned, the latest last.
    groups: VecDeque<Arc<GroupPlan>>,
    thread: Option<thread::JoinHandle<()>>,
    lines: VecDeque<JobEvent>,
    taken: Taken,
    /// How much of it the launcher's thread knows.
    taken_told: watch::Sender<Taken>,
    over: bool,
}

impl Launcher {
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
        let (delivery_sender, deliveries) = deliveries();
        let (requests, request_queue) = mpsc::channel(REQUESTS_MAX);
        let taken = Taken { attempt: 1, bytes: 0 };
        let (taken_told, taken_heard) = watch::channel(taken);
        let forks = spec.fork_agent;
        let mut attempts = Attempts::new(spec, Box::new(between), delivery_sender);
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
            .spawn(move || attempts.run(first, request_queue, taken_heard))
            .map_err(|source| system("a thread", source))?;
        Ok(Self {
            deliveries,
            delivered: VecDeque::new(),
            requests,
            plan,
            groups: VecDeque::new(),
            thread: Some(thread),
            lines: VecDeque::new(),
            taken,
            taken_told,
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
            let received = match self.deliveries.deliveries.try_recv() {
                Err(blocking::TryRecvError::Empty) => {
                    self.return_credit();
                    let deliveries = &self.deliveries.deliveries;
                    match timeout {
                        Some(timeout) => deliveries.recv_timeout(timeout),
                        None => deliveries.recv().map_err(blocking::RecvTimeoutError::from),
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
                self.deliveries.release(&event);
                self.over = matches!(event, JobEvent::Finished(_));
                Ok(Some(event))
            }
            Some(Delivery::Failed(error)) => {
                self.over = true;
                Err(error)
            }
            Some(Delivery::Output { rank, stream, lines }) => {
                self.taken.bytes += lines.len() as u64;
                if self.taken.bytes >= self.taken_told.borrow().bytes + CREDIT_RETURNED_MIN {
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

    /// The identity of the job; each attempt has its own, and this is that of the attempt whose events are being taken.
    pub fn job(&self) -> JobId {
        self.plan.job
    }

    /// The name of the host of a rank, as the hosts were named; `None` if the job has no such rank.
    pub fn host_of(&self, rank: Rank) -> Option<&str> {
        self.place_of(rank).map(|place| place.host)
    }

    /// The place of a rank; `None` if the job has no such rank.
    pub fn place_of(&self, rank: Rank) -> Option<RankPlace<'_>> {
        let own = || Some((FIRST_GROUP, self.plan.node_of(rank)?));
        let spawned = |group: &Arc<GroupPlan>| Some((group.id, group.node_of(rank)?));
        let (group, node) = own().or_else(|| self.groups.iter().find_map(spawned))?;
        let host_number = node.host()?;
        Some(RankPlace {
            host: &self.plan.hosts.get(host_number.0 as usize)?.name,
            host_number,
            group,
        })
    }

    /// Sends a signal to the process group of a rank. Nothing happens if the rank is gone.
    ///
    /// # Errors
    /// If there is no such signal, or too many wait to be sent.
    pub fn signal(&self, rank: Rank, signal: i32) -> Result<(), LaunchError> {
        self.request(signal, Request::Signal(rank, signal))
    }

    /// Ends the job as this signal to the launcher would: it goes to all ranks, and SIGKILL after it.
    ///
    /// # Errors
    /// As for [`signal`](Self::signal).
    pub fn interrupt(&self, signal: i32) -> Result<(), LaunchError> {
        self.request(signal, Request::Interrupt(signal))
    }

    fn request(&self, signal: i32, request: Request) -> Result<(), LaunchError> {
        let _: Signal = Signal::from_named_raw(signal).ok_or(LaunchError::Signal { signal })?;
        match self.requests.try_send(request) {
            Err(TrySendError::Full(_)) => Err(LaunchError::Busy),
            // Once the job is over nobody is there to take it.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Takes notice of attempts and process groups whose events come next.
    fn take_notice(&mut self) {
        let is_notice = |delivery: &Delivery| matches!(delivery, Delivery::Began { .. } | Delivery::Group(_));
        while self.delivered.front().is_some_and(is_notice)
            && let Some(notice) = self.delivered.pop_front()
        {
            match notice {
                Delivery::Began { attempt, plan } => {
                    // What was taken of the output of an attempt that is over concerns nobody any more.
                    self.taken = Taken { attempt, bytes: 0 };
                    self.taken_told.send_replace(self.taken);
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
        if self.taken != *self.taken_told.borrow() {
            self.taken_told.send_replace(self.taken);
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The thread takes a closed queue for the wish that the job end now.
        self.requests = mpsc::channel(1).0;
        if let Some(thread) = self.thread.take() {
            // A panic there was told on standard error.
            let _ = thread.join();
        }
    }
}

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlace<'a> {
    /// The name of its host, as the hosts were named.
    pub host: &'a str,
    /// The number of its host in the job.
    pub host_number: HostId,
    /// Its process group: 0 is the job's own, others were spawned.
    pub group: u32,
}

/// The group that the job begins with.
const FIRST_GROUP: u32 = 0;
/// A group whose processes are all gone may still have output to be taken; of so many groups the hosts are known.
const GROUPS_REMEMBERED: usize = 8192;
/// Returning credit byte by byte would cost a frame each.
const CREDIT_RETURNED_MIN: u64 = 256 << 10;
