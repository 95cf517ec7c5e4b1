//! The scheduler: decides which parts are combined, where, and what is done again after a death.

mod parts;
mod policy;
mod running;
mod workers;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ropewalk_fabric::RegionHandle;
use ropewalk_group::{ProcessGroup, Rank};

use self::{parts::Home, running::Running, workers::Workers};
use crate::{
    ids::{ReductionId, TaskId},
    message::{Announcement, Contribution, Outgoing, ToScheduler, ToWorker},
    outcome::{Receipt, ReductionError},
};

/// The scheduler of all reductions of a job: the paper's S, one queue for each stripe of each reduction.
///
/// A pure state machine. Tell it what happens through the `handle_*` methods, in any order, each as often as it
/// happens; then send what [`drain_outgoing`](Self::drain_outgoing) gives, and call
/// [`handle_time`](Self::handle_time) when [`next_deadline`](Self::next_deadline) has come. `now` is the time
/// since any fixed origin and never goes back.
///
/// What an agent inherited from a rank has to be told before that rank's departure, since a departure without
/// it means that the rank's contributions are lost.
#[derive(Debug)]
pub struct Scheduler {
    workers: Workers,
    running: BTreeMap<ReductionId, Running>,
    ended: VecDeque<(ReductionId, Result<Receipt, ReductionError>)>,
    task_next: TaskId,
    outgoing: Vec<Outgoing>,
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
            ended: VecDeque::new(),
            task_next: TaskId(0),
            outgoing: Vec::new(),
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
            } => self.advance(now, reduction, |running, workers, outgoing| {
                running.handle_done(from, task, source, elapsed, workers, outgoing);
            }),
            ToScheduler::Failed {
                reduction,
                task,
                failure,
            } => self.advance(now, reduction, |running, workers, _| {
                running.handle_failed(now, from, task, failure, workers);
            }),
        }
    }

    /// An agent serves under `handle` what `rank` had handed it as this contribution, and will go on to do
    /// so; [`handle_departed`](Self::handle_departed) follows.
    pub fn handle_inherited(
        &mut self,
        now: Duration,
        rank: Rank,
        contribution: Contribution,
        handle: RegionHandle,
    ) {
        self.announce(now, rank, contribution, handle, Home::Agent);
    }

    /// A rank is gone.
    pub fn handle_departed(&mut self, now: Duration, rank: Rank) {
        if !self.workers.depart(rank) {
            return;
        }
        for reduction in self.running.keys().copied().collect::<Vec<_>>() {
            self.advance(now, reduction, |running, workers, outgoing| {
                running.handle_departed(rank, workers, outgoing);
            });
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Duration) {
        let due = self
            .running
            .iter()
            .filter(|(_, running)| running.next_deadline().is_some_and(|at| at <= now));
        for reduction in due.map(|(&reduction, _)| reduction).collect::<Vec<_>>() {
            self.advance(now, reduction, |running, _, _| running.handle_time(now));
        }
    }

    /// When [`handle_time`](Self::handle_time) has to be called at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.running.values().filter_map(Running::next_deadline).min()
    }

    /// Takes the messages that are to be sent, in order.
    pub fn drain_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
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
        if let Some((_, result)) = self.ended.iter().find(|(ended, _)| *ended == id) {
            let message = ToWorker::Finished {
                reduction: id,
                result: result.clone(),
            };
            self.outgoing.push(Outgoing { to: from, message });
            return;
        }
        if !self.running.contains_key(&id) {
            let members = contribution
                .members
                .clone()
                .unwrap_or_else(|| ProcessGroup::world(self.workers.size()));
            let deadline = contribution.timeout.map(|timeout| now + timeout);
            let mut running = Running::new(id, members, contribution.signature.clone(), deadline);
            if self.running.len() >= Self::REDUCTIONS_MAX {
                running.abort(ReductionError::TooMany {
                    limit: Self::REDUCTIONS_MAX,
                });
            }
            self.running.insert(id, running);
        }
        self.advance(now, id, |running, workers, _| {
            running.handle_announced(now, from, contribution, handle, home, workers);
        });
    }

    /// Lets one reduction take an event, gives out what can be done now, and ends it if it is over.
    fn advance(
        &mut self,
        now: Duration,
        id: ReductionId,
        event: impl FnOnce(&mut Running, &mut Workers, &mut Vec<Outgoing>),
    ) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        event(running, &mut self.workers, &mut self.outgoing);
        running.give_out(now, &mut self.workers, &mut self.task_next, &mut self.outgoing);
        if let Some(result) = running.result() {
            running.release_workers(&mut self.workers);
            let message = ToWorker::Finished {
                reduction: id,
                result: result.clone(),
            };
            let members = running
                .members()
                .ranks()
                .iter()
                .filter(|&&rank| self.workers.is_alive(rank));
            self.outgoing.extend(members.map(|&to| Outgoing {
                to,
                message: message.clone(),
            }));
            self.running.remove(&id);
            if self.ended.len() == Self::ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back((id, result));
        }
        // What one reduction no longer needs, the others may use.
        for other in self.running.values_mut().filter(|other| other.id() != id) {
            other.give_out(now, &mut self.workers, &mut self.task_next, &mut self.outgoing);
        }
    }
}
