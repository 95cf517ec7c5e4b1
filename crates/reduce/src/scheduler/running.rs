//! One reduction under way.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;

use super::{
    parts::{Home, Parts, State},
    policy::{Choice, View},
    workers::Workers,
};
use crate::{
    ids::{PartId, ReductionId, TaskId, Token},
    message::{
        Contribution, Operand, Outgoing, PART_HEADER_SIZE, Source, Task, TaskFailure, TaskOutcome, ToWorker,
    },
    outcome::{Receipt, ReductionError},
    pull_failure::PullFailure,
    signature::{Policy, Signature},
    stripes,
};

/// One reduction, from its first announcement to its end.
#[derive(Debug)]
pub(super) struct Running {
    id: ReductionId,
    members: ProcessGroup,
    signature: Signature,
    root_index: u32,
    deadline: Option<Duration>,
    contributions: Vec<Option<Announced>>,
    stripes: Vec<Stripe>,
    tasks: BTreeMap<TaskId, Assigned>,
    merges: u64,
    merges_redone: u64,
    lost: Vec<Rank>,
    /// Members that ask for something else than the first one did.
    dissenters: Vec<(Rank, Signature)>,
    /// When it is decided who of them is the odd one, if no further announcement decides it earlier.
    verdict_at: Option<Duration>,
    failure: Option<ReductionError>,
}

#[derive(Clone, Debug)]
struct Announced {
    token: Token,
    /// Where the agent serves it once its owner is gone.
    inherited: Option<RegionHandle>,
}

#[derive(Debug)]
struct Stripe {
    /// Where the stripe starts in a contribution, in bytes.
    start: u64,
    /// How long it is; `None` if that is up to each contribution.
    length: Option<u64>,
    parts: Parts,
    is_committed: bool,
    /// Not to be worked on before this time: a pull failed, and the reason may become known by then.
    resume_at: Option<Duration>,
    /// Since when pulls have failed and nothing was made.
    failing_since: Option<Duration>,
}

/// A task that a worker has.
#[derive(Clone, Copy, Debug)]
struct Assigned {
    stripe: u32,
    choice: Choice,
    product: u32,
    /// The live ranks, other than the executor, from whom the operands are read.
    servers: [Option<Rank>; 2],
}

impl Assigned {
    fn servers(&self) -> impl Iterator<Item = Rank> {
        self.servers.into_iter().flatten()
    }
}

impl Running {
    pub(super) fn new(
        id: ReductionId,
        members: ProcessGroup,
        signature: Signature,
        deadline: Option<Duration>,
    ) -> Self {
        let stripes = stripes::cut(&signature).into_iter().map(|range| Stripe {
            start: range.start,
            length: signature.length.map(|_| range.end - range.start),
            parts: Parts::new(members.ranks()),
            is_committed: false,
            resume_at: None,
            failing_since: None,
        });
        let root = members.index_of(signature.root);
        let failure = root
            .is_none()
            .then_some(ReductionError::RootLost { rank: signature.root });
        Self {
            id,
            root_index: root.unwrap_or_default() as u32,
            deadline,
            contributions: vec![None; members.len()],
            stripes: stripes.collect(),
            members,
            signature,
            tasks: BTreeMap::new(),
            merges: 0,
            merges_redone: 0,
            lost: Vec::new(),
            dissenters: Vec::new(),
            verdict_at: None,
            failure,
        }
    }

    pub(super) fn members(&self) -> &ProcessGroup {
        &self.members
    }

    /// Ends the reduction without a result; the first reason counts.
    pub(super) fn abort(&mut self, failure: ReductionError) {
        self.failure.get_or_insert(failure);
    }

