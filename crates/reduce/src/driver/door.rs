//! The door of a job: ranks that have come back knock here, and belong to it again from its next epoch on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, mpsc},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Held, Identity, RegionHandle};
use ropewalk_membership::{Departure, Handover, HandoverAction};
use ropewalk_names::{Epoch, Incarnation, Rank};
use ropewalk_reduce_core::{Recent, SendRates, Site, Term, Worker};
use ropewalk_rpc::{Call, CallOptions, Responder};

use super::{
    carrier::Carrier,
    copies::Copies,
    inherited::Inherited,
    job::Shared,
    outbox::{LOSSES_MAX, Outbox, is_silent},
    peers::Peers,
    procedures::{Admission, Ready},
    progress::ProgressThread,
    reduction::ReduceError,
    roads::Roads,
    roster::Card,
    seat::{Seat, costs},
    table_calls::Legacies,
};
use crate::outcome::ReductionError;

/// Those who knock, and the step to the next epoch.
#[derive(Default)]
pub(super) struct Door {
    knocks: BTreeMap<Rank, (Card, Responder<Admission>)>,
    /// This rank leaves the job, and so do the others.
    is_closed: bool,
    /// Members that are ready for an epoch which this rank has not entered.
    ready: Vec<(Rank, Epoch, Responder<()>)>,
    step: Option<Step>,
    /// The last life of each rank that is known to be over.
    departed: BTreeMap<Rank, Incarnation>,
    /// Memory that agents have inherited during the step: some members may have entered already.
    inherited: Vec<(Rank, Incarnation, Held, RegionHandle)>,
}

/// The step to the next epoch, for which this rank is ready when its calls have ended.
struct Step {
    /// The state of this process in that epoch.
    next: Arc<Shared>,
    /// None as long as calls are under way here.
    handover: Option<Handover>,
    asked: Vec<(Rank, Call<()>)>,
    /// Those who did not answer are asked again then; true for one that was silent.
    unanswered: Vec<(Rank, bool)>,
    retry_at: Option<Instant>,
    /// The members that cannot be reached: since when, and when that was found last.
    unreached: BTreeMap<Rank, (Instant, Instant)>,
    /// Hears when it is done, or why it never will be.
    done: mpsc::Sender<Result<(), ReductionError>>,
}

impl Door {
    /// So long after a member was not reached it is asked again.
    const RETRY: Duration = Duration::from_millis(20);
    /// So often it is looked if the calls under way have ended.
    const LOOK_AGAIN: Duration = Duration::from_millis(2);
    /// A question that is under way for so long has reached its receiver, as far as is known.
    const REACHED: Duration = Duration::from_secs(5);
    /// A member that cannot be asked for so long counts as gone.
    const UNREACHED_MAX: Duration = Duration::from_secs(30);
    /// A member may be stopped for a while; one that is gone is noticed earlier.
    const ANSWER_TIME: Duration = Duration::from_secs(24 * 3600);

    /// When to look again by itself. Calls under way may be ended by their callers, who tell nobody.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let step = self.step.as_ref()?;
        match step.handover {
            Some(_) => step.retry_at,
            None => Some(now + Self::LOOK_AGAIN),
        }
    }

    fn note_departed(&mut self, rank: Rank, incarnation: Incarnation) {
        let known = self.departed.entry(rank).or_insert(incarnation);
        *known = incarnation.max(*known);
    }

    fn handover(&mut self) -> Option<&mut Handover> {
        self.step.as_mut().and_then(|step| step.handover.as_mut())
    }

    fn knows_newer(&self, card: &Card) -> bool {
        let known = self.knocks.get(&card.rank);
        known.is_some_and(|(known, _)| known.incarnation > card.incarnation)
    }

    fn has_departed(&self, card: &Card) -> bool {
        let departed = self.departed.get(&card.rank);
        departed.is_some_and(|departed| *departed >= card.incarnation)
    }
}

impl ProgressThread {
    /// A rank that has come back asks for admission.
    pub(super) fn hear_knock(&mut self, from: Identity, card: Card, responder: Responder<Admission>) {
        let is_its_own = (card.rank, card.incarnation) == (from.rank, from.incarnation);
        let is_rank = card.rank.0 < self.shared.size && card.rank != self.shared.rank;
        if !is_its_own || !is_rank || self.council.is_some() {
            return;
        }
        if self.door.is_closed {
            return responder.answer(Ok(Admission::JobOver));
        }
        if self.door.has_departed(&card) {
            return;
        }
        let roster = &self.shared.roster;
        match roster
            .card(card.rank)
            .map(|known| known.incarnation.cmp(&card.incarnation))
        {
            Some(std::cmp::Ordering::Equal) => {
                responder.answer(Ok(Admission::Admitted(Box::new(roster.clone()))));
            }
            Some(std::cmp::Ordering::Greater) => {}
            _ if self.door.knows_newer(&card) => {}
            _ => {
                self.shared.visitors().insert(card.rank, card.clone());
                self.door.knocks.insert(card.rank, (card, responder));
            }
        }
    }

