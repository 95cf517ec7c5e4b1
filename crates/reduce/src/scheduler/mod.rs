//! The scheduler: decides which parts are combined, where, and what is done again after a death.

mod parts;
mod policy;
mod running;
mod workers;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;

use self::{parts::Home, running::Running, workers::Workers};
use crate::{
    ids::{ReductionId, TaskId},
    message::{Announcement, Contribution, Outgoing, ToScheduler, ToWorker},
    outcome::{Receipt, ReductionError},
    signature::cut,
};

/// The scheduler of all reductions of a job: the paper's S, one queue for each stripe of each reduction.
///
/// A pure state machine. Tell it what happens through the `handle_*` methods, in any order, each as often as it
/// happens; now and then, best after a batch of them, send what [`drain_outgoing`](Self::drain_outgoing) gives, and call
/// [`handle_time`](Self::handle_time) when [`next_deadline`](Self::next_deadline) has come. `now` is the time
/// since any fixed origin and never goes back.
///
/// What an agent inherited from a rank has to be told before that rank's departure, since a departure without
/// it means that the rank's contributions are lost.
#[derive(Debug)]
pub struct Scheduler {
    workers: Workers,
    running: BTreeMap<ReductionId, Running>,
    /// For members that call late.
    ended: BTreeMap<ReductionId, Result<Receipt, ReductionError>>,
    /// Their names, the oldest first.
    ended_order: VecDeque<ReductionId>,
    task_next: TaskId,
    outgoing: Vec<Outgoing>,
    /// The time of the last event, if nothing was decided since.
    unsettled: Option<Duration>,
}

impl Scheduler {
    /// The most reductions at once.
    pub const REDUCTIONS_MAX: usize = 4096;
    /// How many ended reductions are remembered for members that call late.
    pub const ENDED_MAX: usize = 4096;

    /// A scheduler for a job of `size` ranks.
    pub fn new(size: u32) -> Self {
        Self {
            workers: Workers::new(size),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            ended_order: VecDeque::new(),
            task_next: TaskId(0),
            outgoing: Vec::new(),
            unsettled: None,
        }
    }

    /// A message from a rank. One that concerns a reduction or a task which is over changes nothing.
    pub fn handle_message(&mut self, now: Duration, from: Rank, message: ToScheduler) {
        match message {
            ToScheduler::Announce(Announcement { contribution, handle }) => {
                self.announce(now, from, contribution, handle, Home::Rank(from));
            }
            ToScheduler::Done {
                reduction,
                task,
                source,
                elapsed,
            } => {
                if let Some(running) = self.running.get_mut(&reduction) {
                    let (workers, outgoing) = (&mut self.workers, &mut self.outgoing);
                    running.handle_done(from, task, source, elapsed, workers, outgoing);
                }
            }
            ToScheduler::Failed {
                reduction,
                task,
                failure,
            } => {
                if let Some(running) = self.running.get_mut(&reduction) {
                    running.handle_failed(now, from, task, failure, &mut self.workers);
                }
            }
            ToScheduler::Leave { message } => {
                let message = cut(message, ReductionError::MESSAGE_LENGTH_MAX);
                self.workers.leave(from, message);
                for running in self.running.values_mut() {
                    running.check_members(&self.workers);
                }
            }
            ToScheduler::Withdraw {
                reduction,
                members,
                message,
            } => {
                self.withdraw(from, reduction, members.as_ref(), message);
            }
        }
        self.unsettled = Some(now);
    }

    /// An agent serves under `handle` what `rank` had handed it as this contribution, and will go on to do so;
    /// [`handle_departed`](Self::handle_departed) follows.
    pub fn handle_inherited(
        &mut self,
        now: Duration,
        rank: Rank,
        contribution: Contribution,
        handle: RegionHandle,
    ) {
        self.announce(now, rank, contribution, handle, Home::Agent);
        self.unsettled = Some(now);
    }

    /// A rank is gone.
    pub fn handle_departed(&mut self, now: Duration, rank: Rank) {
        if !self.workers.depart(rank) {
            return;
        }
        for running in self.running.values_mut() {
            running.handle_departed(rank, &mut self.workers, &mut self.outgoing);
        }
        self.unsettled = Some(now);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Duration) {
        let due = |running: &&mut Running| running.next_deadline().is_some_and(|at| at <= now);
        let mut is_due = false;
        for running in self.running.values_mut().filter(due) {
            running.handle_time(now);
            is_due = true;
        }
        if is_due {
            self.unsettled = Some(now);
        }
    }

