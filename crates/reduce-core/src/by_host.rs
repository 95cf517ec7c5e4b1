//! Several sites on each host: among hosts one of them stands for all.
//!
//! A host has one link, however many of its ranks send. So each host is one place in the tree of hosts, and its sites
//! form a binary tree below the one that stands there: what they have folded passes the link once. Another site stands
//! there in the next class of chunks, so that all of them share the work.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::Site,
    planner::Source,
    tree::{Operand, Tree},
};

/// The sources of a plan by hosts.
pub(crate) struct ByHost<'a> {
    /// The hosts without the root's. Each has sites, and those that can fold come first.
    hosts: Vec<Host<'a>>,
    /// The others on the root's host.
    beside_root: Host<'a>,
}

#[derive(Default)]
struct Host<'a> {
    /// Those that can fold, the fastest first.
    folding: Vec<&'a Source>,
    /// Of these so many take turns: the others are far slower.
    taking_turns: usize,
    /// Nobody is there who could fold: somebody on the host reads from them.
    passive: Vec<&'a Source>,
}

impl<'a> ByHost<'a> {
    /// A site that has less than this part of the capacity of its host's fastest stands for its host in no class.
    const FAST: f64 = 0.5;

    /// Takes the sources without the root's. A site on no known host is alone, and if there is one host alone, all are.
    pub(crate) fn new(root: Site, others: &[&'a Source], hosts: &BTreeMap<Site, u64>) -> Self {
        let known: BTreeSet<Option<&u64>> = others.iter().map(|source| hosts.get(&source.site)).collect();
        let root_host = hosts.get(&root);
        let is_one_host = known.len() <= 1 && known.first().is_none_or(|host| *host == root_host);
        let mut by_host = Self {
            hosts: Vec::new(),
            beside_root: Host::default(),
        };
        let mut places = BTreeMap::<u64, usize>::new();
        for source in others {
            let host = match hosts.get(&source.site).filter(|_| !is_one_host) {
                Some(host) if Some(host) == root_host => &mut by_host.beside_root,
                Some(host) => {
                    let place = *places.entry(*host).or_insert(by_host.hosts.len());
                    if place == by_host.hosts.len() {
                        by_host.hosts.push(Host::default());
                    }
                    &mut by_host.hosts[place]
                }
                None => {
                    by_host.hosts.push(Host::default());
                    let last = by_host.hosts.len() - 1;
                    &mut by_host.hosts[last]
                }
            };
            match source.capacity > 0.0 {
                true => host.folding.push(source),
                false => host.passive.push(source),
            }
        }
        by_host.hosts = by_host.hosts.into_iter().flat_map(Host::ordered).collect();
        by_host.beside_root.sort();
        by_host
    }

    /// The source that stands for each host in a class.
    pub(crate) fn standing(&self, class: u16) -> Vec<&'a Source> {
        self.hosts
            .iter()
            .filter_map(|host| host.in_class(class).next())
            .collect()
    }

    /// Adds the other sites of each host to a tree of those that stand for them.
    pub(crate) fn add_others(&self, tree: &mut Tree, class: u16) {
        let nodes = tree.0.iter().zip(0..).skip(1).map(|(node, at)| (node.site, at));
        let nodes: BTreeMap<Site, u32> = nodes.collect();
        for host in &self.hosts {
            let mut sites = host.in_class(class);
            if let Some(node) = sites.next().and_then(|first| nodes.get(&first.site)) {
                host.add_below(tree, *node, sites);
            }
        }
        self.beside_root
            .add_below(tree, 0, self.beside_root.in_class(class));
    }
}

impl<'a> Host<'a> {
    fn sort(&mut self) {
        self.folding
            .sort_by(|one, other| other.capacity.total_cmp(&one.capacity));
        let limit = ByHost::FAST * self.folding.first().map_or(0.0, |source| source.capacity);
        self.taking_turns = self.folding.partition_point(|source| source.capacity >= limit);
    }