    /// A member is ready for an epoch.
    pub(super) fn hear_ready(&mut self, from: Identity, epoch: Epoch, responder: Responder<()>) {
        let roster = &self.shared.roster;
        if epoch <= roster.epoch {
            return responder.answer(Ok(()));
        }
        if epoch != roster.epoch.next() || roster.card(from.rank).is_none() {
            return;
        }
        self.door.ready.push((from.rank, epoch, responder));
        if let Some(handover) = self.door.handover() {
            handover.handle_asked(from.rank);
        }
    }

    /// Nobody is admitted any more: this rank leaves, as the others do.
    pub(super) fn close_door(&mut self) {
        self.door.is_closed = true;
        for (_, responder) in std::mem::take(&mut self.door.knocks).into_values() {
            responder.answer(Ok(Admission::JobOver));
        }
    }

    /// The life of a rank is over, says the agent.
    pub(super) fn hear_departure(&mut self, departure: Departure) {
        let Departure {
            rank, incarnation, ..
        } = departure;
        self.door.note_departed(rank, incarnation);
        let is_visitor = |card: &Card| card.incarnation <= incarnation;
        if self.shared.visitors().get(&rank).is_some_and(is_visitor) {
            self.shared.visitors().remove(&rank);
            self.door.knocks.remove(&rank);
        }
        let member = self.shared.roster.card(rank);
        if member.is_none_or(|member| member.incarnation <= incarnation) {
            self.handle_gone(rank);
        }
    }

    /// The agent has inherited memory of a life of a rank.
    pub(super) fn hear_inherited(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        held: Held,
        handle: RegionHandle,
    ) {
        let member = self.shared.roster.card(rank);
        if member.is_some_and(|member| member.incarnation == incarnation) {
            self.inherit(rank, &held, handle.clone());
        }
        if self.door.step.is_some() {
            self.door.inherited.push((rank, incarnation, held, handle));
        }
    }

    /// This rank enters the epoch of `next` when its calls have ended and the others are ready too.
    pub(super) fn begin_step(&mut self, next: Arc<Shared>, done: mpsc::Sender<Result<(), ReductionError>>) {
        if let Some(given_up) = &self.given_up {
            let _ = done.send(Err(given_up.error.clone()));
            return;
        }
        self.door.step = Some(Step {
            next,
            handover: None,
            asked: Vec::new(),
            unanswered: Vec::new(),
            retry_at: None,
            unreached: BTreeMap::new(),
            done,
        });
    }

    /// Nothing goes on here. Whoever waits for the step hears why.
    pub(super) fn end_step(&mut self, error: &ReductionError) {
        if let Some(step) = self.door.step.take() {
            let _ = step.done.send(Err(error.clone()));
        }
    }

    /// The ranks that are needed for the step to go on.
    pub(super) fn awaited_for_step(&mut self) -> BTreeSet<Rank> {
        let handover = self.door.handover();
        handover
            .map(|handover| handover.awaited().collect())
            .unwrap_or_default()
    }

    fn become_ready(&mut self) {
        let step = self.door.step.as_mut();
        let Some(step) = step.filter(|step| step.handover.is_none() && self.running.is_empty()) else {
            return;
        };
        let tables = self.shared.tables.as_ref();
        if tables.is_some_and(|tables| !tables.are_idle()) {
            return;
        }
        let mut handover = Handover::new(self.shared.rank, step.next.roster.stayed());
        self.peers
            .gone
            .iter()
            .for_each(|rank| handover.handle_gone(*rank));
        for (from, epoch, _) in &self.door.ready {
            if *epoch == step.next.roster.epoch {
                handover.handle_asked(*from);
            }
        }
        step.handover = Some(handover);
    }

    /// Another member is gone.
    pub(super) fn step_without(&mut self, rank: Rank) {
        if let Some(handover) = self.door.handover() {
            handover.handle_gone(rank);
        }
    }

