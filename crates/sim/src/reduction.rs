//! Streaming reductions in virtual time: the workers and [`Scheduler`]s of `ropewalk-reduce-core` on simulated
//! hosts.
//!
//! Each host runs one rank and one agent, which inherits the rank's original when the rank is lost. A rank may keep a
//! copy of the original of the host before. Chunks are words that stand for their bytes: links are busy as long as the
//! bytes would take, and the words show any contribution that is missing, doubled or folded in the wrong order.

use std::{fmt, ops::Range, time::Duration};

use ropewalk_reduce_core::{
    Costs, End, FromScheduler, Member, Place, Scheduler, SchedulerAction, Session, Site, ToScheduler, Token,
    WorkerAction,
    canary::{Canary, is_put_back},
};

use self::{
    site::SiteState,
    what::{Results, What, result_bytes, row_bytes},
};
use crate::{Dice, Host, Nanos, Network, Process, Simulation};

mod collective;
mod copies;
mod faults;
mod hard;
mod oracle;
mod relays;
mod repeated;
mod setting;
mod site;
mod what;

pub use self::{
    collective::Collective,
    oracle::Violation,
    setting::{Burst, Calls, Change, Cluster, Fault, Made, Setting, Shared, Slow, Timeouts},
};

/// A finished simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the root's last call ended; when the last rank's did, if all get the result or the root's never did.
    pub time: Nanos,
    /// The end as the living ranks were told it; of several calls the first that is not a result of all members, if
    /// there is one.
    pub end: Option<End>,
    /// Messages that the schedulers received.
    pub messages_to_scheduler: u64,
    /// Messages that the schedulers sent.
    pub messages_from_scheduler: u64,
    /// All events.
    pub events: u64,
    /// Equal in equal runs.
    pub digest: u64,
}

/// Is shown each event: its time, its process, and what happens.
pub type Watch<'a> = &'a mut dyn FnMut(Nanos, Process, &dyn fmt::Debug);

const GROUP: u64 = 1;
/// Virtual time after which a job hangs.
const TIME_MAX: Nanos = Nanos::from_millis(600_000);
const MESSAGE_BYTES: u64 = 100;
/// A host that passes a chunk on receives it, answers it, sends it, and receives the answer. Grants are for many.
const MESSAGES_PER_CHUNK: f64 = 4.0;

/// Runs a job to its end.
///
/// # Errors
/// If a promise is broken: a wrong result, a hang, or a verdict that the faults do not explain.
pub fn run(setting: &Setting) -> Result<Outcome, Violation> {
    Job::new(setting).run()
}

/// Runs a job to its end, and shows each event before it is handled: its time, its process, and what happens.
///
/// # Errors
/// As [`run`]'s.
pub fn run_watched<'a>(setting: &'a Setting, watch: Watch<'a>) -> Result<Outcome, Violation> {
    let mut job = Job::new(setting);
    job.watch = Some(watch);
    job.run()
}

/// Runs the calls of a setting without faults one after the other: each begins when all ranks know the end of the one
/// before. Returns the outcome of each; its time is that from the call until the root knows the end.
///
/// # Errors
/// As [`run`]'s.
pub fn run_in_turns(setting: &Setting) -> Result<Vec<Outcome>, Violation> {
    let mut job = Job::new(setting);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for call in 0..u64::from(setting.calls.count) {
        (job.open, job.first_waiting) = (call..call + 1, 0);
        let began = job.simulation.now();
        if call > 0 {
            for rank in 0..setting.hosts {
                job.simulation.after(Nanos::ZERO, Process(rank), What::Call);
            }
        }
        job.play()?;
        let end = job.oracle.judge(&job.sites, call)?;
        let ended = job.ended(setting.calls.root, |site| site.ends.get(&call).map(|(at, _)| *at));
        let before = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
        outcomes.push(Outcome {
            time: ended.map_or(Nanos::ZERO, |at| at - began),
            end,
            messages_to_scheduler: job.to_scheduler - before(|outcome| outcome.messages_to_scheduler),
            messages_from_scheduler: job.from_scheduler - before(|outcome| outcome.messages_from_scheduler),
            events: job.simulation.events() - before(|outcome| outcome.events),
            digest: job.simulation.digest(),
        });
    }
    Ok(outcomes)
}

