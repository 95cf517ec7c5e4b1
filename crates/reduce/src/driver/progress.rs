//! The thread that drives a rank's machines.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, AgentLink, AgentLinkError, FromAgent, Held, HoldId, Identity, RegionHandle, Role, SpanKind,
    SubmitError, ToAgent,
};
use ropewalk_names::Rank;
use ropewalk_rpc::{CallError, Caller, Engine};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    job::{Shared, Wish},
    kept::{Kept, Made},
    peers::Peers,
    procedures::{MESSAGES_MAX, TellScheduler, TellWorker},
    pulls::{Pulls, Purpose},
    reduction::Completion,
    trace::now_ns,
};
use crate::{
    ids::{PartId, ReductionId, TaskId},
    message::{
        Announcement, Contribution, PART_HEADER_SIZE, Source, TaskFailure, TaskOutcome, ToScheduler, ToWorker,
    },
    operation::Fold,
    outcome::{Receipt, ReductionError},
    scheduler::Scheduler,
    stripes,
    worker::{Input, Side, Worker, WorkerAction},
};

/// A contribution on its way from the program to the progress thread.
pub(super) struct Begin {
    pub(super) index: u32,
    pub(super) contribution: Contribution,
    /// Header and data.
    pub(super) bytes: Bytes,
    pub(super) hold: Option<HoldId>,
    pub(super) fold: Arc<dyn Fold>,
    pub(super) completion: Completion,
}

impl std::fmt::Debug for Begin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begin")
            .field("contribution", &self.contribution)
            .finish_non_exhaustive()
    }
}

/// Drives a rank's worker, on rank 0 also the job's scheduler, and the engine below them.
pub(super) struct ProgressThread {
    pub(super) shared: Arc<Shared>,
    /// The link to the agent, until that is gone.
    pub(super) link: Option<Arc<AgentLink>>,
    pub(super) engine: Engine,
    origin: Instant,
    pub(super) worker: Worker,
    /// On rank 0.
    pub(super) scheduler: Option<Scheduler>,
    pub(super) addresses: Vec<Option<Address>>,
    to_scheduler: mpsc::Receiver<(Identity, Vec<ToScheduler>)>,
    to_worker: mpsc::Receiver<Vec<ToWorker>>,
    /// Messages that the engine has not taken yet, by receiver.
    pub(super) unsent_to_workers: BTreeMap<Rank, VecDeque<ToWorker>>,
    pub(super) unsent_to_scheduler: VecDeque<ToScheduler>,
    /// What the agent need not hold any longer and has not been told yet.
    unsent_releases: VecDeque<HoldId>,
    pub(super) peers: Peers,
    pub(super) kept: BTreeMap<ReductionId, Kept>,
    pulls: Pulls,
}

impl ProgressThread {
    pub(super) fn new(shared: Arc<Shared>, mut engine: Engine, addresses: Vec<Option<Address>>) -> Self {
        let (scheduler_sender, to_scheduler) = mpsc::channel();
        let (worker_sender, to_worker) = mpsc::channel();
        let is_scheduler = shared.rank == SCHEDULER;
        if is_scheduler {
            engine.serve::<TellScheduler>(move |caller: &Caller, messages| {
                let sender = caller.identity();
                if sender.role == Role::Rank {
                    // Nobody receives any more only when the thread is about to end.
                    let _ = scheduler_sender.send((sender, messages));
                }
                Ok(())
            });
        }
        engine.serve::<TellWorker>(move |caller: &Caller, messages| {
            if caller.identity().role == Role::Rank && caller.identity().rank == SCHEDULER {
                let _ = worker_sender.send(messages);
            }
            Ok(())
        });
        Self {
            scheduler: is_scheduler.then(|| Scheduler::new(shared.size)),
            link: shared.link.clone(),
            shared,
            engine,
            origin: Instant::now(),
            worker: Worker::new(),
            addresses,
            to_scheduler,
            to_worker,
            unsent_to_workers: BTreeMap::new(),
            unsent_to_scheduler: VecDeque::new(),
            unsent_releases: VecDeque::new(),
            peers: Peers::default(),
            kept: BTreeMap::new(),
            pulls: Pulls::default(),
        }
    }

