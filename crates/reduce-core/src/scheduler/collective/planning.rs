//! Plans of a session: for its shares, and for its result on the way to all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::{Call, detours, pace::Pace, rows, spreading},
    Announced, Collective, Completion, Contributions, End, Member, Order, Original, PlanId, Row, Share,
    ShareId, Site, Token, View,
};
use crate::{
    bracketing::block_of,
    chunks::Chunking,
    message::RowNode,
    planner::{Planner, Ring, Source},
    sharing,
};

/// The part of a row that is for the site that merges.
#[derive(Default)]
struct Merged {
    members: Vec<(Member, Token)>,
    in_all: u32,
    given: Vec<Member>,
}

impl Collective {
    /// Contributions that are folded are one share: a share is a vector of its own into the root, and so is its rest.
    /// It is faster to begin anew with all than to add a share to one that is not there yet. Those that stand side by
    /// side are a share each.
    pub(super) fn plan_newcomers(&mut self, view: &View) {
        let are_folded = self.call.contributions != Contributions::SideBySide;
        if are_folded && self.shares.not_merged().next().is_some() {
            self.begin_anew();
        }
        let (members, waited_for): (BTreeSet<Member>, BTreeSet<Member>) = std::mem::take(&mut self.newcomers)
            .into_iter()
            .partition(|member| self.announced.has_holder(*member));
        self.newcomers = waited_for;
        self.deadline = None;
        if are_folded {
            let id = self.shares.next_id();
            return self.begin_share(view, id, members.into_iter().collect());
        }
        for member in members {
            self.begin_share(view, ShareId(member.0), vec![member]);
        }
    }

    /// Plans for all ranks, before any of them has called; again, if it has.
    pub(in crate::scheduler) fn plan_ahead(&mut self, view: &View) {
        let root = self.root();
        let members = self.call.contributions.members(self.ranks.len());
        let members: Vec<Member> = members.map(Member).collect();
        for &member in &members {
            let original = Original {
                token: Token::default(),
                sites: vec![self.site_of(member)],
                is_enclosed: false,
            };
            self.announced.originals.insert(member, original);
        }
        let begun = self.shares.all().next().map(|share| share.id);
        let id = begun.unwrap_or_else(|| {
            let id = self.shares.next_id();
            self.shares.begin_ahead(id, members);
            id
        });
        self.plan(view, id, &[]);
        if self.call.is_spread && self.call.bytes > Call::RESULT_BYTES_MAX {
            let sites = self.ranks.sites().iter().copied();
            let receivers = sites.filter(|site| *site != root).collect();
            let before = std::mem::replace(&mut self.spread.receivers, receivers);
            self.plan_spread(view, before);
        }
        self.announced = Announced::default();
    }

    /// The session that was planned ahead is called for. If not as was expected, or if a rank is lost, the plan is
    /// void.
    pub(in crate::scheduler) fn note_called(&mut self, call: &Call, view: &View) {
        self.shares.note_called(view.now);
        self.pace = Pace::default();
        self.pace.begin(view.now);
        if self.call != *call {
            self.call = call.clone();
            self.roster.root = call.root;
            self.shares.chunking = None;
            self.begin_anew();
        } else if self.ranks.sites().iter().any(|site| view.lost.contains(site)) {
            self.begin_anew();
        }
    }

    /// Says if the contributions of all that count have been announced and planned.
    pub(in crate::scheduler) fn is_called_for(&self) -> bool {
        self.are_all_in_shares() && !self.shares.are_ahead()
    }

    /// Says if a rank was late or lost.
    pub(in crate::scheduler) fn has_begun_anew(&self) -> bool {
        self.roster.generation > 0
    }

    /// The plan holds once all ranks have told of their contributions; they are waited for as without a plan.
    pub(super) fn consider_ahead(&mut self, view: &View, now: Duration) -> Option<End> {
        let called = &self.announced.called;
        let originals = &self.announced.originals;
        let have_all_called = called.len() >= self.ranks.len()
            && originals.len() == self.counted()
            && self.ranks.sites().iter().all(|site| called.contains(site));
        if !have_all_called {
            self.deadline.get_or_insert(now + view.patience);
            return None;
        }
        self.deadline = None;
        let tokens = Token::sum(originals.values().map(|original| original.token));
        let completions = self.shares.note_announced(tokens);
        completions.into_iter().find_map(|told| {
            let Completion {
                from,
                generation,
                tokens,
                is_enclosed,
            } = told;
            self.complete(from, generation, tokens, is_enclosed)
        })
    }

