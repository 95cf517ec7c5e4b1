//! Streaming reductions in virtual time: the workers and [`Scheduler`]s of `ropewalk-reduce-core` on simulated
//! hosts.
//!
//! Each host runs one rank and one agent, which inherits the rank's original when the rank is lost. A rank may keep a
//! copy of the original of the host before. Chunks are
//! words that stand for their bytes: links are busy as long as the bytes would take, and the words show any
//! contribution that is missing, doubled or folded in the wrong order.

use std::time::Duration;

use ropewalk_reduce_core::{
    Call, Costs, End, FromScheduler, Member, Scheduler, SchedulerAction, Session, Site, Term, ToScheduler,
    Token, WorkerAction,
    canary::{Canary, is_put_back},
};

use self::{
    site::SiteState,
    what::{What, row_bytes},
};
use crate::{Dice, Host, Nanos, Network, Process, Simulation};

mod oracle;
mod setting;
mod site;
mod what;

pub use self::{
    oracle::Violation,
    setting::{Fault, Made, Setting, Shared, Slow},
};

/// A finished simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the root's call ended; when the last one did, if the root's never did.
    pub time: Nanos,
    /// The end as the living ranks were told it.
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

const SESSION: Session = Session { group: 1, call: 0 };
/// Virtual time after which a job hangs.
const TIME_MAX: Nanos = Nanos::from_millis(600_000);
const MESSAGE_BYTES: u64 = 100;

/// Runs a job to its end.
///
/// # Errors
/// If a promise is broken: a wrong result, a hang, or a verdict that the faults do not explain.
pub fn run(setting: &Setting) -> Result<Outcome, Violation> {
    Job::new(setting).run()
}

/// Something that happens to a process.
struct Job<'a> {
    setting: &'a Setting,
    simulation: Simulation<What>,
    sites: Vec<SiteState>,
    call: Call,
    tokens: Vec<Token>,
    oracle: oracle::Oracle,
    to_scheduler: u64,
    from_scheduler: u64,
}

