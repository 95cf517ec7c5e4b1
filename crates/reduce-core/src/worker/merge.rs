use std::collections::BTreeMap;

use crate::{
    canary::{Canary, is_put_back},
    chunks::{Chunking, Cut},
    ids::{Member, ShareId, Token},
    message::{MergedShare, Row},
};

/// The shares that the root has merged into its result, and how far.
///
/// A chunk of a share is merged once, in its order, and only if its tokens are those of all members of the share.
/// Shares are folded into the same chunks, or have a block of the result each.
#[derive(Debug)]
pub(super) struct Merge {
    chunking: Chunking,
    shares: BTreeMap<ShareId, Merged>,
    /// Members whose blocks stay empty.
    excluded: Vec<Member>,
    /// By class of the whole: the chunks before this index are final, where shares have blocks.
    finals: Vec<u32>,
    members_in_all: u32,
    /// The share and class of the chunk whose merge has begun and not ended.
    pending: Option<(ShareId, u16)>,
    since_report: u64,
    is_complete: bool,
}

#[derive(Debug)]
struct Merged {
    members: Vec<Member>,
    /// The sum of their tokens; of a plan that was made ahead that of the first chunk, which the scheduler checks at
    /// the end.
    tokens: Option<Token>,
    is_ahead: bool,
    /// By class: the chunks before this index are merged, or the last of them is being merged.
    until: Vec<u32>,
    /// The scheduler knows that all of it is merged.
    is_told: bool,
}

impl Merged {
    fn is_whole(&self, cut: Cut) -> bool {
        (0..cut.classes()).all(|class| self.until[usize::from(class)] == cut.chunks_of(class))
    }
}

/// How a chunk that has arrived is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The result does not hold this chunk of any other share: it is written.
    Write,
    /// The result holds this chunk of another share: it is folded.
    Fold,
    /// It is merged already, or not next.
    Nothing,
    /// A contribution is missing or doubled.
    WrongTokens,
}

impl Merge {
    /// Watermarks are told so many times in a session.
    const REPORTS: u64 = 32;

    pub(super) fn new(chunking: Chunking) -> Self {
        Self {
            chunking,
            shares: BTreeMap::new(),
            excluded: Vec::new(),
            finals: vec![0; usize::from(chunking.classes)],
            members_in_all: 0,
            pending: None,
            since_report: 0,
            is_complete: false,
        }
    }

    /// A row for the root says which shares there are.
    pub(super) fn note_row(&mut self, row: &Row) {
        self.members_in_all = row.members_in_all;
        self.is_complete = false;
        self.excluded.clone_from(&row.roster.excluded);
        let classes = usize::from(self.chunking.cut(row.share).classes());
        self.shares.entry(row.share).or_insert_with(|| Merged {
            members: row.members.iter().map(|(member, _)| *member).collect(),
            tokens: row
                .ahead_of
                .is_none()
                .then(|| Token::sum(row.members.iter().map(|(_, token)| *token))),
            is_ahead: row.ahead_of.is_some(),
            until: vec![0; classes],
            is_told: false,
        });
    }

    /// The chunks of a class of the whole before this index are those of the result, and stay.
    pub(super) fn finals(&mut self, class: u16) -> u32 {
        if self.has_blocks() && !self.shares.contains_key(&ShareId::SPREAD) {
            return self.finals_of_blocks(class);
        }
        let members: usize = self.shares.values().map(|merged| merged.members.len()).sum();
        if members < self.members_in_all as usize {
            return 0;
        }
        let settled = self.shares.keys().map(|share| self.settled(*share, class));
        settled.min().unwrap_or_default()
    }

    fn finals_of_blocks(&mut self, class: u16) -> u32 {
        let whole = self.chunking.cut(ShareId::SPREAD);
        let mut until = self.finals[usize::from(class)];
        let is_final = |index| {
            let (mut blocks, chunk) = whole.blocks(class, index);
            blocks.all(|block| {
                self.excluded.contains(&Member(block)) || self.settled(ShareId(block), 0) > chunk
            })
        };
        while until < whole.chunks_of(class) && is_final(until) {
            until += 1;
        }
        self.finals[usize::from(class)] = until;
        until
    }

    /// The chunks of a share and class before this index are merged, all of them for certain.
    fn settled(&self, share: ShareId, class: u16) -> u32 {
        let is_pending = self.pending == Some((share, class));
        self.until(share, class).saturating_sub(u32::from(is_pending))
    }

    fn has_blocks(&self) -> bool {
        self.chunking.blocks > 1
    }

    /// The chunks of a share and class before this index are merged.
    pub(super) fn until(&self, share: ShareId, class: u16) -> u32 {
        let merged = self.shares.get(&share);
        merged
            .and_then(|merged| merged.until.get(usize::from(class)))
            .copied()
            .unwrap_or_default()
    }

    /// A chunk is about to be merged. From [`Claim::Write`] and [`Claim::Fold`] on it counts as merged.
    pub(super) fn claim(&mut self, share: ShareId, class: u16, index: u32, tokens: Token) -> Claim {
        let at = usize::from(class);
        let Some(merged) = self.shares.get_mut(&share) else {
            return Claim::Nothing;
        };
        if merged.until[at] != index {
            return Claim::Nothing;
        }
        if *merged.tokens.get_or_insert(tokens) != tokens {
            return Claim::WrongTokens;
        }
        if !is_put_back(Canary::MergedTooLate) {
            merged.until[at] += 1;
        }
        self.pending = Some((share, class));
        self.since_report += 1;
        let are_folded = !self.has_blocks();
        let mut others = self
            .shares
            .iter()
            .filter(|(known, _)| **known != share && are_folded);
        match others.any(|(_, other)| other.until[at] > index) {
            true => Claim::Fold,
            false => Claim::Write,
        }
    }

