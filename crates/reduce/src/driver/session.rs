//! The memory of one reduction on a rank that has called.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::HoldId;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Call, Contributions, Member, Place, Relays, StreamId, Token};

use super::{
    copies::WishedCopies, hold::Hold, huge_pages, own_parts::OwnParts, passing::Passing,
    reduction::Completion,
};
use crate::{
    folding::{Memory, Operand, Unread, fold, fold_into},
    ids::ReductionId,
    message::Introduction,
    operation::{Fold, FoldError, ResultMemory},
    source::{Source, shared_token},
};

/// A contribution on its way from the program to the progress thread.
pub(super) struct Begin {
    pub(super) id: ReductionId,
    pub(super) members: ProcessGroup,
    pub(super) call: Call,
    /// This rank's place in the group.
    pub(super) place: Member,
    pub(super) introduction: Introduction,
    pub(super) originals: Originals,
    /// Bytes of the result, or of this rank's object.
    pub(super) length: u64,
    pub(super) fold: Fold,
    pub(super) timeout: Option<Duration>,
    pub(super) copies: Option<WishedCopies>,
    pub(super) completion: Completion,
}

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin")
            .field("introduction", &self.introduction)
            .finish_non_exhaustive()
    }
}

impl Begin {
    /// Offers the contribution to the agent again, if that had no room. Returns false if it still has none.
    pub(super) fn offer_again(&mut self) -> bool {
        offer_again(&mut self.originals, self.copies.as_ref(), &self.completion)
    }
}

/// Where there are copies on other hosts, these settle when the contribution is protected.
fn offer_again(originals: &mut Originals, copies: Option<&WishedCopies>, completion: &Completion) -> bool {
    match originals.offer_again() {
        Poll::Pending => false,
        Poll::Ready(waited) => {
            if waited.is_some() && copies.is_none() {
                completion.settle(waited);
            }
            true
        }
    }
}

/// The originals that a rank has.
pub(super) enum Originals {
    /// Its own contribution, which its agent may hold too.
    Own {
        token: Token,
        bytes: Bytes,
        /// The first byte of the result that it is for.
        begin: u64,
        hold: Option<Hold>,
    },
    /// Those that it shares with others; none if only others contribute.
    Shared(BTreeMap<Member, Arc<dyn Source>>),
}

impl Originals {
    /// The memory that the agent need not hold any more, and its name if the agent is to be told.
    pub(super) fn take_hold(&mut self) -> Option<(Option<HoldId>, Bytes)> {
        match self {
            Self::Own { hold, bytes, .. } => match hold.take()? {
                Hold::Held(hold) => Some((hold, bytes.clone())),
                Hold::Waits(_) => None,
            },
            Self::Shared(_) => None,
        }
    }

    /// Says if the agent has no room for the contribution yet.
    pub(super) fn waits_for_agent(&self) -> bool {
        let hold = match self {
            Self::Own { hold, .. } => hold.as_ref(),
            Self::Shared(_) => None,
        };
        matches!(hold, Some(Hold::Waits(_)))
    }

    /// Offers the contribution to the agent again, if that had no room. Returns how long it has waited, if that is over
    /// now.
    fn offer_again(&mut self) -> Poll<Option<Duration>> {
        match self {
            Self::Own { hold: Some(hold), .. } => hold.offer_again(),
            Self::Own { .. } | Self::Shared(_) => Poll::Ready(None),
        }
    }
}

/// A reduction that has not ended on this rank.
pub(super) struct Running {
    pub(super) id: ReductionId,
    pub(super) members: ProcessGroup,
    pub(super) introduction: Introduction,
    /// The call, until it is announced.
    call: Option<Call>,
    place: Member,
    originals: Originals,
    /// The copies on other hosts, until they are asked for.
    copies: Option<WishedCopies>,
    /// Short contributions of others, which came with a row.
    given: BTreeMap<Member, Bytes>,
    length: u64,
    fold: Fold,
    windows: BTreeMap<Place, Memory>,
    /// The shared contributions that were read since the last look at their digests.
    read: BTreeSet<Member>,
    /// Those whose digests were told.
    digested: BTreeSet<Member>,
    /// Where it is merged, from the first chunk on.
    result: Option<ResultMemory>,
    /// The parts of it in which this rank's own contribution still is.
    own_parts: OwnParts,
    /// The last parts of it that came from another rank.
    passing: Passing,
    /// Bytes that were folded into the result, and those of them that were told.
    merged: u64,
    told: u64,
    pub(super) deadline: Option<Instant>,
    /// The deadline of the call has passed; the one that is set is the scheduler's, to say so to all.
    pub(super) has_run_out: bool,
    pub(super) completion: Completion,
}

