//! Agreement on views by a majority, where no launcher says who is gone.

mod message;
mod stop;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ropewalk_names::Rank;

pub use self::{
    message::{AgreementMessage, Ballot, Word},
    stop::Stop,
};
use crate::{
    View,
    canary::{Canary, is_put_back},
};

/// The times of an [`Agreement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreementTimes {
    /// An attempt that has brought no view by then is followed by another. It should be several times the time of
    /// a message and its answer.
    pub retry: Duration,
    /// A member that reaches no majority stops itself after this time. Until then it may hear that it is fenced.
    pub grace: Duration,
    /// A member stops itself if it suspects others and this time brings neither a view nor a further suspicion.
    pub patience: Duration,
}

/// One member's part in agreeing on the views of a job: a chain in which each view is chosen by a majority of the one
/// before it.
///
/// Each link of the chain is a consensus of its own among the members of the last view (L. Lamport, "Paxos made
/// simple", 2001): a proposer needs the promises of a majority, must propose what it hears was accepted before, and a
/// proposal that a majority accepts is decided. Exactly half of the members count as a majority if the lowest one is
/// among them. A member that is left out, or finds no majority in time, stops itself.
///
/// Suspicions are final: tell [`handle_suspected`](Self::handle_suspected) of peers whose connection is lost for good
/// or that were silent for the detection time. After each call of a `handle_*`, take what is to be done with
/// [`poll_action`](Self::poll_action) until there is nothing left, and call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout). Messages may be lost, doubled and
/// reordered.
#[derive(Clone, Debug)]
pub struct Agreement {
    own: Rank,
    times: AgreementTimes,
    view: View,
    /// The members that cannot be reached, and who says so of each.
    suspects: BTreeMap<Rank, Rank>,
    /// The newest attempt that this member takes part in.
    promised: Ballot,
    /// The newest proposal that it accepted.
    accepted: Option<(Ballot, View)>,
    attempt: Option<Attempt>,
    /// Attempts of this member for the next view.
    attempts: u32,
    /// The members that have not said that they know the view, if this member decided it, and how often they are told
    /// again.
    unaware: BTreeSet<Rank>,
    repeats_left: u32,
    retry_at: Option<Duration>,
    stop_at: Option<Duration>,
    has_stopped: bool,
    actions: VecDeque<AgreementAction>,
}

/// An attempt of this member to have the next view decided.
#[derive(Clone, Debug)]
struct Attempt {
    ballot: Ballot,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Who has promised, and what was accepted in the newest attempt that they know.
    Preparing {
        promises: BTreeSet<Rank>,
        newest: Option<(Ballot, View)>,
    },
    /// Who has accepted the proposal.
    Proposing {
        next: View,
        accepts: BTreeSet<Rank>,
        promised: u32,
    },
}

/// An effect that an [`Agreement`] wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgreementAction {
    /// Send this to a rank.
    Send(Rank, AgreementMessage),
    /// A view is decided, with this member in it.
    Adopt {
        /// The view.
        view: View,
        /// The ranks that departed since the last view that this member knew, ascending.
        departed: Vec<Rank>,
    },
    /// This member has to stop: there will be no further action.
    Stop(Stop),
}

impl Agreement {
    /// How often members are told of a view that they do not say they know.
    const REPEATS_MAX: u32 = 5;
    /// Attempts after which the time between them does not grow any more.
    const DOUBLINGS_MAX: u32 = 3;
    /// Members wait for each other by their places in the view; from this place on no longer.
    const PLACES_MAX: u32 = 16;

    /// The part of `own` in a job of `size` ranks that all live.
    pub fn new(own: Rank, size: u32, times: AgreementTimes) -> Self {
        Self {
            own,
            times,
            view: View::first(size),
            suspects: BTreeMap::new(),
            promised: Ballot::default(),
            accepted: None,
            attempt: None,
            attempts: 0,
            unaware: BTreeSet::new(),
            repeats_left: 0,
            retry_at: None,
            stop_at: None,
            has_stopped: false,
            actions: VecDeque::new(),
        }
    }

    /// The newest view that this member knows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Says if no member is suspected.
    pub fn is_settled(&self) -> bool {
        self.suspects.is_empty()
    }

    /// Says if a member is suspected, by this member or another.
    pub fn suspects(&self, rank: Rank) -> bool {
        self.suspects.contains_key(&rank)
    }

    /// A member cannot be reached any more.
    pub fn handle_suspected(&mut self, now: Duration, rank: Rank) {
        self.suspect(now, self.own, [rank]);
    }