/// Something that happens to a process.
struct Job<'a> {
    setting: &'a Setting,
    simulation: Simulation<What>,
    sites: Vec<SiteState>,
    /// The calls that ranks contribute to now.
    open: Range<u64>,
    /// The ranks before this one do not wait for a call that is open.
    first_waiting: u32,
    tokens: Vec<Token>,
    oracle: oracle::Oracle,
    to_scheduler: u64,
    from_scheduler: u64,
    watch: Option<Watch<'a>>,
}

impl<'a> Job<'a> {
    fn new(setting: &'a Setting) -> Self {
        let mut network = Network::uniform(setting.hosts + 1, setting.cluster.rate, setting.cluster.latency);
        network.set_message_time(setting.cluster.message_time);
        for host in 0..setting.hosts {
            setting.set_rates(host, &mut network, Host(host));
        }
        if let Some(burst) = setting.cluster.burst {
            network.set_buckets(burst.bytes, burst.peak);
        }
        // Ranks, agents, copies in the memory of the next rank, and one process that nothing happens to, for what goes
        // wrong.
        let ranks = 0..setting.hosts;
        let hosts = ranks.clone().chain(ranks.clone());
        let hosts = hosts.chain(ranks.map(|rank| (rank + 1) % setting.hosts));
        let hosts = hosts.chain([setting.hosts]);
        let mut simulation = Simulation::new(network, hosts.map(Host).collect());
        let mut dice = Dice::new(setting.seed);
        let token = |_| Token(u128::from(dice.word()) << 64 | u128::from(dice.word()));
        let members = setting
            .calls
            .shared
            .map_or(setting.hosts, |shared| shared.members);
        let tokens: Vec<Token> = (0..members).map(token).collect();
        for rank in 0..setting.hosts {
            simulation.after(setting.delay_of(rank), Process(rank), What::Call);
        }
        for (number, (at, _)) in setting.faults.iter().enumerate() {
            simulation.after(*at, Process(3 * setting.hosts), What::Fault(number));
        }
        let mut job = Self {
            setting,
            simulation,
            sites: (0..3 * setting.hosts)
                .map(|site| SiteState::new(Site(site), &setting.relays))
                .collect(),
            open: 0..setting.calls.count.into(),
            first_waiting: 0,
            tokens,
            oracle: oracle::Oracle::new(setting),
            to_scheduler: 0,
            from_scheduler: 0,
            watch: None,
        };
        job.sites[0].scheduler = Some(job.scheduler(Site(0)));
        if setting.calls.shared.is_some() {
            for rank in 0..setting.hosts {
                let held = setting.held_by(rank);
                let open = job.open.clone();
                held.into_iter()
                    .for_each(|member| job.oracle.note_holder(open.clone(), member, rank));
            }
        }
        job
    }

    fn scheduler(&self, site: Site) -> Scheduler {
        let setting = self.setting;
        let costs = Costs {
            latency: setting.cluster.latency.as_seconds(),
            per_chunk: MESSAGES_PER_CHUNK * setting.cluster.message_time.as_seconds(),
            rate: setting.cluster.rate,
        };
        let mut scheduler = Scheduler::new(site, costs, Duration::from(setting.timeouts.late_rank));
        scheduler.add_group(GROUP, (0..setting.hosts).map(Site).collect());
        let host_of = |site: u32| match site / setting.hosts {
            0 | 1 => site % setting.hosts,
            _ => (site + 1) % setting.hosts,
        };
        let sites = 0..3 * setting.hosts;
        scheduler.set_hosts(sites.map(|site| (Site(site), u64::from(host_of(site)))));
        for site in setting.hosts..3 * setting.hosts {
            scheduler.set_capacity(Site(site), 0.0);
        }
        for slow in setting.cluster.slow.iter().filter(|slow| slow.is_known) {
            let folding = setting.cluster.fold_rate * slow.folding / setting.cluster.rate;
            scheduler.set_capacity(Site(slow.host), slow.inwards.min(folding).min(1.0));
        }
        scheduler
    }