    /// Goes on with the step to the next epoch, and says if it is done now: mail may have waited for that.
    pub(super) fn go_on_with_step(&mut self) -> bool {
        self.become_ready();
        let Some(step) = &mut self.door.step else {
            return false;
        };
        let Some(handover) = &mut step.handover else {
            return false;
        };
        let epoch = step.next.roster.epoch;
        let now = Instant::now();
        let unanswered = &mut step.unanswered;
        step.asked.retain_mut(|(rank, call)| match call.try_take() {
            None => true,
            Some(Ok(())) => {
                handover.handle_answered();
                false
            }
            Some(Err(error)) => {
                unanswered.push((*rank, is_silent(&error)));
                false
            }
        });
        let mut lost = Vec::new();
        if step.retry_at.is_none_or(|at| at <= now) {
            step.retry_at = None;
            for (rank, is_silent) in std::mem::take(unanswered) {
                let (since, last) = step.unreached.entry(rank).or_insert((now, now));
                if !is_silent && now - *last > Door::REACHED {
                    *since = now;
                }
                *last = now;
                if now - *since > Door::UNREACHED_MAX {
                    lost.push(rank);
                }
                handover.handle_unanswered(rank);
            }
        }
        let mut has_entered = false;
        while let Some(action) = handover.poll() {
            match action {
                HandoverAction::Ask(rank) => {
                    let options = CallOptions {
                        retries: LOSSES_MAX,
                        ..CallOptions::new(Door::ANSWER_TIME)
                    };
                    let address = self.peers.addresses[rank.index()].as_ref();
                    let call = address.map(|address| self.engine.call::<Ready>(address, &epoch, options));
                    match call {
                        Some(Ok(call)) => step.asked.push((rank, call)),
                        Some(Err(_)) | None => step.unanswered.push((rank, false)),
                    }
                }
                HandoverAction::Enter => has_entered = true,
            }
        }
        if !step.unanswered.is_empty() && step.retry_at.is_none() {
            step.retry_at = Some(now + Door::RETRY);
        }
        if has_entered && let Some(step) = self.door.step.take() {
            self.enter(step);
            return true;
        }
        lost.into_iter().for_each(|rank| self.count_as_gone(rank));
        false
    }

    /// Begins anew with the members of another epoch. Nobody needs anything of the one before.
    fn begin_epoch(&mut self, next: Arc<Shared>) {
        self.watch(BTreeSet::new());
        for rank in (0..next.size).map(Rank) {
            self.outbox.abandon(&mut self.engine, rank);
        }
        self.copies.forget_all(&mut self.engine);
        self.releases.let_go_of_all();
        self.give_back();
        // Calls of groups of the epoch before are refused. Of those that came too late nobody hears.
        self.shared.close();
        for (_, mut running) in std::mem::take(&mut self.running) {
            self.release(running.take_hold());
            self.returns.end(running.completion, Err(ReduceError::JobEnded));
        }
        self.names.clear();
        self.withdrawn.clear();
        let roster = &next.roster;
        self.worker = worker_of(&next);
        self.carry_counters();
        self.rates = SendRates::new(Site(next.rank.0));
        self.seat = seat_of(&next);
        self.peers = Peers::new(roster);
        self.inherited = Inherited::default();
        self.copies = Copies::new(roster.hosts.clone(), roster.epoch);
        let relays = roster.relays();
        self.carrier = Carrier::new(&relays, next.rank);
        self.outbox = Outbox::new(roster.epoch, self.engine.identity(), relays);
        self.roads = Roads::new(self.engine.identity(), roster.hosts.clone());
        self.arrivals.begin_epoch();
        self.ended = Recent::new(Worker::ENDED_MAX);
        self.legacies = Legacies::default();
        self.shared = next;
    }

    /// From now on this rank is in the next epoch: nobody needs anything of the one before.
    fn enter(&mut self, step: Step) {
        let Step { next, done, .. } = step;
        self.begin_epoch(next);
        let epoch = self.shared.roster.epoch;
        for (rank, incarnation, held, handle) in std::mem::take(&mut self.door.inherited) {
            self.hear_inherited(rank, incarnation, held, handle);
        }
        let members = self.shared.roster.members();
        let departed = members.iter().filter(|card| self.door.has_departed(card));
        let gone: Vec<Rank> = departed.map(|card| card.rank).collect();
        for rank in self.shared.roster.lost().into_iter().chain(gone) {
            self.handle_gone(rank);
        }
        for (_, _, responder) in self
            .door
            .ready
            .extract_if(.., |(_, ready_for, _)| *ready_for <= epoch)
        {
            responder.answer(Ok(()));
        }
        for (card, responder) in std::mem::take(&mut self.door.knocks).into_values() {
            let from = Identity {
                rank: card.rank,
                incarnation: card.incarnation,
                ..self.engine.identity()
            };
            self.hear_knock(from, card, responder);
        }
        // Whoever waits is told if the process ends here.
        let _ = done.send(Ok(()));
    }
}

/// The worker of a process as an epoch begins.
pub(super) fn worker_of(shared: &Shared) -> Worker {
    Worker::new(Site(shared.rank.0), Site(shared.roster.seat().0), Term(0))
}

/// The scheduler, if its seat is here as an epoch begins.
pub(super) fn seat_of(shared: &Shared) -> Option<Seat> {
    let roster = &shared.roster;
    (shared.rank == roster.seat())
        .then(|| Seat::new(shared.rank, &roster.hosts, costs(roster.members()), roster.epoch))
}

impl Shared {
    /// The ranks that have come back, as far as this one has heard.
    pub(super) fn visitors(&self) -> std::sync::MutexGuard<'_, BTreeMap<Rank, Card>> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