    /// A message of another rank.
    pub fn handle_message(&mut self, now: Duration, from: Rank, message: AgreementMessage) {
        let AgreementMessage { view, word } = message;
        if self.has_stopped || from == self.own || view.size() != self.view.size() || view.is_empty() {
            return;
        }
        if view.epoch().counter > self.view.epoch().counter {
            self.adopt(now, view);
            if self.has_stopped {
                return;
            }
        } else if view.epoch().counter < self.view.epoch().counter {
            return self.send(from, Word::Decided);
        }
        if !self.view.contains(from) {
            // Whoever departed hears so.
            return self.send(from, Word::Decided);
        }
        match word {
            // Of two that suspect each other only the first is believed.
            Word::Suspects(ranks) if !self.suspects.contains_key(&from) => self.suspect(now, from, ranks),
            Word::Suspects(_) => {}
            Word::Prepare(ballot) => self.promise(from, ballot),
            Word::Promise { ballot, accepted } => self.take_promise(now, from, ballot, accepted),
            Word::Refuse(ballot) => self.promised = self.promised.max(ballot),
            Word::Propose { ballot, next } => self.accept(from, ballot, next),
            Word::Accept(ballot) => self.take_accept(now, from, ballot),
            Word::Decided => self.send(from, Word::Known),
            Word::Known => drop(self.unaware.remove(&from)),
        }
    }

