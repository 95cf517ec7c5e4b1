//! A whole job in virtual time: one scheduler, a worker per rank, and a network that delays and loses.
//!
//! Content is symbolic: a part is the list of the contributions in it, in order, so that a missing, doubled or
//! displaced contribution shows.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    num::NonZeroU32,
    time::Duration,
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ropewalk_fabric::RegionHandle;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce::{
    Order, Policy, PullFailure, Receipt, ReductionError, Signature,
    ids::{GroupId, PartId, ReductionId, ReductionNumber, TaskId, Token},
    message::{
        Announcement, Contribution, PART_HEADER_SIZE, Source, TaskFailure, TaskOutcome, ToScheduler, ToWorker,
    },
    scheduler::Scheduler,
    worker::{Input, Side, Worker, WorkerAction},
};

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) size: u32,
    pub(crate) stripes: u32,
    pub(crate) reductions: u32,
    pub(crate) order: Order,
    pub(crate) policy: Policy,
    /// How many ranks, neither the scheduler's nor a root, are killed after they contributed.
    pub(crate) kills: u32,
    /// Whether roots may be killed too, and ranks that have not contributed yet.
    pub(crate) anybody: bool,
    /// Whether some rank stands still for a while.
    pub(crate) pause: bool,
    /// True if some rank gives up at some time.
    pub(crate) gives_up: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// What each rank was told of each reduction.
    pub(crate) results: BTreeMap<(Rank, ReductionId), Result<Receipt, ReductionError>>,
    /// What each root has of each stripe.
    pub(crate) committed: BTreeMap<(ReductionId, u32), Vec<u32>>,
    pub(crate) killed: BTreeSet<Rank>,
    pub(crate) gave_up: Option<Rank>,
    /// Everything that happened, for comparing two runs.
    pub(crate) log: Vec<String>,
    pub(crate) pulls_of_root: u64,
}

/// Runs a scenario to its end.
///
/// # Panics
/// If it does not end: nothing is under way, yet somebody waits.
pub(crate) fn run(scenario: &Scenario) -> Ending {
    let mut job = Job::new(scenario.clone());
    job.begin();
    while let Some(Reverse((at, _, index))) = job.queue.pop() {
        job.now = at;
        let event = job.events[index].take().expect("each event happens once");
        job.happen(event);
        assert!(job.events.len() < 3_000_000, "{scenario:?} goes on for ever");
    }
    job.check_everybody_was_told();
    job.ending
}

#[derive(Clone, Debug)]
enum Event {
    Begin(Rank, ReductionId),
    GiveUp(Rank),
    Kill(Rank),
    Learn(Rank),
    ToScheduler(Rank, ToScheduler),
    ToWorker(Rank, ToWorker),
    Pulled {
        rank: Rank,
        reduction: ReductionId,
        task: TaskId,
        side: Side,
        source: Source,
    },
    Combined {
        rank: Rank,
        reduction: ReductionId,
        task: TaskId,
        content: Vec<u32>,
        token: Token,
        outcome: TaskOutcome,
    },
    Time,
}

struct Region {
    owner: Option<Rank>,
    content: BTreeMap<u32, Vec<u32>>,
    token: Token,
}

struct Job {
    scenario: Scenario,
    random: Pcg64Mcg,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    events: Vec<Option<Event>>,
    scheduler: Scheduler,
    workers: Vec<Worker>,
    /// Until when a rank stands still.
    paused_until: Vec<Duration>,
    /// The latest delivery from or to the scheduler, per rank and direction: streams keep their order.
    delivered: BTreeMap<(Rank, bool), Duration>,
    regions: Vec<Region>,
    parts: BTreeMap<(Rank, ReductionId, PartId), u64>,
    pulled: BTreeMap<(Rank, TaskId, Side), (Vec<u32>, Token)>,
    contributed: BTreeMap<(Rank, ReductionId), (u64, Contribution)>,
    ids: Vec<ReductionId>,
    ending: Ending,
}

const STRIPE: u64 = 1 << 10;

