//! Checks what the user was promised.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use ropewalk_reduce_core::{End, GiveUp, Member, Order};

use super::{Calls, Made, Setting, SiteState};

/// A broken promise.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// These ranks wait for ever.
    Hang {
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// The root says that it holds the result, and a chunk is wrong.
    Wrong {
        /// Its first byte.
        at: u64,
    },
    /// A verdict that the faults do not explain.
    Verdict(End),
    /// A site used a window again before its chunk had left.
    Overwritten {
        /// The site.
        site: u32,
    },
    /// A plan took from a copy a chunk that it has not.
    NotCopied {
        /// The site of the copy.
        site: u32,
    },
    /// Two living ranks were told different ends.
    Disagreement(Box<(End, End)>),
}

#[derive(Debug)]
pub(super) struct Oracle {
    hosts: u32,
    calls: Calls,
    /// Sites that died, or were given up.
    gone: BTreeSet<u32>,
    /// The sites that have each original, by call and member.
    holders: BTreeMap<(u64, Member), BTreeSet<u32>>,
    overwritten: Option<u32>,
    not_copied: Option<u32>,
    /// The ranks that cancelled their calls.
    cancelled: BTreeSet<u32>,
    /// Links were cut: sites that live may not reach each other.
    has_cuts: bool,
    has_copies: bool,
}

impl Oracle {
    pub(super) fn new(setting: &Setting) -> Self {
        let is_cut = |fault: &super::Fault| matches!(fault, super::Fault::Cut(..));
        Self {
            hosts: setting.hosts,
            calls: setting.calls.clone(),
            gone: BTreeSet::new(),
            holders: BTreeMap::new(),
            overwritten: None,
            not_copied: None,
            cancelled: BTreeSet::new(),
            has_cuts: setting.faults.iter().any(|(_, fault)| is_cut(fault)),
            has_copies: setting.copies.is_some() || setting.calls.shared.is_some(),
        }
    }

    pub(super) fn note_gone(&mut self, site: u32) {
        self.gone.insert(site);
    }

    /// A site has the originals of a member for these calls.
    pub(super) fn note_holder(&mut self, calls: Range<u64>, member: Member, site: u32) {
        for call in calls {
            self.holders.entry((call, member)).or_default().insert(site);
        }
    }

    /// A rank has let go of its contribution to a call, since the scheduler of another rank has told it the end, and so
    /// its agent inherits nothing. If all are gone who have heard of that end, the others find another one.
    pub(super) fn note_let_go(&mut self, call: u64, member: Member, agent: u32) {
        if let Some(holders) = self.holders.get_mut(&(call, member)) {
            holders.remove(&agent);
        }
    }

    /// All who have the original of a member are gone; or nobody had it, and its rank is gone.
    fn is_lost(&self, call: u64, member: Member) -> bool {
        let is_gone = |site: &u32| self.gone.contains(site);
        match self.holders.get(&(call, member)) {
            Some(holders) => holders.iter().all(is_gone),
            None => self.calls.shared.is_some() || is_gone(&member.0),
        }
    }

    pub(super) fn note_overwritten(&mut self, site: u32) {
        self.overwritten.get_or_insert(site);
    }

    pub(super) fn note_not_copied(&mut self, site: u32) {
        self.not_copied.get_or_insert(site);
    }

    pub(super) fn note_cancelled(&mut self, rank: u32) {
        self.cancelled.insert(rank);
    }

    pub(super) fn is_gone(&self, rank: u32) -> bool {
        self.gone.contains(&rank)
    }

    /// All ranks have ended a call or are gone.
    pub(super) fn judge(&self, sites: &[SiteState], call: u64) -> Result<Option<End>, Violation> {
        if let Some(site) = self.overwritten {
            return Err(Violation::Overwritten { site });
        }
        if let Some(site) = self.not_copied {
            return Err(Violation::NotCopied { site });
        }
        let mut told: Option<&End> = None;
        for rank in (0..self.hosts).filter(|rank| !self.is_gone(*rank)) {
            let end = sites[rank as usize].ends.get(&call).map(|(_, end)| end);
            match (told, end) {
                (Some(told), Some(end)) if told != end => {
                    return Err(Violation::Disagreement(Box::new((told.clone(), end.clone()))));
                }
                (_, end) => told = end.or(told),
            }
        }
        // A copy that is cut off is of no use.
        let is_lost = |member: &Member| self.is_lost(call, *member) || (self.has_cuts && self.has_copies);
        let are_lost = |members: &[Member]| members.iter().all(is_lost);
        let is_explained = match told {
            None => true,
            Some(End::Done { root, excluded }) => {
                let living = (0..self.hosts).filter(|rank| self.calls.is_spread && !self.is_gone(*rank));
                for rank in living.chain([root.0]) {
                    self.check(&sites[rank as usize], call, excluded)?;
                }
                are_lost(excluded)
            }
            Some(End::Lost(members)) => are_lost(members),
            Some(End::RootLost) => self.is_gone(self.calls.root),
            Some(End::Failed(_)) => self.has_cuts,
            Some(End::GivenUp { member, reason, .. }) => {
                *reason == GiveUp::Cancelled && self.cancelled.contains(&member.0)
            }
            Some(End::Mismatch(_)) => false,
        };
        match told {
            Some(end) if !is_explained => Err(Violation::Verdict(end.clone())),
            told => Ok(told.cloned()),
        }
    }

