//! The agent of a host: one thread, one epoll, no runtime, for it is a guest beside other people's programs.

mod actions;
mod activity;
mod advisors;
mod children;
mod groups;
mod inputs;
mod limits;
mod memory_kills;
mod outputs;
mod pmix;
mod poller;
mod preparation;
mod programs;
mod rank_io;
mod rank_link;
mod rank_table;
mod requests;
mod silence;
mod singleton;
mod starting;
mod topology;

use std::{
    io::{self, Write},
    mem,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use ropewalk_launch_core::{
    StdinSource,
    host_agent::HostAgent,
    mpi::open_mpi_job,
    protocol::{Down, Order, Report},
};
use ropewalk_names::Rank;
use rustix::{event::epoll::EventFlags, system::uname};

use super::{
    branch::{self, Branch, BranchEvent, Position},
    descendants,
    keeper::{FAILED, KeeperLine},
    mpi_programs,
    shared_memory::Killed,
    signals::ChildSignals,
};
use activity::Activity;
use advisors::Advisors;
use inputs::Inputs;
use limits::held_bytes_max;
use memory_kills::MemoryKills;
use outputs::Outputs;
use pmix::PmixServer;
use poller::{Channel, Poller, Source};
pub(super) use preparation::Preparation;
use rank_table::RankTable;
use starting::StartKit;

/// The parts of an agent. Its mind decides; the branch of the tree below it has a mind of its own.
pub(super) struct Agent {
    mind: HostAgent,
    branch: Branch,
    keeper: KeeperLine,
    kit: StartKit,
    pmix: PmixServer,
    poller: Poller,
    ranks: RankTable,
    inputs: Inputs,
    outputs: Outputs,
    activity: Activity,
    advisors: Advisors,
    ends: Ends,
    /// The node above was lost.
    is_orphaned: bool,
    flushed: Instant,
    buffer: Vec<u8>,
    asking: requests::Asking,
}

/// The ends of processes, and what they leave behind.
struct Ends {
    children: ChildSignals,
    /// Ranks that have closed their PMI connections, and until when it is waited for their deaths.
    closing: Vec<(Rank, Instant)>,
    memory_kills: MemoryKills,
    killed: Killed,
    sweep: Sweep,
}

/// How far what the ranks left behind is gone.
#[derive(Clone, Copy, Debug)]
enum Sweep {
    NotYet,
    /// Processes are being killed, again at this time, and no longer than until then.
    Killing {
        next: Instant,
        until: Instant,
    },
    /// Pipes are still open that somebody may hold who could not be killed; this is when one last was read.
    Draining {
        read: Instant,
    },
    Done,
}

/// So large that the allocator has it from the system: it is zero there, and takes no memory until something
/// is read into it.
const BUFFER_SIZE: usize = 256 << 10;
/// How many ranks are started between two looks at what else happens.
const STARTS_PER_TURN: usize = 16;
/// How long reports may wait for company while ranks are being started.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// How long a pipe may stay silent once all ranks are gone and yet be held open by somebody.
const IDLE_MAX: Duration = Duration::from_millis(500);
/// How often what the ranks left behind is killed, and for how long: what the kernel cannot kill by then hangs in a
/// device, and waiting longer does not help.
const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
const SWEEP_MAX: Duration = Duration::from_secs(2);

impl Agent {
    /// Works until the job is over, or nobody wants it any more. Returns the exit code.
    pub(super) fn run(position: Position, preparation: Preparation) -> io::Result<u8> {
        let mut agent = Self::new(position, preparation)?;
        agent.branch.report(Report::Ready {
            host_name: uname().nodename().to_string_lossy().into_owned(),
        });
        agent.serve_pmix(0);
        agent.work()?;
        agent.branch.finish();
        agent.keeper.wake();
        let code = match agent.is_orphaned {
            true => FAILED,
            false => 0,
        };
        // The process ends, and the system takes all of it at once: to close one thing after the other takes longer.
        mem::forget(agent);
        Ok(code)
    }

    fn new(position: Position, preparation: Preparation) -> io::Result<Self> {
        let Preparation {
            slots,
            keeper,
            descriptors,
            children,
            memory_kills,
        } = preparation;
        let plan = position.plan.clone();
        let no_host = || io::Error::other("the launcher said nothing about this host");
        let host = position.node.host().ok_or_else(no_host)?;
        let start = plan.start(host);
        let endpoint = branch::bind(&position)?;
        let mut branch = Branch::start(position, endpoint)?;
        let poller = Poller::new()?;
        for (descriptor, source) in [
            (branch.as_fd(), Source::Branch),
            (children.as_owned_fd().as_fd(), Source::Children),
        ] {
            poller.add(descriptor, source, EventFlags::IN)?;
        }
        let outputs = Outputs::new(&poller)?;
        let ranks = start.ranks.clone();
        let inputs = match plan.stdin {
            StdinSource::Inherit => Inputs::new(usize::from(ranks.first() == Some(&Rank(0))), false),
            StdinSource::InheritAll => Inputs::new(ranks.len(), true),
            StdinSource::Null => Inputs::new(0, false),
        };
        let activity = Activity::new(&plan);
        let kit = StartKit::new(plan, host, ranks.len(), slots, descriptors);
        let advisors = Advisors::listen(&poller);
        Ok(Self {
            mind: HostAgent::new(start, branch.endpoint().address().clone(), held_bytes_max()),
            kit,
            branch,
            keeper,
            pmix: PmixServer::default(),
            poller,
            ranks: RankTable::new(&ranks),
            inputs,
            outputs,
            activity,
            advisors,
            ends: Ends {
                children,
                closing: Vec::new(),
                memory_kills,
                killed: Killed::new(),
                sweep: Sweep::NotYet,
            },
            is_orphaned: false,
            flushed: Instant::now(),
            buffer: vec![0; BUFFER_SIZE],
            asking: requests::Asking::default(),
        })
    }

    fn work(&mut self) -> io::Result<()> {
        loop {
            self.settle();
            if self.may_start() {
                for _ in 0..STARTS_PER_TURN {
                    self.start_next();
                }
            }
            self.settle();
            self.advance_sweep();
            let is_rank = |session| self.ranks.pids.contains_key(&session);
            if self.activity.look_if_due(Instant::now(), is_rank) {
                self.branch.report(Report::Active);
            }
            self.ends.memory_kills.handle_time(Instant::now());
            self.pmix.handle_time(Instant::now());
            self.kit.handle_time(Instant::now(), &self.ranks, &self.mind);
            self.handle_closed(None);
            self.settle();
            let now = Instant::now();
            if !self.mind.is_spawning() || !self.branch.is_connected() || now >= self.flushed + FLUSH_INTERVAL
            {
                self.branch.flush();
                self.flushed = now;
                self.settle();
            }
            if self.branch.is_over() {
                return Ok(());
            }
            if self.advisors.is_terminated() {
                return Err(io::Error::other("was told to end by signal 15"));
            }
            if self.outputs.stop_or_go_on(&self.poller, &self.branch) {
                self.note_output();
            }
            self.wait()?;
        }
    }

    /// Does what the minds say until they say nothing.
    fn settle(&mut self) {
        loop {
            let mut is_quiet = true;
            while let Some(action) = self.mind.poll_action() {
                self.perform(action);
                is_quiet = false;
            }
            while let Some(message) = self.mind.poll_helper() {
                self.pmix.tell(&message, &self.poller);
                is_quiet = false;
            }
            while let Some(event) = self.branch.poll_event() {
                self.handle_branch(event);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }

    fn handle_branch(&mut self, event: BranchEvent) {
        match event {
            BranchEvent::Adopted => self.keeper.tell_adopted(),
            BranchEvent::SeeksLauncher => self.keeper.tell_orphaned(self.kit.plan.detect),
            BranchEvent::ChildLost(node) => self.mind.handle_child_lost(node),
            BranchEvent::Pmi(node, up) => self.mind.handle_pmi_up(node, up),
            BranchEvent::Down(Down::Cancel(id)) => self.mind.handle_cancel(id),
            BranchEvent::Down(Down::Forget(id)) => {
                self.mind.handle_forget(id);
                self.kit.groups.forget(id);
            }
            BranchEvent::Down(Down::Group(group)) => self.begin_group(*group),
            BranchEvent::Down(Down::Order(order)) => self.handle_order(order),
            BranchEvent::Down(Down::Pmi(down)) => self.mind.handle_pmi_down(down),
            BranchEvent::Down(Down::News(news)) => self.mind.handle_news(news),
            // These are the relay's own.
            BranchEvent::Down(
                Down::Acknowledged { .. }
                | Down::Adopted
                | Down::Bye
                | Down::Credit(_)
                | Down::Number(_)
                | Down::Resend
                | Down::To(..),
            )
            | BranchEvent::Up(_) => {}
            BranchEvent::ParentLost(why) => {
                self.is_orphaned = true;
                // Whoever reads it is not there any more, or never was reached.
                let _ = writeln!(io::stderr(), "cannot reach the node above: {why}");
            }
        }
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Announce { link, end } => self.advisors.announce(link, end),
            Order::Pmi(down) => self.mind.handle_pmi_down(down),
            Order::ReleaseMemory => self.mind.handle_released(),
            Order::Respawn { rank, incarnation } => self.mind.handle_respawn(rank, incarnation),
            Order::Forward { signal } => self.mind.handle_forward(signal),
            Order::Resume => {
                self.branch.set_launcher_suspended(false);
                self.mind.handle_resume();
            }
            Order::Signal { rank, signal } => self.mind.handle_signal(rank, signal),
            Order::ModexWanted { asker, rank } => self.mind.handle_modex_wanted(asker, rank),
            Order::ModexFound { token, data } => self.mind.handle_modex_found(token, data),
            Order::NamesAnswered { id, answer } => self.mind.handle_names_answer(id, answer),
            Order::Spawned { id, result } => self.mind.handle_spawn_answer(id, result),
            Order::Stdin(bytes) => {
                self.inputs.push(bytes);
                self.inputs.write(&self.poller, &mut self.branch);
            }
            Order::StdinEnd => {
                self.inputs.end();
                self.inputs.write(&self.poller, &mut self.branch);
            }
            Order::Suspend { stops_ranks } => {
                self.branch.set_launcher_suspended(true);
                if stops_ranks {
                    self.mind.handle_suspend();
                }
            }
            Order::WatchProgress => self.activity.watch(),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let sweep = match self.ends.sweep {
            Sweep::Killing { next, .. } => Some(next),
            Sweep::Draining { read } if self.outputs.are_read() => Some(read + IDLE_MAX),
            _ => None,
        };
        let starts = self.mind.is_spawning() && self.may_start();
        let flush = starts.then(Instant::now);
        let deadline = self
            .branch
            .next_deadline()
            .into_iter()
            .chain(sweep)
            .chain(flush)
            .chain(self.activity.deadline())
            .chain(self.kit.deadline())
            .chain(self.pmix.deadline())
            .chain(self.ends.closing.iter().map(|(_, due)| *due))
            .min();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let is_due = left.is_some_and(|left| left.is_zero());
        if !is_due && self.look_for_request() {
            return Ok(());
        }
        let ready = self.poller.wait(left)?;
        let mut is_branch_ready = is_due || ready.is_empty();
        self.asking.handle_ready(&ready);
        for (source, flags) in ready {
            match source {
                Source::Branch => is_branch_ready = true,
                Source::Children => self.handle_children(),
                Source::Outputs => {
                    if self
                        .outputs
                        .read(&mut self.ranks, &mut self.branch, &mut self.buffer)
                    {
                        self.activity.note();
                        self.note_output();
                    }
                }
                Source::Advisors => self.accept_advisors(),
                Source::Helper => {
                    if flags.contains(EventFlags::OUT) {
                        self.pmix.send(&self.poller);
                    }
                    self.read_helper();
                }
                Source::Advised(number) => {
                    self.read_advised(number);
                }
                Source::Rank(index, channel) => self.handle_rank_ready(index, channel, flags),
            }
            self.settle();
        }
        if is_branch_ready {
            self.branch.progress();
        }
        Ok(())
    }

    fn handle_rank_ready(&mut self, index: usize, channel: Channel, flags: EventFlags) {
        match channel {
            Channel::Pmi => {
                if flags.contains(EventFlags::OUT) {
                    self.ranks.send_answers(index, &self.poller);
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.read_pmi(index);
                }
            }
            Channel::Link => {
                if flags.contains(EventFlags::OUT) {
                    self.ranks.send_link(index, &self.poller);
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.read_link(index);
                }
            }
            Channel::Stdin => self.inputs.write_to(index, &self.poller, &mut self.branch),
            // Another poller waits for these.
            Channel::Stderr | Channel::Stdout => {}
        }
    }

    /// Returns true if ranks may be started: not before the agent can tell somebody.
    fn may_start(&self) -> bool {
        self.branch.is_connected() || self.kit.may_start_alone()
    }

    /// A pipe that is held open is waited for once more.
    fn note_output(&mut self) {
        if let Sweep::Draining { read } = &mut self.ends.sweep {
            *read = Instant::now();
        }
    }

    fn advance_sweep(&mut self) {
        let now = Instant::now();
        match self.ends.sweep {
            Sweep::Killing { next, until } if next <= now => {
                self.handle_children();
                let is_spared = |pid| self.branch.is_starter(pid) || self.pmix.is_helper(pid);
                let is_clean = descendants::kill_others(is_spared) && !self.pmix.is_running();
                self.ends.sweep = if is_clean || until <= now {
                    Sweep::Draining { read: now }
                } else {
                    let next = now + SWEEP_INTERVAL;
                    Sweep::Killing { next, until }
                };
                self.advance_sweep();
            }
            Sweep::Draining { read } => {
                let is_idle = self.outputs.are_read() && read + IDLE_MAX <= now;
                if is_idle {
                    self.ranks.give_up_outputs(|report| self.branch.report(report));
                }
                if self.ranks.ios.iter().all(Option::is_none) {
                    self.ends.sweep = Sweep::Done;
                    self.remove_leftovers();
                    self.pmix.forget();
                    self.mind.handle_swept();
                }
            }
            _ => {}
        }
    }

    fn remove_leftovers(&self) {
        let programs = self.kit.groups.programs();
        let environments: Vec<_> = programs.map(|started| started.environment.as_slice()).collect();
        mpi_programs::remove_leftovers(open_mpi_job(self.kit.plan.job), &environments);
        self.ends.killed.remove_leftovers();
    }
}
