//! The actions that an agent performs for its mind and for the nodes above, such as starting ranks.

use std::time::Instant;

use ropewalk_launch_core::{
    group_plan::GroupPlan,
    host_agent::{Action, ToRank},
    protocol::{Down, Order, Report, StartError},
    tree::NodeId,
};
use ropewalk_names::{Incarnation, Rank};
use rustix::process::Pid;

use super::{
    Agent,
    groups::OwnGroup,
    held_memory::Left,
    rank_link::to_rank,
    singleton,
    starting::{NewRank, StartKit, no_descriptors},
};
use crate::driver::branch::BranchEvent;

impl Agent {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::ClosePmi(rank) => self.ranks.close_pmi(rank, &self.poller),
            Action::Expose(rank, held) => {
                let memory = self.ranks.held.remove(&(rank, held.id));
                let memory = memory.expect("the mind exposes only what it said to keep, and once");
                let (left, error) = memory.left(held);
                if let Some(error) = error {
                    let text = format!("what it left cannot be read: {error}");
                    self.uplink.report(Report::Notice { rank, text });
                }
                match left {
                    Left::Counts(held, bytes) => {
                        let handle = self.uplink.branch.endpoint().expose(bytes);
                        self.mind.handle_exposed(rank, held, handle);
                    }
                    Left::Nothing(id) => self.mind.handle_not_exposed(rank, id),
                }
            }
            Action::Withdraw(handle) => drop(self.uplink.branch.endpoint().withdraw(&handle)),
            Action::Fence(gone) => self.uplink.branch.endpoint().fence(gone),
            Action::Forget(rank, id) => drop(self.ranks.held.remove(&(rank, id))),
            Action::Report(report) => self.uplink.report(report),
            Action::SendChild(node, down) => self.uplink.branch.send_pmi(node, down),
            Action::SendLink(rank, message) => {
                let is_answer = matches!(message, ToRank::Welcome(_) | ToRank::Taken);
                let packet = to_rank(message, self.uplink.branch.key());
                self.ranks.tell(rank, packet, is_answer, &self.poller);
            }
            Action::SendPmi(rank, bytes) => self.ranks.answer(rank, &bytes, &self.poller),
            Action::Signal(rank, signal) => self.ranks.signal(rank, signal),
            Action::Sweep => {
                let now = Instant::now();
                self.pmix.end(now, &self.poller);
                self.ends.sweep.begin(now);
            }
        }
    }

    /// Does what the branch has heard of.
    pub(super) fn handle_branch(&mut self, event: BranchEvent) {
        match event {
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
            // These are the uplink's and the relay's own.
            BranchEvent::Adopted
            | BranchEvent::ParentLost(_)
            | BranchEvent::SeeksLauncher
            | BranchEvent::Down(
                Down::Acknowledged { .. }
                | Down::Adopted
                | Down::Bye
                | Down::Credit(_)
                | Down::Number(_)
                | Down::Resend
                | Down::To(..),
            )
            | BranchEvent::Up(_) => {}
        }
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Announce { link, end } => self.advisors.announce(link, end),
            Order::Pmi(down) => self.mind.handle_pmi_down(down),
            Order::Processes { token, running } => self.mind.handle_processes(token, &running),
            Order::ReleaseMemory => self.mind.handle_released(),
            Order::Respawn { rank, incarnation } => self.mind.handle_respawn(rank, incarnation),
            Order::Forward { signal } => self.mind.handle_forward(signal),
            Order::Resume => {
                self.uplink.branch.set_launcher_suspended(false);
                self.mind.handle_resume();
            }
            Order::Signal { rank, signal } => self.mind.handle_signal(rank, signal),
            Order::ModexWanted { asker, rank } => self.mind.handle_modex_wanted(asker, rank),
            Order::ModexFound { token, data } => self.mind.handle_modex_found(token, data),
            Order::NamesAnswered { id, answer } => self.mind.handle_names_answer(id, answer),
            Order::Spawned { id, result } => self.mind.handle_spawn_answer(id, result),
            Order::Stdin(bytes) => {
                self.inputs.push(bytes);
                self.inputs.write(&self.poller, &mut self.uplink.branch);
            }
            Order::StdinEnd => {
                self.inputs.end();
                self.inputs.write(&self.poller, &mut self.uplink.branch);
            }
            Order::Suspend { stops_ranks } => {
                self.uplink.branch.set_launcher_suspended(true);
                if stops_ranks {
                    self.mind.handle_suspend();
                }
            }
            Order::WatchProgress => self.activity.watch(),
        }
    }

    /// Has this host's part of a spawned group started.
    fn begin_group(&mut self, group: GroupPlan) {
        let StartKit { plan, host, .. } = &self.kit;
        let options = plan.pmi_group(&group, NodeId::of(*host));
        let ranks: Vec<_> = group.job_ranks(*host).collect();
        if !self.mind.handle_group(group.first, options, &ranks) {
            return;
        }
        let indices = self.ranks.add(&ranks);
        let group = OwnGroup::new(plan, group, *host, indices);
        self.kit.groups.all.push(group);
        self.serve_pmix(self.kit.groups.all.len() - 1);
    }

    /// Has the PMIx server serve a process group, if a program of it here may need that.
    pub(super) fn serve_pmix(&mut self, number: usize) {
        self.pmix
            .serve(number, &mut self.kit, &mut self.mind, &self.poller);
    }

    /// Starts the next rank, if one is to be started.
    pub(super) fn start_next(&mut self) {
        let Some(rank) = self.mind.poll_spawn() else {
            return;
        };
        match self.start_rank(rank) {
            Ok(pid) => {
                self.mind
                    .handle_spawned(rank, pid.as_raw_nonzero().get().cast_unsigned());
                self.kit.handle_started(rank, Instant::now());
            }
            Err(error) => self.mind.handle_not_spawned(rank, error),
        }
    }

    fn start_rank(&mut self, rank: Rank) -> Result<Pid, StartError> {
        let index = self.ranks.indices.get(&rank);
        let index = *index.expect("the mind starts ranks of this host only");
        if let Some(singleton) = self.kit.plan.pmi.singleton
            && rank == Rank(0)
        {
            let io = singleton::adopt(rank, singleton, self.kit.plan.detect)?;
            let pid = io.pid;
            let inserted = self.ranks.insert(index, io, &self.poller, &self.outputs);
            return inserted.map(|()| pid).map_err(singleton::unreachable);
        }
        let report = |report| self.uplink.report(report);
        self.ranks.retire(index, report);
        let incarnation = self.mind.incarnation(rank);
        let (io, stdin) = self.kit.start(&NewRank {
            rank,
            index,
            incarnation,
            // What the process before has read is not there any more.
            has_input: self.inputs.has(index) && incarnation == Incarnation(0),
            advisors: self.advisors.value_for(rank),
            pmix: &self.pmix,
        })?;
        if let Some(report) = self.kit.bound(rank, index) {
            self.uplink.report(report);
        }
        let pid = io.pid;
        // A rank that runs and cannot be watched is left to the sweep that follows a failed start.
        self.ranks
            .insert(index, io, &self.poller, &self.outputs)
            .map_err(no_descriptors)?;
        if let Some(stdin) = stdin {
            self.inputs.set_pipe(index, stdin);
            self.inputs.write_to(index, &self.poller, &mut self.uplink.branch);
        }
        Ok(pid)
    }
}
