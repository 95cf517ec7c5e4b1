//! The shares of a session: members whose contributions travel together, and how much of them the root has merged.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    time::Duration,
};

use super::{Member, PlanId, ShareId, Site, Token};
use crate::{
    chunks::{Chunking, Cut},
    message::MergedShare,
};

#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Known from the first plan on.
    pub(super) chunking: Option<Chunking>,
    shares: BTreeMap<ShareId, Share>,
    next: u32,
    /// Sites that had a part in plans before the roster changed.
    former: BTreeSet<Site>,
    begun: Begun,
}

/// When the shares were begun.
#[derive(Debug, Default)]
enum Begun {
    /// When their members had been announced.
    #[default]
    Announced,
    /// Before, and some have not been. These sites were complete meanwhile.
    Ahead(Vec<Completion>),
    /// Before, and all have been since.
    AheadAndAnnounced,
}

/// A site says that it holds the whole result.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) from: Site,
    pub(super) generation: u32,
    pub(super) tokens: Token,
    pub(super) is_enclosed: bool,
}

#[derive(Debug)]
pub(in crate::scheduler) struct Share {
    pub(super) id: ShareId,
    pub(super) members: Vec<Member>,
    /// The sum of their tokens.
    tokens: Token,
    /// The newest plan.
    pub(in crate::scheduler) plan: PlanId,
    /// The first chunks of the newest plan, by class, and when it was made.
    begun: (Vec<u32>, Duration),
    /// Older plans, and what they keep: by class, the chunks before this index.
    older: Vec<(PlanId, Vec<u32>)>,
    /// The root's watermarks as last told.
    pub(super) merged: Vec<u32>,
    /// The sites that have a part in the plans.
    pub(super) sites: BTreeSet<Site>,
}

impl Share {
    fn new(id: ShareId, members: Vec<Member>, tokens: Token) -> Self {
        Self {
            id,
            members,
            tokens,
            plan: PlanId::default(),
            begun: (Vec::new(), Duration::ZERO),
            older: Vec::new(),
            merged: Vec::new(),
            sites: BTreeSet::new(),
        }
    }

    /// Begins with a plan for these sites. Older ones keep the chunks before `kept`, by class; none if it is empty.
    /// Returns the first chunk of each class, and the sites that had a part in plans before.
    pub(super) fn begin_plan(
        &mut self,
        now: Duration,
        plan: PlanId,
        kept: &[u32],
        sites: BTreeSet<Site>,
    ) -> (Vec<u32>, BTreeSet<Site>) {
        let before = std::mem::replace(&mut self.sites, sites);
        match kept.is_empty() {
            true => self.older.clear(),
            false => {
                self.sites.extend(&before);
                self.older.push((self.plan, kept.to_vec()));
            }
        }
        let kept = kept.iter().copied().chain(iter::repeat(0));
        let from = self
            .merged
            .iter()
            .zip(kept)
            .map(|(&merged, kept)| merged.max(kept));
        let from: Vec<u32> = from.collect();
        self.plan = plan;
        self.begun = (from.clone(), now);
        (from, before)
    }

    /// Says if this is its newest plan, or an older one that keeps something which is not merged.
    pub(in crate::scheduler) fn has_plan(&self, plan: PlanId) -> bool {
        let is_kept = |(older, kept): &(PlanId, Vec<u32>)| {
            *older == plan && kept.iter().zip(&self.merged).any(|(kept, merged)| merged < kept)
        };
        self.plan == plan || self.older.iter().any(is_kept)
    }

    /// By class, the chunks that have passed a site which has received so many `bytes` since the newest plan began.
    pub(super) fn passed(&self, cut: Cut, whole_bytes: u64, bytes: f64) -> Vec<u32> {
        let part = bytes / whole_bytes.max(1) as f64;
        let classes = self.begun.0.iter().zip(0..cut.classes());
        let passed = classes.map(|(&from, class)| {
            let chunks = cut.chunks_of(class);
            from.saturating_add((part * f64::from(chunks)) as u32).min(chunks)
        });
        passed.collect()
    }

    /// The time since the newest plan began.
    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.begun.1)
    }
}

impl Shares {
    /// The number of shares that have got a [name](Self::next_id).
    pub(super) fn begun(&self) -> u32 {
        self.next
    }

    /// The name of another share.
    pub(super) fn next_id(&mut self) -> ShareId {
        self.next += 1;
        ShareId(self.next - 1)
    }

    /// Begins a share, which has no plan yet.
    pub(super) fn begin(&mut self, id: ShareId, members: Vec<Member>, tokens: Token) {
        let mut share = Share::new(id, members, tokens);
        share.sites = std::mem::take(&mut self.former);
        self.shares.insert(id, share);
    }

    /// Begins a share of members that nobody has announced yet.
    pub(super) fn begin_ahead(&mut self, id: ShareId, members: Vec<Member>) {
        self.begin(id, members, Token::default());
        self.begun = Begun::Ahead(Vec::new());
    }

    /// The session that a share was begun ahead of is called for.
    pub(super) fn note_called(&mut self, now: Duration) {
        for share in self.shares.values_mut() {
            share.begun.1 = now;
        }
    }

    /// Says if there is a share of which some members have not been announced.
    pub(super) fn are_ahead(&self) -> bool {
        matches!(self.begun, Begun::Ahead(_))
    }