    /// A plan that was made ahead is void. Those who have called are new.
    pub(in crate::scheduler) fn give_up_plan_ahead(&mut self) {
        if self.shares.are_ahead() {
            self.begin_anew();
        }
    }

    fn begin_share(&mut self, view: &View, id: ShareId, members: Vec<Member>) {
        let tokens = self.announced.tokens_of(&members);
        let tokens = Token::sum(tokens.into_iter().map(|(_, token)| token));
        self.shares.begin(id, members, tokens);
        self.plan(view, id, &[]);
    }

    pub(in crate::scheduler) fn replan(&mut self, view: &View, is_concerned: impl Fn(&Share) -> bool) {
        let concerned = self.shares.not_merged().filter(|share| is_concerned(share));
        let concerned: Vec<ShareId> = concerned.map(|share| share.id).collect();
        for id in concerned {
            self.plan(view, id, &[]);
        }
    }

    /// The share that a plan is for, if the share has not ended and still has it.
    pub(in crate::scheduler) fn share_under_way(&self, plan: PlanId) -> Option<ShareId> {
        let share = self.shares.not_merged().find(|share| share.has_plan(plan));
        let spread = self.spread.is_current(plan).then_some(ShareId::SPREAD);
        share.map(|share| share.id).or(spread)
    }

    /// Some sites are far slower than they counted when the plans were made.
    pub(in crate::scheduler) fn go_around_slow(
        &mut self,
        view: &View,
        now: Duration,
        fallen: &BTreeSet<Site>,
        sessions: usize,
    ) {
        if self.shares.are_ahead() {
            return;
        }
        let is_planned = |site: &&Site| self.shares.all().any(|share| share.sites.contains(*site));
        let may_replan = self.shares.merged_part() < 0.5;
        // The root receives in all plans.
        let concerns = |site: &&Site| {
            **site != self.root() && ((may_replan && is_planned(site)) || self.spread.receives(**site))
        };
        let fallen = fallen.iter().filter(concerns).copied().collect();
        let fallen = self.pace.take(now, fallen, &view.slow);
        self.spread.go_around_slow(&fallen);
        if !may_replan {
            return;
        }
        let concerned = self.shares.not_merged();
        let concerned = concerned.filter(|share| !share.sites.is_disjoint(&fallen));
        let concerned: Vec<ShareId> = concerned.map(|share| share.id).collect();
        for id in concerned {
            if let Some(kept) = self.kept(view, id, &fallen, sessions) {
                self.plan(view, id, &kept);
            }
        }
    }

    /// By class, the chunks of a share that the trees of now bring to the root: those that will have passed all these
    /// slow sites when new trees have begun to stream, as it seems; `None` if nothing is left for these. Sessions at
    /// once have equal parts of a link.
    fn kept(&self, view: &View, id: ShareId, slow: &BTreeSet<Site>, sessions: usize) -> Option<Vec<u32>> {
        let (share, chunking) = (self.shares.get(id)?, self.shares.chunking?);
        let parts = slow.iter().filter_map(|site| view.slow.get(site));
        let part = parts.copied().fold(1.0, f64::min) / sessions.max(1) as f64;
        // A link through which the result comes too has no time for more than what has passed.
        let ahead = match self.call.is_spread {
            true => Duration::ZERO,
            false => self.pace.first(),
        };
        let bytes = part * view.costs.rate * (share.age(view.now) + ahead).as_secs_f64();
        let cut = chunking.cut(id);
        let kept = share.passed(cut, chunking.whole_bytes(), bytes);
        let is_some_left = (0..cut.classes())
            .zip(&kept)
            .any(|(class, kept)| *kept < cut.chunks_of(class));
        is_some_left.then_some(kept)
    }

