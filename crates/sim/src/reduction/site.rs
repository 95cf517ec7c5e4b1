use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use ropewalk_reduce_core::{
    Call, Chunk, ChunkHeader, End, Order, Place, Scheduler, SendRates, Site, Term, ToScheduler, Worker,
};

use super::{oracle, what::Words};
use crate::Nanos;

/// A rank or an agent.
pub(super) struct SiteState {
    pub(super) worker: Worker,
    pub(super) rates: SendRates,
    /// Where this site's scheduler is.
    pub(super) seat: Site,
    /// The chunks that have not been answered, by number, and their words.
    pub(super) sends: BTreeMap<u64, (Chunk, u64)>,
    /// Chunks that were sent.
    pub(super) sent: u64,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) lost: BTreeSet<Site>,
    /// The words in windows.
    pub(super) windows: BTreeMap<Place, u64>,
    /// The root's chunks by their first byte: their lengths and words.
    pub(super) result: Words,
    /// The result that came with the end or, at a scheduler, from who had it.
    pub(super) enclosed: Option<Words>,
    pub(super) fold_ends: Nanos,
    /// When the scheduler's timer fires.
    pub(super) timer: Option<Nanos>,
    pub(super) has_called: bool,
    pub(super) end: Option<(Nanos, End)>,
}

impl SiteState {
    pub(super) fn new(site: Site) -> Self {
        Self {
            worker: Worker::new(site, Site(0), Term(0)),
            rates: SendRates::default(),
            seat: Site(0),
            sends: BTreeMap::new(),
            sent: 0,
            scheduler: None,
            lost: BTreeSet::new(),
            windows: BTreeMap::new(),
            result: BTreeMap::new(),
            enclosed: None,
            fold_ends: Nanos::ZERO,
            timer: None,
            has_called: false,
            end: None,
        }
    }

    /// A site is gone, or out of reach: nothing that was sent to it will be answered.
    pub(super) fn give_up_sends(&mut self, to: Site) {
        self.sends.retain(|_, (chunk, _)| {
            let stays = chunk.to != to;
            if !stays {
                self.worker.handle_undelivered(to, &chunk.header);
            }
            stays
        });
        self.rates.forget(to);
    }

    /// The word of a chunk; that of several chunks of the result is their sum.
    pub(super) fn word(&self, order: Order, place: Place, range: &Range<u64>) -> u64 {
        match place {
            Place::Original(member) => oracle::original(order, member, range.start),
            Place::Result => {
                let chunks = self.result.range(range.start..range.end.max(range.start + 1));
                chunks.fold(0, |sum: u64, (_, (_, word))| sum.wrapping_add(*word))
            }
            place => self.windows.get(&place).copied().unwrap_or_default(),
        }
    }

    /// A result that comes with the end.
    pub(super) fn take_result(&mut self, result: Words) {
        self.result = result.clone();
        self.enclosed = Some(result);
    }

    /// The result that goes with a message, if it is short.
    pub(super) fn enclose_result(&self, message: &mut ToScheduler, call: &Call, hosts: u32) -> Option<Words> {
        match message {
            ToScheduler::Complete { is_enclosed, .. } if call.may_end_with_result(hosts as usize) => {
                *is_enclosed = true;
                Some(self.result.clone())
            }
            ToScheduler::Standing { sessions, .. } => {
                let have_ended = sessions.iter().any(|standing| standing.end.is_some());
                self.enclosed.clone().filter(|_| have_ended)
            }
            _ => None,
        }
    }

    pub(super) fn take(&mut self, chunk: &ChunkHeader, word: u64) {
        if let Some(place) = self.worker.place(chunk) {
            self.windows.insert(place, word);
            self.worker.handle_chunk(chunk);
        }
    }

    pub(super) fn fold(&mut self, order: Order, range: &Range<u64>, operands: &[Place], into: Place) {
        let start = range.start;
        let words = operands.iter().map(|place| self.word(order, *place, range));
        let folded = words.reduce(|left, right| oracle::fold(order, left, right));
        let folded = folded.unwrap_or_default();
        match into {
            Place::Result => {
                self.result.insert(start, (range.end - start, folded));
            }
            into => {
                self.windows.insert(into, folded);
            }
        }
    }
}