impl Running {
    pub(super) fn new(begin: Begin, now: Instant) -> Self {
        Self {
            id: begin.id,
            members: begin.members,
            introduction: begin.introduction,
            call: Some(begin.call),
            place: begin.place,
            originals: begin.originals,
            copies: begin.copies,
            given: BTreeMap::new(),
            length: begin.length,
            fold: begin.fold,
            windows: BTreeMap::new(),
            read: BTreeSet::new(),
            digested: BTreeSet::new(),
            result: None,
            own_parts: OwnParts::default(),
            passing: Passing::default(),
            merged: 0,
            told: 0,
            deadline: begin.timeout.and_then(|timeout| now.checked_add(timeout)),
            has_run_out: false,
            completion: begin.completion,
        }
    }

    /// The call, once.
    pub(super) fn take_call(&mut self) -> Option<Call> {
        self.call.take()
    }

    /// This rank's place in the group.
    pub(super) fn place(&self) -> Member {
        self.place
    }

    /// The memory that the agent need not hold any more, and its name if the agent is to be told.
    pub(super) fn take_hold(&mut self) -> Option<(Option<HoldId>, Bytes)> {
        self.originals.take_hold()
    }

    /// As [`Begin::offer_again`].
    pub(super) fn offer_again(&mut self) -> bool {
        offer_again(&mut self.originals, self.copies.as_ref(), &self.completion)
    }

    /// The copies on other hosts that are still to be asked for.
    pub(super) fn take_copies(&mut self) -> Option<WishedCopies> {
        self.copies.take()
    }

    /// The contributions that are here, and their tokens.
    pub(super) fn originals(&self) -> Vec<(Member, Token)> {
        let session = self.introduction.session;
        match &self.originals {
            Originals::Own { token, .. } => vec![(self.place, *token)],
            Originals::Shared(sources) => {
                let members = sources.keys();
                members
                    .map(|member| (*member, shared_token(session, *member)))
                    .collect()
            }
        }
    }

    /// This rank's own contribution.
    pub(super) fn own(&self) -> Option<&Bytes> {
        match &self.originals {
            Originals::Own { bytes, .. } => Some(bytes),
            Originals::Shared(_) => None,
        }
    }

    /// Takes contributions of others. One of another length than all have is none.
    pub(super) fn take_given(&mut self, given: Vec<(Member, Bytes)>) {
        let (length, is_vector) = (self.length / self.blocks() as u64, self.is_vector());
        let fits = |(_, data): &(Member, Bytes)| !is_vector || data.len() as u64 == length;
        self.given.extend(given.into_iter().filter(fits));
    }

    /// Takes the whole result. What may be here already can be that of an older roster.
    pub(super) fn take_result(&mut self, result: &Bytes) {
        self.passing = Passing::default();
        self.result = match &self.fold {
            Fold::Elements(elements) if result.len() as u64 == self.length => {
                let mut memory = elements.result(result.len());
                memory.bytes_mut().copy_from_slice(result);
                Some(ResultMemory::Elements(memory))
            }
            Fold::Elements(_) => None,
            _ => Some(ResultMemory::Object(Memory::from(&result[..]))),
        };
    }

    /// The result, which is complete, if all get it and it is short enough to go with the end through these relays.
    pub(super) fn short_result(&mut self, relays: &Relays) -> Option<Bytes> {
        let ranks = self.members.len();
        let signature = self.introduction.signature.as_ref()?;
        let call = signature.call(&self.members)?;
        if !call.may_end_with_result(ranks, relays.receivers(ranks)) {
            return None;
        }
        let result = self.copy_of_result(0..self.length);
        (result.len() as u64 <= Call::RESULT_BYTES_MAX).then_some(result)
    }