    /// Goes on until all open calls have ended.
    fn play(&mut self) -> Result<(), Violation> {
        while !self.is_over() {
            let Some(event) = self.simulation.next().filter(|event| event.at < TIME_MAX) else {
                return Err(Violation::Hang {
                    ranks: self.waiting().collect(),
                });
            };
            if let Some(watch) = &mut self.watch {
                watch(event.at, event.process, &event.what);
            }
            self.handle(event.process, event.what);
            self.act(event.process);
        }
        Ok(())
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        self.play()?;
        let mut ends = Vec::new();
        for call in 0..u64::from(self.setting.calls.count) {
            ends.push(self.oracle.judge(&self.sites, call)?);
        }
        // One end that is not a result tells more than those that are.
        let is_bad =
            |end: &&Option<End>| !matches!(end, Some(End::Done { excluded, .. }) if excluded.is_empty());
        let end = ends.iter().find(is_bad).or(ends.last()).cloned().flatten();
        let root = match end {
            Some(End::Done { root, .. }) => root.0,
            _ => self.setting.calls.root,
        };
        let last = |site: &SiteState| site.ends.values().map(|(at, _)| *at).max();
        Ok(Outcome {
            time: self.ended(root, last).unwrap_or_default(),
            end,
            messages_to_scheduler: self.to_scheduler,
            messages_from_scheduler: self.from_scheduler,
            events: self.simulation.events(),
            digest: self.simulation.digest(),
        })
    }

    /// The time that counts as the end, of the times at which ranks heard one: the root's, or the last.
    fn ended(&self, root: u32, heard: impl Fn(&SiteState) -> Option<Nanos>) -> Option<Nanos> {
        let of_root = heard(&self.sites[root as usize]).filter(|_| !self.setting.collective().is_spread());
        of_root.or_else(|| self.sites.iter().filter_map(heard).max())
    }

    /// Each rank is looked at once: one that waits for nothing will not wait again.
    fn is_over(&mut self) -> bool {
        let next = self.waiting().next();
        self.first_waiting = next.unwrap_or(self.setting.hosts);
        next.is_none()
    }

    /// The ranks that live, were not given up, and have calls that have not ended.
    fn waiting(&self) -> impl Iterator<Item = u32> {
        let ranks = self.first_waiting..self.setting.hosts;
        ranks.filter(|&rank| self.is_open(rank) && !self.oracle.is_gone(rank))
    }

    /// Calls of a rank have not ended.
    fn is_open(&self, rank: u32) -> bool {
        (self.sites[rank as usize].ends.len() as u64) < self.open.end
    }