    /// The chunk that was claimed last is merged. Returns the class of the whole of which more is final then.
    pub(super) fn finish(&mut self) -> Option<u16> {
        let pending = self.pending.take();
        if is_put_back(Canary::MergedTooLate)
            && let Some((share, class)) = pending
            && let Some(merged) = self.shares.get_mut(&share)
        {
            merged.until[usize::from(class)] += 1;
        }
        let (share, class) = pending?;
        let index = self.until(share, class).checked_sub(1)?;
        Some(self.chunking.cut(share).class_of_whole(class, index))
    }

    /// The sum of all tokens, once everything is merged; it is returned once.
    pub(super) fn take_completion(&mut self) -> Option<Token> {
        let members: usize = self.shares.values().map(|merged| merged.members.len()).sum();
        let is_new = !self.is_complete
            && self.pending.is_none()
            && members == self.members_in_all as usize
            && self
                .shares
                .iter()
                .all(|(share, merged)| merged.is_whole(self.chunking.cut(*share)));
        self.is_complete |= is_new;
        is_new.then(|| self.tokens().unwrap_or_default())
    }

    /// The sum of all tokens, if they are known.
    pub(super) fn tokens(&self) -> Option<Token> {
        let tokens: Option<Vec<Token>> = self.shares.values().map(|merged| merged.tokens).collect();
        tokens.map(Token::sum)
    }

    /// Forgets what was merged for plans that were made ahead: a new scheduler has nothing to check it with.
    pub(super) fn forget_ahead(&mut self) {
        self.shares.retain(|_, merged| !merged.is_ahead);
    }

    /// The watermarks, each time when a good part of the chunks has been merged; of blocks those that are whole since
    /// the last time.
    pub(super) fn take_report(&mut self) -> Vec<(ShareId, Vec<u32>)> {
        let chunks = self.chunking.cut(ShareId(0)).chunks() * u64::from(self.chunking.blocks);
        if self.since_report < chunks.div_ceil(Self::REPORTS) {
            return Vec::new();
        }
        self.since_report = 0;
        let has_blocks = self.has_blocks();
        let mut watermarks = Vec::new();
        for (&share, merged) in self.shares.range_mut(..ShareId::SPREAD) {
            if !has_blocks || !merged.is_told && merged.is_whole(self.chunking.cut(share)) {
                merged.is_told = true;
                watermarks.push((share, merged.until.clone()));
            }
        }
        watermarks
    }

    /// The shares, their members and what is merged of them for certain.
    pub(super) fn standing(&self) -> Vec<MergedShare> {
        let reduced = self.shares.iter().filter(|(share, _)| **share != ShareId::SPREAD);
        let shares = reduced.map(|(&share, merged)| {
            let mut until = merged.until.clone();
            let pending = self.pending.filter(|(known, _)| *known == share);
            if let Some((_, class)) = pending.filter(|_| !is_put_back(Canary::MergedTooLate)) {
                until[usize::from(class)] -= 1;
            }
            MergedShare {
                id: share,
                members: merged.members.clone(),
                tokens: merged.tokens.unwrap_or_default(),
                merged: until,
            }
        });
        shares.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{PlanId, Session},
        scheduler::Roster,
    };

    fn merge() -> Merge {
        let chunking = Chunking {
            bytes: 10,
            blocks: 1,
            chunk_bytes: 2,
            classes: 2,
        };
        let mut merge = Merge::new(chunking);
        for (share, members) in [(0, vec![0, 1]), (1, vec![2])] {
            merge.note_row(&Row {
                session: Session { group: 0, call: 0 },
                plan: PlanId::default(),
                share: ShareId(share),
                chunking,
                kept: Vec::new(),
                nodes: Vec::new(),
                given: Vec::new(),
                members: members
                    .iter()
                    .map(|&member| (Member(member), token(member)))
                    .collect(),
                members_in_all: 3,
                roster: Roster {
                    generation: 0,
                    root: Member(0),
                    excluded: Vec::new(),
                },
                ahead_of: None,
            });
        }
        merge
    }

    fn token(member: u32) -> Token {
        Token(1 << member)
    }

    /// A chunk of a share is merged once, in its order, with the right tokens.
    #[test]
    fn chunks_are_claimed_once() {
        let mut merge = merge();
        assert_eq!(merge.claim(ShareId(0), 0, 0, Token(1)), Claim::WrongTokens);
        assert_eq!(merge.claim(ShareId(0), 0, 1, Token(3)), Claim::Nothing);
        assert_eq!(merge.claim(ShareId(0), 0, 0, Token(3)), Claim::Write);
        assert_eq!(merge.claim(ShareId(0), 0, 0, Token(3)), Claim::Nothing);
        merge.finish();
        assert_eq!(merge.claim(ShareId(1), 0, 0, Token(4)), Claim::Fold);
        assert_eq!(merge.claim(ShareId(1), 1, 0, Token(4)), Claim::Write);
    }

    /// A chunk that is being merged does not count for a new scheduler, and the end is told once.
    #[test]
    fn the_end_is_told_once() {
        let mut merge = merge();
        for (class, index) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] {
            for (share, tokens) in [(0, 3), (1, 4)] {
                assert_eq!(merge.take_completion(), None);
                assert_ne!(
                    merge.claim(ShareId(share), class, index, Token(tokens)),
                    Claim::Nothing
                );
            }
        }
        assert_eq!(merge.take_completion(), None);
        assert_eq!(merge.standing()[1].merged, [3, 1]);
        merge.finish();
        assert_eq!(merge.standing()[1].merged, [3, 2]);
        assert_eq!(merge.take_completion(), Some(Token(7)));
        assert_eq!(merge.take_completion(), None);
    }
}
