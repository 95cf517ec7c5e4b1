//! One session at the scheduler: who has announced what, in which share it travels, and the newest plan of each share.

mod announced;
mod planning;
mod ranks;
mod shares;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use super::{
    Call, Contributions, End, Failure, GiveUp, Member, OnLoss, OnRootLoss, Order, PlanId, Roster, Session,
    ShareId, Site, Standing, Term, Token, View, detours::Detours, pace::Pace, spreading::Spread,
};
use crate::{
    canary::{Canary, is_put_back},
    message::Row,
};
use announced::{Announced, Original};
use ranks::Ranks;
use shares::{Completion, Share, Shares};

#[derive(Debug)]
pub(super) struct Collective {
    session: Session,
    term: Term,
    call: Call,
    ranks: Ranks,
    /// Something may be lost since it was looked last.
    has_unheeded: bool,
    announced: Announced,
    shares: Shares,
    /// Members that were announced and are in no share yet.
    newcomers: BTreeSet<Member>,
    /// When to begin without those who are late.
    deadline: Option<Duration>,
    plans: u32,
    pub(super) detours: Detours,
    pace: Pace,
    roster: Roster,
    pub(super) spread: Spread,
    rows: Vec<(Site, Row)>,
}

impl Collective {
    /// Ranks that share contributions are waited for so many times as long as others.
    const PATIENCE_TO_SHARE: u32 = 20;

    pub(super) fn new(session: Session, term: Term, call: Call, ranks: Vec<Site>) -> Self {
        let roster = Roster {
            generation: 0,
            root: call.root,
            excluded: Vec::new(),
        };
        Self {
            session,
            term,
            call,
            ranks: Ranks::new(ranks),
            has_unheeded: true,
            announced: Announced::default(),
            shares: Shares::default(),
            newcomers: BTreeSet::new(),
            deadline: None,
            plans: 0,
            detours: Detours::default(),
            pace: Pace::default(),
            roster,
            spread: Spread::default(),
            rows: Vec::new(),
        }
    }

    /// The call, as the first rank made it.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// The site of the root.
    pub(super) fn root(&self) -> Site {
        self.site_of(self.roster.root)
    }

    /// The site of the rank at this place in the group.
    fn site_of(&self, rank: Member) -> Site {
        self.ranks.site_of(rank)
    }

    /// All members, also those that are excluded.
    fn members(&self) -> Range<u32> {
        self.call.contributions.members(self.ranks.len())
    }

    /// The number of members that count.
    fn counted(&self) -> usize {
        self.members().len() - self.roster.excluded.len()
    }