    /// Makes a plan for a share, and a row for each site that has a part in it or in the plans before. Older plans go
    /// on with the chunks before `kept`, by class, if it is not empty.
    fn plan(&mut self, view: &View, id: ShareId, kept: &[u32]) {
        self.pace.begin(view.now);
        let root = self.root();
        let planner = Planner {
            root,
            order: self.order(),
            contributions: self.call.contributions,
            broken: view.troubles.broken(),
            hosts: view.troubles.hosts(),
            ring: self.makes_ring().then_some(Ring::ToRoot),
            costs: view.costs,
        };
        let capacity = |site: &Site| view.capacity(*site).min(self.pace.part(*site));
        let Some(share) = self.shares.get(id) else { return };
        let originals = &self.announced.originals;
        let held = share.members.iter();
        let held = held.filter_map(|member| Some((*member, &originals.get(member)?.sites[..])));
        let held: Vec<(Member, &[Site])> = held.collect();
        let given = self.given(id);
        let dealt = match self.call.contributions {
            _ if given.is_some() => held.iter().map(|(member, _)| (*member, root)).collect(),
            Contributions::Shared(_) => sharing::deal(&held, root, capacity),
            _ => sharing::first(&held, capacity),
        };
        let sources = rows::sources(dealt, capacity);
        let members_in_all = self.counted() as u32;
        let chunking = self.shares.chunking.unwrap_or_else(|| self.cut(&planner));
        self.shares.chunking = Some(chunking);
        let mut trees = planner.trees(&sources, &chunking, id);
        if !view.troubles.broken().is_empty() {
            // Those who have no part in this share may help too.
            let folds = self.sites().filter(|site| capacity(site) > 0.0);
            let between: BTreeSet<Site> = folds.filter(|site| !view.lost.contains(site)).collect();
            detours::go_around(&mut trees, view.troubles.broken(), between);
        }
        let plan = self.next_plan();
        let Some(share) = self.shares.get_mut(id) else {
            return;
        };
        share.merged.resize(usize::from(chunking.cut(id).classes()), 0);
        let sites = trees.iter().flat_map(|tree| tree.0.iter().map(|node| node.site));
        let (from, before) = share.begin_plan(view.now, plan, kept, sites.collect());
        let mut nodes: BTreeMap<Site, Vec<RowNode>> = BTreeMap::new();
        for ((tree, class), from) in trees.iter().zip(0..).zip(from) {
            for (site, node) in rows::nodes(tree, class, from) {
                nodes.entry(site).or_default().push(node);
            }
        }
        // Those who have no part any more are told too.
        for site in before.difference(&view.lost) {
            nodes.entry(*site).or_default();
        }
        let members = self.announced.tokens_of(&share.members);
        for (site, nodes) in nodes {
            let merged = match site == root {
                true => Merged {
                    members: members.clone(),
                    in_all: members_in_all,
                    given: self.give(given.as_deref().unwrap_or_default()),
                },
                false => Merged::default(),
            };
            self.push_row(site, (plan, kept), id, nodes, merged);
        }
    }

    /// The members of a share that the root does not hold, if it gets them all with its row and folds them by itself.
    fn given(&self, id: ShareId) -> Option<Vec<Member>> {
        let members = &self.shares.get(id)?.members;
        let root = self.root();
        let are_one_block = self.order() == Order::Any || members.len() <= block_of(members.len());
        if !self.call.may_be_enclosed(self.ranks.len())
            || !are_one_block
            || !self.announced.called.contains(&root)
        {
            return None;
        }
        let mut given = Vec::new();
        for member in members {
            let original = self.announced.originals.get(member)?;
            if !original.sites.contains(&root) {
                original.is_enclosed.then(|| given.push(*member))?;
            }
        }
        Some(given)
    }

    /// The root holds these from now on.
    fn give(&mut self, members: &[Member]) -> Vec<Member> {
        let root = self.root();
        for member in members {
            if let Some(original) = self.announced.originals.get_mut(member) {
                original.sites.push(root);
            }
        }
        members.to_vec()
    }

    /// Cuts the vector for as many sites as a chunk passes.
    fn cut(&self, planner: &Planner) -> Chunking {
        let ranks = self.ranks.len();
        let sites = match self.call.contributions {
            _ if self.call.is_spread => ranks,
            Contributions::Each | Contributions::Shared(_) => self.counted(),
            Contributions::One(_) | Contributions::SideBySide => 2,
        };
        let blocks = self.call.contributions.blocks(ranks);
        let places = planner.places(sites, self.ranks.sites());
        planner.chunking_of_blocks(blocks, self.call.bytes, self.call.element_bytes, places)
    }

    fn push_row(
        &mut self,
        site: Site,
        (plan, kept): (PlanId, &[u32]),
        share: ShareId,
        nodes: Vec<RowNode>,
        merged: Merged,
    ) {
        let Some(chunking) = self.shares.chunking else {
            return;
        };
        let row = Row {
            session: self.session,
            plan,
            share,
            chunking,
            kept: kept.to_vec(),
            nodes,
            given: merged.given,
            members: merged.members,
            members_in_all: merged.in_all,
            roster: self.roster.clone(),
            ahead_of: self.shares.are_ahead().then(|| Box::new(self.call.clone())),
        };
        self.rows.push((site, row));
    }

