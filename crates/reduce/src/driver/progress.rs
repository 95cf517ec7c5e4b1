//! The thread that drives a rank's machines.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{AgentLink, SpanKind};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{
    Failure, FromScheduler, GiveUp, Place, Recent, SendRates, Session, Site, StreamId, ToScheduler, Worker,
    WorkerAction,
};
use ropewalk_rpc::Engine;

use super::{
    account::{Account, encoded_bytes},
    arrivals::Arrivals,
    carrier::Carrier,
    copies::{Copies, WayToSeat},
    council::Council,
    door::{Door, seat_of, worker_of},
    ending::{GivenUp, Releases, Returns},
    inherited::Inherited,
    job::{Shared, Wish},
    outbox::Outbox,
    peers::{Peers, Sign},
    roads::Roads,
    seat::{Seat, SeatAction},
    session::{Begin, Running},
    sites::{Kind, Sites},
    table_calls::{Legacies, Tables},
    trace::now_ns,
    turns::{Idle, Machines, Turn, sleep},
};
use crate::{
    ids::ReductionNumber,
    message::{Circumstances, Introduction, ToSeat, ToSite},
    operation::FoldError,
    outcome::ReductionError,
    signature::cut,
};

/// Drives a rank's worker, the scheduler if its seat is here, and the engine below them.
pub(super) struct ProgressThread {
    pub(super) shared: Arc<Shared>,
    /// The link to the agent, until that is gone.
    pub(super) link: Option<Arc<AgentLink>>,
    pub(super) engine: Engine,
    pub(super) origin: Instant,
    pub(super) worker: Worker,
    pub(super) rates: SendRates,
    pub(super) account: Account,
    pub(super) seat: Option<Seat>,
    pub(super) peers: Peers,
    /// Decides who belongs to the job, if no agent says so.
    pub(super) council: Option<Council>,
    pub(super) inherited: Inherited,
    pub(super) copies: Copies,
    pub(super) sites: Sites,
    pub(super) outbox: Outbox,
    pub(super) roads: Roads,
    pub(super) carrier: Carrier,
    /// Who has come back, and the step to the next epoch.
    pub(super) door: Door,
    pub(super) running: BTreeMap<Session, Running>,
    /// Those of them whose contributions the agent has no room for yet.
    pub(super) waiting_for_agent: VecDeque<Session>,
    pub(super) arrivals: Arrivals,
    pub(super) releases: Releases,
    /// The circumstances of the ends that were told here, for late calls.
    pub(super) ended: Recent<Circumstances>,
    /// The identifiers that were used.
    pub(super) names: BTreeSet<Session>,
    /// The reductions to which this rank could not contribute.
    pub(super) withdrawn: BTreeMap<Session, Introduction>,
    pub(super) given_up: Option<GivenUp>,
    pub(super) legacies: Legacies,
    /// The last that goes: by then nobody reads memory that was lent.
    pub(super) returns: Returns,
}