    /// If nobody on the host folds, its sites are read one by one from elsewhere.
    fn ordered(mut self) -> Vec<Self> {
        self.sort();
        if !self.folding.is_empty() {
            return vec![self];
        }
        let alone = |source| Self {
            folding: vec![source],
            taking_turns: 1,
            passive: Vec::new(),
        };
        self.passive.into_iter().map(alone).collect()
    }

    /// The sites that fold, the one whose turn it is first.
    fn in_class(&self, class: u16) -> impl Iterator<Item = &'a Source> {
        let (turns, slow) = self.folding.split_at(self.taking_turns);
        let first = usize::from(class) % turns.len().max(1);
        let turns = turns[first..].iter().chain(&turns[..first]);
        turns.chain(slow).copied()
    }

    /// Adds `sites` as a binary tree whose root is there already, and below them those who only hold something.
    fn add_below(&self, tree: &mut Tree, root: u32, sites: impl Iterator<Item = &'a Source>) {
        let mut nodes = vec![root];
        for source in sites {
            let parent = nodes[(nodes.len() - 1) / 2];
            nodes.push(add(tree, parent, source));
        }
        for (at, source) in self.passive.iter().enumerate() {
            add(tree, nodes[at % nodes.len()], source);
        }
    }
}

fn add(tree: &mut Tree, parent: u32, source: &Source) -> u32 {
    let inputs = source.members.iter().map(|&member| Operand::Own(member));
    let node = tree.add(source.site, inputs.collect());
    tree.node(parent).inputs.push(Operand::Child(node));
    node
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        chunks::Chunking,
        ids::{Member, ShareId},
        planner::{Costs, Order, Planner},
        scheduler::Contributions,
    };

    proptest! {
        /// Each link is passed once for each host, whoever is on which. Nobody is asked who cannot fold, and each
        /// contribution is there once.
        #[test]
        fn links_are_passed_once(
            places in vec((0_u64..5, 0_u8..8), 1..40),
            root in any::<prop::sample::Index>(),
            classes in 1_u16..6,
        ) {
            let root = root.index(places.len());
            let capacity = |at: usize, draw: u8| match draw {
                0 if at != root => 0.0,
                1 => 0.1,
                _ => 1.0,
            };
            let source = |(at, (_, draw)): (usize, &(u64, u8))| Source {
                site: Site(at as u32),
                members: vec![Member(at as u32)],
                capacity: capacity(at, *draw),
            };
            let sources: Vec<Source> = places.iter().enumerate().map(source).collect();
            let hosts: BTreeMap<Site, u64> =
                places.iter().zip(0..).map(|((host, _), site)| (Site(site), *host)).collect();
            let broken = BTreeSet::new();
            let planner = Planner {
                root: Site(root as u32),
                order: Order::Any,
                contributions: Contributions::Each,
                broken: &broken,
                hosts: &hosts,
                ring: None,
                costs: Costs { latency: 1e-4, per_chunk: 1e-5, rate: 50e6 },
            };
            let chunking = Chunking { bytes: 1 << 20, blocks: 1, chunk_bytes: 1 << 14, classes };
            // Those on a host where nobody folds are read from elsewhere, one by one.
            let folds_on = |host: &u64| (0..places.len()).any(|at| places[at].0 == *host && sources[at].capacity > 0.0);
            let alone = places.iter().filter(|(host, _)| !folds_on(host)).count();
            let used: BTreeSet<u64> = places.iter().map(|(host, _)| *host).filter(folds_on).collect();
            for tree in planner.trees(&sources, &chunking, ShareId(0)) {
                let mut members = tree.members();
                members.sort();
                prop_assert!(members.into_iter().eq((0..places.len() as u32).map(Member)));
                let mut passed = 0;
                for (at, parent) in tree.parents().into_iter().enumerate() {
                    let Some(parent) = parent else { continue };
                    let (child, parent) = (tree.0[at].site, tree.0[parent as usize].site);
                    prop_assert!(sources[parent.0 as usize].capacity > 0.0, "{parent:?} in {tree:?}");
                    passed += usize::from(hosts[&child] != hosts[&parent]);
                }
                prop_assert_eq!(passed, used.len() - 1 + alone, "{:?}", tree);
            }
        }
    }
}
