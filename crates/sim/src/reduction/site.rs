use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use ropewalk_reduce_core::{
    Chunk, ChunkHeader, End, Order, Place, Relays, Scheduler, SendRates, Site, StreamId, Term, ToScheduler,
    Worker,
};

use super::{Setting, oracle, relays::Post, what::Results};
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
    /// The words in the windows of each call's nodes, by child and slot.
    windows: BTreeMap<(u64, StreamId), Vec<Vec<u64>>>,
    /// The root's chunks, by call.
    pub(super) results: Results,
    /// The results that came with ends or, at a scheduler, from who had them.
    pub(super) enclosed: Results,
    /// Its messages to and from schedulers, in a job with relays.
    pub(super) post: Post,
    /// When the scheduler's timer fires.
    pub(super) timer: Option<Nanos>,
    /// Chunks that came before their rows, and their words.
    early: Vec<(ChunkHeader, u64)>,
    /// It has made the calls before this one.
    pub(super) begun: u64,
    /// A copy has nothing before these bytes, by call.
    pub(super) begins: BTreeMap<u64, u64>,
    /// The ends of calls.
    pub(super) ends: BTreeMap<u64, (Nanos, End)>,
}

impl SiteState {
    pub(super) fn new(site: Site, relays: &Relays) -> Self {
        Self {
            worker: Worker::new(site, Site(0), Term(0)),
            rates: SendRates::new(site),
            seat: Site(0),
            sends: BTreeMap::new(),
            sent: 0,
            scheduler: None,
            lost: BTreeSet::new(),
            windows: BTreeMap::new(),
            results: Results::new(),
            enclosed: Results::new(),
            post: Post::new(relays, site),
            timer: None,
            early: Vec::new(),
            begun: 0,
            begins: BTreeMap::new(),
            ends: BTreeMap::new(),
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
    pub(super) fn word(&self, order: Order, call: u64, place: Place, range: &Range<u64>) -> u64 {
        match place {
            Place::Original(member) => oracle::original(order, call, member, range.start),
            Place::Result => {
                let result = self.results.get(&call).into_iter();
                let chunks =
                    result.flat_map(|words| words.range(range.start..range.end.max(range.start + 1)));
                chunks.fold(0, |sum: u64, (_, (_, word))| sum.wrapping_add(*word))
            }
            Place::Window { stream, slot, child } => {
                let of_node = self.windows.get(&(call, stream));
                let of_child = of_node.and_then(|of_node| of_node.get(child));
                let word = of_child.and_then(|of_child| of_child.get(slot as usize));
                word.copied().unwrap_or_default()
            }
        }
    }

    /// Writes the word of a chunk. Originals do not change.
    fn write(&mut self, call: u64, place: Place, range: &Range<u64>, word: u64) {
        match place {
            Place::Original(_) => {}
            Place::Result => {
                let result = self.results.entry(call).or_default();
                // A rank that becomes the root may have had more at once, or less, as one to which the result came.
                let ends_before = |start: u64, bytes: u64| start + bytes <= range.start;
                let over = result.range(..range.end).rev();
                let over = over.take_while(|(start, (bytes, _))| !ends_before(**start, *bytes));
                let over: Vec<u64> = over.map(|(start, _)| *start).collect();
                for start in over {
                    result.remove(&start);
                }
                result.insert(range.start, (range.end - range.start, word));
            }
            Place::Window { stream, slot, child } => {
                let of_node = self.windows.entry((call, stream)).or_default();
                let of_child = grown(of_node, child);
                *grown(of_child, slot as usize) = word;
            }
        }
    }

    /// Some windows are free, but for what is being sent: whoever uses what was in them gets a wrong result.
    pub(super) fn forget(&mut self, call: u64, windows: &[(StreamId, u32)]) {
        const FREED: u64 = 0xdead_beef_dead_beef;
        let sent = self.sends.values().filter_map(|(chunk, _)| match chunk.place {
            Place::Window { stream, slot, .. } if chunk.header.session.call == call => Some((stream, slot)),
            _ => None,
        });
        let sent: BTreeSet<(StreamId, u32)> = sent.collect();
        for (stream, slot) in windows.iter().filter(|window| !sent.contains(window)) {
            let of_node = self.windows.get_mut(&(call, *stream)).into_iter().flatten();
            let words = of_node.filter_map(|of_child| of_child.get_mut(*slot as usize));
            words.for_each(|word| *word = FREED);
        }
    }

    /// Results that come with ends.
    pub(super) fn take_results(&mut self, results: Results) {
        self.results.extend(results.clone());
        self.enclosed.extend(results);
    }

    /// The results that go with a message, if they are short.
    pub(super) fn enclose_results(&self, message: &mut ToScheduler, setting: &Setting) -> Results {
        let hosts = setting.hosts as usize;
        let only = |results: &Results, call: u64| results.get(&call).map(|words| (call, words.clone()));
        match message {
            ToScheduler::Complete {
                is_enclosed, session, ..
            } if setting
                .call(session.call)
                .may_end_with_result(hosts, setting.relays.receivers(hosts)) =>
            {
                *is_enclosed = true;
                let words = self.results.get(&session.call).cloned().unwrap_or_default();
                Results::from([(session.call, words)])
            }
            ToScheduler::Standing { sessions, .. } => {
                let ended = sessions.iter().filter(|standing| standing.end.is_some());
                ended
                    .filter_map(|standing| only(&self.enclosed, standing.session.call))
                    .collect()
            }
            _ => Results::new(),
        }
    }

    /// Takes the chunks that have a place now.
    pub(super) fn take_early(&mut self, now: Nanos) {
        let worker = &self.worker;
        let (early, due) = std::mem::take(&mut self.early)
            .into_iter()
            .partition::<Vec<_>, _>(|(chunk, _)| worker.is_early(chunk));
        self.early = early;
        due.into_iter()
            .for_each(|(chunk, word)| self.take(now, &chunk, word));
    }

    pub(super) fn take(&mut self, now: Nanos, chunk: &ChunkHeader, word: u64) {
        if self.worker.is_early(chunk) {
            self.early.push((*chunk, word));
            return;
        }
        let Some(cut) = self.worker.cut(chunk.session, chunk.to) else {
            return;
        };
        let range = cut.range(chunk.to.class, chunk.index);
        self.rates.handle_received(now.into(), range.end - range.start);
        if let Some(place) = self.worker.place(chunk) {
            self.write(chunk.session.call, place, &range, word);
            self.worker.handle_chunk(chunk);
        }
    }

    pub(super) fn fold(
        &mut self,
        order: Order,
        call: u64,
        range: &Range<u64>,
        operands: &[Place],
        into: Place,
    ) {
        let words = operands.iter().map(|place| self.word(order, call, *place, range));
        let folded = words.reduce(|left, right| oracle::fold(order, left, right));
        let folded = folded.unwrap_or_default();
        self.write(call, into, range, folded);
    }
}

/// The element at a place of a list, which grows if it is shorter.
fn grown<T: Clone + Default>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}