    /// The digests of the contributions that were read here.
    pub(super) fn digests(&self) -> Vec<(Member, [u8; 32])> {
        match &self.originals {
            Originals::Own { .. } => Vec::new(),
            Originals::Shared(sources) => {
                let digest =
                    |(member, source): (&Member, &Arc<dyn Source>)| Some((*member, source.digest()?));
                sources.iter().filter_map(digest).collect()
            }
        }
    }

    /// Those of them that are new.
    pub(super) fn take_digests(&mut self) -> Vec<(Member, [u8; 32])> {
        let read = std::mem::take(&mut self.read);
        let Originals::Shared(sources) = &self.originals else {
            return Vec::new();
        };
        let digest = |member| Some((member, sources.get(&member)?.digest()?));
        let new: Vec<_> = read
            .into_iter()
            .filter(|member| !self.digested.contains(member))
            .filter_map(digest)
            .collect();
        self.digested.extend(new.iter().map(|(member, _)| *member));
        new
    }

    /// At the root, the bytes of the result that are done and all of them; each time when a good part more is done.
    pub(super) fn progress(&mut self) -> Option<(u64, u64)> {
        const REPORTS: u64 = 32;
        let total = self.length;
        let is_worth_it = self.merged - self.told > total / REPORTS || self.merged == total;
        is_worth_it.then(|| {
            self.told = self.merged;
            (self.merged.min(total), total)
        })
    }

    /// Says if a chunk of this range of the vector can have so many bytes. Those of an object may differ.
    pub(super) fn is_length_of(&self, range: Option<Range<u64>>, length: u64) -> bool {
        const OBJECT_BYTES_MAX: u64 = 4 << 30;
        match range.filter(|_| self.is_vector()) {
            Some(range) => range.end - range.start == length,
            None => length <= OBJECT_BYTES_MAX,
        }
    }

    /// Puts a chunk into its place.
    pub(super) fn put(&mut self, place: Place, memory: Memory) {
        self.windows.insert(place, memory);
    }

    /// Frees the memory of windows.
    pub(super) fn forget(&mut self, windows: &[(StreamId, u32)]) {
        let is_forgotten = |place: &Place| match *place {
            Place::Window { stream, slot, .. } => windows.contains(&(stream, slot)),
            Place::Original(_) | Place::Result => false,
        };
        if !windows.is_empty() {
            self.windows.retain(|place, _| !is_forgotten(place));
        }
    }