    /// The order of folding, where there is anything to fold.
    fn order(&self) -> Order {
        match self.call.contributions {
            Contributions::Each | Contributions::Shared(_) => self.call.order,
            Contributions::One(_) | Contributions::SideBySide => Order::Any,
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let deadlines = [self.deadline, self.pace.due(), self.spread.due()];
        deadlines.into_iter().flatten().min()
    }

    /// The deadline has passed.
    pub(super) fn handle_timeout(&mut self, view: &View, now: Duration, sessions: usize) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.begin_without_late(view);
        }
        self.spread.handle_timeout(now);
        if self.pace.due().is_some_and(|due| due <= now) {
            self.go_around_slow(view, now, &BTreeSet::new(), sessions);
        }
    }

    pub(super) fn take_rows(&mut self) -> Vec<(Site, Row)> {
        std::mem::take(&mut self.rows)
    }

    /// The sites that hold something, or only want to know the end.
    pub(super) fn to_be_told(&self) -> impl Iterator<Item = Site> {
        self.sites().chain(self.announced.asking.iter().copied())
    }

    /// The sites that hold something.
    pub(super) fn sites(&self) -> impl Iterator<Item = Site> {
        self.announced.holders()
    }

    pub(super) fn is_current(&self, plan: PlanId) -> bool {
        self.shares.has_plan(plan) || self.spread.is_current(plan)
    }

    /// A site holds originals.
    pub(super) fn announce(
        &mut self,
        from: Site,
        call: &Call,
        originals: &[(Member, Token)],
        are_enclosed: bool,
    ) -> Option<End> {
        let place = self.ranks.place_of(from);
        if place.is_none() {
            self.announced.asking.insert(from);
        }
        let caller = place.or(originals.first().map(|(member, _)| *member));
        if !self.is_valid() {
            return Some(End::Mismatch(caller.unwrap_or(Member(0))));
        }
        let caller = caller?;
        if *call != self.call {
            return Some(End::Mismatch(caller));
        }
        self.announced.called.insert(from);
        let are_planned = self.shares.are_ahead();
        for &(member, token) in originals {
            if !self.members().contains(&member.0) {
                return Some(End::Mismatch(caller));
            }
            if self.roster.excluded.contains(&member) {
                continue;
            }
            let known = self.announced.originals.entry(member).or_insert_with(|| {
                if !are_planned {
                    self.newcomers.insert(member);
                }
                Original {
                    token,
                    sites: Vec::new(),
                    is_enclosed: false,
                }
            });
            if known.token != token {
                return Some(End::Mismatch(caller));
            }
            if !known.sites.contains(&from) {
                known.sites.push(from);
            }
            known.is_enclosed |= are_enclosed;
        }
        None
    }

    fn is_valid(&self) -> bool {
        let ranks = self.ranks.len();
        let makes_sense = match self.call.contributions {
            Contributions::Each => true,
            Contributions::Shared(count) => (1..=Contributions::SHARED_MAX).contains(&count),
            Contributions::One(member) => self.site_of(member) != Site(u32::MAX),
            Contributions::SideBySide => self.call.bytes.checked_mul(ranks as u64).is_some(),
        };
        makes_sense && self.root() != Site(u32::MAX)
    }

    /// Blocks have the same numbers in all generations.
    pub(super) fn note_progress(&mut self, generation: u32, merged: Vec<(ShareId, Vec<u32>)>) {
        for (share, merged) in merged {
            if generation == self.roster.generation {
                self.shares.note_progress(share, merged);
            }
        }
    }

    /// Bytes at the beginning of a member's contribution that nobody needs any more, whatever is lost: the root has
    /// merged them, and no loss makes it begin anew. Nothing before the first plan.
    pub(super) fn settled_bytes(&self, member: Member) -> Option<u64> {
        let begins_anew = self.call.on_root_loss != OnRootLoss::Fail
            || self.call.on_loss != OnLoss::Fail
            || self.call.contributions != Contributions::Each
            || !self.are_all_in_shares()
            || !self.shares.are_tokens_told();
        let chunking = self.shares.chunking?;
        Some(match begins_anew {
            true => 0,
            false => self.shares.merged_bytes(member, chunking),
        })
    }

    /// This site does not hold the bytes that were settled when it was told of.
    pub(super) fn note_part(&mut self, site: Site) {
        self.announced.parts.insert(site);
    }

    /// A site holds everything, if the tokens add up. A result of an older roster is none.
    pub(super) fn complete(
        &mut self,
        from: Site,
        generation: u32,
        tokens: Token,
        is_enclosed: bool,
    ) -> Option<End> {
        let may_be_complete =
            from == self.root() || (self.call.is_spread && self.ranks.place_of(from).is_some());
        if generation != self.roster.generation || !may_be_complete {
            return None;
        }
        let completion = Completion {
            from,
            generation,
            tokens,
            is_enclosed,
        };
        self.shares.keep_until_announced(completion)?;
        let all = self.shares.tokens();
        if !self.are_all_in_shares() || all != tokens {
            return Some(End::Failed(Failure::Tokens));
        }
        if from == self.root() {
            self.shares.note_all_merged();
            // It may have been waited for.
            self.spread.look_again();
        }
        self.spread.note_complete(from);
        if is_enclosed {
            self.spread.note_enclosed();
        }
        (!self.call.is_spread).then(|| self.done())
    }

    /// The ranks whose contributions have not come.
    pub(super) fn missing_ranks(&self) -> Vec<Member> {
        let is_merged = |rank: &Member| self.shares.merged().any(|share| share.members.contains(rank));
        let are_shared = self.call.contributions.are_shared();
        let has_come = |rank: &Member| {
            self.announced.called.contains(&self.site_of(*rank))
                || (!are_shared && (self.announced.has_holder(*rank) || is_merged(rank)))
        };
        self.ranks.members().filter(|rank| !has_come(rank)).collect()
    }

    /// The end, if a site that has left is missing. One that would only share contributions, or get the result, is not.
    pub(super) fn forsaken(&mut self, left: &BTreeMap<Site, String>) -> Option<End> {
        if left.is_empty() {
            return None;
        }
        let missing = self.missing_ranks();
        let makes_one =
            |rank: &Member| !self.call.contributions.are_shared() && self.members().contains(&rank.0);
        let is_needed =
            |rank: &Member| makes_one(rank) || *rank == self.roster.root || self.call.gives_way_to.is_some();
        let gone = missing.iter().find_map(|rank| {
            Some((*rank, left.get(&self.site_of(*rank))?)).filter(|(rank, _)| is_needed(rank))
        });
        let Some((member, why)) = gone else {
            let gone = self.ranks.sites().iter().filter(|site| left.contains_key(site));
            self.announced.called.extend(gone.copied());
            return None;
        };
        Some(End::GivenUp {
            member,
            reason: GiveUp::Left(why.clone()),
            missing,
        })
    }

    /// Says if each contribution that counts is in a share.
    pub(super) fn are_all_in_shares(&self) -> bool {
        self.shares.member_count() == self.counted()
    }

    pub(super) fn done(&self) -> End {
        End::Done {
            root: self.roster.root,
            excluded: self.roster.excluded.clone(),
        }
    }

    /// Begins, if everybody is there; else sets the time to begin without those who are late.
    pub(super) fn consider(&mut self, view: &View, now: Duration) -> Option<End> {
        self.spread.look_again();
        let have_all_called = self.have_all_called(view);
        if (self.has_unheeded || have_all_called)
            && let Some(end) = self.heed_losses(view)
        {
            return Some(end);
        }
        if self.shares.are_ahead() {
            return self.consider_ahead(view, now);
        }
        if self.newcomers.is_empty() {
            return None;
        }
        if self.call.contributions == Contributions::SideBySide {
            // Nobody waits for anybody else, but the root has to be there to take them.
            if self.announced.called.contains(&self.root()) {
                self.plan_newcomers(view);
            }
            return None;
        }
        let have_all_holders = self.have_all_holders();
        let may_be_shared = self.call.contributions.are_shared() && !have_all_called;
        if have_all_holders && self.are_all_here(view) && !may_be_shared {
            self.plan_newcomers(view);
            return None;
        }
        // The bracketing has a place for each member.
        if (self.order() == Order::Any || have_all_holders) && self.deadline.is_none() {
            // Twice as long each time: whoever comes one by one does not cause a plan each.
            let patience = match self.call.contributions {
                // Whoever comes too late is given nothing to do.
                Contributions::Shared(_) => view.patience * Self::PATIENCE_TO_SHARE,
                _ => view.patience,
            };
            self.deadline = Some(now + patience * 2_u32.saturating_pow(self.shares.begun()));
        }
        None
    }

    /// Says if nobody is about to tell of a contribution of its own: a copy elsewhere may be known first, and would be
    /// read where nobody folds.
    fn are_all_here(&self, view: &View) -> bool {
        let is_here = |member: &Member| {
            let rank = self.site_of(*member);
            self.announced.called.contains(&rank) || view.lost.contains(&rank)
        };
        self.call.contributions.are_shared() || self.newcomers.iter().all(is_here)
    }

    /// Says if each contribution is in a share, or can be planned with.
    fn have_all_holders(&self) -> bool {
        self.newcomers.len() + self.shares.member_count() == self.counted()
            && self
                .newcomers
                .iter()
                .all(|member| self.announced.has_holder(*member))
    }

    /// Says if no living rank can tell of further contributions. If each makes one, that is not of interest.
    fn have_all_called(&self, view: &View) -> bool {
        let is_lost = |site: &Site| view.lost.contains(site);
        self.call.contributions.are_shared()
            && self.announced.called.len() + view.lost.len() >= self.ranks.len()
            && self
                .ranks
                .sites()
                .iter()
                .all(|site| self.announced.called.contains(site) || is_lost(site))
    }

    /// The patience is over: those who are there begin, if the root is among them.
    fn begin_without_late(&mut self, view: &View) {
        self.deadline = None;
        if self.shares.are_ahead() {
            // Without the root, and in a fixed order without anybody, nothing could begin.
            if self.order() != Order::Any || !self.announced.has_holder(self.roster.root) {
                return;
            }
            self.begin_anew();
        }
        let may_begin = match self.call.contributions {
            Contributions::Shared(_) => {
                self.announced.called.contains(&self.root()) && self.have_all_holders()
            }
            // A copy may be lost after the deadline was set, and the bracketing has a place for each member.
            _ => {
                self.announced.has_holder(self.roster.root)
                    && (self.order() == Order::Any || self.have_all_holders())
            }
        };
        let may_begin = may_begin
            && self
                .newcomers
                .iter()
                .any(|member| self.announced.has_holder(*member));
        if may_begin {
            self.plan_newcomers(view);
        }
    }

    /// A site is lost: new plans for the shares in whose plans it was.
    pub(super) fn lose(&mut self, view: &View, now: Duration, site: Site) -> Option<End> {
        if self.ranks.place_of(site).is_some() {
            self.give_up_plan_ahead();
        }
        self.forget_holder(site);
        let end = self.heed(view, now);
        if end.is_none() {
            self.replan(view, |share| share.sites.contains(&site));
        }
        end
    }

    /// Answers what the losses so far mean: an error, another root, or fewer members.
    fn heed_losses(&mut self, view: &View) -> Option<End> {
        self.has_unheeded = false;
        if self.call.gives_way_to.is_some()
            && let Some(lost) = self
                .missing_ranks()
                .into_iter()
                .find(|rank| view.lost.contains(&self.site_of(*rank)))
        {
            return Some(End::Lost(vec![lost]));
        }
        if view.lost.contains(&self.root()) {
            let lives = |rank: &Member| !view.lost.contains(&self.site_of(*rank));
            let next = match self.call.on_root_loss {
                OnRootLoss::Fail => None,
                OnRootLoss::MoveTo(rank) => Some(rank).filter(lives),
                OnRootLoss::MoveToLowest => self.ranks.members().find(lives),
            };
            let Some(next) = next else {
                return Some(End::RootLost);
            };
            self.roster.root = next;
            self.begin_anew();
        }
        // Without some members the root begins anew, and then needs contributions that it had.
        loop {
            let lost = self.lost(view);
            if lost.is_empty() {
                let has_to_wait = self.shares.not_merged().any(|share| self.has_to_wait(share));
                if has_to_wait && !self.shares.are_ahead() {
                    self.begin_anew();
                }
                return None;
            }
            if self.call.on_loss == OnLoss::Fail || lost.len() >= self.counted() {
                return Some(End::Lost(lost));
            }
            for member in &lost {
                self.announced.originals.remove(member);
            }
            self.roster.excluded.extend(lost);
            self.roster.excluded.sort();
            self.begin_anew();
        }
    }

    /// A share was begun, and a rank that has not called yet is the only one that may still hold some of it.
    fn has_to_wait(&self, share: &Share) -> bool {
        !share
            .members
            .iter()
            .all(|member| self.announced.has_holder(*member))
    }

    /// The root has nothing yet, and all contributions are new: the roster has changed.
    fn begin_anew(&mut self) {
        self.roster.generation += 1;
        self.spread = Spread::default();
        self.shares.end_all();
        // What was settled is needed again.
        let parts = std::mem::take(&mut self.announced.parts);
        self.has_unheeded |= !parts.is_empty();
        self.announced.retain_holders(|site| !parts.contains(site));
        self.newcomers = self.announced.originals.keys().copied().collect();
    }

    /// The members that count, whose contributions nobody has or never will, and which the root still needs.
    fn lost(&self, view: &View) -> Vec<Member> {
        let merged = self.shares.merged();
        let merged: BTreeSet<Member> = merged.flat_map(|share| share.members.iter().copied()).collect();
        let have_all_called = self.have_all_called(view);
        let is_lost = |member: &Member| {
            let may_come = match self.call.contributions {
                Contributions::Shared(_) => !have_all_called,
                _ => {
                    let rank = self.site_of(*member);
                    !self.announced.called.contains(&rank) && !view.lost.contains(&rank)
                }
            };
            !self.announced.has_holder(*member) && !may_come
        };
        let counts = |member: &Member| !merged.contains(member) && !self.roster.excluded.contains(member);
        self.members()
            .map(Member)
            .filter(|member| counts(member) && is_lost(member))
            .collect()
    }

    /// The number of ranks in the group.
    pub(super) fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// A site does not hold what it announced.
    pub(super) fn forget_holder(&mut self, site: Site) {
        self.announced.retain_holders(|known| *known != site);
    }

    /// Decides anew what there is to decide after a loss.
    pub(super) fn heed(&mut self, view: &View, now: Duration) -> Option<End> {
        self.has_unheeded = true;
        self.consider(view, now)
    }

    /// A new seat learns from a site which roster was decided last and, from the root, what it has merged.
    pub(super) fn restore(&mut self, standing: &Standing) {
        let Some((roster, chunking)) = standing.roster.as_ref().zip(standing.chunking) else {
            return;
        };
        if roster.generation < self.roster.generation || !standing.is_valid(self.ranks.len()) {
            return;
        }
        if roster.generation > self.roster.generation {
            self.shares.forget();
        }
        self.roster = roster.clone();
        self.shares.chunking = Some(chunking);
        for known in &standing.shares {
            if is_put_back(Canary::MergedForgotten) {
                break;
            }
            self.shares.restore(known);
        }
    }

    /// A new seat has heard everybody: the shares that the root knows get new plans.
    pub(super) fn resume(&mut self, view: &View, now: Duration) -> Option<End> {
        for excluded in &self.roster.excluded {
            self.announced.originals.remove(excluded);
            self.newcomers.remove(excluded);
        }
        self.announced
            .retain_holders(|site| !view.lost.contains(site) || is_put_back(Canary::LostSiteAsked));
        for member in self.shares.all().flat_map(|share| &share.members) {
            if !is_put_back(Canary::MergedPlannedAgain) {
                self.newcomers.remove(member);
            }
        }
        let generation = self.roster.generation;
        self.has_unheeded = true;
        let end = self.consider(view, now);
        if end.is_some() || self.roster.generation > generation {
            return end;
        }
        if self.are_all_in_shares() && self.shares.not_merged().next().is_none() {
            self.spread.note_complete(self.root());
            return (!self.call.is_spread).then(|| self.done());
        }
        self.replan(view, |share| share.plan == PlanId::default());
        None
    }
}
