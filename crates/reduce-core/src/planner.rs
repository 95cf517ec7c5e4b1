//! Trees for the classes of chunks, from rates and from who holds what.
//!
//! Each site but the root sends every chunk once, so that trees differ in who receives: a site receives a chunk
//! from each of its children. As long as fast sites can have one child each, the tree of few sites is the same chain in
//! all classes, in which each link in has one sender; the slowest site is its leaf. The more sites there are, the more
//! chains the tree is of, and few sites join them. Otherwise the planner gives each site a number of children, over all
//! classes together, in proportion to the rate at which it receives and folds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    bracketing::Bracketing,
    by_host::ByHost,
    child_shares::ChildShares,
    chunks::Chunking,
    ids::{Member, ShareId, Site},
    scheduler::Contributions,
    shape::Shape,
    tree::{Operand, Tree},
};

/// In which order contributions are folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// As they come: for operations that are associative and commutative.
    #[default]
    Any,
    /// By a bracketing that depends on the number of members alone: equal results bit for bit, and operations that
    /// do not commute.
    Ordered,
}

/// A site that holds originals.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The site.
    pub site: Site,
    /// The members whose originals it contributes to this plan, ascending.
    pub members: Vec<Member>,
    /// Bytes per second that it can receive and fold, relative to the others'. With 0 it is always a leaf.
    pub capacity: f64,
}

/// The network and the sites as measured, from which the size of chunks and the shape of trees follow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Seconds that a message takes from one site to another.
    pub latency: f64,
    /// Seconds that a site spends on a chunk, however short it is.
    pub per_chunk: f64,
    /// Bytes per second of a link.
    pub rate: f64,
}

/// Lays out trees.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// The site where the result is merged.
    pub root: Site,
    /// The order of folding.
    pub order: Order,
    /// The contributions that the result is of.
    pub contributions: Contributions,
    /// Pairs (parent, child) that do not reach each other.
    pub broken: &'a BTreeSet<(Site, Site)>,
    /// The hosts of the sites, as far as they are known: what several sites on one hold passes its link once.
    pub hosts: &'a BTreeMap<Site, u64>,
    /// The trees are of a result that goes to all, if it is so.
    pub ring: Option<Ring>,
    /// The network as measured.
    pub costs: Costs,
}

/// The half of a ring through all sites that a chain is: contributions come to the root on one, and the result goes on
/// from it on the other one.
///
/// The last site of the first half receives no contributions, and that of the second half sends nothing of the result.
/// So each class begins its ring at another site: then, if there are as many classes, each link of p sites carries
/// n (2 p - 3) / (p - 1) bytes, and not most of them 2 n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Contributions.
    ToRoot,
    /// The result. The sites are given the other way round.
    FromRoot,
}

impl Ring {
    /// A site with less than this part of the fastest's capacity is better off as the last one in all classes.
    const ALIKE: f64 = 0.8;

    /// Lets the chain of this class begin at the site whose turn it is, if all are alike. Returns the number of
    /// children of each then.
    fn turn(self, sites: &mut [&Source], class: u16) -> Option<Vec<u32>> {
        let capacities = sites.iter().map(|source| source.capacity);
        let least = Self::ALIKE * capacities.clone().fold(0.0, f64::max);
        if !capacities
            .into_iter()
            .all(|capacity| capacity > 0.0 && capacity >= least)
        {
            return None;
        }
        let mut children = vec![1; sites.len()];
        *children.last_mut()? = 0;
        let turns = usize::from(class) % sites.len();
        match self {
            Self::ToRoot => sites.rotate_left(turns),
            Self::FromRoot => sites.rotate_right(turns),
        }
        Some(children)
    }
}

