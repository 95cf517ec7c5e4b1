//! The ranks of a job that no launcher of ours runs: who belongs to it is agreed on by a majority, over the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, Identity, Role};
use ropewalk_membership::{Agreement, AgreementAction, AgreementMessage, AgreementTimes, Stop};
use ropewalk_names::{Incarnation, Rank};
use ropewalk_rpc::{Call, CallOptions, Engine};

use super::{
    outbox::is_busy,
    procedures::{TellMember, ToMember},
    progress::ProgressThread,
};
use crate::outcome::ReductionError;

/// This rank's part in deciding who belongs to the job, and when all leave it.
pub(super) struct Council {
    own: Rank,
    agreement: Agreement,
    waiting: Waiting,
    calls: Vec<Call<()>>,
    /// Ranks whose connection broke, and the question if another one can be made.
    probes: BTreeMap<Rank, Call<()>>,
    /// The ranks that want to leave.
    leavers: BTreeSet<Rank>,
    leaving: Leaving,
}

/// The messages that the engine did not take yet, in the order of each receiver.
#[derive(Default)]
struct Waiting(BTreeMap<Rank, Vec<ToMember>>);

/// This rank's way out of the job.
enum Leaving {
    Stays,
    /// It wants to leave, and has told this rank so.
    Asks {
        done: mpsc::Sender<()>,
        told: Option<Rank>,
    },
    /// All want to leave; some may have to be told still.
    Goes {
        done: mpsc::Sender<()>,
    },
    Gone,
}

impl Council {
    pub(super) fn new(own: Rank, size: u32) -> Self {
        Self {
            own,
            agreement: Agreement::new(own, size, TIMES),
            waiting: Waiting::default(),
            calls: Vec::new(),
            probes: BTreeMap::new(),
            leavers: BTreeSet::new(),
            leaving: Leaving::Stays,
        }
    }

    pub(super) fn leave(&mut self, done: mpsc::Sender<()>) {
        self.leaving = Leaving::Asks { done, told: None };
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.agreement.poll_timeout()
    }

    /// Says if messages wait that the engine did not take yet.
    pub(super) fn has_unsent(&self) -> bool {
        !self.waiting.0.is_empty()
    }

    /// The ranks that this one waits for to leave.
    pub(super) fn awaited(&self) -> BTreeSet<Rank> {
        if !matches!(self.leaving, Leaving::Asks { .. }) {
            return BTreeSet::new();
        }
        let mut members = self.agreement.view().members();
        match members.next() {
            Some(lowest) if lowest == self.own => {
                members.filter(|rank| !self.leavers.contains(rank)).collect()
            }
            lowest => lowest.into_iter().collect(),
        }
    }

    /// Says if a rank cannot be reached, or is being asked if it can.
    pub(super) fn doubts(&self, rank: Rank) -> bool {
        self.probes.contains_key(&rank) || self.agreement.suspects(rank)
    }

    /// A rank cannot be reached any more.
    pub(super) fn suspect(&mut self, now: Duration, rank: Rank) {
        self.probes.remove(&rank);
        if !matches!(self.leaving, Leaving::Gone) {
            self.agreement.handle_suspected(now, rank);
        }
    }

    /// The connection with a rank broke. Asks if another one can be made.
    fn probe(&mut self, engine: &mut Engine, now: Duration, rank: Rank, address: &Address) {
        if self.doubts(rank) {
            return;
        }
        let options = CallOptions {
            retries: PROBES_MAX,
            ..CallOptions::new(PROBE_TIMEOUT)
        };
        match engine.call::<TellMember>(address, &vec![ToMember::Probe], options) {
            Ok(call) => drop(self.probes.insert(rank, call)),
            Err(_) => self.suspect(now, rank),
        }
    }

    /// Takes the answers to the questions if ranks can be reached.
    fn collect_probes(&mut self, now: Duration) {
        let answers = self.probes.iter_mut();
        let answers = answers.filter_map(|(rank, call)| Some((*rank, call.try_take()?.is_ok())));
        for (rank, is_reached) in answers.collect::<Vec<_>>() {
            self.probes.remove(&rank);
            if !is_reached {
                self.suspect(now, rank);
            }
        }
    }