    /// Works until the job is left.
    pub(super) fn run(mut self) {
        loop {
            // This takes the wish to be woken, so that everything one may be woken for has to be looked at after it.
            self.engine.progress();
            let Some(wishes) = self.shared.take_wishes() else {
                return self.say_farewell();
            };
            wishes.into_iter().for_each(|wish| self.fulfil(wish));
            self.receive_messages();
            self.receive_from_agent();
            self.notice_lost_peers();
            self.watch_peers();
            self.collect_pulls();
            self.handle_time();
            self.act();
            self.send_messages();
            self.sleep();
        }
    }

    /// The others may have to hear of an error with which this rank leaves.
    fn say_farewell(mut self) {
        self.act();
        self.send_messages();
        self.engine.flush(FAREWELL_TIME);
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn fulfil(&mut self, wish: Wish) {
        match wish {
            Wish::Begin(begin) => self.begin(*begin),
            Wish::Withdraw {
                reduction,
                members,
                message,
            } => {
                self.tell_scheduler(ToScheduler::Withdraw {
                    reduction,
                    members,
                    message,
                });
            }
        }
    }

    fn begin(&mut self, begin: Begin) {
        let Begin {
            index,
            contribution,
            bytes,
            hold,
            fold,
            completion,
        } = begin;
        let reduction = contribution.reduction;
        if self.kept.contains_key(&reduction) {
            completion.complete(Err(ReductionError::IdReused { reduction }.into()));
            self.release(hold);
            return;
        }
        let handle = self.engine.expose(bytes.clone());
        let stripes = stripes::cut(&contribution.signature);
        let deadline = contribution
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let kept = Kept {
            index,
            committed: vec![None; stripes.len()],
            stripes,
            is_vector: contribution.signature.length.is_some(),
            contribution: bytes,
            contribution_handle: handle.clone(),
            made: BTreeMap::new(),
            hold,
            fold,
            // The scheduler's own verdict, which names who is missing, is on its way by then.
            deadline: deadline.and_then(|deadline| deadline.checked_add(SCHEDULER_VERDICT_TIME)),
            completion,
        };
        self.kept.insert(reduction, kept);
        self.worker.begin(index, Announcement { contribution, handle });
    }

    fn receive_messages(&mut self) {
        let now = self.now();
        while let Ok((from, messages)) = self.to_scheduler.try_recv() {
            let Some(scheduler) = &mut self.scheduler else {
                continue;
            };
            self.peers.handle_heard(from);
            messages
                .into_iter()
                .for_each(|message| scheduler.handle_message(now, from.rank, message));
        }
        while let Ok(messages) = self.to_worker.try_recv() {
            messages
                .into_iter()
                .for_each(|message| self.worker.handle_message(now, message));
        }
    }

    fn receive_from_agent(&mut self) {
        let Some(link) = self.link.clone() else { return };
        loop {
            match link.receive::<FromAgent>() {
                Ok(Some((message, _))) => self.handle_agent(message),
                Ok(None) => return,
                Err(AgentLinkError::Encoding(_)) => {}
                Err(_) => {
                    // Nobody would tell of a death any more.
                    self.link = None;
                    self.give_up(&ReductionError::AgentLost);
                    return;
                }
            }
        }
    }

    fn handle_agent(&mut self, message: FromAgent) {
        match message {
            FromAgent::Inherited {
                rank, held, handle, ..
            } => self.inherit(rank, &held, handle),
            FromAgent::Departed(departure) => {
                self.engine.fence(Identity {
                    role: Role::Rank,
                    rank: departure.rank,
                    incarnation: departure.incarnation,
                });
                self.handle_gone(departure.rank);
            }
            FromAgent::Taken | FromAgent::Welcome(_) => {}
        }
    }

    fn inherit(&mut self, rank: Rank, held: &Held, handle: RegionHandle) {
        let now = self.now();
        let Some(scheduler) = &mut self.scheduler else {
            return;
        };
        // What is no contribution was held for somebody else.
        if let Ok(contribution) = postcard::from_bytes::<Contribution>(&held.label) {
            scheduler.handle_inherited(now, rank, contribution, handle);
        }
    }

    fn handle_time(&mut self) {
        let now = self.now();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.handle_time(now);
        }
        let now = Instant::now();
        let overdue = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.deadline.is_some_and(|deadline| deadline <= now));
        for reduction in overdue.map(|(&reduction, _)| reduction).collect::<Vec<_>>() {
            self.worker
                .fail(reduction, ReductionError::Timeout { missing: Vec::new() });
        }
    }

    fn collect_pulls(&mut self) {
        for (
            Purpose {
                reduction,
                task,
                side,
            },
            result,
        ) in self.pulls.collect(&self.shared.tracer)
        {
            self.worker.handle_pulled(reduction, task, side, result);
        }
    }

    /// Does what the machines want done, until they want nothing more.
    fn act(&mut self) {
        loop {
            let actions = self.worker.drain_actions();
            let outgoing = self
                .scheduler
                .as_mut()
                .map(Scheduler::drain_outgoing)
                .unwrap_or_default();
            if actions.is_empty() && outgoing.is_empty() {
                return;
            }
            // First what was wanted first: the scheduler may take back a task of which an action speaks.
            actions.into_iter().for_each(|action| self.take_action(action));
            let now = self.now();
            for outgoing in outgoing {
                if outgoing.to == self.shared.rank {
                    self.worker.handle_message(now, outgoing.message);
                } else {
                    self.unsent_to_workers
                        .entry(outgoing.to)
                        .or_default()
                        .push_back(outgoing.message);
                }
            }
        }
    }

    fn take_action(&mut self, action: WorkerAction) {
        match action {
            WorkerAction::Combine {
                reduction,
                task,
                left,
                right,
                outcome,
            } => {
                self.combine(reduction, task, left, right, outcome);
            }
            WorkerAction::Complete { reduction, result } => self.complete(reduction, result),
            WorkerAction::Discard { reduction, parts } => self.discard(reduction, &parts),
            WorkerAction::Forget { task } => self.pulls.forget(task),
            WorkerAction::Pull {
                reduction,
                task,
                side,
                source,
            } => self.pull(reduction, task, side, &source),
            WorkerAction::Send(message) => self.tell_scheduler(message),
        }
    }

    fn tell_scheduler(&mut self, message: ToScheduler) {
        match &mut self.scheduler {
            Some(scheduler) => scheduler.handle_message(self.origin.elapsed(), self.shared.rank, message),
            // Nobody is there to hear it.
            None if self.addresses[SCHEDULER.index()].is_none() => {}
            None => self.unsent_to_scheduler.push_back(message),
        }
    }

    fn pull(&mut self, reduction: ReductionId, task: TaskId, side: Side, source: &Source) {
        let Some(kept) = self.kept.get(&reduction) else {
            return;
        };
        let purpose = Purpose {
            reduction,
            task,
            side,
        };
        let started = self
            .pulls
            .start(&mut self.engine, purpose, source, kept.part_length_max());
        if let Err(failure) = started {
            self.worker.handle_pulled(reduction, task, side, Err(failure));
        }
    }

    fn combine(
        &mut self,
        reduction: ReductionId,
        task: TaskId,
        left: Input,
        right: Option<Input>,
        outcome: TaskOutcome,
    ) {
        let Some(kept) = self.kept.get_mut(&reduction) else {
            return;
        };
        let start_ns = now_ns();
        let product = kept.combine(left, right, |side| self.pulls.take(task, side));
        let result = product.and_then(|product| match outcome {
            TaskOutcome::Commit { token, .. } if token != product.token => Err(TaskFailure::Receipt),
            TaskOutcome::Commit { stripe, .. } => {
                kept.committed[stripe as usize] = Some(product.bytes.slice(PART_HEADER_SIZE as usize..));
                Ok(None)
            }
            TaskOutcome::Keep(part) => {
                let handle = self.engine.expose(product.bytes.clone());
                let length = product.bytes.len() as u64 - PART_HEADER_SIZE;
                kept.made.insert(
                    part,
                    Made {
                        bytes: product.bytes,
                        handle: handle.clone(),
                    },
                );
                Ok(Some(Source {
                    handle,
                    data_offset: PART_HEADER_SIZE,
                    length,
                }))
            }
        });
        let stripe = match outcome {
            TaskOutcome::Commit { stripe, .. } | TaskOutcome::Keep(PartId { stripe, .. }) => stripe,
        };
        self.shared
            .tracer
            .detail(SpanKind::Merge, start_ns, || format!("stripe {stripe}"));
        if matches!(outcome, TaskOutcome::Commit { .. }) {
            let done = kept.committed.iter().flatten().count() as u64;
            self.shared
                .tracer
                .progress(&reduction.number.to_string(), done, kept.committed.len() as u64);
        }
        self.worker
            .handle_combined(self.origin.elapsed(), reduction, task, result);
    }

    fn discard(&mut self, reduction: ReductionId, parts: &[PartId]) {
        let Some(kept) = self.kept.get_mut(&reduction) else {
            return;
        };
        for made in parts.iter().filter_map(|part| kept.made.remove(part)) {
            self.engine.withdraw(&made.handle);
        }
    }

    fn complete(&mut self, reduction: ReductionId, result: Result<Receipt, ReductionError>) {
        let Some(mut kept) = self.kept.remove(&reduction) else {
            return;
        };
        self.engine.withdraw(&kept.contribution_handle);
        for made in kept.made.values() {
            self.engine.withdraw(&made.handle);
        }
        self.release(kept.hold);
        self.shared.set_failed(result.is_err());
        let stripes = kept.result();
        kept.completion
            .complete(result.map(|receipt| (receipt, stripes)).map_err(Into::into));
    }

    fn release(&mut self, hold: Option<HoldId>) {
        self.unsent_releases.extend(hold);
    }

    fn send_messages(&mut self) {
        let engine = &mut self.engine;
        let addresses = &self.addresses;
        self.unsent_to_workers.retain(|&rank, messages| {
            if let Some(address) = &addresses[rank.index()] {
                send_batches(messages, |batch| engine.notify::<TellWorker>(address, batch));
            }
            !messages.is_empty()
        });
        if let Some(address) = &addresses[SCHEDULER.index()] {
            send_batches(&mut self.unsent_to_scheduler, |batch| {
                engine.notify::<TellScheduler>(address, batch)
            });
        }
        let Some(link) = &self.link else { return };
        while let Some(&hold) = self.unsent_releases.front() {
            if let Err(AgentLinkError::Full) = link.send(&ToAgent::Release(hold), None) {
                return;
            }
            self.unsent_releases.pop_front();
        }
    }

    fn sleep(&mut self) {
        let now = Instant::now();
        let scheduler = self.scheduler.as_ref().and_then(Scheduler::next_deadline);
        let scheduler = scheduler.and_then(|deadline| self.origin.checked_add(deadline));
        let is_unsent = !(self.unsent_to_scheduler.is_empty()
            && self.unsent_to_workers.is_empty()
            && self.unsent_releases.is_empty());
        let unsent = is_unsent.then(|| now + UNSENT_RETRY);
        let peers = self.peers.next_deadline();
        let overdue = self.kept.values().filter_map(|kept| kept.deadline).min();
        let deadlines = [scheduler, unsent, peers, overdue, self.engine.next_deadline()];
        let deadline = deadlines.into_iter().flatten().min();
        let timeout = deadline.map_or(SLEEP_MAX, |at| at.saturating_duration_since(now).min(SLEEP_MAX));
        if timeout.is_zero() {
            return;
        }
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.engine.as_fd(), PollFlags::IN)];
        if let Some(link) = &self.link {
            descriptors.push(PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN));
        }
        // An interruption only means to look at the world again.
        let _ = poll(&mut descriptors, timeout.try_into().ok().as_ref());
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        // Also after a panic: whoever waits or is about to must be told that nothing will come.
        self.shared.close();
    }
}

/// Sends messages in order, in batches, for as long as the receiver has room for them.
fn send_batches<M: Clone>(
    messages: &mut VecDeque<M>,
    mut send: impl FnMut(&Vec<M>) -> Result<(), CallError>,
) {
    while !messages.is_empty() {
        let batch: Vec<M> = messages.iter().take(MESSAGES_MAX).cloned().collect();
        let sent = send(&batch);
        if let Err(CallError::Submit {
            source: SubmitError::Busy { .. } | SubmitError::Connect { .. },
            ..
        }) = sent
        {
            return;
        }
        // What cannot be sent at all is for a peer that is gone, which is noticed apart from this.
        messages.drain(..batch.len());
    }
}

/// Where the scheduler is (the paper's master, section "framework").
pub(super) const SCHEDULER: Rank = Rank(0);
/// How long after a reduction's time is over the scheduler is waited for to say so.
const SCHEDULER_VERDICT_TIME: Duration = Duration::from_secs(5);
/// When to offer again what was not taken.
const UNSENT_RETRY: Duration = Duration::from_millis(5);
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How long a rank that leaves tries to hand its last messages to the system.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