impl Planner<'_> {
    const CHUNK_MIN_LOG2: u32 = 13;
    const CHUNK_MAX_LOG2: u32 = 20;
    /// Chunks of a gather are not cut further for its queue than to this: each costs time of a processor.
    const GATHERED_CHUNK: u64 = 32 << 10;
    /// So many classes let a site have a tenth of the children that others have.
    const CLASSES_MAX: u64 = 16;
    /// Above so many sites a row has to stay small: its size is the number of classes.
    const SITES_FEW: usize = 256;
    const CLASSES_OF_MANY: u64 = 4;
    /// A class of fewer chunks than this has no time to stream.
    const CHUNKS_OF_CLASS_MIN: u64 = 4;

    /// Cuts a vector of so many `bytes` that so many sites contribute to, between its elements.
    pub fn chunking(&self, bytes: u64, element_bytes: u32, sites: usize) -> Chunking {
        self.chunking_of_blocks(1, bytes, element_bytes, sites)
    }

    /// Cuts a vector of so many blocks of so many `bytes`.
    pub(crate) fn chunking_of_blocks(
        &self,
        blocks: u32,
        bytes: u64,
        element_bytes: u32,
        sites: usize,
    ) -> Chunking {
        let whole_bytes = bytes * u64::from(blocks);
        let cuts = (Self::CHUNK_MIN_LOG2..=Self::CHUNK_MAX_LOG2).map(|log2| 1_u64 << log2);
        let best = cuts.min_by(|&one, &other| {
            let time = |chunk| self.time(whole_bytes, chunk, sites, self.shape(whole_bytes, chunk, sites));
            time(one).total_cmp(&time(other))
        });
        let chunk_bytes = match blocks {
            1 => best.unwrap_or(1),
            // Some blocks are on their way at once, and longer chunks fill the queue before the root's link.
            blocks => best
                .unwrap_or(1)
                .min((Chunking::GATHERED_BYTES / 2 / u64::from(blocks)).max(Self::GATHERED_CHUNK)),
        };
        let chunk_bytes = chunk_bytes.max(whole_bytes.div_ceil(u64::from(u32::MAX)));
        let chunk_bytes = chunk_bytes.next_multiple_of(u64::from(element_bytes.max(1)));
        Chunking {
            bytes,
            blocks,
            chunk_bytes,
            classes: self.classes(whole_bytes.div_ceil(chunk_bytes), sites),
        }
    }

    /// Classes of so many chunks.
    fn classes(&self, chunks: u64, sites: usize) -> u16 {
        let most = match sites <= Self::SITES_FEW {
            true => Self::CLASSES_MAX,
            false => Self::CLASSES_OF_MANY,
        };
        // A row names each contribution in each class.
        let most = match (self.contributions, self.order) {
            (Contributions::Shared(_), Order::Ordered) => 1,
            (Contributions::Shared(count), Order::Any) => most
                .min(u64::from(Contributions::SHARED_MAX / count.max(1)))
                .max(1),
            _ => most,
        };
        let classes = (chunks / Self::CHUNKS_OF_CLASS_MIN).clamp(1, most) as u16;
        // Who joins chains in one class is a leaf in the next.
        if classes > 1 { classes & !1 } else { 1 }
    }

    /// The faster shape.
    pub(crate) fn shape(&self, bytes: u64, chunk_bytes: u64, sites: usize) -> Shape {
        let time = |shape| self.time(bytes, chunk_bytes, sites, shape);
        let by_time = |one: &Shape, other: &Shape| time(*one).total_cmp(&time(*other));
        let best = match (self.order, self.contributions) {
            (Order::Ordered, Contributions::Shared(_)) => return Shape::Chains(1),
            (Order::Ordered, _) => Shape::ordered_choices(sites).min_by(by_time),
            (Order::Any, _) => Shape::choices(sites).min_by(by_time),
        };
        best.unwrap_or(Shape::Chains(1))
    }

    /// The estimated time: the vector passes one link, after the first chunk has passed all levels. In a ring it passes
    /// those of both halves, and on each link the chunks of both take turns.
    fn time(&self, bytes: u64, chunk_bytes: u64, sites: usize, shape: Shape) -> f64 {
        let Costs {
            latency,
            per_chunk,
            rate,
        } = self.costs;
        let chunk_bytes = chunk_bytes.min(bytes.max(1)) as f64;
        let chunks = (bytes as f64 / chunk_bytes).max(1.0);
        let halves = if self.ring.is_some() { 2.0 } else { 1.0 };
        let level = |children: f64| latency + per_chunk + children * halves * chunk_bytes / rate;
        let (chain, joints) = shape.depth(sites);
        let sharing = shape.sharing(sites, self.classes(chunks as u64, sites), self.ring);
        let links = sharing * halves * bytes as f64 / rate;
        // Each child more costs the site a message, of the four that a chunk takes.
        let wide = |children: f64| level(children) + (children - 1.0) * per_chunk / 4.0;
        let (levels, work) = match shape {
            Shape::Wide(width) => (joints * wide(width.into()), f64::from(width) * per_chunk),
            Shape::Blocks(run) => (
                chain * level(1.0) + joints * wide(run.into()),
                sharing * per_chunk,
            ),
            Shape::Chains(_) => (chain * level(1.0) + joints * level(2.0), per_chunk),
        };
        links.hypot(halves * chunks * work) + halves * levels
    }

    /// A tree for each class. The root's own members, if it contributes to this plan, are among the sources.
    pub(crate) fn trees(&self, sources: &[Source], chunking: &Chunking, share: ShareId) -> Vec<Tree> {
        let count = chunking.cut(share).classes();
        let classes = 0..count;
        if self.order == Order::Ordered {
            let members = sources.iter().map(|source| source.members.len()).sum();
            let run = match self.shape(chunking.whole_bytes(), chunking.chunk_bytes, members) {
                Shape::Blocks(run) => run,
                Shape::Chains(_) | Shape::Wide(_) => 1,
            };
            let bracketing = Bracketing::of(self.contributions);
            return classes
                .map(|class| bracketing.tree(self.root, sources, class, count, run))
                .collect();
        }
        let others: Vec<&Source> = sources.iter().filter(|source| source.site != self.root).collect();
        let own = sources.iter().find(|source| source.site == self.root);
        let own = own.map_or(&[][..], |source| &source.members);
        let by_host = ByHost::new(self.root, &others, self.hosts);
        let standing = by_host.standing(0);
        let shape = self.shape(chunking.whole_bytes(), chunking.chunk_bytes, standing.len());
        let mut shares = ChildShares::new(&standing, shape);
        let tree_of = |class| {
            let mut standing = by_host.standing(class);
            let ring = self.ring.filter(|_| shape == Shape::Chains(1));
            let turned = ring.and_then(|ring| ring.turn(&mut standing, class));
            let children = turned.unwrap_or_else(|| shares.next_class());
            let mut tree = self.tree(own, &standing, children, shape.children_of_root());
            by_host.add_others(&mut tree, class);
            tree
        };
        classes.map(tree_of).collect()
    }

    /// The places in the tree of a chain through so many of the group's sites: those of one host are few levels.
    pub(crate) fn places(&self, sites: usize, group: &[Site]) -> usize {
        if self.order == Order::Ordered {
            return sites;
        }
        let mut on_host = BTreeMap::<u64, usize>::new();
        for host in group.iter().filter_map(|site| self.hosts.get(site)) {
            *on_host.entry(*host).or_default() += 1;
        }
        let most = on_host.values().max().copied().unwrap_or_default();
        match on_host.len() > 1 && on_host.values().sum::<usize>() == group.len() {
            true => sites.min(on_host.len() + most.ilog2() as usize),
            false => sites,
        }
    }

    /// Places the sites level by level: those with children first, each below the first place that is left.
    fn tree(&self, own: &[Member], others: &[&Source], mut children: Vec<u32>, of_root: u32) -> Tree {
        let mut tree = Tree::new(self.root, own);
        let mut order: Vec<usize> = (0..others.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(children[at]));
        // Those who can fold nothing hang at the root, if there is nobody else.
        let can_fold = others.iter().filter(|source| source.capacity > 0.0);
        let folds: BTreeSet<Site> = can_fold.map(|source| source.site).collect();
        let mut places = VecDeque::from([(0_u32, u32::MAX)]);
        if children.iter().any(|&count| count > 0) {
            places[0].1 = of_root;
        }
        for next in 0..order.len() {
            while places.front().is_some_and(|&(_, left)| left == 0) {
                places.pop_front();
            }
            let Some(&(place, _)) = places.front() else {
                // More sites than places cannot be: the children are one fewer than the sites.
                break;
            };
            let parent_site = tree.node(place).site;
            self.avoid_broken(parent_site, &mut order[next..], others, &mut children);
            let at = order[next];
            let parent = match self.broken.contains(&(parent_site, others[at].site)) {
                true => self.reachable(&tree, others[at].site, &folds),
                false => place,
            };
            if parent == place
                && let Some((_, left)) = places.front_mut()
            {
                *left = left.saturating_sub(1);
            }
            let inputs = others[at].members.iter().map(|&member| Operand::Own(member));
            let child = tree.add(others[at].site, inputs.collect());
            tree.node(parent).inputs.push(Operand::Child(child));
            if children[at] > 0 {
                places.push_back((child, children[at]));
            }
        }
        tree
    }

    /// The first node that a site reaches, the root's last; the root's too if there is none.
    fn reachable(&self, tree: &Tree, site: Site, folds: &BTreeSet<Site>) -> u32 {
        let reaches = |parent: Site| folds.contains(&parent) && !self.broken.contains(&(parent, site));
        let found = tree.0.iter().skip(1).position(|node| reaches(node.site));
        found.map_or(0, |at| at as u32 + 1)
    }

    /// Brings a site to the front which reaches `parent_site`, and gives it the children of the one that was there.
    fn avoid_broken(&self, parent_site: Site, order: &mut [usize], others: &[&Source], children: &mut [u32]) {
        let is_broken = |at: usize| self.broken.contains(&(parent_site, others[at].site));
        let Some(&first) = order.first().filter(|_| !self.broken.is_empty()) else {
            return;
        };
        if !is_broken(first) {
            return;
        }
        let fits = |&at: &usize| !is_broken(at) && (others[at].capacity > 0.0 || children[first] == 0);
        if let Some(found) = order.iter().position(fits) {
            children.swap(first, order[found]);
            order.swap(0, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-5,
        rate: 50e6,
    };

    fn planner(broken: &BTreeSet<(Site, Site)>) -> Planner<'_> {
        Planner {
            root: Site(0),
            order: Order::Any,
            contributions: Contributions::Each,
            broken,
            hosts: const { &BTreeMap::new() },
            ring: None,
            costs: COSTS,
        }
    }

    fn sources(capacities: &[f64]) -> Vec<Source> {
        let source = |(at, &capacity): (usize, &f64)| Source {
            site: Site(at as u32),
            members: vec![Member(at as u32)],
            capacity,
        };
        capacities.iter().enumerate().map(source).collect()
    }

    /// Chunks that each site receives, over all classes.
    fn received(trees: &[Tree], sites: usize) -> Vec<usize> {
        let mut received = vec![0; sites];
        for node in trees.iter().flat_map(|tree| &tree.0) {
            let pulls = node
                .inputs
                .iter()
                .filter(|input| matches!(input, Operand::Child(_)));
            received[node.site.0 as usize] += pulls.count();
        }
        received
    }

    fn assert_all_are_there(trees: &[Tree], sites: usize) {
        for tree in trees {
            let mut members = tree.members();
            members.sort();
            assert_eq!(members, (0..sites as u32).map(Member).collect::<Vec<_>>());
        }
    }

    /// Equal sites receive as much as they send, one of them nothing, or all equally much. The root receives each
    /// chunk once.
    #[test]
    fn equal_sites_share_equally() {
        for sites in [1, 2, 3, 5, 8, 16, 33, 200, 1_000] {
            let none = BTreeSet::new();
            let chunking = planner(&none).chunking(8 << 20, 1, sites);
            let trees = planner(&none).trees(&sources(&vec![1.0; sites]), &chunking, ShareId(0));
            assert_all_are_there(&trees, sites);
            let received = received(&trees, sites);
            assert_eq!(received[0], if sites > 1 { trees.len() } else { 0 });
            let most = received[1..].iter().max().copied().unwrap_or_default();
            assert!(most <= trees.len() + 2, "{sites}: {received:?}");
        }
    }

    /// Chunks hold whole elements, whatever their size.
    #[test]
    fn elements_are_not_cut() {
        let none = BTreeSet::new();
        for element in [1, 8, 12, 24, 40, 5_000, 3 << 20] {
            let chunking = planner(&none).chunking(u64::from(element) * 1_000, element, 8);
            assert_eq!(chunking.chunk_bytes % u64::from(element), 0);
        }
    }

    /// Few sites make a chain, and many make trees of logarithmic depth, of chains that are as long as they may be.
    #[test]
    fn the_shape_follows_the_number() {
        let none = BTreeSet::new();
        let depth = |bytes: u64, sites: usize| {
            let chunking = planner(&none).chunking(bytes, 1, sites);
            let trees = planner(&none).trees(&sources(&vec![1.0; sites]), &chunking, ShareId(0));
            trees.iter().map(Tree::depth).max().unwrap()
        };
        assert_eq!(depth(8 << 20, 8), 7);
        for (bytes, sites, depths) in [
            (1 << 18, 1_000, 9..14),
            (8 << 20, 1_000, 14..28),
            (128 << 20, 1_000, 28..100),
            (1 << 18, 10_000, 13..18),
            (128 << 20, 10_000, 20..100),
        ] {
            let depth = depth(bytes, sites);
            assert!(depths.contains(&depth), "{bytes} bytes, {sites} sites: {depth}");
        }
    }

    /// Who joins two chains in one class is a leaf in the next.
    #[test]
    fn joints_take_turns() {
        let none = BTreeSet::new();
        let chunking = planner(&none).chunking(8 << 20, 1, 200);
        let trees = planner(&none).trees(&sources(&[1.0; 200]), &chunking, ShareId(0));
        let joints = |trees: &[Tree]| received(trees, 200).iter().filter(|&&count| count == 2).count();
        assert!(joints(&trees[..1]) > 4);
        for two in trees.chunks(2) {
            let received = received(two, 200);
            assert!(received.iter().all(|&count| count <= 3), "{received:?}");
            let equal = received.iter().filter(|&&count| count == 2).count();
            assert!(equal >= 198, "{received:?}");
        }
    }

    /// In a ring each site but the root receives as much of both halves together, and has one neighbour on each side in
    /// nearly all classes. Slow sites stay last.
    #[test]
    fn rings_begin_everywhere() {
        let none = BTreeSet::new();
        let chunking = Chunking {
            bytes: 8 << 20,
            blocks: 1,
            chunk_bytes: 1 << 16,
            classes: 14,
        };
        let trees = |ring, sources: &[Source]| {
            let planner = Planner {
                ring: Some(ring),
                ..planner(&none)
            };
            planner.trees(sources, &chunking, ShareId(0))
        };
        let chain = |tree: &Tree| tree.0.iter().map(|node| node.site).collect::<Vec<_>>();
        let forwards = sources(&[1.0; 8]);
        let backwards: Vec<Source> = forwards.iter().rev().cloned().collect();
        let to_root = trees(Ring::ToRoot, &forwards);
        let from_root = trees(Ring::FromRoot, &backwards);
        assert_eq!(received(&to_root, 8), [14, 12, 12, 12, 12, 12, 12, 12]);
        for (one, other) in to_root.iter().zip(&from_root) {
            let mut other = chain(other);
            other[1..].reverse();
            assert_eq!(chain(one), other);
        }
        let lasts: BTreeSet<Site> = to_root.iter().filter_map(|tree| chain(tree).pop()).collect();
        assert_eq!(lasts.len(), 7);
        let slow = sources(&[1.0, 1.0, 1.0, 0.1, 1.0]);
        assert_eq!(received(&trees(Ring::ToRoot, &slow), 5)[3], 0);
    }

    /// A site that receives at a tenth of the rate is a leaf, and so is one that cannot fold.
    #[test]
    fn slow_sites_are_leaves() {
        let none = BTreeSet::new();
        let mut capacities = vec![1.0; 8];
        capacities[3] = 0.1;
        capacities[5] = 0.0;
        let chunking = Chunking {
            bytes: 8 << 20,
            blocks: 1,
            chunk_bytes: 1 << 16,
            classes: 16,
        };
        let trees = planner(&none).trees(&sources(&capacities), &chunking, ShareId(0));
        assert_all_are_there(&trees, 8);
        let received = received(&trees, 8);
        assert_eq!((received[3], received[5]), (0, 0), "{received:?}");
        let most = received.iter().max().unwrap();
        assert!(*most <= 21, "{received:?}");
    }

    /// Sites that receive at half of the rate have half as many children as the others.
    #[test]
    fn children_follow_rates() {
        let none = BTreeSet::new();
        let mut capacities = vec![1.0; 8];
        capacities[1..5].fill(0.5);
        let chunking = Chunking {
            bytes: 8 << 20,
            blocks: 1,
            chunk_bytes: 1 << 16,
            classes: 16,
        };
        let trees = planner(&none).trees(&sources(&capacities), &chunking, ShareId(0));
        assert_all_are_there(&trees, 8);
        for (site, received) in received(&trees, 8).into_iter().enumerate().skip(1) {
            let ideal = 16.0 * 6.0 * capacities[site] / 5.0;
            assert!(
                (received as f64 - ideal).abs() < 2.0,
                "site {site}: {received}, not {ideal}"
            );
        }
    }

    /// Only sites that cannot fold: the root pulls from each.
    #[test]
    fn agents_alone_hang_at_the_root() {
        let none = BTreeSet::new();
        let chunking = planner(&none).chunking(1 << 20, 1, 3);
        let trees = planner(&none).trees(&sources(&[0.0, 0.0, 0.0]), &chunking, ShareId(0));
        assert_all_are_there(&trees, 3);
        assert_eq!(trees[0].depth(), 1);
    }

    /// A pair that does not reach each other is not in the next plan.
    #[test]
    fn broken_pairs_are_avoided() {
        let chunking = Chunking {
            bytes: 8 << 20,
            blocks: 1,
            chunk_bytes: 1 << 16,
            classes: 16,
        };
        for sites in [3_u32, 4, 8, 16] {
            for holder in 1..sites {
                let parent_site = (holder + 1) % sites;
                let broken = BTreeSet::from([(Site(parent_site), Site(holder))]);
                let trees =
                    planner(&broken).trees(&sources(&vec![1.0; sites as usize]), &chunking, ShareId(0));
                assert_all_are_there(&trees, sites as usize);
                for tree in &trees {
                    let pulls =
                        |node: u32, parent: u32| (tree.0[parent as usize].site, tree.0[node as usize].site);
                    let parents = tree.parents();
                    let pairs = (0..tree.0.len() as u32)
                        .filter_map(|node| parents[node as usize].map(|parent| pulls(node, parent)));
                    for pair in pairs {
                        assert!(!broken.contains(&pair), "{sites} sites: {pair:?}");
                    }
                }
            }
        }
    }
}