    fn handle(&mut self, process: Process, what: What) {
        let now = self.simulation.now();
        let at = process.0 as usize;
        match what {
            What::Call => self.begin_calls(process),
            // If the keeper is lost, another one would be asked: that takes longer, and is left out.
            What::Acknowledged => self.hold(process, self.open.clone(), vec![Member(process.0)]),
            What::Copied(member) => {
                // The contributor has to be there to be copied.
                let keeper = (member.0 + 1) % self.setting.hosts;
                if !self.oracle.is_gone(member.0) && self.is_open(keeper) {
                    self.leave_out_settled(process, member, keeper);
                    self.hold(process, self.open.clone(), vec![member]);
                }
            }
            What::Collect(parcel) => self.collect(process, parcel),
            What::Spread(parcels) => self.spread(process, parcels),
            What::Parcels(parcels) => self.unpack(process, parcels),
            What::RelayDue => self.pass_on_held(process),
            What::ToScheduler(from, message, results) => {
                self.sites[at].enclosed.extend(results);
                let parts: Vec<u64> = self.sites[from.0 as usize].begins.keys().copied().collect();
                if let Some(scheduler) = &mut self.sites[at].scheduler {
                    self.to_scheduler += 1;
                    scheduler.handle_message(now.into(), from, message);
                    for &call in &parts {
                        scheduler.note_part(Session { group: GROUP, call }, from);
                    }
                }
            }
            // A receiver refuses a fenced process, as its connections do.
            What::FromScheduler(from, message, results)
                if !self.sites[at].lost.contains(&from) || is_put_back(Canary::OldTermFollowed) =>
            {
                self.hear_scheduler(process, from, message, results);
            }
            What::FromScheduler(..) => {}
            What::Grant(grant) => self.sites[at].worker.handle_grant(grant),
            What::Chunk(from, number, chunk, word) => {
                self.sites[at].take(now, &chunk, word);
                // Each clock began at another time.
                let arrived = now + Nanos::from_millis(u64::from(process.0) * 1000);
                let (span, what) = (self.setting.cluster.completion, What::Answered(number, arrived));
                self.simulation
                    .send_after(span, process, Process(from.0), MESSAGE_BYTES, what);
            }
            What::Answered(number, arrived) => self.note_answer(process, number, arrived),
            What::EndHeard(site, session) => {
                if let Some(scheduler) = &mut self.sites[at].scheduler {
                    scheduler.handle_end_heard(now.into(), site, session);
                }
            }
            What::Unreachable(site) => {
                self.sites[at].give_up_sends(site);
                self.sites[at].worker.handle_unreachable(site);
            }
            What::Folded(session, stream, index) => {
                self.sites[at].worker.handle_folded(session, stream, index);
            }
            What::Lost(site) => self.note_lost(process, site),
            What::RankGone => self.inherit(process),
            What::SchedulerDue => {
                if let Some(scheduler) = &mut self.sites[at].scheduler {
                    scheduler.handle_timeout(now.into());
                }
            }
            What::Fault(number) => self.strike(self.setting.faults[number].1),
            What::Cancel => self.cancel(process),
            What::Kill(rank) => self.strike(Fault::KillRank(rank)),
            What::Thaw(rank) => {
                self.simulation.thaw(Process(rank));
                self.simulation.thaw(self.copy_kept_by(rank));
            }
            What::Heal(from, to) => self.simulation.heal(Host(from), Host(to)),
            What::Silent(from, to) if self.simulation.is_cut(Host(from), Host(to)) => {
                self.note_silence(from, to);
            }
            What::Silent(..) => {}
        }
    }

    /// A rank makes its calls, and shows its contribution to the host that keeps a copy.
    fn begin_calls(&mut self, process: Process) {
        let site = &mut self.sites[process.0 as usize];
        let calls = match self.setting.calls.are_in_turn {
            true => site.begun..site.begun + 1,
            false => self.open.clone(),
        };
        site.begun = calls.end;
        let held = self.setting.held_by(process.0);
        // One that was fenced before it called is heard by nobody.
        if self.setting.makes_one(process.0) && !self.oracle.is_gone(process.0) {
            let agent = process.0 + self.setting.hosts;
            self.oracle.note_holder(calls.clone(), Member(process.0), agent);
            if let Some(span) = self.setting.copies.filter(|_| self.setting.hosts > 1) {
                let copy = Process(2 * self.setting.hosts + process.0);
                self.simulation.after(span, copy, What::Copied(Member(process.0)));
                if let Some(answer) = self.setting.acknowledged {
                    self.oracle.note_holder(calls, Member(process.0), process.0);
                    self.simulation.after(span + answer, process, What::Acknowledged);
                    return;
                }
            }
        }
        self.hold(process, calls, held);
    }

