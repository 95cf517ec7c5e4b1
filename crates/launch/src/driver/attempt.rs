//! One attempt to run a job, driven by its [`Supervisor`].

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::Endpoint;
use ropewalk_launch_core::{
    JobEvent, StdinSource, Verdict,
    group_plan::GroupPlan,
    host_files::read_host_files,
    protocol::{Down, Order, Plan, Report, Up},
    supervisor::{Action, Supervisor},
};
use ropewalk_names::{HostId, Rank};
use tokio::{
    io::Interest,
    sync::{mpsc, watch as changing},
    time::{sleep, sleep_until},
};

use super::{
    branch::{Branch, BranchEvent, Position},
    deliveries::{self, Delivery},
    descendants,
    idle_memory::IdleMemory,
    input::Input,
    interrupts::{self, RunInProcess, Signalled, Signals, next_signal},
    keeper,
    requests::{Request, Taken},
    shared_names::SharedNames,
    small_files,
    watched::{Watched, is_readable, watch},
};

/// The state of one attempt in the launcher's thread.
pub(super) struct AttemptRun {
    pub(super) number: u32,
    pub(super) plan: Arc<Plan>,
    pub(super) supervisor: Supervisor,
    pub(super) started: Instant,
    pub(super) deliveries: deliveries::Sender,
    /// The events and groups that are delivered at the end of this turn.
    waiting: Vec<Delivery>,
    /// How much of the output that was taken the agents know.
    output_credited: u64,
    /// How much input the ranks of each host took, and how much of that was told to whoever reads it.
    stdin_taken: Vec<u64>,
    stdin_told: u64,
    /// Kept back until the agents are gone too.
    verdict: Option<Verdict>,
    /// The process groups that programs spawned.
    groups: Vec<Arc<GroupPlan>>,
    /// Agents were lost or given up: what they left behind is looked for.
    was_abandoned: bool,
    memory: IdleMemory,
    in_process: RunInProcess,
    pub(super) names: SharedNames,
}

/// The inputs that drive a job besides its agents: requests, the output that was taken, and signals.
pub(super) struct Surface {
    pub(super) requests: mpsc::Receiver<Request>,
    /// How much output was taken.
    pub(super) taken: changing::Receiver<Taken>,
    pub(super) signals: Option<Signals>,
    /// The first signal that was to end the job.
    pub(super) interrupted: Option<i32>,
    /// There was a second.
    pub(super) is_urgent: bool,
}

/// Standard input, while ranks read it.
struct Reader {
    input: Option<Input>,
    queue: mpsc::Receiver<Order>,
}

impl Reader {
    fn start(source: StdinSource) -> io::Result<Self> {
        let (inputs, queue) = mpsc::channel(Input::ORDERS_MAX);
        let input = match source {
            StdinSource::Null => None,
            StdinSource::Inherit | StdinSource::InheritAll => Some(Input::start(inputs)?),
        };
        Ok(Self { input, queue })
    }
}

impl AttemptRun {
    pub(super) fn new(
        number: u32,
        plan: Arc<Plan>,
        supervisor: Supervisor,
        deliveries: deliveries::Sender,
    ) -> Self {
        Self {
            number,
            supervisor,
            started: Instant::now(),
            deliveries,
            waiting: Vec::new(),
            output_credited: 0,
            stdin_taken: vec![0; plan.hosts.len()],
            stdin_told: 0,
            in_process: RunInProcess::default(),
            plan,
            verdict: None,
            groups: Vec::new(),
            was_abandoned: false,
            memory: IdleMemory::default(),
            names: SharedNames::new(None),
        }
    }