    /// When [`handle_time`](Self::handle_time) has to be called at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.running.values().filter_map(Running::next_deadline).min()
    }

    /// Decides on all that was told since the last call, and takes the messages that are to be sent, in order.
    pub fn drain_outgoing(&mut self) -> Vec<Outgoing> {
        if let Some(now) = self.unsettled.take() {
            self.settle(now);
        }
        std::mem::take(&mut self.outgoing)
    }

    /// The ranks that reductions under way need, as far as they live.
    pub fn needed(&self) -> BTreeSet<Rank> {
        let members = self
            .running
            .values()
            .flat_map(|running| running.members().ranks());
        let alive = members.filter(|&&rank| self.workers.is_alive(rank));
        alive.copied().collect()
    }

    /// How many reductions are under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn announce(
        &mut self,
        now: Duration,
        from: Rank,
        contribution: Contribution,
        handle: RegionHandle,
        home: Home,
    ) {
        let id = contribution.reduction;
        if let Some(result) = self.ended.get(&id) {
            // Each member of a reduction that ended well has contributed: this is another call by its name.
            let result = match result {
                Ok(_) => Err(ReductionError::IdReused { reduction: id }),
                Err(error) => Err(error.clone()),
            };
            self.tell(
                from,
                ToWorker::Finished {
                    reduction: id,
                    result,
                },
            );
            return;
        }
        let size = self.workers.size();
        let members = contribution
            .members
            .clone()
            .unwrap_or_else(|| ProcessGroup::world(size));
        if !members.contains(from) || members.ranks().iter().any(|rank| rank.0 >= size) {
            return; // Nothing of ours sends this.
        }
        let is_full = self.running.len() >= Self::REDUCTIONS_MAX;
        let running = self.running.entry(id).or_insert_with(|| {
            let deadline = contribution.timeout.and_then(|timeout| now.checked_add(timeout));
            let mut running = Running::new(id, members, contribution.signature.clone(), deadline);
            if is_full {
                running.abort(ReductionError::TooMany {
                    limit: Self::REDUCTIONS_MAX,
                });
            }
            running
        });
        running.handle_announced(now, from, contribution, handle, home, &self.workers);
    }

    fn withdraw(
        &mut self,
        from: Rank,
        reduction: ReductionId,
        members: Option<&ProcessGroup>,
        message: String,
    ) {
        let message = cut(message, ReductionError::MESSAGE_LENGTH_MAX);
        let error = ReductionError::Withdrawn { rank: from, message };
        match self.running.get_mut(&reduction) {
            Some(running) => running.abort(error),
            None if members.is_none_or(|members| members.contains(from))
                && !self.ended.contains_key(&reduction) =>
            {
                self.record(reduction, Err(error));
            }
            None => {}
        }
    }

    /// Ends what is over, and gives out all that can be done now.
    fn settle(&mut self, now: Duration) {
        loop {
            for running in self.running.values_mut() {
                running.give_out(now, &mut self.workers, &mut self.task_next, &mut self.outgoing);
            }
            let over = self
                .running
                .iter()
                .filter_map(|(&id, running)| Some((id, running.result()?)));
            let over: Vec<_> = over.collect();
            if over.is_empty() {
                return;
            }
            // What these no longer need, the others may use.
            over.into_iter().for_each(|(id, result)| self.end(id, result));
        }
    }

    fn end(&mut self, id: ReductionId, result: Result<Receipt, ReductionError>) {
        let Some(mut running) = self.running.remove(&id) else {
            return;
        };
        running.release_workers(&mut self.workers);
        for &member in running.members().ranks() {
            self.tell(
                member,
                ToWorker::Finished {
                    reduction: id,
                    result: result.clone(),
                },
            );
        }
        self.record(id, result);
    }

    fn record(&mut self, id: ReductionId, result: Result<Receipt, ReductionError>) {
        if self.ended_order.len() == Self::ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.ended_order.push_back(id);
        self.ended.insert(id, result);
    }

    fn tell(&mut self, rank: Rank, message: ToWorker) {
        if self.workers.is_alive(rank) {
            self.outgoing.push(Outgoing { to: rank, message });
        }
    }
}