    /// How the reduction ended, once it has.
    pub(super) fn result(&self) -> Option<Result<Receipt, ReductionError>> {
        if let Some(failure) = &self.failure {
            return Some(Err(failure.clone()));
        }
        self.stripes.iter().all(|stripe| stripe.is_committed).then(|| {
            Ok(Receipt {
                contributions: self.members.len() as u32,
                token: self.token(),
                merges: self.merges,
                merges_redone: self.merges_redone,
                lost: self.lost.clone(),
            })
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let resumptions = self.stripes.iter().filter_map(|stripe| stripe.resume_at);
        resumptions.chain(self.deadline).chain(self.verdict_at).min()
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            let missing = self.members.ranks().iter().zip(&self.contributions);
            let missing = missing.filter(|(_, contribution)| contribution.is_none());
            self.abort(ReductionError::Timeout {
                missing: missing.map(|(&rank, _)| rank).collect(),
            });
        }
        if self.verdict_at.is_some_and(|at| at <= now) {
            self.name_the_odd_one();
        }
        for stripe in &mut self.stripes {
            stripe.resume_at = stripe.resume_at.filter(|&at| now < at);
        }
    }

    pub(super) fn handle_announced(
        &mut self,
        now: Duration,
        from: Rank,
        contribution: Contribution,
        handle: RegionHandle,
        home: Home,
        workers: &Workers,
    ) {
        let inherited = (home == Home::Agent).then(|| handle.clone());
        let Some(index) = self.members.index_of(from) else {
            return;
        };
        match &mut self.contributions[index] {
            Some(announced) => announced.inherited = inherited.or(announced.inherited.take()),
            None if !workers.is_alive(from) => {}
            empty => {
                *empty = Some(Announced {
                    token: contribution.token,
                    inherited,
                });
                if contribution.signature == self.signature {
                    self.accept(index as u32, contribution.length, &handle);
                } else {
                    self.dissenters.push((from, contribution.signature));
                    self.verdict_at.get_or_insert(now + VERDICT_DELAY);
                }
                let heard = self.contributions.iter().flatten().count();
                if heard >= 3.min(self.members.len()) && !self.dissenters.is_empty() {
                    self.name_the_odd_one();
                }
            }
        }
        self.check_members(workers);
    }

    pub(super) fn handle_done(
        &mut self,
        from: Rank,
        task: TaskId,
        source: Option<Source>,
        elapsed: Duration,
        workers: &mut Workers,
        outgoing: &mut Vec<Outgoing>,
    ) {
        let Some(assigned) = self.assigned_to(from, task) else {
            return;
        };
        if source.is_none() && !assigned.choice.is_commit {
            self.abort(ReductionError::Pull {
                rank: from,
                stripe: assigned.stripe,
                failure: PullFailure::NoSource,
            });
            return;
        }
        self.tasks.remove(&task);
        workers.end(from, assigned.servers());
        if assigned.choice.right.is_some() {
            workers.record(from, elapsed);
        }
        let stripe = &mut self.stripes[assigned.stripe as usize];
        stripe.failing_since = None;
        stripe.parts.finish(assigned.product, source);
        self.merges += u64::from(assigned.choice.right.is_some());
        if assigned.choice.is_commit {
            self.commit(assigned.stripe, assigned.product, workers, outgoing);
        }
    }

    pub(super) fn handle_failed(
        &mut self,
        now: Duration,
        from: Rank,
        task: TaskId,
        failure: TaskFailure,
        workers: &mut Workers,
    ) {
        let Some(assigned) = self.assigned_to(from, task) else {
            return;
        };
        let number = assigned.stripe;
        match failure {
            TaskFailure::Operation { message } => {
                self.abort(ReductionError::Operation {
                    rank: from,
                    stripe: number,
                    message,
                });
            }
            TaskFailure::Receipt => self.abort(ReductionError::Receipt { stripe: number }),
            TaskFailure::Pull { failure, .. } => {
                // Most likely the holder is gone and its agent's word is on the way.
                self.cancel(task, workers);
                let stripe = &mut self.stripes[number as usize];
                let since = *stripe.failing_since.get_or_insert(now);
                stripe.resume_at = Some(now + PULL_RETRY_DELAY);
                if now.saturating_sub(since) > PULLS_FAIL_MAX {
                    self.abort(ReductionError::Pull {
                        rank: from,
                        stripe: number,
                        failure,
                    });
                }
            }
        }
    }

    pub(super) fn handle_departed(
        &mut self,
        rank: Rank,
        workers: &mut Workers,
        outgoing: &mut Vec<Outgoing>,
    ) {
        let concerned = self
            .tasks
            .iter()
            .filter(|(_, task)| task.choice.executor == rank || task.servers().any(|server| server == rank));
        for id in concerned.map(|(&id, _)| id).collect::<Vec<_>>() {
            let Choice { executor, right, .. } = self.cancel(id, workers);
            self.merges_redone += u64::from(right.is_some());
            if executor != rank {
                let message = ToWorker::Cancel {
                    reduction: self.id,
                    task: id,
                };
                outgoing.push(Outgoing {
                    to: executor,
                    message,
                });
            }
        }
        if let Some(index) = self.members.index_of(rank) {
            self.lost.push(rank);
            if rank == self.signature.root {
                self.abort(ReductionError::RootLost { rank });
            }
            self.lose_parts_of(rank, index as u32);
        }
        self.check_members(workers);
    }

    /// Gives out every task that can be begun now.
    pub(super) fn give_out(
        &mut self,
        now: Duration,
        workers: &mut Workers,
        task_next: &mut TaskId,
        outgoing: &mut Vec<Outgoing>,
    ) {
        if self.failure.is_some() || !self.dissenters.is_empty() {
            return;
        }
        let announced = self.members.ranks().iter().zip(&self.contributions);
        let executors: Vec<Rank> = announced
            .filter(|(rank, contribution)| contribution.is_some() && workers.is_alive(**rank))
            .map(|(&rank, _)| rank)
            .collect();
        for number in 0..self.stripes.len() {
            let stripe = &mut self.stripes[number];
            if stripe.is_committed || stripe.resume_at.is_some_and(|at| now < at) {
                continue;
            }
            stripe.resume_at = None;
            loop {
                let view = View {
                    parts: &self.stripes[number].parts,
                    workers,
                    executors: &executors,
                    root: self.signature.root,
                    root_index: self.root_index,
                    size: self.members.len() as u32,
                };
                let Some(choice) = view.choose(self.signature.policy, self.signature.order) else {
                    break;
                };
                let id = *task_next;
                task_next.0 += 1;
                self.assign(id, number as u32, choice, workers, outgoing);
            }
        }
    }

    /// Takes the tasks of an ended reduction out of the workers' counters.
    pub(super) fn release_workers(&mut self, workers: &mut Workers) {
        for task in std::mem::take(&mut self.tasks).into_values() {
            workers.end(task.choice.executor, task.servers());
        }
    }

    fn token(&self) -> Token {
        self.contributions
            .iter()
            .flatten()
            .map(|contribution| contribution.token)
            .sum()
    }

    fn accept(&mut self, index: u32, length: u64, handle: &RegionHandle) {
        for stripe in &mut self.stripes {
            let source = Source {
                handle: handle.clone(),
                data_offset: PART_HEADER_SIZE + stripe.start,
                length: stripe.length.unwrap_or(length),
            };
            stripe.parts.announce(index, source);
        }
    }

    /// Ends a reduction whose members do not agree; the minority of those heard is at fault.
    fn name_the_odd_one(&mut self) {
        let Some((first, theirs)) = self.dissenters.first() else {
            return;
        };
        let heard = self.contributions.iter().zip(self.members.ranks());
        let heard = heard
            .filter(|(contribution, _)| contribution.is_some())
            .map(|(_, &rank)| rank);
        let dissents = |rank: Rank| self.dissenters.iter().any(|(other, _)| *other == rank);
        let agreeing: Vec<Rank> = heard.filter(|&rank| !dissents(rank)).collect();
        let are_united = self.dissenters.iter().all(|(_, other)| other == theirs);
        let (ours, theirs) = (self.signature.to_string(), theirs.to_string());
        let failure = match agreeing.first() {
            Some(&odd) if are_united && self.dissenters.len() > agreeing.len() => ReductionError::Mismatch {
                odd,
                expected: theirs,
                found: ours,
            },
            _ => ReductionError::Mismatch {
                odd: *first,
                expected: ours,
                found: theirs,
            },
        };
        self.abort(failure);
    }

    /// A member that is gone and has left no contribution makes the result impossible; one that has given up gets none.
    pub(super) fn check_members(&mut self, workers: &Workers) {
        let mut members = self.members.ranks().iter();
        let left = members.find_map(|&rank| Some((rank, workers.why_left(rank)?)));
        if let Some((rank, message)) = left {
            let message = message.to_owned();
            self.abort(ReductionError::Withdrawn { rank, message });
        }
        let members = self.members.ranks().iter().zip(&self.contributions);
        let missing = members.filter(|(rank, one)| !workers.is_alive(**rank) && one.is_none());
        if let Some((&rank, _)) = missing.into_iter().next() {
            self.abort(ReductionError::ContributionLost { rank });
        }
    }

    fn lose_parts_of(&mut self, rank: Rank, index: u32) {
        let inherited = self.contributions[index as usize]
            .as_ref()
            .and_then(|one| one.inherited.clone());
        let policy = self.signature.policy;
        for stripe in self.stripes.iter_mut().filter(|stripe| !stripe.is_committed) {
            (stripe.resume_at, stripe.failing_since) = (None, None);
            for number in stripe.parts.held_by(rank) {
                if number != index {
                    self.merges_redone += match policy {
                        Policy::Chunked => stripe.parts.lose(number),
                        Policy::Paper => stripe.parts.lose_to_originals(number),
                    };
                }
            }
            let original = stripe.parts.get(index);
            let (Some(source), Some(handle)) = (&original.source, &inherited) else {
                self.failure
                    .get_or_insert(ReductionError::ContributionLost { rank });
                return;
            };
            let source = Source {
                handle: handle.clone(),
                ..source.clone()
            };
            let is_ready = original.state == State::Ready;
            stripe.parts.relocate(index, Home::Agent, source);
            if is_ready && policy == Policy::Paper {
                stripe.parts.put_back(index);
            }
        }
    }

    /// The task, if `from` has it: an answer from somebody who does not, or has it no longer, is void.
    fn assigned_to(&self, from: Rank, task: TaskId) -> Option<Assigned> {
        self.tasks
            .get(&task)
            .copied()
            .filter(|assigned| assigned.choice.executor == from)
    }

    /// Takes a task back.
    fn cancel(&mut self, id: TaskId, workers: &mut Workers) -> Choice {
        let task = self
            .tasks
            .remove(&id)
            .expect("only tasks that are assigned are cancelled");
        workers.end(task.choice.executor, task.servers());
        self.stripes[task.stripe as usize].parts.cancel(task.product);
        task.choice
    }

    fn assign(
        &mut self,
        id: TaskId,
        stripe: u32,
        choice: Choice,
        workers: &mut Workers,
        outgoing: &mut Vec<Outgoing>,
    ) {
        let token = self.token();
        let parts = &mut self.stripes[stripe as usize].parts;
        let product = parts.start(id, choice.left, choice.right, choice.executor);
        let operand = |number: u32| Operand {
            part: PartId { stripe, number },
            source: parts
                .get(number)
                .source
                .clone()
                .expect("a part that was ready has a source"),
        };
        let server = |number: u32| match parts.get(number).home {
            Home::Rank(rank) if rank != choice.executor => Some(rank),
            _ => None,
        };
        let servers = [server(choice.left), choice.right.and_then(server)];
        let outcome = if choice.is_commit {
            TaskOutcome::Commit { stripe, token }
        } else {
            TaskOutcome::Keep(PartId {
                stripe,
                number: product,
            })
        };
        let (left, right) = (operand(choice.left), choice.right.map(operand));
        let task = Task {
            reduction: self.id,
            id,
            left,
            right,
            outcome,
        };
        let assigned = Assigned {
            stripe,
            choice,
            product,
            servers,
        };
        workers.begin(choice.executor, assigned.servers());
        self.tasks.insert(id, assigned);
        outgoing.push(Outgoing {
            to: choice.executor,
            message: ToWorker::Task(task),
        });
    }

    fn commit(&mut self, number: u32, product: u32, workers: &Workers, outgoing: &mut Vec<Outgoing>) {
        let stripe = &mut self.stripes[number as usize];
        stripe.is_committed = true;
        let mut counted = stripe.parts.originals_in(product);
        counted.sort_unstable();
        let members = self.members.len() as u32;
        assert!(
            counted.iter().copied().eq(0..members),
            "each contribution is counted once, not {counted:?}"
        );
        if self.members.len() < 3 || self.signature.policy == Policy::Paper {
            return; // Nobody but the root has made a part, or there is one stripe and the end is near.
        }
        let alive = self
            .members
            .ranks()
            .iter()
            .filter(|&&rank| workers.is_alive(rank));
        let message = ToWorker::Release {
            reduction: self.id,
            stripe: number,
        };
        outgoing.extend(alive.map(|&to| Outgoing {
            to,
            message: message.clone(),
        }));
    }
}

/// How long to wait for a third voice when two members ask for different things.
const VERDICT_DELAY: Duration = Duration::from_millis(200);
/// How long a stripe rests after a pull failed while its holder is not known to be gone.
const PULL_RETRY_DELAY: Duration = Duration::from_millis(20);
/// How long pulls may fail in one stripe before the reduction is given up: longer than a rank with a broken connection
/// waits for its agent to say that the peer is gone.
const PULLS_FAIL_MAX: Duration = Duration::from_secs(15);