    /// The next time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.retry_at.into_iter().chain(self.stop_at).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.stop_at.is_some_and(|at| at <= now) {
            return self.give_up();
        }
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        if !self.suspects.is_empty() {
            return self.begin_attempt(now);
        }
        if self.repeats_left > 0 && !self.unaware.is_empty() {
            self.repeats_left -= 1;
            self.retry_at = Some(now + self.times.retry);
            for rank in self.unaware.clone() {
                self.send(rank, Word::Decided);
            }
        }
    }

    /// The next effect to bring about.
    pub fn poll_action(&mut self) -> Option<AgreementAction> {
        self.actions.pop_front()
    }

    fn send(&mut self, to: Rank, word: Word) {
        let view = self.view.clone();
        self.actions
            .push_back(AgreementAction::Send(to, AgreementMessage { view, word }));
    }

    fn reached(&self) -> impl Iterator<Item = Rank> {
        self.view
            .members()
            .filter(|rank| !self.suspects.contains_key(rank))
    }

    fn suspect(&mut self, now: Duration, accuser: Rank, ranks: impl IntoIterator<Item = Rank>) {
        let before = self.suspects.len();
        for rank in ranks {
            if rank == self.own || !self.view.contains(rank) {
                continue;
            }
            let known = self.suspects.entry(rank).or_insert(accuser);
            if accuser == self.own {
                *known = accuser;
            }
        }
        if !self.has_stopped && self.suspects.len() > before {
            self.campaign(now);
        }
    }

    /// Sees to it that a view without the suspects is proposed: by the lowest member that is reached.
    fn campaign(&mut self, now: Duration) {
        let is_majority = self.view.is_majority(self.reached());
        self.stop_at = Some(
            now + match is_majority {
                true => self.times.patience,
                false => self.times.grace,
            },
        );
        if self.attempt.is_some() {
            // It takes the new suspects with it, or is followed by another.
            return;
        }
        let coordinator = self.reached().next().unwrap_or(self.own);
        if coordinator == self.own || !is_majority {
            return self.begin_attempt(now);
        }
        self.send(
            coordinator,
            Word::Suspects(self.suspects.keys().copied().collect()),
        );
        self.retry_at = Some(now + self.pause());
    }

    /// The time until the next attempt: members take turns, and longer ones from attempt to attempt.
    fn pause(&self) -> Duration {
        let before = self.view.members().take_while(|rank| *rank < self.own).count();
        let place = (before as u32).min(Self::PLACES_MAX);
        let pause = self.times.retry + self.times.retry * place / 4;
        pause * (1 << self.attempts.min(Self::DOUBLINGS_MAX))
    }

    fn begin_attempt(&mut self, now: Duration) {
        let ballot = Ballot {
            round: self.promised.round.saturating_add(1),
            proposer: self.own,
        };
        self.retry_at = Some(now + self.pause());
        self.attempts = self.attempts.saturating_add(1);
        self.promised = ballot;
        self.attempt = Some(Attempt {
            ballot,
            phase: Phase::Preparing {
                promises: BTreeSet::new(),
                newest: None,
            },
        });
        // Also to suspects: one that lives may know a newer view.
        for rank in self.others() {
            self.send(rank, Word::Prepare(ballot));
        }
        let accepted = self.accepted.clone();
        self.take_promise(now, self.own, ballot, accepted);
    }

    fn others(&self) -> Vec<Rank> {
        self.view.members().filter(|rank| *rank != self.own).collect()
    }

    fn promise(&mut self, from: Rank, ballot: Ballot) {
        if ballot < self.promised {
            return self.send(from, Word::Refuse(self.promised));
        }
        self.promised = ballot;
        let accepted = self.accepted.clone();
        self.send(from, Word::Promise { ballot, accepted });
    }

    fn take_promise(&mut self, now: Duration, from: Rank, ballot: Ballot, accepted: Option<(Ballot, View)>) {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else {
            return;
        };
        let Phase::Preparing { promises, newest } = &mut attempt.phase else {
            return;
        };
        promises.insert(from);
        let is_newer = |(ballot, _): &(Ballot, View)| newest.as_ref().is_none_or(|(known, _)| ballot > known);
        if let Some(accepted) = accepted.filter(is_newer) {
            *newest = Some(accepted);
        }
        if !self.view.is_majority(promises.iter().copied()) {
            return;
        }
        let next = match newest {
            Some((_, next)) if !is_put_back(Canary::AcceptedForgotten) => next.clone(),
            _ => self.view.without(self.suspects.keys(), self.own),
        };
        if !self.view.may_precede(&next) {
            // A minority proposes nothing.
            return;
        }
        attempt.phase = Phase::Proposing {
            next: next.clone(),
            accepts: BTreeSet::new(),
            promised: promises.len() as u32,
        };
        for rank in self.others() {
            let next = next.clone();
            self.send(rank, Word::Propose { ballot, next });
        }
        // Another attempt may have been promised in the meantime.
        if self.promised <= ballot {
            self.accepted = Some((ballot, next));
            self.take_accept(now, self.own, ballot);
        }
    }

    fn accept(&mut self, from: Rank, ballot: Ballot, next: View) {
        if ballot < self.promised && !is_put_back(Canary::PromiseBroken) {
            return self.send(from, Word::Refuse(self.promised));
        }
        if self.view.may_precede(&next) {
            self.promised = ballot;
            self.accepted = Some((ballot, next));
            self.send(from, Word::Accept(ballot));
        }
    }

    fn take_accept(&mut self, now: Duration, from: Rank, ballot: Ballot) {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else {
            return;
        };
        let Phase::Proposing { next, accepts, .. } = &mut attempt.phase else {
            return;
        };
        accepts.insert(from);
        if !self.view.is_majority(accepts.iter().copied()) {
            return;
        }
        let next = next.clone();
        // Those that are left out hear it too, if they can.
        let others = self.others();
        self.adopt(now, next);
        if self.has_stopped {
            return;
        }
        for rank in others {
            self.send(rank, Word::Decided);
        }
        self.unaware = self.others().into_iter().collect();
        self.repeats_left = Self::REPEATS_MAX;
        let _ = self.retry_at.get_or_insert(now + self.times.retry);
    }

    /// A newer view is decided.
    fn adopt(&mut self, now: Duration, next: View) {
        let before = std::mem::replace(&mut self.view, next);
        if !self.view.contains(self.own) {
            let (rank, epoch) = (self.own, self.view.epoch());
            return self.stop(Stop::Fenced { rank, epoch });
        }
        let departed = self.view.departed().filter(|rank| before.contains(**rank));
        let departed = departed.copied().collect();
        let view = self.view.clone();
        self.actions.push_back(AgreementAction::Adopt { view, departed });
        let view = &self.view;
        // The word of a member that is left out itself counts no more.
        self.suspects
            .retain(|rank, accuser| view.contains(*rank) && view.contains(*accuser));
        self.promised = Ballot::default();
        self.accepted = None;
        self.attempt = None;
        self.attempts = 0;
        self.unaware.clear();
        (self.retry_at, self.stop_at) = (None, None);
        if !self.suspects.is_empty() {
            self.campaign(now);
        }
    }

    /// Too long nothing was decided.
    fn give_up(&mut self) {
        let (rank, members) = (self.own, self.view.len() as u32);
        let reached = self.reached().count() as u32;
        let lost = self.suspects.keys().copied().collect();
        let stop = match self.view.is_majority(self.reached()) {
            false => Stop::Minority {
                rank,
                reached,
                members,
                lost,
            },
            true => Stop::NoAgreement {
                rank,
                promised: match self.attempt.as_ref().map(|attempt| &attempt.phase) {
                    None => 0,
                    Some(Phase::Preparing { promises, .. }) => promises.len() as u32,
                    Some(Phase::Proposing { promised, .. }) => *promised,
                },
                members,
                lost,
            },
        };
        self.stop(stop);
    }

    fn stop(&mut self, stop: Stop) {
        self.has_stopped = true;
        (self.retry_at, self.stop_at) = (None, None);
        self.actions.push_back(AgreementAction::Stop(stop));
    }
}