impl<'a> Job<'a> {
    fn new(setting: &'a Setting) -> Self {
        let mut network = Network::uniform(setting.hosts + 1, setting.rate, setting.latency);
        for slow in &setting.slow {
            network.set_rate_out(Host(slow.host), setting.rate * slow.outwards);
            network.set_rate_in(Host(slow.host), setting.rate * slow.inwards);
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
        let members = setting.shared.map_or(setting.hosts, |shared| shared.members);
        let tokens: Vec<Token> = (0..members).map(token).collect();
        for rank in 0..setting.hosts {
            let late = setting.late.iter().find(|(late, _)| *late == rank);
            simulation.after(late.map_or(Nanos::ZERO, |(_, at)| *at), Process(rank), What::Call);
        }
        for (number, (at, _)) in setting.faults.iter().enumerate() {
            simulation.after(*at, Process(3 * setting.hosts), What::Fault(number));
        }
        let mut job = Self {
            setting,
            simulation,
            sites: (0..3 * setting.hosts)
                .map(|site| SiteState::new(Site(site)))
                .collect(),
            call: Call {
                bytes: setting.bytes,
                element_bytes: 1,
                contributions: setting.contributions(),
                root: Member(setting.root),
                is_spread: setting.is_spread,
                order: setting.order,
                operation: 7,
                on_loss: setting.on_loss,
                on_root_loss: setting.on_root_loss,
            },
            tokens,
            oracle: oracle::Oracle::new(setting),
            to_scheduler: 0,
            from_scheduler: 0,
        };
        job.sites[0].scheduler = Some(job.scheduler(Site(0)));
        if setting.shared.is_some() {
            for rank in 0..setting.hosts {
                let held = setting.held_by(rank);
                held.into_iter()
                    .for_each(|member| job.oracle.note_holder(member, rank));
            }
        }
        job
    }

    fn scheduler(&self, site: Site) -> Scheduler {
        let setting = self.setting;
        let costs = Costs {
            latency: setting.latency.as_seconds(),
            per_chunk: 5e-6,
            rate: setting.rate,
        };
        let mut scheduler = Scheduler::new(site, costs, Duration::from(setting.patience));
        scheduler.add_group(SESSION.group, (0..setting.hosts).map(Site).collect());
        let host_of = |site: u32| match site / setting.hosts {
            0 | 1 => site % setting.hosts,
            _ => (site + 1) % setting.hosts,
        };
        let sites = 0..3 * setting.hosts;
        scheduler.set_hosts(sites.map(|site| (Site(site), u64::from(host_of(site)))));
        for site in setting.hosts..3 * setting.hosts {
            scheduler.set_capacity(Site(site), 0.0);
        }
        for slow in setting.slow.iter().filter(|slow| slow.is_known) {
            let folding = setting.fold_rate * slow.folding / setting.rate;
            scheduler.set_capacity(Site(slow.host), slow.inwards.min(folding).min(1.0));
        }
        scheduler
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        while !self.is_over() {
            let Some(event) = self.simulation.next().filter(|event| event.at < TIME_MAX) else {
                return Err(Violation::Hang {
                    ranks: self.waiting().collect(),
                });
            };
            self.handle(event.process, event.what);
            self.act(event.process);
        }
        let end = self.oracle.judge(&self.sites)?;
        let root = match end {
            Some(End::Done { root, .. }) => root.0,
            _ => self.setting.root,
        };
        let ends = || self.sites.iter().filter_map(|site| site.end.as_ref());
        let time = self.sites[root as usize].end.as_ref().map(|(at, _)| *at);
        Ok(Outcome {
            time: time
                .or_else(|| ends().map(|(at, _)| *at).max())
                .unwrap_or_default(),
            end,
            messages_to_scheduler: self.to_scheduler,
            messages_from_scheduler: self.from_scheduler,
            events: self.simulation.events(),
            digest: self.simulation.digest(),
        })
    }

    fn is_over(&self) -> bool {
        self.waiting().next().is_none()
    }

    /// The ranks that live, were not given up, and whose calls have not ended.
    fn waiting(&self) -> impl Iterator<Item = u32> {
        (0..self.setting.hosts)
            .filter(|&rank| self.sites[rank as usize].end.is_none() && !self.oracle.is_gone(rank))
    }

    fn handle(&mut self, process: Process, what: What) {
        let now = self.simulation.now();
        let at = process.0 as usize;
        match what {
            What::Call => {
                self.sites[at].has_called = true;
                let held = self.setting.held_by(process.0);
                // One that was fenced before it called is heard by nobody.
                if self.setting.makes_one(process.0) && !self.oracle.is_gone(process.0) {
                    let agent = process.0 + self.setting.hosts;
                    self.oracle.note_holder(Member(process.0), agent);
                    if let Some(span) = self.setting.copies.filter(|_| self.setting.hosts > 1) {
                        let copy = Process(2 * self.setting.hosts + process.0);
                        self.simulation.after(span, copy, What::Copied(Member(process.0)));
                        if let Some(answer) = self.setting.acknowledged {
                            self.oracle.note_holder(Member(process.0), process.0);
                            self.simulation.after(span + answer, process, What::Acknowledged);
                            return;
                        }
                    }
                }
                self.hold(process, held);
            }
            // If the keeper is lost, another one would be asked: that takes longer, and is left out.
            What::Acknowledged => self.hold(process, vec![Member(process.0)]),
            What::Copied(member) => {
                // The contributor has to be there to be copied.
                let keeper = (member.0 + 1) % self.setting.hosts;
                if !self.oracle.is_gone(member.0) && self.sites[keeper as usize].end.is_none() {
                    self.hold(process, vec![member]);
                }
            }
            What::ToScheduler(from, message, result) => {
                if result.is_some() {
                    self.sites[at].enclosed = result;
                }
                if let Some(scheduler) = &mut self.sites[at].scheduler {
                    self.to_scheduler += 1;
                    scheduler.handle_message(now.into(), from, message);
                }
            }
            // A receiver refuses a fenced process, as its connections do.
            What::FromScheduler(from, message, result)
                if !self.sites[at].lost.contains(&from) || is_put_back(Canary::OldTermFollowed) =>
            {
                if let FromScheduler::NewTerm(term) = message {
                    self.sites[at].seat = from;
                    self.announce_copy(process, from, term);
                }
                if let Some(result) = result {
                    self.sites[at].take_result(result);
                }
                self.sites[at].worker.handle_scheduler(from, message);
            }
            What::FromScheduler(..) => {}
            What::Grant(grant) => self.sites[at].worker.handle_grant(grant),
            What::Chunk(from, number, chunk, word) => {
                self.sites[at].take(&chunk, word);
                // Each clock began at another time.
                let arrived = now + Nanos::from_millis(u64::from(process.0) * 1000);
                let (span, what) = (self.setting.completion, What::Answered(number, arrived));
                self.simulation
                    .send_after(span, process, Process(from.0), MESSAGE_BYTES, what);
            }
            What::Answered(number, arrived) => {
                let site = &mut self.sites[at];
                if let Some((chunk, word)) = site.sends.remove(&number) {
                    // The chunk has to stay in its window until it has arrived.
                    if site.word(self.call.order, chunk.place, &chunk.range) != word {
                        self.oracle.note_overwritten(process.0);
                    }
                    site.worker.handle_delivered(chunk.to, &chunk.header);
                    let bytes = chunk.range.end - chunk.range.start;
                    let rates = site
                        .rates
                        .handle_ended(now.into(), chunk.to, bytes, arrived.into());
                    site.worker.set_sends(site.rates.window());
                    if let Some(rates) = rates {
                        let seat = Process(site.seat.0);
                        let what = What::ToScheduler(Site(process.0), ToScheduler::Rates(rates), None);
                        self.simulation.send(process, seat, MESSAGE_BYTES, what);
                    }
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

    /// A rank follows a new scheduler, and first tells it of the copy that it keeps.
    fn announce_copy(&mut self, keeper: Process, seat: Site, term: Term) {
        let copy = self.copy_kept_by(keeper.0);
        let worker = &mut self.sites[copy.0 as usize].worker;
        worker.handle_scheduler(seat, FromScheduler::NewTerm(term));
        while let Some(action) = worker.poll_action() {
            let WorkerAction::Tell(_, ToScheduler::Standing { sessions, .. }) = action else {
                continue;
            };
            for standing in sessions.into_iter().filter(|standing| standing.end.is_none()) {
                let message = ToScheduler::Announce {
                    session: standing.session,
                    call: standing.call,
                    originals: standing.originals,
                    are_enclosed: false,
                };
                let what = What::ToScheduler(Site(copy.0), message, None);
                self.simulation.send(copy, Process(seat.0), MESSAGE_BYTES, what);
            }
        }
    }

    /// The copy that a rank keeps, if any was made.
    fn copy_kept_by(&self, rank: u32) -> Process {
        let hosts = self.setting.hosts;
        Process(2 * hosts + (rank + hosts - 1) % hosts)
    }

    /// A site contributes originals.
    fn hold(&mut self, process: Process, members: Vec<Member>) {
        if !self.oracle.is_gone(process.0) {
            for member in &members {
                self.oracle.note_holder(*member, process.0);
            }
        }
        let originals = members
            .into_iter()
            .map(|member| (member, self.tokens[member.0 as usize]));
        let originals = originals.collect();
        let worker = &mut self.sites[process.0 as usize].worker;
        worker.contribute(SESSION, self.call.clone(), originals);
    }

    /// Carries out what a site has to do.
    fn act(&mut self, process: Process) {
        let hosts = self.setting.hosts;
        // A copy knows what its keeper knows.
        let knows = match process.0.checked_sub(2 * hosts) {
            Some(owner) => (owner + 1) % hosts,
            None => process.0,
        };
        let lost = self.sites[knows as usize].lost.clone();
        let Some(site) = self.sites.get_mut(process.0 as usize) else {
            return;
        };
        let from = Site(process.0);
        let now = self.simulation.now();
        if let Some(scheduler) = &mut site.scheduler {
            while let Some(SchedulerAction::Send(to, message)) = scheduler.poll_action() {
                self.from_scheduler += 1;
                let bytes = MESSAGE_BYTES + row_bytes(&message, self.call.bytes);
                let is_end = matches!(message, FromScheduler::Ended { .. });
                let result = site.enclosed.clone().filter(|_| is_end);
                self.simulation.send(
                    process,
                    Process(to.0),
                    bytes,
                    What::FromScheduler(from, message, result),
                );
            }
            let deadline = scheduler.poll_timeout().map(Nanos::from);
            if let Some(deadline) = deadline.filter(|deadline| site.timer != Some(*deadline)) {
                self.simulation.after(deadline - now, process, What::SchedulerDue);
            }
            site.timer = deadline;
        }
        while let Some(action) = site.worker.poll_action() {
            match action {
                WorkerAction::Tell(to, mut message) => {
                    let mut bytes = MESSAGE_BYTES;
                    if let ToScheduler::Announce { are_enclosed, .. } = &mut message
                        && process.0 < hosts
                        && self.call.may_be_enclosed(hosts as usize)
                    {
                        *are_enclosed = true;
                        bytes += self.call.bytes;
                    }
                    let result = site.enclose_result(&mut message, &self.call, hosts);
                    let what = What::ToScheduler(from, message, result);
                    self.simulation.send(process, Process(to.0), bytes, what);
                }
                WorkerAction::Grant { to, grant, .. } => {
                    self.simulation
                        .send(process, Process(to.0), MESSAGE_BYTES, What::Grant(grant));
                }
                WorkerAction::SendChunk(chunk) if lost.contains(&chunk.to) => {
                    site.worker.handle_undelivered(chunk.to, &chunk.header);
                }
                WorkerAction::SendChunk(chunk) => {
                    let word = site.word(self.setting.order, chunk.place, &chunk.range);
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
                    site.fold(self.setting.order, &range, &operands, into);
                    let slow = self.setting.slow.iter().find(|slow| slow.host == process.0);
                    let rate = self.setting.fold_rate * slow.map_or(1.0, |slow| slow.folding);
                    let bytes = (range.end - range.start) * (operands.len() as u64 - 1);
                    site.fold_ends = site.fold_ends.max(now) + Nanos::of_transfer(bytes, rate);
                    let what = What::Folded(session, stream, index);
                    self.simulation.after(site.fold_ends - now, process, what);
                }
                WorkerAction::Finished(_, end) => {
                    site.end.get_or_insert((now, end));
                }
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let setting = self.setting;
        match fault {
            Fault::KillRank(rank) => {
                self.simulation.kill(Process(rank));
                self.simulation.kill(self.copy_kept_by(rank));
                self.give_up_rank(rank);
            }
            Fault::KillHost(host) => {
                for site in [host, host + setting.hosts, self.copy_kept_by(host).0] {
                    self.simulation.kill(Process(site));
                    self.oracle.note_gone(site);
                    let span = Nanos(20 * setting.detection.0);
                    // That its copy is gone follows from the rank's loss.
                    let others = (0..2 * setting.hosts).filter(|other| other % setting.hosts != host);
                    for other in others.filter(|_| site < 2 * setting.hosts) {
                        self.simulation
                            .after(span, Process(other), What::Lost(Site(site)));
                    }
                }
            }
            Fault::Freeze(rank, span) => {
                self.simulation.freeze(Process(rank));
                self.simulation.freeze(self.copy_kept_by(rank));
                let world = Process(3 * setting.hosts);
                self.simulation.after(span, world, What::Thaw(rank));
                if span > Nanos(20 * setting.detection.0) {
                    self.give_up_rank(rank);
                }
            }
            Fault::Cut(from, to, span) => {
                self.simulation.cut(Host(from), Host(to));
                let world = Process(3 * setting.hosts);
                self.simulation.after(span, world, What::Heal(from, to));
                if span > setting.link_timeout && from != to {
                    let what = What::Silent(from, to);
                    self.simulation.after(setting.link_timeout, world, what);
                }
            }
        }
    }

    /// The sites of two hosts do not reach each other. Their messages go through a third host that both reach, if
    /// there is one.
    fn note_silence(&mut self, from: u32, to: u32) {
        let ends = (Host(from), Host(to));
        let simulation = &self.simulation;
        let is_between = |third: &Host| {
            let ways = [
                (ends.0, *third),
                (*third, ends.1),
                (ends.1, *third),
                (*third, ends.0),
            ];
            *third != ends.0
                && *third != ends.1
                && simulation.runs(Process(third.0))
                && ways.iter().all(|(one, other)| !simulation.is_cut(*one, *other))
        };
        if (0..self.setting.hosts).map(Host).any(|third| is_between(&third)) {
            self.simulation.let_pass(ends.0, ends.1, What::may_be_forwarded);
        }
        for (site, other) in self.setting.pairs(from, to) {
            let what = What::Unreachable(Site(other));
            self.simulation.after(Nanos::ZERO, Process(site), what);
        }
        let world = Process(3 * self.setting.hosts);
        self.simulation
            .after(self.setting.link_timeout, world, What::Silent(from, to));
    }

    /// The agent of a rank sees that the rank is gone, or fences it.
    fn give_up_rank(&mut self, rank: u32) {
        if self.oracle.is_gone(rank) {
            return;
        }
        self.oracle.note_gone(rank);
        self.oracle.note_gone(self.copy_kept_by(rank).0);
        let agent = Process(rank + self.setting.hosts);
        self.simulation
            .after(self.setting.detection, agent, What::RankGone);
    }

    /// An agent inherits the original, and only then tells everybody that the rank is lost.
    fn inherit(&mut self, agent: Process) {
        let rank = agent.0 - self.setting.hosts;
        if is_put_back(Canary::DepartureFirst) {
            self.tell_all(agent, rank);
        }
        if self.sites[rank as usize].has_called && self.setting.makes_one(rank) {
            let original = (Member(rank), self.tokens[rank as usize]);
            let site = &mut self.sites[agent.0 as usize];
            site.worker.contribute(SESSION, self.call.clone(), vec![original]);
            while let Some(WorkerAction::Tell(to, message)) = site.worker.poll_action() {
                let what = What::ToScheduler(Site(agent.0), message, None);
                self.simulation.send(agent, Process(to.0), MESSAGE_BYTES, what);
            }
        }
        if !is_put_back(Canary::DepartureFirst) {
            self.tell_all(agent, rank);
        }
    }

    fn tell_all(&mut self, agent: Process, rank: u32) {
        for other in (0..2 * self.setting.hosts).filter(|other| *other != rank) {
            self.simulation
                .send(agent, Process(other), MESSAGE_BYTES, What::Lost(Site(rank)));
        }
    }

    /// A site learns of a loss. If it is the lowest rank that is left, it takes over.
    fn note_lost(&mut self, process: Process, lost: Site) {
        let hosts = self.setting.hosts;
        let at = process.0 as usize;
        let now = Duration::from(self.simulation.now());
        // A copy is lost with the rank that keeps it.
        let copy = (lost.0 < hosts).then(|| Site(self.copy_kept_by(lost.0).0));
        for site in copy.into_iter().chain([lost]) {
            self.sites[at].lost.insert(site);
            self.sites[at].give_up_sends(site);
            if process.0 < hosts {
                let kept = self.copy_kept_by(process.0);
                self.sites[kept.0 as usize].give_up_sends(site);
                self.act(kept);
            }
            if let Some(scheduler) = &mut self.sites[at].scheduler {
                scheduler.handle_lost(now, site);
            }
        }
        if self.sites[at].scheduler.is_some() {
            return;
        }
        if process.0 < hosts && (0..process.0).all(|lower| self.sites[at].lost.contains(&Site(lower))) {
            let mut scheduler = self.scheduler(Site(process.0));
            let known = &self.sites[at].lost;
            for site in known {
                scheduler.handle_lost(now, *site);
            }
            let living = (0..2 * hosts).map(Site).filter(|site| !known.contains(site));
            let scheduler = scheduler.take_over(living.collect::<Vec<_>>());
            self.sites[at].scheduler = Some(scheduler);
        }
    }
}
