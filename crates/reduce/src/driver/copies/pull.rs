//! A copy on its way to its keeper, the last piece first.
//!
//! The root of the reduction merges contributions from their first byte on, and what it has merged is not needed again
//! unless the reduction can begin anew. So the copy is whole when it meets the root, of whose progress the scheduler
//! hears: its rank is asked each time when a quarter of the way to where the root was is done.
//!
//! The copy and the reduction share links, and meet after the same time however they share them; what is left of the
//! reduction then takes the longer, the larger the share of the copy was. So a copy rests between its pieces as soon as
//! the root is at work.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use ropewalk_fabric::{Address, Buffer};
use ropewalk_names::Epoch;
use ropewalk_reduce_core::{Member, Session};
use ropewalk_rpc::{Call, Engine, Fault, Responder, Transfer};

use super::{
    super::{
        procedures::{AskedCopy, SettledBytes},
        seat::Seat,
    },
    KeptCopy,
};

/// The way to the scheduler.
#[derive(Clone, Copy)]
pub(in super::super) enum WayToSeat<'a> {
    Here(&'a Seat),
    To(&'a Address),
    /// There is no address yet.
    None,
}

/// A copy that is being pulled.
pub(super) struct Pull {
    asked: AskedCopy,
    responder: Responder<()>,
    /// From the first piece on.
    memory: BytesMut,
    /// The bytes before this are still to come, the last of them by the transfer.
    end: usize,
    transfer: Option<Transfer<Buffer>>,
    /// The time at which the transfer was begun.
    begun: Instant,
    may_rest: bool,
    /// The next piece is left to later.
    rests_until: Option<Instant>,
    /// Nobody needs the bytes before this.
    settled: usize,
    /// The scheduler is asked again when no more bytes than these are to come.
    ask_at: usize,
    question: Option<Call<u64>>,
}

impl Pull {
    /// So much is pulled at once: what is reduced goes first.
    const PIECE_BYTES: usize = 256 << 10;

    pub(super) fn new(asked: AskedCopy, responder: Responder<()>) -> Self {
        let length = asked.contribution.length as usize;
        Self {
            responder,
            memory: BytesMut::new(),
            end: length,
            transfer: None,
            begun: Instant::now(),
            may_rest: true,
            rests_until: None,
            settled: usize::try_from(asked.begin).unwrap_or(length).min(length),
            ask_at: if length > Self::PIECE_BYTES { length } else { 0 },
            question: None,
            asked,
        }
    }

    /// There is no other copy, and no rest.
    pub(super) fn urgent(asked: AskedCopy, responder: Responder<()>) -> Self {
        Self {
            may_rest: false,
            ..Self::new(asked, responder)
        }
    }

    pub(super) fn asked(&self) -> &AskedCopy {
        &self.asked
    }

    /// When to go on after a rest.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Takes a piece that has come, and asks for the next. Returns true once all have come that are needed.
    pub(super) fn go_on(
        &mut self,
        engine: &mut Engine,
        epoch: Epoch,
        seat: WayToSeat<'_>,
    ) -> Result<bool, Fault> {
        loop {
            self.learn(engine, epoch, seat);
            if let Some(transfer) = &mut self.transfer {
                let Some(result) = transfer.try_take() else {
                    return Ok(false);
                };
                let piece = result.map_err(Fault::new)?;
                let begin = self.end - piece.len();
                self.memory[begin..self.end].copy_from_slice(&piece);
                (self.end, self.transfer) = (begin, None);
                let now = Instant::now();
                self.rests_until =
                    (self.may_rest && self.settled > 0).then(|| now + now.duration_since(self.begun));
                continue;
            }
            if self.end <= self.settled {
                return Ok(true);
            }
            if self.rests_until.is_some_and(|until| until > Instant::now()) {
                return Ok(false);
            }
            (self.begun, self.rests_until) = (Instant::now(), None);
            if self.memory.is_empty() {
                self.memory = BytesMut::zeroed(self.end);
            }
            let length = (self.end - self.settled).min(Self::PIECE_BYTES);
            let into = engine.allocate(length);
            let from = (self.end - length) as u64 - self.asked.begin;
            let transfer = engine.pull(&self.asked.handle, from, into, PIECE_TIMEOUT);
            self.transfer = Some(transfer.map_err(Fault::new)?);
        }
    }

    /// Hears how far the root is, or asks for it.
    fn learn(&mut self, engine: &mut Engine, epoch: Epoch, seat: WayToSeat<'_>) {
        if let Some(question) = &mut self.question {
            if let Some(answer) = question.try_take() {
                self.question = None;
                // A scheduler that is gone has a successor, who is asked the next time.
                self.note_settled(answer.unwrap_or_default());
            }
        } else if self.end <= self.ask_at {
            let contribution = &self.asked.contribution;
            let (session, member) = (contribution.session, contribution.member);
            match seat {
                WayToSeat::Here(seat) => self.note_settled(seat.settled_bytes(session, member)),
                WayToSeat::To(address) => self.ask(engine, address, (epoch, session, member)),
                WayToSeat::None => {}
            }
        }
    }

    fn ask(&mut self, engine: &mut Engine, address: &Address, input: (Epoch, Session, Member)) {
        match engine.call::<SettledBytes>(address, &input, PIECE_TIMEOUT) {
            Ok(question) => self.question = Some(question),
            Err(_) => self.note_settled(0),
        }
    }

    fn note_settled(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(self.end);
        self.settled = self
            .settled
            .max(bytes.min(self.asked.contribution.length as usize));
        self.ask_at = self.settled + self.end.saturating_sub(self.settled) / 4 * 3;
    }

    /// The copy, and who waits for it.
    pub(super) fn finish(mut self, engine: &mut Engine) -> (KeptCopy, bool, Responder<()>) {
        let begin = self.end.min(self.memory.len());
        let copy = KeptCopy {
            owner: self.asked.owner,
            contribution: self.asked.contribution,
            handle: engine.expose(self.memory.split_off(begin).freeze()),
            begin: self.end as u64,
        };
        (copy, self.asked.is_heir, self.responder)
    }

    /// The copy cannot be made.
    pub(super) fn fail(self, why: Fault) {
        self.responder.answer(Err(why));
    }
}

/// One piece may take so long; an owner that is gone is noticed earlier.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);
