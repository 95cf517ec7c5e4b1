//! Sites that live and do not reach each other: what is known of them, and the ways around.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{End, Failure, PlanId, Site, View, collective::Collective};
use crate::{
    ids::ShareId,
    tree::{Operand, Tree},
};

/// The pairs of sites that do not reach each other.
///
/// A pair of ranks on two hosts shows mostly that the hosts do not reach each other. But a site that is accused from
/// its own host, or from two others, is silent itself, as a stopped process is, and says nothing of its host.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    hosts: BTreeMap<Site, u64>,
    /// The sites on each host.
    sites: BTreeMap<u64, BTreeSet<Site>>,
    /// Who told when first that it does not reach whom.
    told: BTreeMap<(Site, Site), Duration>,
    /// The pairs that plans go around, in both orders.
    broken: BTreeSet<(Site, Site)>,
}

impl Troubles {
    /// After so long a later session tries again.
    const MEMORY: Duration = Duration::from_secs(60);

    pub(super) fn set_hosts(&mut self, hosts: impl IntoIterator<Item = (Site, u64)>) {
        for (site, host) in hosts {
            if let Some(before) = self.hosts.insert(site, host)
                && let Some(sites) = self.sites.get_mut(&before)
            {
                sites.remove(&site);
            }
            self.sites.entry(host).or_default().insert(site);
        }
    }

    /// The host of each site that is on a known one.
    pub(super) fn hosts(&self) -> &BTreeMap<Site, u64> {
        &self.hosts
    }

    /// Says if what two sites send each other passes no link, though others' does.
    pub(super) fn are_beside(&self, one: Site, other: Site) -> bool {
        let host = self.hosts.get(&one);
        self.sites.len() > 1 && host.is_some() && host == self.hosts.get(&other)
    }

    /// The sites on the host of a site.
    pub(super) fn on_host_of(&self, site: Site) -> impl Iterator<Item = Site> {
        let host = self.hosts.get(&site).and_then(|host| self.sites.get(host));
        host.into_iter().flatten().copied()
    }

    /// Pairs of sites that do not reach each other, in both orders.
    pub(super) fn broken(&self) -> &BTreeSet<(Site, Site)> {
        &self.broken
    }

    fn note(&mut self, now: Duration, site: Site, other: Site) {
        self.told.entry((site, other)).or_insert(now);
        self.derive();
    }

    /// Forgets news that is too old to be relied on.
    pub(super) fn forget_old(&mut self, now: Duration) {
        let before = self.told.len();
        self.told.retain(|_, told| now < *told + Self::MEMORY);
        if self.told.len() < before {
            self.derive();
        }
    }

    /// A site is lost: what it had to do with others is over.
    pub(super) fn forget_site(&mut self, site: Site) {
        let before = self.told.len();
        self.told.retain(|(one, other), _| *one != site && *other != site);
        if self.told.len() < before {
            self.derive();
        }
    }

    fn derive(&mut self) {
        let mut accusers: BTreeMap<Site, BTreeSet<Option<&u64>>> = BTreeMap::new();
        for (site, other) in self.told.keys() {
            accusers.entry(*other).or_default().insert(self.hosts.get(site));
        }
        let mut broken = BTreeSet::new();
        for &(site, other) in self.told.keys() {
            broken.extend([(site, other), (other, site)]);
            let (Some(host), Some(other_host)) = (self.hosts.get(&site), self.hosts.get(&other)) else {
                continue;
            };
            let from = &accusers[&other];
            if host == other_host || from.len() > 1 || from.contains(&Some(other_host)) {
                continue;
            }
            for &one in &self.sites[host] {
                let others = self.sites[other_host].iter();
                broken.extend(others.flat_map(|&other| [(one, other), (other, one)]));
            }
        }
        self.broken = broken;
    }
}

/// The detours of one session.
#[derive(Debug, Default)]
pub(super) struct Detours {
    /// The plans of a reduction and of the spreading of its result may have the same neighbours, and change apart.
    pairs: BTreeMap<(ShareId, Site, Site), Pair>,
    count: u32,
}

#[derive(Debug)]
struct Pair {
    first: Duration,
    /// Until then there is no other plan for its sake, and after the next one for twice as long.
    next: Duration,
    pause: Duration,
}

