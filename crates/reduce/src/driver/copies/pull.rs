//! A copy on its way to its keeper, piece by piece on its [course](Course).

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
    course::Course,
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
    course: Course,
    /// From the first piece on.
    memory: BytesMut,
    /// The next piece, and when it was asked for.
    transfer: Option<(Transfer<Buffer>, Instant)>,
    rests_until: Option<Instant>,
    /// It asks how many bytes nobody needs.
    question: Option<Call<Option<u64>>>,
}

impl Pull {
    /// `is_urgent` says that its call waits for it, or that there is no other copy.
    pub(super) fn new(asked: AskedCopy, responder: Responder<()>, is_urgent: bool) -> Self {
        let length = asked.contribution.length as usize;
        Self {
            responder,
            course: Course::new(asked.begin as usize, length, is_urgent),
            memory: BytesMut::new(),
            transfer: None,
            rests_until: None,
            question: None,
            asked,
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
            if !self.take_piece()? {
                return Ok(false);
            }
            let Some(next) = self.course.next_piece() else {
                return Ok(true);
            };
            if self.rests_until.is_some_and(|until| until > Instant::now()) {
                return Ok(false);
            }
            self.rests_until = None;
            if self.memory.is_empty() {
                self.memory = BytesMut::zeroed(next.end);
            }
            let into = engine.allocate(next.len());
            let from = next.start as u64 - self.asked.begin;
            let transfer = engine.pull(&self.asked.handle, from, into, PIECE_TIMEOUT);
            self.transfer = Some((transfer.map_err(Fault::new)?, Instant::now()));
        }
    }

    /// Takes a piece that has come. Returns false if it has not.
    fn take_piece(&mut self) -> Result<bool, Fault> {
        let Some((transfer, begun)) = &mut self.transfer else {
            return Ok(true);
        };
        let Some(result) = transfer.try_take() else {
            return Ok(false);
        };
        let bytes = result.map_err(Fault::new)?;
        let piece = self.course.end() - bytes.len()..self.course.end();
        self.memory[piece.clone()].copy_from_slice(&bytes);
        let rest = self.course.note_piece(&piece, begun.elapsed());
        self.rests_until = (!rest.is_zero()).then(|| Instant::now() + rest);
        self.transfer = None;
        Ok(true)
    }

    /// Hears how many bytes nobody needs, or asks for that.
    fn learn(&mut self, engine: &mut Engine, epoch: Epoch, seat: WayToSeat<'_>) {
        if let Some(question) = &mut self.question {
            if let Some(answer) = question.try_take() {
                self.question = None;
                // A scheduler that is gone has a successor, who is asked the next time.
                self.course.note_settled(answer.unwrap_or_default());
            }
        } else if self.course.has_to_ask() {
            let contribution = &self.asked.contribution;
            let (session, member) = (contribution.session, contribution.member);
            match seat {
                WayToSeat::Here(seat) => self.course.note_settled(seat.settled_bytes(session, member)),
                WayToSeat::To(address) => self.ask(engine, address, (epoch, session, member)),
                WayToSeat::None => {}
            }
        }
    }

    fn ask(&mut self, engine: &mut Engine, address: &Address, input: (Epoch, Session, Member)) {
        match engine.call::<SettledBytes>(address, &input, PIECE_TIMEOUT) {
            Ok(question) => self.question = Some(question),
            Err(_) => self.course.note_settled(None),
        }
    }

    /// The copy, if its keeper is the owner's heir, and who waits for it.
    pub(super) fn finish(mut self, engine: &mut Engine) -> (KeptCopy, bool, Responder<()>) {
        let begin = self.course.end();
        let from = begin.min(self.memory.len());
        let copy = KeptCopy {
            owner: self.asked.owner,
            contribution: self.asked.contribution,
            handle: engine.expose(self.memory.split_off(from).freeze()),
            begin: begin as u64,
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