    fn hear(&mut self, now: Duration, from: Rank, message: ToMember) {
        match message {
            ToMember::Agreement(message) => self.agreement.handle_message(now, from, *message),
            ToMember::Leaves => drop(self.leavers.insert(from)),
            ToMember::MayLeave => {
                if let Leaving::Asks { done, .. } = std::mem::replace(&mut self.leaving, Leaving::Gone) {
                    // Nobody waits any more if that took too long.
                    let _ = done.send(());
                }
            }
            ToMember::Probe => {}
        }
    }

    /// Goes on with leaving: the lowest member waits for all, and tells them that they may go.
    fn see_to_leaving(&mut self) {
        let lowest = self.agreement.view().members().next().unwrap_or(self.own);
        match &mut self.leaving {
            Leaving::Asks { told, .. } if lowest != self.own => {
                if told.replace(lowest) != Some(lowest) {
                    self.waiting.put(lowest, ToMember::Leaves);
                }
            }
            Leaving::Asks { done, .. } => {
                let done = done.clone();
                let members = self.agreement.view().members();
                let others: Vec<Rank> = members.filter(|rank| *rank != self.own).collect();
                if others.iter().all(|rank| self.leavers.contains(rank)) {
                    for rank in others {
                        self.waiting.put(rank, ToMember::MayLeave);
                    }
                    self.leaving = Leaving::Goes { done };
                }
            }
            Leaving::Goes { done } if self.waiting.0.is_empty() && self.calls.is_empty() => {
                let _ = done.send(());
                self.leaving = Leaving::Gone;
            }
            Leaving::Goes { .. } | Leaving::Gone | Leaving::Stays => {}
        }
    }

    /// Hands to the engine as much as it takes.
    fn send(&mut self, engine: &mut Engine, addresses: &[Option<Address>]) {
        self.calls.retain_mut(|call| call.try_take().is_none());
        let options = CallOptions {
            retries: PROBES_MAX,
            ..CallOptions::new(PROBE_TIMEOUT)
        };
        self.waiting.0.retain(|to, messages| {
            // Whoever departed is refused a connection, and learns so that it is fenced.
            let Some(address) = addresses.get(to.index()).and_then(Option::as_ref) else {
                return false;
            };
            match engine.call::<TellMember>(address, messages, options) {
                Ok(call) => self.calls.push(call),
                Err(error) if is_busy(&error) => return true,
                // The agreement repeats what is lost.
                Err(_) => {}
            }
            false
        });
    }
}

impl Waiting {
    /// How many messages of the agreement may wait for one rank: more than an attempt sends to it. A word of leaving
    /// waits at most once for each rank besides.
    const AGREEMENT_MAX: usize = 8;

    /// Lets a message wait. The oldest message of the agreement makes room if need be: messages of the agreement may be
    /// lost, and the agreement repeats what still counts.
    fn put(&mut self, to: Rank, message: ToMember) {
        let messages = self.0.entry(to).or_default();
        if matches!(message, ToMember::Agreement(_)) {
            let is_agreement = |one: &ToMember| matches!(one, ToMember::Agreement(_));
            let count = messages.iter().filter(|one| is_agreement(one)).count();
            if count >= Self::AGREEMENT_MAX
                && let Some(oldest) = messages.iter().position(is_agreement)
            {
                messages.remove(oldest);
            }
        }
        messages.push(message);
    }
}

impl ProgressThread {
    /// The connection with a rank broke, and may be mended.
    pub(super) fn probe(&mut self, rank: Rank) {
        let now = self.now();
        if let Some(council) = &mut self.council
            && let Some(address) = &self.peers.addresses[rank.index()]
        {
            council.probe(&mut self.engine, now, rank, address);
        }
    }

    /// Messages of another rank.
    pub(super) fn hear_member(&mut self, from: Rank, messages: Vec<ToMember>) {
        let now = self.now();
        if let Some(council) = &mut self.council {
            messages
                .into_iter()
                .for_each(|message| council.hear(now, from, message));
        }
    }