/// The answer to a failed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Plan,
    /// Both ends try again by themselves, and one may only be busy for long: another plan would begin anew what it
    /// does.
    Wait,
    Fail,
}

impl Detours {
    /// After so many failed links for each site, sites that live do not reach each other at all.
    const PER_SITE: u32 = 4;
    const PAUSE: Duration = Duration::from_secs(10);
    /// So long may a site fail to be read where nobody is that could try again.
    const PATIENCE: Duration = Duration::from_secs(40);

    fn answer(
        &mut self,
        now: Duration,
        pair: (ShareId, Site, Site),
        is_passive: bool,
        sites: usize,
    ) -> Answer {
        if let Some(known) = self.pairs.get_mut(&pair).filter(|_| pair.1 != pair.2) {
            if is_passive {
                return match now < known.first + Self::PATIENCE {
                    true => Answer::Plan,
                    false => Answer::Fail,
                };
            }
            if now < known.next {
                return Answer::Wait;
            }
            known.pause *= 2;
            known.next = now + known.pause;
            return Answer::Plan;
        }
        let pause = Self::PAUSE;
        let pair_of_now = Pair {
            first: now,
            next: now + pause,
            pause,
        };
        self.pairs.insert(pair, pair_of_now);
        self.count += 1;
        match self.count <= Self::PER_SITE * (sites as u32 + 1) {
            true => Answer::Plan,
            false => Answer::Fail,
        }
    }
}

impl Collective {
    /// Two sites that live do not reach each other: the next plan goes around.
    pub(super) fn avoid(
        &mut self,
        view: &mut View,
        now: Duration,
        plan: PlanId,
        site: Site,
        other: Site,
    ) -> Option<End> {
        if site == other {
            self.forget_holder(other);
        } else {
            view.troubles.note(now, site, other);
        }
        self.give_up_plan_ahead();
        // A plan that has ended, of which a site still has rows, is nobody's trouble.
        let Some(share) = self.share_under_way(plan) else {
            return self.heed(view, now);
        };
        let (ranks, is_passive) = (self.ranks(), view.capacity(other) == 0.0);
        match self.detours.answer(now, (share, site, other), is_passive, ranks) {
            Answer::Plan => {}
            Answer::Wait => return None,
            Answer::Fail => return Some(End::Failed(Failure::Unreachable(site, other))),
        }
        let end = self.heed(view, now);
        if end.is_none() {
            self.replan(view, |share| share.has_plan(plan));
            self.spread.avoid(plan);
        }
        end
    }
}

