//! The fixed bracketing of ordered reductions.
//!
//! Members are folded from left to right within blocks, and blocks from left to right. The length of a block
//! depends on the number of members alone, and up to 16 members are one block: the same bits as a serial loop. A
//! plan places the folds on sites. One site folds a run of neighbours into what is to their left, and each class takes
//! another site of the run, so that it receives one chunk for each that it sends. Longer runs make fewer levels: the
//! shape says how long they are. Blocks are folded likewise, on sites of their own.
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

    /// The tree of one class of so many. The members of all sources together are those of the session.
    pub(crate) fn tree(self, root: Site, sources: &[Source], class: u16, classes: u16, run: u32) -> Tree {
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
            run: run as usize,
        };
        let block = match self {
            Self::Blocks => block_of(held.len()),
            Self::Serial => held.len().max(1),
        };
        // Others do not take turns to receive a whole run either, if there is but one class.
        let ends_at_root = classes == 1 && !is_serial;
        let is_one = held.len() <= block;
        let blocks = held.chunks(block).filter_map(|block| {
            let sites = block.iter().map(|&(_, site)| site).collect();
            let members = block.iter().map(|&(member, site)| Item {
                value: Value::Original(member, site),
                sites: vec![site],
            });
            let value = layout.fold(members.collect(), 0, ends_at_root && is_one)?;
            Some(Item { value, sites })
        });
        let blocks: Vec<Item> = blocks.collect();
        // Who folds a run of a block does not fold blocks in the same class.
        let whole = layout.fold(blocks, 1, ends_at_root);
        layout.deliver(whole)
    }
}

/// A value: an original that was not folded yet, or the outcome of a node.
#[derive(Clone, Copy)]
enum Value {
    Original(Member, Site),
    Node(u32),
}

/// An operand of a bracket, and the sites near to it.
struct Item {
    value: Value,
    sites: Vec<Site>,
}

struct Layout {
    root: Site,
    tree: Tree,
    /// The sites that fold what has no better place, in turns,
    folders: Vec<Site>,
    /// and the same to look one up.
    folds: BTreeSet<Site>,
    turn: usize,
    /// So many items a site folds into what is to their left.
    run: usize,
}

impl Layout {
    /// Folds items from left to right, run by run. The root folds the last run if the result ends there.
    fn fold(&mut self, items: Vec<Item>, turn: usize, ends_at_root: bool) -> Option<Value> {
        let mut whole = None;
        let mut runs = items.chunks(self.run.max(1)).peekable();
        while let Some(run) = runs.next() {
            let values = whole.into_iter().chain(run.iter().map(|item| item.value));
            let values: Vec<Value> = values.collect();
            whole = match &values[..] {
                [value] => Some(*value),
                _ if ends_at_root && runs.peek().is_none() => Some(self.fold_at(self.root, &values)),
                _ => {
                    let site = self.folder(run, turn);
                    Some(self.fold_at(site, &values))
                }
            };
        }
        whole
    }

    /// The site that folds a run: one of those near to it, if one of them folds, another in each class.
    fn folder(&mut self, run: &[Item], turn: usize) -> Site {
        let near = run.iter().flat_map(|item| item.sites.iter().copied());
        let near: Vec<Site> = near.filter(|site| self.folds.contains(site)).collect();
        let candidates = if near.is_empty() { &self.folders } else { &near };
        let site = match candidates.len() {
            0 => self.root,
            count => candidates[(self.turn + turn) % count],
        };
        self.turn += usize::from(near.is_empty());
        site
    }

    fn fold_at(&mut self, site: Site, values: &[Value]) -> Value {
        if let [Value::Node(left), rest @ ..] = values
            && self.tree.node(*left).site == site
        {
            for value in rest {
                let operand = self.operand(*value, site);
                self.tree.node(*left).inputs.push(operand);
            }
            return values[0];
        }
        let inputs = values.iter().map(|value| self.operand(*value, site));
        let inputs = inputs.collect();
        Value::Node(self.tree.add(site, inputs))
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
        if let Value::Node(node) = whole
            && self.tree.node(node).site == root
        {
            // The root folds into the result what it would fold for itself.
            self.tree.move_to_root(node);
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
            classes in prop::sample::select(&[1_u16, 16][..]),
            run in 1_u32..20,
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
            let tree = Bracketing::Blocks.tree(Site(root), &sources, class, classes, run);
            prop_assert_eq!(brackets(&tree, 0), expected(holders.len()));
            prop_assert_eq!(tree.members().len(), holders.len());
            let serial = Bracketing::Serial.tree(Site(root), &sources, class, classes, 1);
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
