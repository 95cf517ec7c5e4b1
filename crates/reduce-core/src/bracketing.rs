//! The fixed bracketing of ordered reductions.
//!
//! Members are folded from left to right within blocks, and blocks from left to right. The length of a block
//! depends on the number of members alone, and up to 16 members are one block: the same bits as a serial loop. A
//! plan places each fold of two neighbours on a site: mostly on the one that holds the right operand, so that it
//! receives one chunk for each that it sends. A block is folded with all blocks before it on a site of that block.
//! Contributions that sites share are one block, however many they are: each site gets a run of them.

use std::collections::BTreeSet;

use super::{
    ids::{Member, Site},
    planner::Source,
    scheduler::Contributions,
    tree::{Operand, Tree},
};

const BLOCK_MIN: usize = 16;
/// A site folds if its rate is at least this part of the fastest one's. To fold elsewhere costs two transfers more, so
/// that a rate that was low for a moment had better not count.
const FOLDS: f64 = 0.25;

/// The number of members in a block of the fixed bracketing of so many `members`: they are folded from left to right
/// within blocks, and blocks from left to right.
pub fn block_of(members: usize) -> usize {
    let root = (members as f64).sqrt().ceil() as usize;
    root.max(BLOCK_MIN)
}

/// A way to put brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bracketing {
    Blocks,
    /// All members are one block.
    Serial,
}

impl Bracketing {
    pub(crate) fn of(contributions: Contributions) -> Self {
        match contributions {
            Contributions::Shared(_) => Self::Serial,
            _ => Self::Blocks,
        }
    }

    /// The tree of one class. The members of all sources together are those of the session.
    pub(crate) fn tree(self, root: Site, sources: &[Source], class: u16) -> Tree {
        let mut held: Vec<(Member, Site)> = sources
            .iter()
            .flat_map(|source| source.members.iter().map(|&member| (member, source.site)))
            .collect();
        held.sort();
        let is_serial = self == Self::Serial;
        // The link into the root is for the result alone, unless the root has a run of its own.
        let least = FOLDS
            * sources
                .iter()
                .map(|source| source.capacity)
                .fold(f64::MIN_POSITIVE, f64::max);
        let folders = sources
            .iter()
            .filter(|source| source.capacity >= least && (source.site != root || is_serial));
        let mut layout = Layout {
            root,
            tree: Tree::new(root, &[]),
            folds: folders.clone().map(|source| source.site).collect(),
            folders: folders.map(|source| source.site).collect(),
            turn: class as usize,
        };
        let block = match self {
            Self::Blocks => block_of(held.len()),
            Self::Serial => held.len().max(1),
        };
        let blocks: Vec<&[(Member, Site)]> = held.chunks(block).collect();
        let mut whole = None;
        for block in blocks {
            let value = layout.fold_block(block);
            whole = Some(match whole {
                Some(left) => layout.fold_apart(left, value, block),
                None => value,
            });
        }
        layout.deliver(whole)
    }
}

/// A value: an original that was not folded yet, or the outcome of a node.
#[derive(Clone, Copy)]
enum Value {
    Original(Member, Site),
    Node(u32),
}

struct Layout {
    root: Site,
    tree: Tree,
    /// The sites that fold what has no better place, in turns,
    folders: Vec<Site>,
    /// and the same to look one up.
    folds: BTreeSet<Site>,
    turn: usize,
}

impl Layout {
    fn fold_block(&mut self, block: &[(Member, Site)]) -> Value {
        let mut value = Value::Original(block[0].0, block[0].1);
        for &(member, site) in &block[1..] {
            value = self.fold(value, member, site);
        }
        value
    }

    /// Folds a value with an original to its right: where the original is, if that site folds.
    fn fold(&mut self, left: Value, member: Member, site: Site) -> Value {
        match left {
            Value::Original(_, holder) if holder == site => {}
            Value::Node(node) if self.tree.node(node).site == site => {
                self.tree.node(node).inputs.push(Operand::Own(member));
                return left;
            }
            _ if self.folds.contains(&site) => {}
            // Agents do not fold.
            _ => return self.fold_apart(left, Value::Original(member, site), &[]),
        }
        let left = match left {
            Value::Original(other, holder) if holder == site => Operand::Own(other),
            left => Operand::Child(self.node_of(left)),
        };
        Value::Node(self.tree.add(site, vec![left, Operand::Own(member)]))
    }