    fn check(&self, holder: &SiteState, call: u64, excluded: &[Member]) -> Result<(), Violation> {
        let mut covered = 0;
        for (&start, &(bytes, word)) in holder.results.get(&call).into_iter().flatten() {
            covered = self.skip_excluded(call, covered, start, excluded);
            let is_right = match self.calls.made {
                Made::SideBySide => self.is_block(call, start..start + bytes, word, excluded),
                Made::ByOne(rank) => word == original(self.calls.order, call, Member(rank), start),
                Made::ByEach => word == self.expected(call, start, excluded),
            };
            if start != covered || !is_right {
                return Err(Violation::Wrong { at: start });
            }
            covered += bytes;
        }
        let bytes = self.calls.bytes_of(call);
        let whole = match self.calls.made {
            Made::SideBySide => bytes * u64::from(self.hosts),
            Made::ByOne(_) | Made::ByEach => bytes,
        };
        match self.skip_excluded(call, covered, whole, excluded) == whole {
            true => Ok(()),
            false => Err(Violation::Wrong { at: covered }),
        }
    }

    /// Blocks of members that are excluded need not be there, and may be in part.
    fn skip_excluded(&self, call: u64, mut covered: u64, until: u64, excluded: &[Member]) -> u64 {
        let bytes = self.calls.bytes_of(call);
        let is_excluded = |at: u64| excluded.contains(&Member((at / bytes) as u32));
        while self.calls.made == Made::SideBySide && covered < until && is_excluded(covered) {
            covered = (covered + bytes - covered % bytes).min(until);
        }
        covered
    }

    /// Says if a chunk, of one block or of several whole ones, is right. It need not be where members are excluded.
    fn is_block(&self, call: u64, range: Range<u64>, word: u64, excluded: &[Member]) -> bool {
        let bytes = self.calls.bytes_of(call);
        if bytes == 0 {
            return true;
        }
        let blocks = range.start / bytes..range.end.div_ceil(bytes);
        let mut members = blocks.clone().map(|block| Member(block as u32));
        let starts = |member: Member| range.start.max(u64::from(member.0) * bytes);
        let words = members
            .clone()
            .map(|member| original(self.calls.order, call, member, starts(member)));
        members.any(|member| excluded.contains(&member)) || word == words.fold(0, u64::wrapping_add)
    }

    /// A serial loop in blocks.
    fn expected(&self, call: u64, start: u64, excluded: &[Member]) -> u64 {
        let count = self.calls.shared.map_or(self.hosts, |shared| shared.members);
        let members = (0..count).map(Member).filter(|member| !excluded.contains(member));
        let members: Vec<u64> = members
            .map(|member| original(self.calls.order, call, member, start))
            .collect();
        let block = match self.calls.shared {
            Some(_) => members.len().max(1),
            None => ((members.len() as f64).sqrt().ceil() as usize).max(16),
        };
        let fold = |left, right| fold(self.calls.order, left, right);
        let blocks = members
            .chunks(block)
            .filter_map(|block| block.iter().copied().reduce(fold));
        blocks.reduce(fold).unwrap_or_default()
    }
}

/// The word that stands for a chunk of a member's original in a call.
pub(super) fn original(order: Order, call: u64, member: Member, start: u64) -> u64 {
    let seed = call << 56 ^ u64::from(member.0) << 40 ^ start ^ u64::from(order == Order::Ordered) << 63;
    scramble(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Sums, which show a missing or doubled word; or, where order counts, a fold that is not associative.
pub(super) fn fold(order: Order, left: u64, right: u64) -> u64 {
    match order {
        Order::Any => left.wrapping_add(right),
        Order::Ordered => scramble(left.rotate_left(17) ^ scramble(right)),
    }
}

/// The finisher of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn scramble(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