    fn next_plan(&mut self) -> PlanId {
        self.plans += 1;
        PlanId {
            term: self.term,
            number: self.plans,
        }
    }

    /// Brings the result to all ranks that live and have not left. The end, once they have it.
    pub(in crate::scheduler) fn spread(&mut self, view: &View, left: &BTreeMap<Site, String>) -> Option<End> {
        if !self.call.is_spread || !self.are_all_in_shares() || self.shares.are_ahead() {
            return None;
        }
        // Each rank tells that it is complete: only the first time all are looked at.
        if let Some(are_all_complete) = self.spread.are_all_complete() {
            return are_all_complete.then(|| self.done());
        }
        let root = self.root();
        let is_here = |site: &Site| !view.lost.contains(site) && !left.contains_key(site);
        let here: BTreeSet<Site> = self.ranks.sites().iter().copied().filter(is_here).collect();
        let called = here
            .iter()
            .filter(|site| **site != root && self.announced.called.contains(*site));
        let receivers: BTreeSet<Site> = called.copied().collect();
        let spread = &mut self.spread;
        let has_it = |site: &Site| spread.complete.contains(site);
        let gets_it = |site: &Site| spread.is_enclosed && self.announced.called.contains(site);
        let lack_it = here.iter().filter(|site| !has_it(site) && !gets_it(site));
        let root_lacks_it = (!has_it(&root)).then_some(root);
        let awaited: BTreeSet<Site> = lack_it.copied().chain(root_lacks_it).collect();
        if awaited.is_empty() {
            return Some(self.done());
        }
        spread.awaited = Some(awaited);
        let have_all_called = receivers.len() + usize::from(here.contains(&root)) == here.len();
        let are_new =
            receivers != spread.receivers && (have_all_called || spread.is_due(view.now, view.patience));
        let ranks = self.ranks.len();
        let comes_with_end = root_lacks_it.is_some() && self.call.may_end_with_result(ranks, ranks);
        if (are_new || spread.is_stale) && !comes_with_end {
            let before = std::mem::replace(&mut spread.receivers, receivers);
            spread.is_stale = false;
            self.plan_spread(view, before);
        }
        None
    }

    /// Each site carries as much for the result as for the contributions.
    fn makes_ring(&self) -> bool {
        self.call.is_spread && self.call.contributions == Contributions::Each && self.order() == Order::Any
    }

    fn plan_spread(&mut self, view: &View, before: BTreeSet<Site>) {
        let Some(chunking) = self.shares.chunking else {
            return;
        };
        let root = self.root();
        let plan = self.next_plan();
        let ring = self.makes_ring().then_some(Ring::FromRoot);
        let spread = &mut self.spread;
        spread.begin_plan(view.now, plan);
        let sites: BTreeSet<Site> = spread.receivers.iter().copied().chain([root]).collect();
        let planner = Planner {
            root,
            order: Order::Any,
            contributions: Contributions::Each,
            broken: view.troubles.broken(),
            hosts: view.troubles.hosts(),
            ring,
            costs: view.costs,
        };
        let source = |&site: &Site| Source {
            site,
            members: Vec::from_iter(self.ranks.place_of(site)),
            capacity: view.capacity(site).min(self.pace.part(site)),
        };
        // Backwards: the chain of the reduction comes to the root from its first site, and the result goes on to its
        // last one. So each site sends to one other alone, and no two senders meet in a link.
        let sources: Vec<Source> = sites.iter().rev().map(source).collect();
        let mut trees = planner.trees(&sources, &chunking, ShareId::SPREAD);
        if !view.troubles.broken().is_empty() {
            detours::go_around(&mut trees, view.troubles.broken(), sites);
        }
        let mut nodes: BTreeMap<Site, Vec<RowNode>> = BTreeMap::new();
        for (class, tree) in trees.iter().enumerate() {
            for (site, node) in spreading::reversed(tree, class as u16) {
                nodes.entry(site).or_default().push(node);
            }
        }
        for site in before.difference(&view.lost) {
            nodes.entry(*site).or_default();
        }
        let total = self.shares.tokens();
        let total = vec![(self.roster.root, total)];
        for (site, nodes) in nodes {
            let merged = Merged {
                members: total.clone(),
                in_all: u32::from(site != root),
                given: Vec::new(),
            };
            self.push_row(site, (plan, &[]), ShareId::SPREAD, nodes, merged);
        }
    }
}