    /// Runs the job to its end. Returns what came of it; `None` if nobody wants it any more.
    pub(super) async fn run(
        &mut self,
        position: Position,
        endpoint: Endpoint,
        surface: &mut Surface,
    ) -> io::Result<Option<Verdict>> {
        // First of all: agents wait for it.
        let mut branch = Branch::start(position, endpoint)?;
        let mut reader = Reader::start(self.plan.stdin)?;
        let descriptor = watch(branch.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        let mut give_up_at = None;
        loop {
            self.settle(&mut branch, &reader);
            if self.deliveries.is_overrun() {
                return Ok(self.drop_job(branch));
            }
            let is_over = self.supervisor.is_over() && !branch.relay().has_waiting();
            if is_over && branch.are_starters_gone() {
                break;
            }
            if is_over && give_up_at.is_none() {
                // Agents end themselves, once they know that all is over or need not; those that do not are ended.
                reader.input = None;
                give_up_at = Some(Instant::now() + self.plan.detect);
            }
            if give_up_at.is_some_and(|at| at <= Instant::now()) {
                self.supervisor.despair();
                self.settle(&mut branch, &reader);
                break;
            }
            let deadline = self
                .next_deadline(&mut branch)
                .into_iter()
                .chain(give_up_at)
                .min();
            let happening = tokio::select! {
                biased;
                () = self.in_process.is_to_stop() => {
                    let signals = &mut surface.signals;
                    match self.suspend(&mut branch, &mut give_up_at, signals).await {
                        Some(signal) => Happening::Signal(signal),
                        None => Happening::Branch,
                    }
                }
                happening = next_happening(&self.names, &descriptor, deadline, surface, &mut reader) => happening?,
            };
            match happening {
                Happening::Branch => {
                    branch.progress();
                    self.names.progress();
                    // If this process was stopped, what came meanwhile counts before what is overdue.
                    self.settle(&mut branch, &reader);
                    self.supervisor.handle_timeout(self.now());
                    self.memory.handle_timeout(Instant::now());
                }
                Happening::Request(Request::Interrupt(signal)) => {
                    self.supervisor.handle_interrupt(self.now(), signal);
                }
                Happening::OutputTaken => {
                    let taken = *surface.taken.borrow_and_update();
                    self.credit_output(&mut branch, taken);
                }
                Happening::Request(Request::Signal(rank, signal)) => {
                    self.signal_rank(&mut branch, rank, signal);
                }
                Happening::Dropped => return Ok(self.drop_job(branch)),
                Happening::Input(order) => self.send_input(&mut branch, order),
                Happening::Signal(Signalled::Forward(signal)) => {
                    self.supervisor.handle_user_signal(self.now(), signal);
                }
                Happening::Signal(Signalled::Suspend) => interrupts::suspend(),
                // This process went on already.
                Happening::Signal(Signalled::Resume) => {}
                Happening::Signal(Signalled::End(signal)) => {
                    if surface.interrupted.is_none() {
                        surface.interrupted = Some(signal);
                        self.supervisor.handle_interrupt(self.now(), signal);
                    } else if !surface.is_urgent {
                        surface.is_urgent = true;
                        reader.input = None;
                        self.insist(&mut branch, signal);
                        let at = Instant::now() + URGENT;
                        give_up_at = Some(give_up_at.map_or(at, |before: Instant| before.min(at)));
                    }
                }
            }
        }
        branch.end_now(if surface.is_urgent {
            URGENT_END
        } else {
            Branch::END
        });
        if self.was_abandoned {
            descendants::kill_job(self.plan.job);
        }
        Ok(self.verdict.take())
    }

    /// When there is something to do at the latest.
    fn next_deadline(&mut self, branch: &mut Branch) -> Option<Instant> {
        // A time limit beyond what the clock can show is none.
        let deadline = self.supervisor.deadline();
        let deadline = deadline.and_then(|after| self.started.checked_add(after));
        branch
            .next_deadline()
            .into_iter()
            .chain(deadline)
            .chain(self.memory.deadline())
            .chain(self.names.next_deadline())
            .min()
    }

    /// Tells the agents how much output was taken.
    fn credit_output(&mut self, branch: &mut Branch, taken: Taken) {
        if taken.attempt == self.number {
            branch.send(Down::Credit((taken.bytes - self.output_credited) as u32));
            self.output_credited = taken.bytes;
        }
    }

    fn signal_rank(&self, branch: &mut Branch, rank: Rank, signal: i32) {
        let mut groups = self.groups.iter();
        let spawned = || groups.find_map(|group| group.node_of(rank));
        if let Some(node) = self.plan.node_of(rank).or_else(spawned) {
            let rank = Some(rank);
            branch.send(Down::To(node, Order::Signal { rank, signal }));
        }
    }

    /// Ends the job for a second signal, without a wait for its orderly end.
    fn insist(&mut self, branch: &mut Branch, signal: i32) {
        // Not all that is left may hear of it.
        self.was_abandoned = true;
        self.supervisor.handle_insistence(self.now(), signal);
        branch.let_go();
    }

    /// Stops the ranks, and this process once all agents have heard of that; goes on with both. A signal that
    /// comes before the process is stopped calls the stop off, and is returned.
    async fn suspend(
        &mut self,
        branch: &mut Branch,
        give_up_at: &mut Option<Instant>,
        signals: &mut Option<Signals>,
    ) -> Option<Signalled> {
        let since = Instant::now();
        // Ranks of a job that no signal is for, as that beside another job which copies its checkpoints, work on.
        let stops_ranks = signals.is_some();
        branch.send(Down::Order(Order::Suspend { stops_ranks }));
        let patience = match self.plan.adopts() {
            // So long it may take until hosts below one that hangs miss it, and hear from the launcher.
            true => self.plan.detect * 2,
            false => self.plan.detect.min(HEARING),
        };
        // An agent that has not heard misses the launcher while that is stopped.
        let heard = async {
            while !branch.is_heard() && since.elapsed() < patience {
                branch.flush();
                sleep(TICK).await;
                branch.progress();
            }
        };
        let (stopped, signal) = self.in_process.stop_after(heard, signals).await;
        let suspended = since.elapsed();
        self.started += suspended;
        *give_up_at = give_up_at.map(|at| at + suspended);
        branch.handle_resumed(stopped);
        self.supervisor.handle_resumed(self.now(), suspended);
        branch.send(Down::Order(Order::Resume));
        signal
    }

    /// Ends the job at once: nobody takes notice of it.
    fn drop_job(&self, branch: Branch) -> Option<Verdict> {
        branch.end_now(Branch::END);
        descendants::kill_job(self.plan.job);
        None
    }

    /// Hands on what came, until nothing is left.
    fn settle(&mut self, branch: &mut Branch, reader: &Reader) {
        loop {
            let mut is_quiet = true;
            while let Some(event) = branch.poll_event() {
                is_quiet = false;
                match event {
                    BranchEvent::Up(up) => self.handle_up(up, reader.input.as_ref()),
                    BranchEvent::Pmi(child, up) => self.supervisor.handle_pmi(self.now(), child, up),
                    BranchEvent::ChildLost(child) => self.supervisor.handle_child_lost(self.now(), child),
                    // The launcher has no host of its own and nobody above.
                    BranchEvent::Adopted
                    | BranchEvent::Down(_)
                    | BranchEvent::SeeksLauncher
                    | BranchEvent::ParentLost(_) => {}
                }
            }
            while let Some(action) = self.supervisor.poll_action() {
                is_quiet = false;
                match action {
                    Action::AbandonAgents => {
                        self.was_abandoned = true;
                        branch.abandon_all();
                    }
                    Action::AskNames(asker, question) => self.names.ask(asker, question),
                    Action::Event(event) => self.deliver(event),
                    Action::Finished(verdict) => self.verdict = Some(verdict),
                    Action::Send(down) => {
                        self.note_group(&down);
                        branch.send(down);
                    }
                    Action::ReadHostFiles(wanted) => {
                        let read = read_host_files(wanted.spawn.clone(), small_files::read);
                        self.supervisor.handle_host_files(self.now(), wanted, read);
                    }
                    Action::SendPmi(child, down) => branch.send_pmi(child, down),
                }
            }
            while let Some((asker, answer)) = self.names.poll_answer() {
                is_quiet = false;
                self.supervisor.handle_names_answer(self.now(), asker, answer);
            }
            while let Some(told) = self.names.poll_told() {
                is_quiet = false;
                self.supervisor.handle_names_failed(told);
            }
            if is_quiet {
                break;
            }
        }
        branch.flush();
        if !self.waiting.is_empty() {
            self.deliveries.send(std::mem::take(&mut self.waiting));
        }
    }

    fn handle_up(&mut self, up: Up, input: Option<&Input>) {
        match up.report {
            Report::Output { rank, stream, lines } => {
                self.waiting.push(Delivery::Output { rank, stream, lines });
            }
            Report::StdinTaken(size) => self.add_taken(up.host, size.into(), input),
            _ => {
                self.was_abandoned |= matches!(up.report, Report::Lost { .. });
                if matches!(up.report, Report::Finished | Report::Lost { .. }) {
                    self.add_taken(up.host, ALL, input);
                }
                self.supervisor.handle_up(self.now(), up);
            }
        }
    }

    /// The slowest host sets the pace; a host that is over has no pace.
    fn add_taken(&mut self, host: HostId, size: u64, input: Option<&Input>) {
        let Some(taken) = self.stdin_taken.get_mut(host.0 as usize) else {
            return;
        };
        *taken = taken.saturating_add(size);
        let taken = match self.plan.stdin {
            StdinSource::InheritAll => self.stdin_taken.iter().min(),
            // Of the only one that reads.
            _ => self.stdin_taken.iter().filter(|&&taken| taken < ALL).max(),
        };
        let taken = taken.copied().filter(|&taken| taken < ALL).unwrap_or_default();
        if let Some(input) = input
            && taken > self.stdin_told
        {
            input.add_credit((taken - self.stdin_told) as usize);
            self.stdin_told = taken;
        }
    }

    fn send_input(&self, branch: &mut Branch, order: Order) {
        match (self.plan.stdin, self.plan.node_of(Rank(0))) {
            (StdinSource::Inherit, Some(node)) => branch.send(Down::To(node, order)),
            _ => branch.send(Down::Order(order)),
        }
    }

    /// Notes a process group that begins or is forgotten. A new one is also delivered: the user of the events
    /// wants to know where ranks are.
    fn note_group(&mut self, down: &Down) {
        match down {
            Down::Group(group) => {
                let group = Arc::new(GroupPlan::clone(group));
                self.groups.push(group.clone());
                self.waiting.push(Delivery::Group(group));
            }
            Down::Forget(id) => self.groups.retain(|group| group.id != *id),
            _ => {}
        }
    }

    fn deliver(&mut self, event: JobEvent) {
        if matches!(event, JobEvent::Started { .. }) {
            self.memory.handle_started(Instant::now());
        }
        self.waiting.extend(self.deliveries.admit(event));
    }

    /// The job's clock, which stands still while the job is suspended.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

async fn next_happening(
    names: &SharedNames,
    descriptor: &Watched<OwnedFd>,
    deadline: Option<Instant>,
    surface: &mut Surface,
    reader: &mut Reader,
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
        () = names.readable() => Ok(Happening::Branch),
        request = surface.requests.recv() => Ok(request.map_or(Happening::Dropped, Happening::Request)),
        Ok(()) = surface.taken.changed() => Ok(Happening::OutputTaken),
        Some(order) = reader.queue.recv() => Ok(Happening::Input(order)),
        signal = next_signal(&mut surface.signals) => Ok(Happening::Signal(signal)),
        () = timer => Ok(Happening::Branch),
    }
}

/// How long whoever pressed ^Z waits for agents that do not answer, and the time between two looks at who has.
const HEARING: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(1);
/// How long ranks may take to be killed, and their agents to say so, if nobody wants to wait for them: until
/// their keepers are done too.
const URGENT: Duration = keeper::PATIENCE.saturating_add(Duration::from_millis(100));
/// How long what is left then may take to see that it is to end.
const URGENT_END: Duration = Duration::from_millis(250);
/// More than anybody takes.
const ALL: u64 = u64::MAX;

enum Happening {
    /// A neighbour in the tree, the name server, or the clock.
    Branch,
    /// Nobody wants the job any more.
    Dropped,
    Input(Order),
    /// More of the output was taken.
    OutputTaken,
    Request(Request),
    Signal(Signalled),
}