/// Lets chunks between sites that do not reach each other pass through one that both reach, where there is one: each
/// tree begins to look for it at another of these sites.
pub(super) fn go_around(trees: &mut [Tree], broken: &BTreeSet<(Site, Site)>, between: BTreeSet<Site>) {
    let sites: Vec<Site> = between.into_iter().collect();
    let mut turn = 0;
    for tree in trees {
        for at in 0..tree.0.len() {
            for place in 0..tree.0[at].inputs.len() {
                let Operand::Child(child) = tree.0[at].inputs[place] else {
                    continue;
                };
                let ends = (tree.0[at].site, tree.0[child as usize].site);
                if !broken.contains(&ends) {
                    continue;
                }
                let reaches = |one: Site, other: Site| one != other && !broken.contains(&(one, other));
                let mut order = (0..sites.len()).map(|step| (turn + step) % sites.len());
                let between =
                    order.find(|&site| reaches(ends.0, sites[site]) && reaches(sites[site], ends.1));
                if let Some(between) = between {
                    turn = between + 1;
                    let node = tree.add(sites[between], vec![Operand::Child(child)]);
                    tree.0[at].inputs[place] = Operand::Child(node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Costs, Member, Order,
        chunks::Chunking,
        planner::{Planner, Source},
        scheduler::Contributions,
    };

    const NOW: Duration = Duration::from_secs(1);

    /// Two ranks on each of four hosts.
    fn troubles() -> Troubles {
        let mut troubles = Troubles::default();
        troubles.set_hosts((0..8).map(|site| (Site(site), u64::from(site / 2))));
        troubles
    }

    /// One pair of ranks that do not reach each other stands for all of their hosts.
    #[test]
    fn a_pair_of_ranks_is_a_pair_of_hosts() {
        let mut troubles = troubles();
        troubles.note(NOW, Site(0), Site(3));
        for (one, other) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
            assert!(troubles.broken().contains(&(Site(one), Site(other))));
            assert!(troubles.broken().contains(&(Site(other), Site(one))));
        }
        assert_eq!(troubles.broken().len(), 8);
        troubles.forget_old(NOW + Troubles::MEMORY);
        assert!(troubles.broken().is_empty());
    }

    /// A rank that nobody reaches says nothing of its host.
    #[test]
    fn a_silent_rank_is_no_silent_host() {
        for second in [2, 4] {
            let mut troubles = troubles();
            troubles.note(NOW, Site(0), Site(3));
            troubles.note(NOW, Site(second), Site(3));
            assert!(!troubles.broken().contains(&(Site(0), Site(2))), "{second}");
            assert_eq!(troubles.broken().len(), 4);
            troubles.forget_site(Site(3));
            assert!(troubles.broken().is_empty());
        }
    }

    /// A pair that fails on and on gets another plan now and then; if one of the two cannot try again by itself it
    /// ends the session, in time. New pairs do so when there are too many.
    #[test]
    fn patience_has_an_end() {
        let mut detours = Detours::default();
        let pair = |other| (ShareId(0), Site(0), Site(other));
        let (active, passive) = (pair(1), pair(2));
        let mut answer =
            |at: u64, pair, is_passive| detours.answer(Duration::from_secs(at), pair, is_passive, 2);
        let answers: Vec<u64> = (0..71)
            .filter(|&at| answer(at, active, false) == Answer::Plan)
            .collect();
        assert_eq!(answers, [0, 10, 30, 70]);
        assert_eq!(answer(0, passive, true), Answer::Plan);
        assert_eq!(answer(39, passive, true), Answer::Plan);
        assert_eq!(answer(40, passive, true), Answer::Fail);
        let others = (3..100).take_while(|&other| answer(0, pair(other), false) == Answer::Plan);
        assert_eq!(others.count(), 10);
    }

    /// A new plan for one share is none for another with the same neighbours.
    #[test]
    fn each_share_gets_its_plan() {
        let mut detours = Detours::default();
        for share in [ShareId(0), ShareId(1), ShareId::SPREAD] {
            let mut answer = || detours.answer(NOW, (share, Site(0), Site(1)), false, 8);
            assert_eq!([answer(), answer()], [Answer::Plan, Answer::Wait]);
        }
    }

    proptest! {
        /// Of two hosts that do not reach each other nobody has a neighbour on the other, whatever the order of
        /// folding and wherever the root is, as long as a third host reaches both. Each member is there once, in its
        /// place.
        #[test]
        fn trees_go_around_a_pair_of_hosts(
            sites in 3_u32..20,
            root in 0_u32..20,
            cut in (0_u32..20, 0_u32..20),
            is_ordered in any::<bool>(),
            classes in 1_u16..9,
        ) {
            let (root, cut) = (Site(root % sites), (Site(cut.0 % sites), Site(cut.1 % sites)));
            prop_assume!(cut.0 != cut.1);
            let broken = BTreeSet::from([cut, (cut.1, cut.0)]);
            let source = |site| Source { site: Site(site), members: vec![Member(site)], capacity: 1.0 };
            let sources: Vec<Source> = (0..sites).map(source).collect();
            let order = if is_ordered { Order::Ordered } else { Order::Any };
            let planner = Planner {
                root,
                order,
                contributions: Contributions::Each,
                broken: &broken,
                hosts: &BTreeMap::new(),
                ring: None,
                costs: Costs { latency: 1e-4, per_chunk: 1e-5, rate: 50e6 },
            };
            let chunking = Chunking { bytes: 1 << 20, blocks: 1, chunk_bytes: 1 << 14, classes };
            let mut trees = planner.trees(&sources, &chunking, ShareId(0));
            let before: Vec<_> = trees.iter().map(Tree::members).collect();
            go_around(&mut trees, &broken, (0..sites).map(Site).collect());
            for (tree, before) in trees.iter().zip(before) {
                prop_assert_eq!(tree.members(), before);
                for (at, parent) in tree.parents().into_iter().enumerate() {
                    if let Some(parent) = parent {
                        let pair = (tree.0[parent as usize].site, tree.0[at].site);
                        prop_assert!(!broken.contains(&pair), "{:?} in {:?}", pair, tree);
                    }
                }
            }
        }
    }
}