    /// Says if the root knows the tokens of all shares from their rows.
    pub(super) fn are_tokens_told(&self) -> bool {
        matches!(self.begun, Begun::Announced)
    }

    /// Keeps what a site says until all members are announced; returns it if they are.
    pub(super) fn keep_until_announced(&mut self, completion: Completion) -> Option<Completion> {
        match &mut self.begun {
            Begun::Ahead(completions) => {
                completions.push(completion);
                None
            }
            Begun::Announced | Begun::AheadAndAnnounced => Some(completion),
        }
    }

    /// All members of the share that was begun ahead are announced. Returns what was kept.
    pub(super) fn note_announced(&mut self, tokens: Token) -> Vec<Completion> {
        for share in self.shares.values_mut() {
            share.tokens = tokens;
        }
        match std::mem::replace(&mut self.begun, Begun::AheadAndAnnounced) {
            Begun::Ahead(completions) => completions,
            Begun::Announced | Begun::AheadAndAnnounced => Vec::new(),
        }
    }

    /// Takes over a share as the root knows it.
    pub(super) fn restore(&mut self, known: &MergedShare) {
        let mut share = Share::new(known.id, known.members.clone(), known.tokens);
        share.merged.clone_from(&known.merged);
        self.next = self.next.max(known.id.0 + 1);
        self.shares.insert(known.id, share);
    }

    /// Ends all shares. Their sites count as sites of the next one, so that its first plan tells them.
    pub(super) fn end_all(&mut self) {
        self.begun = Begun::Announced;
        for share in std::mem::take(&mut self.shares).into_values() {
            self.former.extend(share.sites);
        }
    }

    /// Forgets all shares and their sites.
    pub(super) fn forget(&mut self) {
        self.shares.clear();
    }

    pub(super) fn get(&self, id: ShareId) -> Option<&Share> {
        self.shares.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ShareId) -> Option<&mut Share> {
        self.shares.get_mut(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Share> {
        self.shares.values()
    }

    /// The shares that the root has merged.
    pub(super) fn merged(&self) -> impl Iterator<Item = &Share> {
        self.all().filter(|share| self.is_merged(share))
    }

    /// The shares that the root lacks some of.
    pub(super) fn not_merged(&self) -> impl Iterator<Item = &Share> {
        self.all().filter(|share| !self.is_merged(share))
    }

    /// Says if a share still [has](Share::has_plan) this plan.
    pub(super) fn has_plan(&self, plan: PlanId) -> bool {
        self.all().any(|share| share.has_plan(plan))
    }

    /// Bytes at the beginning of a member's contribution that the root has merged for certain: the last chunk that it
    /// told of may be under way.
    pub(super) fn merged_bytes(&self, member: Member, chunking: Chunking) -> u64 {
        let Some(share) = self.all().find(|share| share.members.contains(&member)) else {
            return 0;
        };
        let cut = chunking.cut(share.id);
        let merged = (0..cut.classes()).zip(&share.merged);
        let first = merged.map(|(class, until)| cut.range(class, until.saturating_sub(1)).start);
        first.min().unwrap_or_default()
    }

    /// The number of members in all shares.
    pub(super) fn member_count(&self) -> usize {
        self.all().map(|share| share.members.len()).sum()
    }

    /// The sum of the tokens of all members in shares.
    pub(super) fn tokens(&self) -> Token {
        Token::sum(self.all().map(|share| share.tokens))
    }

    /// The root tells its watermarks of a share.
    pub(super) fn note_progress(&mut self, id: ShareId, merged: Vec<u32>) {
        if let Some(share) = self.shares.get_mut(&id)
            && share.merged.len() == merged.len()
        {
            for (known, merged) in share.merged.iter_mut().zip(merged) {
                *known = merged.max(*known);
            }
        }
    }

    /// The root has merged all shares.
    pub(super) fn note_all_merged(&mut self) {
        let Some(chunking) = self.chunking else { return };
        for share in self.shares.values_mut() {
            let cut = chunking.cut(share.id);
            share.merged = (0..cut.classes()).map(|class| cut.chunks_of(class)).collect();
        }
    }

    /// The part that the root has merged of the classes of chunks that it lacks some of.
    pub(super) fn merged_part(&self) -> f64 {
        let Some(chunking) = self.chunking else {
            return 0.0;
        };
        let classes = self.all().flat_map(|share| {
            let cut = chunking.cut(share.id);
            let merged = share.merged.iter().copied().zip(0..);
            merged.map(move |(merged, class)| (merged, cut.chunks_of(class)))
        });
        let classes = classes.filter(|(merged, chunks)| merged < chunks);
        let (merged, chunks) = classes.fold((0, 0), |(all_merged, all), (merged, chunks)| {
            (all_merged + u64::from(merged), all + u64::from(chunks))
        });
        merged as f64 / chunks.max(1) as f64
    }

    fn is_merged(&self, share: &Share) -> bool {
        self.chunking.is_some_and(|chunking| {
            let cut = chunking.cut(share.id);
            let is_whole = |class: u16| share.merged.get(usize::from(class)) == Some(&cut.chunks_of(class));
            (0..cut.classes()).all(is_whole)
        })
    }
}
