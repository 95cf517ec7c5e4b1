//! This rank as a relay between the ranks of its group and the scheduler.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ropewalk_fabric::Address;
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{Gathering, Relays, Site};
use ropewalk_rpc::{Call, CallOptions, Engine, Fault, Responder};

use super::{
    outbox::{LOSSES_MAX, is_busy},
    procedures::{Forward, TellTogether},
};
use crate::message::Forwarded;

/// Letters that this rank carries. Their senders keep them until they are answered, and send them without it if need
/// be.
pub(super) struct Carrier {
    gathering: Gathering<Carried>,
    /// Those that go on together, to the scheduler.
    waiting: VecDeque<(Rank, Vec<Carried>)>,
    gathered: Vec<(Call<()>, Vec<Responder<()>>)>,
    spreads: Vec<Spread>,
}

/// Letters of a rank, and who answers it.
type Carried = (Forwarded, Responder<()>);

/// Letters of the scheduler for ranks of the group.
struct Spread {
    letters: VecDeque<Forwarded>,
    calls: Vec<(Rank, Call<()>)>,
    missed: Vec<Rank>,
    /// From then on nobody waits for those that have not answered.
    due: Instant,
    responder: Responder<Vec<Rank>>,
}

impl Carrier {
    pub(super) fn new(relays: &Relays, own: Rank) -> Self {
        Self {
            gathering: Gathering::new(relays, Site(own.0)),
            waiting: VecDeque::new(),
            gathered: Vec::new(),
            spreads: Vec::new(),
        }
    }

    /// Letters of a rank for the scheduler wait for those of the others.
    pub(super) fn collect(&mut self, now: Duration, letters: Forwarded, responder: Responder<()>) {
        let (from, to) = (Site(letters.from.rank.0), Site(letters.to.0));
        self.gathering.take(now, from, to, (letters, responder));
    }

    /// Letters of the scheduler go to their ranks.
    pub(super) fn spread(&mut self, letters: Vec<Forwarded>, responder: Responder<Vec<Rank>>) {
        self.spreads.push(Spread {
            letters: letters.into(),
            calls: Vec::new(),
            missed: Vec::new(),
            due: Instant::now() + SPREAD_PATIENCE,
            responder,
        });
    }

    /// A rank is gone: its letters are not waited for.
    pub(super) fn handle_gone(&mut self, rank: Rank) {
        self.gathering.handle_lost(Site(rank.0));
    }

    /// Sends on what goes on now, and answers for what has got to its receivers.
    pub(super) fn carry(
        &mut self,
        engine: &mut Engine,
        now: Duration,
        epoch: Epoch,
        addresses: &[Option<Address>],
    ) {
        while let Some((to, together)) = self.gathering.poll(now) {
            self.waiting.push_back((Rank(to.0), together));
        }
        while let Some((to, together)) = self.waiting.pop_front() {
            let (letters, responders): (Vec<_>, Vec<_>) = together.into_iter().unzip();
            let address = addresses.get(to.index()).and_then(Option::as_ref);
            let input = (epoch, letters);
            match address.map(|address| engine.call::<TellTogether>(address, &input, options())) {
                Some(Ok(call)) => self.gathered.push((call, responders)),
                Some(Err(error)) if is_busy(&error) => {
                    self.waiting
                        .push_front((to, input.1.into_iter().zip(responders).collect()));
                    break;
                }
                Some(Err(_)) | None => responders.into_iter().for_each(|responder| {
                    responder.answer(Err(Fault::new(
                        "the scheduler cannot be reached through this rank",
                    )));
                }),
            }
        }
        for at in (0..self.gathered.len()).rev() {
            if let Some(result) = self.gathered[at].0.try_take() {
                let (_, responders) = self.gathered.swap_remove(at);
                let result = result.map_err(Fault::new);
                for responder in responders {
                    engine.answer(responder, result.clone());
                }
            }
        }
        for at in (0..self.spreads.len()).rev() {
            if self.spreads[at].is_done(engine, epoch, addresses) {
                let Spread {
                    letters,
                    calls,
                    mut missed,
                    responder,
                    ..
                } = self.spreads.swap_remove(at);
                missed.extend(letters.into_iter().map(|letters| letters.to));
                missed.extend(calls.into_iter().map(|(rank, _)| rank));
                engine.answer(responder, Ok(missed));
            }
        }
    }

    /// When to look next.
    pub(super) fn next_deadline(&self, origin: Instant, retry: Instant) -> Option<Instant> {
        let gathering = self
            .gathering
            .poll_timeout()
            .and_then(|at| origin.checked_add(at));
        let is_unsent =
            !self.waiting.is_empty() || self.spreads.iter().any(|spread| !spread.letters.is_empty());
        let spreads = self.spreads.iter().map(|spread| spread.due);
        spreads.chain(gathering).chain(is_unsent.then_some(retry)).min()
    }
}

impl Spread {
    /// Hands on what the engine takes, and says if nothing more is to be waited for.
    fn is_done(&mut self, engine: &mut Engine, epoch: Epoch, addresses: &[Option<Address>]) -> bool {
        while let Some(letters) = self.letters.pop_front() {
            let to = letters.to;
            let address = addresses.get(to.index()).and_then(Option::as_ref);
            let input = (epoch, Box::new(letters));
            match address.map(|address| engine.call::<Forward>(address, &input, options())) {
                Some(Ok(call)) => self.calls.push((to, call)),
                Some(Err(error)) if is_busy(&error) => {
                    self.letters.push_front(*input.1);
                    break;
                }
                Some(Err(_)) | None => self.missed.push(to),
            }
        }
        let missed = &mut self.missed;
        self.calls.retain_mut(|(rank, call)| match call.try_take() {
            None => true,
            Some(result) => {
                missed.extend(result.err().map(|_| *rank));
                false
            }
        });
        self.calls.is_empty() && self.letters.is_empty() || self.due <= Instant::now()
    }
}

fn options() -> CallOptions {
    CallOptions {
        retries: LOSSES_MAX,
        ..CallOptions::new(CARRY_TIMEOUT)
    }
}

/// One that is gone is noticed earlier.
const CARRY_TIMEOUT: Duration = Duration::from_secs(60);
/// So long the scheduler waits for a relay's answer: a rank that is stopped is told directly then, and does not hold up
/// what the others are told.
const SPREAD_PATIENCE: Duration = Duration::from_millis(200);