impl ProgressThread {
    pub(super) fn new(shared: Arc<Shared>, engine: Engine, arrivals: Arrivals) -> Self {
        let rank = shared.rank;
        let roster = &shared.roster;
        let relays = roster.relays();
        let mut progress = Self {
            link: shared.link.clone(),
            origin: Instant::now(),
            worker: worker_of(&shared),
            rates: SendRates::new(Site(rank.0)),
            account: Account::new(),
            seat: seat_of(&shared),
            peers: Peers::new(roster),
            council: (shared.link.is_none() && shared.size > 1).then(|| Council::new(rank, shared.size)),
            inherited: Inherited::default(),
            copies: Copies::new(roster.hosts.clone(), roster.epoch),
            sites: Sites::new(shared.size),
            carrier: Carrier::new(&relays, rank),
            outbox: Outbox::new(roster.epoch, engine.identity(), relays),
            roads: Roads::new(engine.identity(), roster.hosts.clone()),
            door: Door::default(),
            engine,
            running: BTreeMap::new(),
            waiting_for_agent: VecDeque::new(),
            arrivals,
            releases: Releases::default(),
            ended: Recent::new(Worker::ENDED_MAX),
            names: BTreeSet::new(),
            withdrawn: BTreeMap::new(),
            given_up: None,
            legacies: Legacies::default(),
            returns: Returns::default(),
            shared,
        };
        for lost in progress.shared.roster.lost() {
            progress.handle_gone(lost);
        }
        progress
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn fulfil(&mut self, wish: Wish) {
        match wish {
            Wish::Begin(begin) => self.begin(*begin),
            Wish::Cancel => self.hasten_cancelled(),
            Wish::Release(hold, bytes) => self.release(Some((Some(hold), bytes))),
            Wish::Leave(done) => match &mut self.council {
                Some(council) => council.leave(done),
                None => drop(done),
            },
            Wish::CloseDoor => self.close_door(),
            Wish::Enter { next, done } => self.begin_step(next, done),
            Wish::Withdraw {
                session,
                member,
                members,
                message,
            } => {
                let introduction = Introduction {
                    session,
                    members,
                    signature: None,
                };
                self.withdrawn.insert(session, introduction);
                while self.withdrawn.len() > Worker::ENDED_MAX {
                    self.withdrawn.pop_first();
                }
                self.worker.give_up(session, member, GiveUp::Withdrawn(message));
            }
        }
    }

    pub(super) fn begin(&mut self, mut begin: Begin) {
        let id = begin.id;
        let session = id.session();
        let is_named = matches!(id.number, ReductionNumber::Named(_));
        if is_named && !self.names.insert(session) {
            let error = ReductionError::IdReused { reduction: id };
            self.release(begin.originals.take_hold());
            return self.returns.end(begin.completion, Err(error.into()));
        }
        while self.names.len() > NAMES_MAX {
            self.names.pop_first();
        }
        let mut running = Running::new(begin, Instant::now());
        running.heed_cancel();
        if let Some(given_up) = &self.given_up {
            let error = given_up.error.clone();
            self.release(running.take_hold());
            return self.returns.end(running.completion, Err(error.into()));
        }
        self.running.insert(session, running);
        if !self.protect_and_announce(session) {
            self.waiting_for_agent.push_back(session);
        }
    }

    pub(super) fn announce(&mut self, session: Session) {
        if let Some(running) = self.running.get_mut(&session)
            && let Some(call) = running.take_call()
        {
            let originals = running.originals();
            self.worker.contribute(session, call, originals);
        }
    }

    /// Goes on with copies on other hosts.
    fn see_to_copies(&mut self) {
        let seat = match (&self.seat, &self.peers.addresses[self.peers.seat.index()]) {
            (Some(seat), _) => WayToSeat::Here(seat),
            (None, Some(address)) => WayToSeat::To(address),
            (None, None) => WayToSeat::None,
        };
        for copy in self.copies.pull(&mut self.engine, seat) {
            self.tell_seat(self.peers.seat, ToSeat::Copy(copy));
        }
        self.copies
            .confirm(|session, owner| self.outbox.lines.is_telling_of(session, owner));
        let own = self.shared.rank;
        let settled = self.copies.ask(&mut self.engine, own, &self.peers.addresses);
        for settled in settled.into_iter().filter(|settled| settled.owner == own) {
            if let Some(running) = self.running.get(&settled.session) {
                running.completion.settle(settled.exposure);
            }
            if settled.exposure.is_none() {
                self.tell_seat(self.peers.seat, ToSeat::Unprotected(settled.session));
            }
            self.announce(settled.session);
        }
    }

    pub(super) fn hear_seat(&mut self, from: Rank, message: ToSite) {
        let ToSite {
            message,
            circumstances,
            copies,
            given,
        } = message;
        if let FromScheduler::Row(row) = &message
            && let Some(running) = self.running.get_mut(&row.session)
        {
            running.take_given(given);
        }
        if let FromScheduler::Ended { session, .. } = &message
            && let Some(result) = &circumstances.result
            && let Some(running) = self.running.get_mut(session)
        {
            running.take_result(result);
        }
        for (keeper, copy) in copies {
            if let Some(site) = self.sites.of_told_copy(keeper, copy.owner) {
                self.inherited.insert_copy(site, copy);
            }
        }
        if let FromScheduler::NewTerm(_) = &message {
            // A new scheduler decides when all ranks have answered: this has to come before.
            for copy in self.copies.kept() {
                self.tell_seat(from, ToSeat::Copy(copy));
            }
            for session in self.copies.unprotected(self.shared.rank) {
                self.tell_seat(from, ToSeat::Unprotected(session));
            }
            self.tell_all_digests(from);
        }
        if let FromScheduler::Ended { session, .. } = &message {
            if let Some(tables) = &self.shared.tables {
                tables.world.hear_end(*session);
            }
            self.copies.forget(&mut self.engine, *session);
            self.ended.insert(*session, circumstances);
        }
        let ended = match &message {
            FromScheduler::Ended { session, .. } => Some(*session),
            _ => None,
        };
        self.worker.handle_scheduler(Site(from.0), message);
        if let Some(session) = ended {
            // A call that waits for its copies, or for the agent, has ended too.
            self.announce(session);
        }
    }

    fn handle_time(&mut self) {
        let now = self.now();
        if let Some(seat) = &mut self.seat
            && seat.poll_timeout().is_some_and(|deadline| deadline <= now)
        {
            seat.handle_timeout(now);
        }
        let now = Instant::now();
        let due = self
            .running
            .iter()
            .filter(|(_, running)| running.deadline.is_some_and(|at| at <= now));
        for session in due.map(|(&session, _)| session).collect::<Vec<_>>() {
            self.run_out_of_time(session, now);
        }
        self.tell_that_given_up(now);
    }

    /// Does what the machines want done. Returns false if there is more to do, after others had their turn.
    fn act(&mut self) -> bool {
        for _ in 0..ACTIONS_AT_ONCE {
            if let Some(action) = self.worker.poll_action() {
                self.take_action(action);
                continue;
            }
            match self.seat.as_mut().and_then(Seat::poll) {
                Some(SeatAction::Send(to, message)) => self.pass_on(to, *message),
                Some(SeatAction::LetGo(session)) => self.releases.let_go(session),
                None => return true,
            }
        }
        false
    }

    /// A message of the scheduler here. Nobody is at the sites of contributions that were left; who keeps a copy hears
    /// when it is not needed any more.
    fn pass_on(&mut self, to: Site, message: ToSite) {
        let rank = match (self.sites.kind(to), &message.message) {
            (Kind::Rank(rank), _) => rank,
            (Kind::Copy { keeper, .. }, FromScheduler::Ended { .. }) => keeper,
            (Kind::Copy { .. } | Kind::Left(_), _) => return,
        };
        if rank == self.shared.rank {
            if matches!(message.message, FromScheduler::Ended { .. }) {
                // Others are told first, so that they know if this process dies now.
                self.send();
            }
            return self.hear_seat(rank, message);
        }
        if let Some(seat) = &mut self.seat {
            seat.note_sent(encoded_bytes(&message));
        }
        self.outbox.lines.tell_site(rank, message);
    }

    /// A message for the scheduler, which may be here.
    pub(super) fn tell_seat(&mut self, seat: Rank, mail: ToSeat) {
        let now = self.now();
        match &mut self.seat {
            Some(own) if seat == self.shared.rank => own.handle(now, self.shared.rank, mail),
            _ => self.outbox.lines.tell_seat(seat, mail),
        }
    }

    fn take_action(&mut self, action: WorkerAction) {
        match action {
            WorkerAction::Tell(seat, mut message) => {
                let introductions = self.introductions(&message);
                let enclosed = self.enclose(&mut message);
                self.tell_seat(
                    Rank(seat.0),
                    ToSeat::Worker {
                        introductions,
                        message,
                        enclosed,
                    },
                );
            }
            WorkerAction::Grant {
                to,
                parent,
                grant,
                is_known,
            } => match self.sites.kind(to) {
                Kind::Rank(_) if is_known => {}
                Kind::Rank(rank) => self.outbox.lines.grant(rank, grant),
                Kind::Left(_) | Kind::Copy { .. } => self.grant_to_inherited(to, parent, grant),
            },
            WorkerAction::SendChunk(chunk) => {
                let running = self.running.get_mut(&chunk.header.session);
                let taken = running.map(|running| running.take(chunk.place, chunk.range));
                self.tell_digests(chunk.header.session);
                match taken {
                    Some(Ok(bytes)) => {
                        let now = self.now();
                        self.rates.handle_begun(now, chunk.to, bytes.len() as u64);
                        self.outbox.send_chunk(Rank(chunk.to.0), chunk.header, bytes);
                    }
                    Some(Err(error)) => {
                        self.worker.handle_undelivered(chunk.to, &chunk.header);
                        let failure = self.failure(&error);
                        self.worker.handle_failure(chunk.header.session, failure);
                    }
                    None => self.worker.handle_undelivered(chunk.to, &chunk.header),
                }
            }
            WorkerAction::Fold {
                session,
                stream,
                index,
                range,
                operands,
                into,
            } => self.fold(session, stream, index, &range, &operands, into),
            WorkerAction::Forget(session, windows) => {
                if let Some(running) = self.running.get_mut(&session) {
                    running.forget(&windows);
                }
            }
            WorkerAction::Finished(session, end) => self.finish(session, end),
        }
    }

    /// The reductions of which a message speaks, as this rank has called them.
    fn introductions(&self, message: &ToScheduler) -> Vec<Introduction> {
        let of = |session: &Session| {
            let running = self.running.get(session);
            let running = running.map(|running| running.introduction.clone());
            running.or_else(|| self.withdrawn.get(session).cloned())
        };
        match message {
            ToScheduler::Announce { session, .. } | ToScheduler::GiveUp { session, .. } => {
                of(session).into_iter().collect()
            }
            ToScheduler::Standing { sessions, .. } => sessions
                .iter()
                .filter_map(|standing| of(&standing.session))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn fold(
        &mut self,
        session: Session,
        stream: StreamId,
        index: u32,
        range: &std::ops::Range<u64>,
        operands: &[Place],
        into: Place,
    ) {
        let Some(running) = self.running.get_mut(&session) else {
            return self.worker.handle_folded(session, stream, index);
        };
        let start_ns = now_ns();
        let folded = running.fold(operands, into, range);
        let progress = (into == Place::Result).then(|| running.progress()).flatten();
        let number = running.id.number;
        self.tell_digests(session);
        match folded {
            Ok(()) => self.worker.handle_folded(session, stream, index),
            Err(error) => {
                let failure = self.failure(&error);
                self.worker.handle_fold_failed(session, failure);
            }
        }
        let tracer = &self.shared.tracer;
        tracer.detail(SpanKind::Merge, start_ns, || format!("bytes {range:?}"));
        if let Some((done, total)) = progress.filter(|_| tracer.is_detailed()) {
            tracer.progress(&number.to_string(), done, total);
        }
    }

    fn failure(&self, error: &FoldError) -> Failure {
        let site = Site(self.shared.rank.0);
        let why = cut(error.to_string(), ReductionError::MESSAGE_LENGTH_MAX);
        match error {
            FoldError::Source(_) => Failure::Source { site, why },
            _ => Failure::Operation { site, why },
        }
    }

    fn send(&mut self) {
        for (rank, chunk) in self.outbox.drop_late(|chunk| self.worker.is_needed(chunk)) {
            self.worker.handle_undelivered(Site(rank.0), &chunk);
        }
        let addresses = &self.peers.addresses;
        for (rank, chunk) in self.outbox.send(&mut self.engine, addresses, &mut self.roads) {
            self.worker.handle_undelivered(Site(rank.0), &chunk);
            self.rates.forget(Site(rank.0));
            self.suspect(rank, Sign::Broken);
        }
        self.give_back();
    }

    /// Goes on with what this rank carries for others.
    fn carry(&mut self) {
        let now = self.now();
        let epoch = self.shared.roster.epoch;
        self.carrier
            .carry(&mut self.engine, now, epoch, &self.peers.addresses);
    }

    /// The time until there is something to do; `None` if there is now.
    fn idle(&mut self) -> Option<Idle> {
        let now = Instant::now();
        let seat = self.seat.as_ref().and_then(Seat::poll_timeout);
        let seat = seat.and_then(|deadline| self.origin.checked_add(deadline));
        let is_unsent =
            !self.outbox.is_empty(&self.roads) || self.council.as_ref().is_some_and(Council::has_unsent);
        let is_unsent = is_unsent || !self.waiting_for_agent.is_empty() || self.releases.are_due();
        let unsent = is_unsent.then(|| now + UNSENT_RETRY);
        let overdue = self.running.values().filter_map(|running| running.deadline).min();
        let deadlines = [
            seat,
            unsent,
            self.peers.next_deadline(),
            self.roads.next_deadline(),
            self.carrier.next_deadline(self.origin, now + UNSENT_RETRY),
            self.council_deadline(),
            self.door.next_deadline(now),
            overdue,
            self.shared.tables.as_ref().and_then(Tables::next_deadline),
            self.returns.next_deadline(),
            self.copies.next_deadline(),
            self.account.next_deadline(now),
            self.given_up.as_ref().and_then(|given_up| given_up.tell_at),
            self.engine.next_deadline(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        // The engine may have said that it is ready now, which is later than when this began.
        let now = Instant::now();
        let until = deadline.map_or(now + SLEEP_MAX, |at| at.min(now + SLEEP_MAX));
        let is_idle = until > now && !self.inherited.has_ready() && !self.has_due_chunks();
        is_idle.then_some(Idle {
            until,
            has_agent: self.link.is_some(),
        })
    }
}

impl Machines for ProgressThread {
    fn turn(&mut self) -> Turn {
        // This takes the wish to be woken, so that everything one may be woken for has to be looked at after it.
        self.engine.progress();
        let Some(wishes) = self.shared.take_wishes() else {
            return Turn::Over;
        };
        // What others have left in the table has to be known before anything of its calls is heard.
        self.see_to_table_calls();
        wishes.into_iter().for_each(|wish| self.fulfil(wish));
        // Mail that was answered is heard, also if its sender is gone by now.
        self.receive_mail();
        self.receive_from_agent();
        self.receive_reads();
        self.receive_answers();
        self.roads.see_to_forwarded();
        self.carry();
        self.notice_lost_peers();
        self.watch_peers();
        self.confer();
        let has_entered = self.go_on_with_step();
        self.handle_time();
        self.see_to_waiting_for_agent();
        self.see_to_copies();
        self.take_early_chunks();
        let is_done = self.act() && !self.give_up_broken_lines() && !has_entered;
        self.send();
        if self.returns.take_told() {
            self.shared.turns.tell();
        }
        self.tell_counters();
        if is_done {
            self.engine.send_queued();
        }
        let idle = is_done.then(|| self.idle()).flatten();
        idle.map_or(Turn::Again, Turn::Idle)
    }

    fn sleep(&self, idle: Idle) {
        sleep(idle, &[self.engine.as_fd()], self.link.as_deref());
    }

    fn rest(&self) {
        self.shared.rest();
    }

    fn are_at_work(&self) -> bool {
        !self.running.is_empty()
    }

    /// The others may have to hear of an error with which this rank leaves, unless all leave.
    fn say_farewell(mut self) {
        let end = Instant::now() + FAREWELL_TIME;
        while !self.shared.all_have_left() {
            self.act();
            self.send();
            if !self.outbox.lines.has_unsent() || Instant::now() > end {
                break;
            }
            // What was sent before has to be answered.
            self.engine.wait(UNSENT_RETRY);
            self.receive_answers();
        }
        self.releases.let_go_of_all();
        self.give_back();
        self.tell_last_counters();
        self.engine.flush(FAREWELL_TIME);
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        // Also after a panic: whoever waits or is about to must be told that nothing will come.
        self.shared.close();
    }
}

/// So much is done before messages are looked for again.
const ACTIONS_AT_ONCE: usize = 8;
/// So many identifiers are remembered, to refuse them when they are used again.
const NAMES_MAX: usize = 1 << 16;
/// When to offer again what was not taken.
const UNSENT_RETRY: Duration = Duration::from_millis(5);
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How long a rank that leaves tries to hand its last messages to the system.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
