//! The agent of a host: one thread, one epoll, no runtime, for it is a guest beside other people's programs.

mod actions;
mod activity;
mod advisors;
mod asking;
mod ends;
mod events;
mod groups;
mod held_memory;
mod inputs;
mod limits;
mod memory_kills;
mod outputs;
mod pmi_port;
mod pmix;
mod poller;
mod preparation;
mod programs;
mod rank_io;
mod rank_link;
mod rank_table;
mod silence;
mod singleton;
mod start_advice;
mod starting;
mod sweep;
mod topology;
mod uplink;

use std::{io, mem, os::fd::AsFd, time::Instant};

use ropewalk_launch_core::{StdinSource, host_agent::HostAgent, protocol::Report};
use ropewalk_names::Rank;
use rustix::{event::epoll::EventFlags, system::uname};

use super::{
    branch::{self, Branch, Position},
    descendants,
};
use activity::Activity;
use advisors::Advisors;
use asking::Asking;
use ends::Ends;
use inputs::Inputs;
use limits::held_bytes_max;
use outputs::Outputs;
use pmix::PmixServer;
use poller::{Poller, Source};
pub(super) use preparation::Preparation;
use rank_table::RankTable;
use starting::StartKit;
pub use topology::count_parts;
use uplink::Uplink;

/// An agent: a loop that brings the events of its parts to the mind, and the decisions of the mind to the parts.
///
/// The branch of the tree below the agent has a mind of its own.
pub(super) struct Agent {
    mind: HostAgent,
    uplink: Uplink,
    kit: StartKit,
    pmix: PmixServer,
    poller: Poller,
    ranks: RankTable,
    inputs: Inputs,
    outputs: Outputs,
    activity: Activity,
    advisors: Advisors,
    ends: Ends,
    asking: Asking,
}

/// How many ranks are started between two looks at what else happens.
const STARTS_PER_TURN: usize = 16;

impl Agent {
    /// Works until the job is over, or nobody wants it any more. Returns the exit code.
    pub(super) fn run(position: Position, preparation: Preparation) -> io::Result<u8> {
        let mut agent = Self::new(position, preparation)?;
        agent.uplink.report(Report::Ready {
            host_name: uname().nodename().to_string_lossy().into_owned(),
        });
        agent.serve_pmix(0);
        agent.work()?;
        let code = agent.uplink.finish();
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
        let mind = HostAgent::new(start, branch.endpoint().address().clone(), held_bytes_max());
        let uplink = Uplink::new(branch, keeper, plan.detect);
        let activity = Activity::new(&plan);
        let kit = StartKit::new(plan, host, ranks.len(), slots, descriptors);
        let advisors = Advisors::listen(&poller);
        Ok(Self {
            mind,
            uplink,
            kit,
            pmix: PmixServer::default(),
            poller,
            ranks: RankTable::new(&ranks),
            inputs,
            outputs,
            activity,
            advisors,
            ends: Ends::new(children, memory_kills),
            asking: Asking::default(),
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
                self.uplink.report(Report::Active);
            }
            self.ends.handle_time(Instant::now());
            self.pmix.handle_time(Instant::now());
            for (rank, text) in self.kit.handle_time(Instant::now(), &self.ranks, &self.mind) {
                self.uplink.report(Report::Notice { rank, text });
            }
            self.handle_closed(None);
            self.settle();
            if self.uplink.flush_if_due(self.mind.is_spawning(), Instant::now()) {
                self.settle();
            }
            if self.uplink.branch.is_over() {
                return Ok(());
            }
            if self.uplink.is_terminated() {
                return Err(io::Error::other("was told to end by signal 15"));
            }
            if self.outputs.stop_or_go_on(&self.poller, &self.uplink.branch) {
                self.ends.sweep.handle_output(Instant::now());
            }
            if self.outputs.are_read() {
                self.mind.handle_output_taken();
                self.settle();
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
            while let Some(event) = self.uplink.poll_event() {
                self.handle_branch(event);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let starts = self.mind.is_spawning() && self.may_start();
        let flush = starts.then(Instant::now);
        let deadline = self
            .uplink
            .branch
            .next_deadline()
            .into_iter()
            .chain(flush)
            .chain(self.activity.deadline())
            .chain(self.kit.deadline())
            .chain(self.pmix.deadline())
            .chain(self.ends.deadline(self.outputs.are_read()))
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
                Source::Outputs => self.read_outputs(),
                Source::Advisors => {
                    self.advisors
                        .accept(&self.ranks, &self.poller, &mut self.uplink.branch);
                }
                Source::Helper => {
                    if flags.contains(EventFlags::OUT) {
                        self.pmix.send(&self.poller);
                    }
                    self.read_helper();
                }
                Source::Advised(number) => {
                    self.advisors.read(number, &self.ranks, &mut self.uplink.branch);
                }
                Source::Rank(index, channel) => self.handle_rank_ready(index, channel, flags),
            }
            self.settle();
        }
        if is_branch_ready {
            self.uplink.branch.progress();
        }
        Ok(())
    }

    /// Returns true if ranks may be started: not before the agent can tell somebody.
    fn may_start(&self) -> bool {
        self.uplink.branch.is_connected() || self.kit.may_start_alone()
    }

    /// Ends what the ranks left behind, once none is left.
    fn advance_sweep(&mut self) {
        let mut now = Instant::now();
        while self.ends.sweep.must_kill(now) {
            self.handle_children();
            let is_spared = |pid| self.uplink.branch.is_starter(pid) || self.pmix.is_helper(pid);
            let is_clean = descendants::kill_others(is_spared) && !self.pmix.is_running();
            self.ends.sweep.handle_killed(is_clean, now);
            now = Instant::now();
        }
        if !self.ends.sweep.is_draining() {
            return;
        }
        if self.ends.sweep.is_idle(self.outputs.are_read(), now) {
            self.ranks.give_up_outputs(|report| self.uplink.report(report));
        }
        if self.ranks.ios.iter().all(Option::is_none) {
            self.ends.sweep.finish();
            self.ends.remove_leftovers(&self.kit);
            self.pmix.forget();
            self.mind.handle_swept();
        }
    }
}