impl Job {
    fn new(scenario: Scenario) -> Self {
        let size = scenario.size;
        Self {
            random: Pcg64Mcg::seed_from_u64(scenario.seed),
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            scheduler: Scheduler::new(size),
            workers: (0..size).map(|_| Worker::new()).collect(),
            paused_until: vec![Duration::ZERO; size as usize],
            delivered: BTreeMap::new(),
            regions: Vec::new(),
            parts: BTreeMap::new(),
            pulled: BTreeMap::new(),
            contributed: BTreeMap::new(),
            ids: Vec::new(),
            ending: Ending {
                results: BTreeMap::new(),
                committed: BTreeMap::new(),
                killed: BTreeSet::new(),
                gave_up: None,
                log: Vec::new(),
                pulls_of_root: 0,
            },
            scenario,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    fn after(&mut self, delay: Duration, event: Event) {
        let sequence = self.events.len() as u64;
        self.queue
            .push(Reverse((self.now + delay, sequence, self.events.len())));
        self.events.push(Some(event));
    }

    fn micros(&mut self, from: u64, below: u64) -> Duration {
        Duration::from_micros(from + self.below(below - from))
    }

    fn root_of(&self, number: u64) -> Rank {
        Rank((number as u32 * 3 + self.scenario.seed as u32) % self.scenario.size)
    }

    fn begin(&mut self) {
        let group = GroupId::of(&ProcessGroup::world(self.scenario.size));
        for number in 0..u64::from(self.scenario.reductions) {
            self.ids.push(ReductionId {
                group,
                number: ReductionNumber::Call(number),
            });
        }
        let mut latest = Duration::ZERO;
        for rank in (0..self.scenario.size).map(Rank) {
            let late = if self.below(8) == 0 { 20_000 } else { 300 };
            let at = self.micros(0, late);
            latest = latest.max(at);
            for id in self.ids.clone() {
                self.after(at, Event::Begin(rank, id));
            }
        }
        let roots: BTreeSet<Rank> = (0..u64::from(self.scenario.reductions))
            .map(|n| self.root_of(n))
            .collect();
        let may_die = |rank: &Rank| self.scenario.anybody || !roots.contains(rank);
        let mut victims: Vec<Rank> = (1..self.scenario.size).map(Rank).filter(may_die).collect();
        for _ in 0..self.scenario.kills.min(victims.len() as u32) {
            let victim = victims.swap_remove(self.below(victims.len() as u64) as usize);
            let at = self.micros(0, latest.as_micros() as u64 + 6_000);
            self.after(at, Event::Kill(victim));
        }
        if self.scenario.gives_up {
            let rank = Rank(self.below(u64::from(self.scenario.size)) as u32);
            let at = self.micros(0, latest.as_micros() as u64 + 6_000);
            self.after(at, Event::GiveUp(rank));
        }
        if self.scenario.pause {
            let rank = self.below(u64::from(self.scenario.size)) as usize;
            self.paused_until[rank] = self.micros(1_000, 50_000);
        }
    }

    fn happen(&mut self, event: Event) {
        let log = format!("{:?} {event:?}", self.now);
        self.ending.log.push(log);
        if let Some(rank) = rank_of(&event) {
            if self.ending.killed.contains(&rank) {
                return;
            }
            let until = self.paused_until[rank.index()];
            if until > self.now {
                self.after(until - self.now, event);
                return;
            }
        }
        match event {
            Event::Begin(rank, id) => self.contribute(rank, id),
            Event::GiveUp(rank) => {
                self.ending.gave_up = Some(rank);
                let error = ReductionError::SchedulerLost { rank: Rank(0) };
                self.workers[rank.index()].fail_all(&error);
                self.act(rank);
            }
            Event::Kill(rank) => self.kill(rank),
            Event::Learn(rank) => self.learn(rank),
            Event::ToScheduler(from, message) => {
                self.scheduler.handle_message(self.now, from, message);
                self.deliver_from_scheduler();
            }
            Event::ToWorker(rank, message) => {
                self.workers[rank.index()].handle_message(self.now, message);
                self.act(rank);
            }
            Event::Pulled {
                rank,
                reduction,
                task,
                side,
                source,
            } => {
                let result = self.read(rank, task, side, &source);
                self.workers[rank.index()].handle_pulled(reduction, task, side, result);
                self.act(rank);
            }
            Event::Combined {
                rank,
                reduction,
                task,
                content,
                token,
                outcome,
            } => {
                self.keep(rank, reduction, task, content, token, outcome);
            }
            Event::Time => {
                self.scheduler.handle_time(self.now);
                self.deliver_from_scheduler();
            }
        }
    }

    fn contribute(&mut self, rank: Rank, id: ReductionId) {
        let ReductionNumber::Call(number) = id.number else {
            unreachable!()
        };
        let token = Token(u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64()));
        let content = (0..self.scenario.stripes)
            .map(|stripe| (stripe, vec![rank.0]))
            .collect();
        let region = self.expose(Some(rank), content, token);
        let contribution = Contribution {
            reduction: id,
            members: None,
            signature: Signature {
                operation: "concatenate".into(),
                element: "list".into(),
                element_size: NonZeroU32::new(1),
                length: Some(STRIPE * u64::from(self.scenario.stripes)),
                root: self.root_of(number),
                order: self.scenario.order,
                policy: self.scenario.policy,
                stripe_size: match self.scenario.policy {
                    Policy::Chunked => STRIPE,
                    Policy::Paper => u64::MAX,
                },
            },
            token,
            length: STRIPE * u64::from(self.scenario.stripes),
            timeout: None,
        };
        self.contributed
            .insert((rank, id), (region, contribution.clone()));
        let announcement = Announcement {
            contribution,
            handle: handle_of(region),
        };
        self.workers[rank.index()].begin(rank.0, announcement);
        self.act(rank);
    }

    fn expose(&mut self, owner: Option<Rank>, content: BTreeMap<u32, Vec<u32>>, token: Token) -> u64 {
        self.regions.push(Region {
            owner,
            content,
            token,
        });
        self.regions.len() as u64 - 1
    }

    fn kill(&mut self, rank: Rank) {
        let is_safe = self
            .ids
            .iter()
            .all(|&id| self.contributed.contains_key(&(rank, id)));
        if !is_safe && !self.scenario.anybody {
            // What was never contributed cannot be kept: a little later, then.
            let delay = self.micros(100, 1_000);
            self.after(delay, Event::Kill(rank));
            return;
        }
        self.ending.killed.insert(rank);
        for region in self
            .regions
            .iter_mut()
            .filter(|region| region.owner == Some(rank))
        {
            region.content.clear();
        }
        // Of what it had sent, a prefix is still delivered.
        let cut = self.now + self.micros(0, 100);
        for Reverse((at, _, index)) in &self.queue {
            if *at > cut && matches!(&self.events[*index], Some(Event::ToScheduler(from, _)) if *from == rank)
            {
                self.events[*index] = Some(Event::Time);
            }
        }
        let delay = self.micros(10, 3_000);
        self.after(delay, Event::Learn(rank));
    }

    fn learn(&mut self, rank: Rank) {
        for id in self.ids.clone() {
            let Some((region, contribution)) = self.contributed.get(&(rank, id)).cloned() else {
                continue;
            };
            let content = (0..self.scenario.stripes)
                .map(|stripe| (stripe, vec![rank.0]))
                .collect();
            let token = self.regions[region as usize].token;
            let kept = self.expose(None, content, token);
            self.scheduler
                .handle_inherited(self.now, rank, contribution, handle_of(kept));
        }
        self.scheduler.handle_departed(self.now, rank);
        self.deliver_from_scheduler();
    }

    fn deliver_from_scheduler(&mut self) {
        for outgoing in self.scheduler.drain_outgoing() {
            let delay = self.in_order(outgoing.to, true);
            self.after(delay, Event::ToWorker(outgoing.to, outgoing.message));
        }
        if let Some(deadline) = self.scheduler.next_deadline() {
            self.after(deadline.saturating_sub(self.now), Event::Time);
        }
    }

    fn in_order(&mut self, rank: Rank, from_scheduler: bool) -> Duration {
        let at = self.now + self.micros(5, 200);
        let last = self.delivered.entry((rank, from_scheduler)).or_default();
        *last = at.max(*last);
        *last - self.now
    }

    fn act(&mut self, rank: Rank) {
        for action in self.workers[rank.index()].drain_actions() {
            match action {
                WorkerAction::Send(message) => {
                    let delay = self.in_order(rank, false);
                    self.after(delay, Event::ToScheduler(rank, message));
                }
                WorkerAction::Pull {
                    reduction,
                    task,
                    side,
                    source,
                } => {
                    if reduction.number == ReductionNumber::Call(0) && rank == self.root_of(0) {
                        self.ending.pulls_of_root += 1;
                    }
                    let delay = self.micros(50, 800);
                    self.after(
                        delay,
                        Event::Pulled {
                            rank,
                            reduction,
                            task,
                            side,
                            source,
                        },
                    );
                }
                WorkerAction::Combine {
                    reduction,
                    task,
                    left,
                    right,
                    outcome,
                } => {
                    let (mut content, mut token) = self.operand(rank, reduction, task, left);
                    if let Some(right) = right {
                        let (more, other) = self.operand(rank, reduction, task, right);
                        content.extend(more);
                        token = token + other;
                    }
                    let delay = self.micros(20, 300);
                    self.after(
                        delay,
                        Event::Combined {
                            rank,
                            reduction,
                            task,
                            content,
                            token,
                            outcome,
                        },
                    );
                }
                WorkerAction::Discard { reduction, parts } => {
                    for part in parts {
                        if let Some(region) = self.parts.remove(&(rank, reduction, part)) {
                            self.regions[region as usize].content.clear();
                        }
                    }
                }
                WorkerAction::Forget { task } => {
                    self.pulled.remove(&(rank, task, Side::Left));
                    self.pulled.remove(&(rank, task, Side::Right));
                }
                WorkerAction::Complete { reduction, result } => {
                    let before = self.ending.results.insert((rank, reduction), result);
                    assert!(
                        before.is_none(),
                        "rank {rank} is told twice of the end of {reduction}"
                    );
                }
            }
        }
    }

    fn operand(&self, rank: Rank, reduction: ReductionId, task: TaskId, input: Input) -> (Vec<u32>, Token) {
        match input {
            Input::Local(part) if part.number < self.scenario.size => {
                let region = &self.regions[self.contributed[&(rank, reduction)].0 as usize];
                (region.content[&part.stripe].clone(), region.token)
            }
            Input::Local(part) => {
                let region = &self.regions[self.parts[&(rank, reduction, part)] as usize];
                (region.content[&part.stripe].clone(), region.token)
            }
            Input::Pulled(_, side) => self.pulled[&(rank, task, side)].clone(),
        }
    }

    fn read(&mut self, rank: Rank, task: TaskId, side: Side, source: &Source) -> Result<(), PullFailure> {
        let holder = source.handle.address.clone();
        let gone = PullFailure::NoSuchRegion { holder };
        let region = &self.regions[source.handle.region as usize];
        let content = match region.content.len() {
            0 => return Err(gone),
            // A contribution holds all stripes, a partial result its own.
            1 => region.content.values().next().cloned(),
            _ => region
                .content
                .get(&((source.data_offset - PART_HEADER_SIZE) as u32 / STRIPE as u32))
                .cloned(),
        };
        let content = content.ok_or(gone)?;
        self.pulled.insert((rank, task, side), (content, region.token));
        Ok(())
    }

    fn keep(
        &mut self,
        rank: Rank,
        reduction: ReductionId,
        task: TaskId,
        content: Vec<u32>,
        token: Token,
        outcome: TaskOutcome,
    ) {
        let result = match outcome {
            TaskOutcome::Commit {
                stripe,
                token: expected,
            } if token == expected => {
                self.ending.committed.insert((reduction, stripe), content);
                Ok(None)
            }
            TaskOutcome::Commit { .. } => Err(TaskFailure::Receipt),
            TaskOutcome::Keep(part) => {
                let region = self.expose(Some(rank), [(part.stripe, content)].into(), token);
                self.parts.insert((rank, reduction, part), region);
                Ok(Some(source_of(region, PART_HEADER_SIZE)))
            }
        };
        self.workers[rank.index()].handle_combined(self.now, reduction, task, result);
        self.act(rank);
    }

    fn check_everybody_was_told(&self) {
        for rank in (0..self.scenario.size)
            .map(Rank)
            .filter(|rank| !self.ending.killed.contains(rank))
        {
            for &id in &self.ids {
                let told = self.ending.results.contains_key(&(rank, id));
                assert!(told, "rank {rank} waits for {id} for ever in {:?}", self.scenario);
            }
        }
        assert_eq!(self.scheduler.running(), 0);
    }
}

fn rank_of(event: &Event) -> Option<Rank> {
    match event {
        Event::Begin(rank, _) | Event::GiveUp(rank) | Event::ToWorker(rank, _) => Some(*rank),
        Event::Pulled { rank, .. } | Event::Combined { rank, .. } => Some(*rank),
        Event::Kill(_) | Event::Learn(_) | Event::Time | Event::ToScheduler(..) => None,
    }
}

fn handle_of(region: u64) -> RegionHandle {
    let address = "sim://job".parse().expect("a well-formed address");
    RegionHandle {
        address,
        region,
        token: 0,
        length: 0,
        writable: false,
    }
}

fn source_of(region: u64, data_offset: u64) -> Source {
    Source {
        handle: handle_of(region),
        data_offset,
        length: STRIPE,
    }
}