    /// Takes a chunk that is sent; what was folded for that is not needed here any more.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn take(&mut self, place: Place, range: Range<u64>) -> Result<Bytes, FoldError> {
        if place == Place::Result {
            let kept = self.passing.get(&range);
            return Ok(kept.unwrap_or_else(|| self.copy_of_result(range)));
        }
        Ok(match self.operand(place, &range).read()? {
            Operand::Kept(bytes) => bytes,
            operand => operand.into_free().freeze(),
        })
    }

    /// A part of the result to be sent on, which stays here too.
    fn copy_of_result(&mut self, range: Range<u64>) -> Bytes {
        let range = range.start as usize..range.end as usize;
        match &mut self.result {
            Some(ResultMemory::Elements(elements)) => Bytes::copy_from_slice(&elements.bytes_mut()[range]),
            Some(ResultMemory::Object(object)) => Bytes::copy_from_slice(object),
            None => Bytes::new(),
        }
    }

    /// Folds a chunk.
    pub(super) fn fold(
        &mut self,
        operands: &[Place],
        into: Place,
        range: &Range<u64>,
    ) -> Result<(), FoldError> {
        if into == Place::Result && self.is_vector() {
            return self.fold_into_result(operands, range);
        }
        let operands = operands.iter().map(|&place| self.operand(place, range)).collect();
        let outcome = fold(&self.fold, operands)?;
        if into == Place::Result {
            self.merged += range.end - range.start;
            self.result = Some(ResultMemory::Object(outcome));
        } else {
            self.windows.insert(into, outcome);
        }
        Ok(())
    }

    /// Folds a chunk of a vector at the root.
    fn fold_into_result(&mut self, operands: &[Place], range: &Range<u64>) -> Result<(), FoldError> {
        let Fold::Elements(elements) = &self.fold else {
            return Ok(());
        };
        let elements = Arc::clone(elements);
        if self.result.is_none() {
            let length = self.length as usize;
            let memory = match self.completion.take_memory(length) {
                Some(memory) => {
                    self.own_parts = OwnParts::all(length);
                    memory
                }
                None => {
                    let mut memory = elements.result(length);
                    huge_pages::advise(memory.bytes_mut());
                    memory
                }
            };
            self.result = Some(ResultMemory::Elements(memory));
        }
        let own = self.own_parts.take(range);
        let in_place = match operands.first() {
            Some(Place::Result) => true,
            Some(&Place::Original(member)) => own && member == self.place && self.own().is_some(),
            _ => false,
        };
        let others = operands[usize::from(in_place)..].iter();
        let others: Vec<Operand> = others.map(|&place| self.operand(place, range)).collect();
        self.merged += range.end - range.start;
        let Some(ResultMemory::Elements(result)) = &mut self.result else {
            return Ok(());
        };
        let part = &mut result.bytes_mut()[range.start as usize..range.end as usize];
        fold_into(&*elements, part, in_place, &others)?;
        self.passing.forget(range);
        if !in_place && let Ok([only]) = <[Operand; 1]>::try_from(others) {
            self.passing.keep(range.start, only);
        }
        Ok(())
    }

    /// Where contributions stand side by side, nothing is left of those that were lost on the way.
    pub(super) fn clear_blocks(&mut self, excluded: &[Rank]) {
        let blocks = self.blocks();
        let Some(ResultMemory::Elements(result)) = self.result.as_mut().filter(|_| blocks > 1) else {
            return;
        };
        self.passing = Passing::default();
        let result = result.bytes_mut();
        let block = result.len() / blocks;
        for place in excluded.iter().filter_map(|rank| self.members.index_of(*rank)) {
            result[place * block..(place + 1) * block].fill(0);
        }
    }

    /// The result, if it is here.
    pub(super) fn into_result(self) -> (Completion, Option<ResultMemory>) {
        (self.completion, self.result)
    }

    /// The contributions that stand side by side in the result; 1 if they are folded.
    fn blocks(&self) -> usize {
        let signature = self.introduction.signature.as_ref();
        match signature.is_some_and(|signature| signature.contributions == Contributions::SideBySide) {
            true => self.members.len().max(1),
            false => 1,
        }
    }

    /// An object is one chunk, whose length nobody else knows.
    fn is_vector(&self) -> bool {
        matches!(self.fold, Fold::Elements(_))
    }

    fn operand(&mut self, place: Place, range: &Range<u64>) -> Operand {
        if let (Place::Original(member), Originals::Shared(_)) = (place, &self.originals) {
            self.read.insert(member);
        }
        match place {
            Place::Original(member) if self.given.contains_key(&member) => {
                let bytes = &self.given[&member];
                let begin = match self.blocks() {
                    1 => 0,
                    _ => u64::from(member.0) * bytes.len() as u64,
                };
                Operand::Kept(match self.is_vector() {
                    true => bytes.slice((range.start - begin) as usize..(range.end - begin) as usize),
                    false => bytes.clone(),
                })
            }
            // It was not of the right length.
            Place::Original(member) if member != self.place && self.own().is_some() => {
                Operand::Kept(Bytes::new())
            }
            Place::Original(member) => match &self.originals {
                Originals::Own { bytes, begin, .. } if self.is_vector() => {
                    Operand::Kept(bytes.slice((range.start - begin) as usize..(range.end - begin) as usize))
                }
                Originals::Own { bytes, .. } => Operand::Kept(bytes.clone()),
                Originals::Shared(sources) => sources.get(&member).map_or_else(
                    || Operand::Kept(Bytes::new()),
                    |source| {
                        Operand::Unread(Unread {
                            source: Arc::clone(source),
                            offset: range.start,
                            length: (range.end - range.start) as usize,
                        })
                    },
                ),
            },
            Place::Result => match self.result.take() {
                Some(ResultMemory::Object(memory)) => Operand::Free(memory),
                _ => Operand::Free(Memory::default()),
            },
            window => Operand::Free(self.windows.remove(&window).unwrap_or_default()),
        }
    }
}