    /// A site hears from a scheduler.
    fn hear_scheduler(&mut self, process: Process, from: Site, message: FromScheduler, results: Results) {
        let at = process.0 as usize;
        if let FromScheduler::NewTerm(term) = message {
            self.sites[at].seat = from;
            self.announce_copy(process, from, term);
        }
        if let FromScheduler::Ended { session, .. } = message
            && process.0 < self.setting.hosts
            && process.0 != from.0
        {
            let what = What::EndHeard(Site(process.0), session);
            self.send_to_scheduler(process, Process(from.0), MESSAGE_BYTES, what);
        }
        self.sites[at].take_results(results);
        self.sites[at].worker.handle_scheduler(from, message);
    }

    /// A site hears that a chunk of its has arrived at this time of the receiver's clock.
    fn note_answer(&mut self, process: Process, number: u64, arrived: Nanos) {
        let at = process.0 as usize;
        let now = self.simulation.now();
        let site = &mut self.sites[at];
        let Some((chunk, word)) = site.sends.remove(&number) else {
            return;
        };
        // The chunk has to stay in its window until it has arrived. A result that begins anew is another one.
        let is_void = chunk.place == Place::Result && !site.worker.is_needed(&chunk.header);
        let (call, order) = (chunk.header.session.call, self.setting.calls.order);
        if !is_void && site.word(order, call, chunk.place, &chunk.range) != word {
            self.oracle.note_overwritten(process.0);
        }
        site.worker.handle_delivered(chunk.to, &chunk.header);
        let bytes = chunk.range.end - chunk.range.start;
        let rates = site
            .rates
            .handle_ended(now.into(), chunk.to, bytes, arrived.into());
        site.worker.set_sends(site.rates.window());
        if let Some(rates) = rates.filter(|_| self.setting.are_rates_reported) {
            let seat = Process(site.seat.0);
            let what = What::ToScheduler(Site(process.0), ToScheduler::Rates(rates), Results::new());
            self.send_to_scheduler(process, seat, MESSAGE_BYTES, what);
        }
    }

    /// A site contributes originals to calls.
    fn hold(&mut self, process: Process, calls: Range<u64>, members: Vec<Member>) {
        if !self.oracle.is_gone(process.0) {
            for member in &members {
                self.oracle.note_holder(calls.clone(), *member, process.0);
            }
        }
        let originals = members
            .into_iter()
            .map(|member| (member, self.tokens[member.0 as usize]));
        let originals: Vec<_> = originals.collect();
        self.contribute_to(process, calls, &originals);
    }

    fn contribute_to(
        &mut self,
        process: Process,
        calls: impl IntoIterator<Item = u64>,
        originals: &[(Member, Token)],
    ) {
        let worker = &mut self.sites[process.0 as usize].worker;
        for call in calls {
            let session = Session { group: GROUP, call };
            worker.contribute(session, self.setting.call(call), originals.to_vec());
        }
    }

    /// Carries out what a site has to do.
    fn act(&mut self, process: Process) {
        if (process.0 as usize) < self.sites.len() {
            self.act_for_scheduler(process);
            self.act_for_worker(process);
        }
    }

    /// Carries out what the scheduler of a site decided.
    fn act_for_scheduler(&mut self, process: Process) {
        let from = Site(process.0);
        let now = self.simulation.now();
        let site = &mut self.sites[process.0 as usize];
        let Some(scheduler) = &mut site.scheduler else {
            return;
        };
        let mut sent = Vec::new();
        while let Some(action) = scheduler.poll_action() {
            let SchedulerAction::Send(to, message) = action else {
                continue;
            };
            let mut results = Results::new();
            if let FromScheduler::Ended { session, .. } = &message
                && let Some(words) = site.enclosed.get(&session.call)
            {
                results.insert(session.call, words.clone());
            }
            let bytes = MESSAGE_BYTES + row_bytes(&message, &self.setting.calls) + result_bytes(&results);
            sent.push((Process(to.0), bytes, What::FromScheduler(from, message, results)));
        }
        let deadline = scheduler.poll_timeout().map(Nanos::from);
        if let Some(deadline) = deadline.filter(|deadline| site.timer != Some(*deadline)) {
            self.simulation.after(deadline - now, process, What::SchedulerDue);
        }
        site.timer = deadline;
        self.send_from_scheduler(process, sent);
    }