    /// Goes on with agreeing on who belongs to the job.
    pub(super) fn confer(&mut self) {
        let now = self.now();
        let Some(council) = &mut self.council else { return };
        council.collect_probes(now);
        if council.agreement.poll_timeout().is_some_and(|at| at <= now) {
            council.agreement.handle_timeout(now);
        }
        while let Some(action) = self
            .council
            .as_mut()
            .and_then(|council| council.agreement.poll_action())
        {
            match action {
                AgreementAction::Send(to, message) => self.post(to, message),
                AgreementAction::Adopt { departed, .. } => {
                    departed.into_iter().for_each(|rank| self.handle_departed(rank));
                }
                AgreementAction::Stop(stop) => self.stop_for(stop),
            }
        }
        let has_given_up = self.has_given_up();
        let Some(council) = &mut self.council else { return };
        match &council.leaving {
            // The others do not wait for this rank, or will not for long.
            Leaving::Asks { done, .. } | Leaving::Goes { done } if has_given_up => {
                let _ = done.send(());
                council.leaving = Leaving::Gone;
            }
            _ => council.see_to_leaving(),
        }
        council.send(&mut self.engine, &self.peers.addresses);
    }

    fn post(&mut self, to: Rank, message: AgreementMessage) {
        if let Some(council) = &mut self.council {
            let message = ToMember::Agreement(Box::new(message));
            council.waiting.put(to, message);
        }
    }

    fn handle_departed(&mut self, rank: Rank) {
        if let Some(council) = &mut self.council {
            council.probes.remove(&rank);
        }
        self.engine.fence(Identity {
            role: Role::Rank,
            rank,
            incarnation: Incarnation(0),
        });
        self.handle_gone(rank);
    }

    fn stop_for(&mut self, stop: Stop) {
        let error = match stop {
            Stop::Fenced { rank, .. } => ReductionError::Fenced {
                rank,
                incarnation: Incarnation(0),
            },
            Stop::Minority {
                rank,
                reached,
                members,
                lost,
            } => ReductionError::Minority {
                rank,
                reached,
                members,
                lost,
            },
            // The reasons are few, and a further one would be a majority that is not found either.
            stop => ReductionError::NoMajority {
                rank: self.shared.rank,
                why: stop.to_string(),
            },
        };
        self.give_up(&error);
    }

    /// The time at which the agreement has to be gone on with.
    pub(super) fn council_deadline(&self) -> Option<Instant> {
        let deadline = self.council.as_ref().and_then(Council::next_deadline)?;
        self.origin.checked_add(deadline)
    }
}

const TIMES: AgreementTimes = AgreementTimes {
    retry: Duration::from_millis(500),
    grace: Duration::from_secs(2),
    patience: Duration::from_secs(15),
};
/// So often it is tried to connect anew with a rank whose connection broke: for about half a second.
const PROBES_MAX: u32 = 9;
/// So long a rank may take to answer such a question; one that is stopped is silent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use ropewalk_membership::{View, Word};

    use super::*;

    /// Of a hundred messages of the agreement the newest wait, and a word of leaving stays before them. Other ranks
    /// keep what waits for them.
    #[test]
    fn the_newest_messages_wait() {
        let message = |size| {
            let view = View::first(size);
            let word = Word::Decided;
            ToMember::Agreement(Box::new(AgreementMessage { view, word }))
        };
        let mut waiting = Waiting::default();
        waiting.put(Rank(2), message(1));
        waiting.put(Rank(1), ToMember::Leaves);
        for size in 1..=100 {
            waiting.put(Rank(1), message(size));
        }
        let sizes = waiting.0[&Rank(1)].iter().map(|message| match message {
            ToMember::Agreement(message) => Some(message.view.size()),
            _ => None,
        });
        assert!(sizes.eq([None].into_iter().chain((93..=100).map(Some))));
        assert_eq!(waiting.0[&Rank(2)].len(), 1);
    }
}