    /// Folds two values on a site whose turn it is: one of those `near`, if one of them folds. The sites of a block are
    /// about as far with their chunks, and each class takes another of them, so that no link carries much more than
    /// others.
    fn fold_apart(&mut self, left: Value, right: Value, near: &[(Member, Site)]) -> Value {
        let near = near.iter().map(|&(_, site)| site);
        let near: Vec<Site> = near.filter(|site| self.folds.contains(site)).collect();
        let candidates = if near.is_empty() { &self.folders } else { &near };
        let site = match candidates.len() {
            0 => self.root,
            count => candidates[self.turn % count],
        };
        self.turn += usize::from(near.is_empty());
        if let Value::Node(node) = left
            && self.tree.node(node).site == site
        {
            let right = self.operand(right, site);
            self.tree.node(node).inputs.push(right);
            return left;
        }
        let inputs = [left, right].map(|value| self.operand(value, site));
        Value::Node(self.tree.add(site, inputs.into()))
    }

    fn operand(&mut self, value: Value, site: Site) -> Operand {
        match value {
            Value::Original(member, holder) if holder == site => Operand::Own(member),
            value => Operand::Child(self.node_of(value)),
        }
    }

    fn node_of(&mut self, value: Value) -> u32 {
        match value {
            Value::Original(member, holder) => self.tree.add(holder, vec![Operand::Own(member)]),
            Value::Node(node) => node,
        }
    }

    fn deliver(mut self, whole: Option<Value>) -> Tree {
        let Some(whole) = whole else {
            return self.tree;
        };
        let root = self.root;
        if let Value::Node(last) = whole
            && last as usize == self.tree.0.len() - 1
            && self.tree.node(last).site == root
            && let Some(node) = self.tree.0.pop()
        {
            // The root folds into the result what it would fold for itself.
            self.tree.node(0).inputs = node.inputs;
            return self.tree;
        }
        let operand = self.operand(whole, root);
        self.tree.node(0).inputs.push(operand);
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bracketing as text, from the tree: `((0 1) 2)`.
    fn brackets(tree: &Tree, node: u32) -> String {
        let inputs = tree.0[node as usize].inputs.iter().map(|input| match input {
            Operand::Own(member) => member.0.to_string(),
            Operand::Child(child) => brackets(tree, *child),
        });
        inputs
            .reduce(|left, right| format!("({left} {right})"))
            .unwrap_or_default()
    }

    fn expected(members: usize) -> String {
        let names: Vec<String> = (0..members).map(|member| member.to_string()).collect();
        let fold = |names: Vec<String>| names.into_iter().reduce(|a, b| format!("({a} {b})"));
        let blocks = names
            .chunks(block_of(members))
            .filter_map(|names| fold(names.to_vec()));
        fold(blocks.collect()).unwrap_or_default()
    }

    proptest! {
        /// The bracketing is the same whoever holds the originals, whoever can fold, and whichever site is the root.
        #[test]
        fn the_bracketing_depends_on_the_number_alone(
            holders in prop::collection::vec(0_u32..12, 1..40),
            agents in prop::collection::vec(any::<bool>(), 12),
            root in 0_u32..12,
            class in 0_u16..16,
        ) {
            let mut sources: Vec<Source> = Vec::new();
            for site in 0..12_u32 {
                let members: Vec<_> = (0..holders.len() as u32)
                    .filter(|&member| holders[member as usize] == site)
                    .map(Member)
                    .collect();
                let capacity = if agents[site as usize] { 0.0 } else { 1.0 };
                if !members.is_empty() {
                    sources.push(Source { site: Site(site), members, capacity });
                }
            }
            let tree = Bracketing::Blocks.tree(Site(root), &sources, class);
            prop_assert_eq!(brackets(&tree, 0), expected(holders.len()));
            prop_assert_eq!(tree.members().len(), holders.len());
            let serial = Bracketing::Serial.tree(Site(root), &sources, class);
            let names = (0..holders.len()).map(|member| member.to_string());
            let left_to_right = names.reduce(|a, b| format!("({a} {b})"));
            prop_assert_eq!(brackets(&serial, 0), left_to_right.unwrap_or_default());
        }
    }

    /// Up to 16 members are one block, whose bits are those of a serial loop.
    #[test]
    fn few_members_are_one_block() {
        assert_eq!(expected(4), "(((0 1) 2) 3)");
        assert_eq!(block_of(16), 16);
        assert_eq!(block_of(10_000), 100);
    }
}