    /// Carries out what the worker of a site decided.
    fn act_for_worker(&mut self, process: Process) {
        let hosts = self.setting.hosts;
        // A copy knows what its keeper knows.
        let knows = match process.0.checked_sub(2 * hosts) {
            Some(owner) => (owner + 1) % hosts,
            None => process.0,
        };
        let from = Site(process.0);
        let now = self.simulation.now();
        self.sites[process.0 as usize].take_early(now);
        while let Some(action) = self.sites[process.0 as usize].worker.poll_action() {
            let is_gone = |site: &Site| self.sites[knows as usize].lost.contains(site);
            let is_lost = matches!(&action, WorkerAction::SendChunk(chunk) if is_gone(&chunk.to));
            let site = &mut self.sites[process.0 as usize];
            match action {
                WorkerAction::Tell(to, mut message) => {
                    let mut bytes = MESSAGE_BYTES;
                    if let ToScheduler::Announce {
                        are_enclosed, call, ..
                    } = &mut message
                        && process.0 < hosts
                        && call.may_be_enclosed(hosts as usize)
                    {
                        *are_enclosed = true;
                        bytes += call.bytes;
                    }
                    let results = site.enclose_results(&mut message, self.setting);
                    bytes += result_bytes(&results);
                    let what = What::ToScheduler(from, message, results);
                    self.send_to_scheduler(process, Process(to.0), bytes, what);
                }
                WorkerAction::Grant { is_known: true, .. } => {}
                WorkerAction::Grant { to, grant, .. } => {
                    self.simulation
                        .send(process, Process(to.0), MESSAGE_BYTES, What::Grant(grant));
                }
                WorkerAction::SendChunk(chunk) if is_lost => {
                    site.worker.handle_undelivered(chunk.to, &chunk.header);
                }
                WorkerAction::SendChunk(chunk) => {
                    let begin = site.begins.get(&chunk.header.session.call);
                    if begin.is_some_and(|begin| chunk.range.start < *begin) {
                        self.oracle.note_not_copied(process.0);
                    }
                    let word = site.word(
                        self.setting.calls.order,
                        chunk.header.session.call,
                        chunk.place,
                        &chunk.range,
                    );
                    let bytes = chunk.range.end - chunk.range.start;
                    site.rates.handle_begun(now.into(), chunk.to, bytes);
                    let what = What::Chunk(from, site.sent, chunk.header, word);
                    self.simulation
                        .send(process, Process(chunk.to.0), bytes + MESSAGE_BYTES, what);
                    site.sends.insert(site.sent, (chunk, word));
                    site.sent += 1;
                }
                WorkerAction::Fold {
                    session,
                    stream,
                    index,
                    range,
                    operands,
                    into,
                } => {
                    site.fold(self.setting.calls.order, session.call, &range, &operands, into);
                    let bytes = (range.end - range.start) * (operands.len() as u64 - 1);
                    let span = Nanos::of_transfer(bytes, self.setting.cluster.fold_rate);
                    let what = What::Folded(session, stream, index);
                    self.simulation.work(span, process, what);
                }
                WorkerAction::Forget(session, windows) => site.forget(session.call, &windows),
                WorkerAction::Finished(session, end) => {
                    if site.ends.is_empty()
                        && site.scheduler.is_some()
                        && let Some(span) = self.setting.killed_after_end
                    {
                        let world = Process(3 * hosts);
                        self.simulation.after(span, world, What::Kill(process.0));
                    }
                    site.ends.entry(session.call).or_insert((now, end));
                    let is_next = session.call + 1 == site.begun && site.begun < self.open.end;
                    if self.setting.calls.are_in_turn && is_next && process.0 < hosts {
                        let delay = self.setting.delay_of(process.0);
                        self.simulation.after(delay, process, What::Call);
                    }
                }
            }
        }
    }
}
