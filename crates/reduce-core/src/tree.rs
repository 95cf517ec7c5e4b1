use super::ids::{Member, Site};

/// The tree of one class of chunks. Node 0 is the root's, where the outcome is merged into the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) Vec<Node>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) site: Site,
    /// Folded from left to right.
    pub(crate) inputs: Vec<Operand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Own(Member),
    Child(u32),
}

impl Tree {
    /// A tree of the root's node alone.
    pub(crate) fn new(root: Site, own: &[Member]) -> Self {
        let mut tree = Self(Vec::new());
        tree.add(root, own.iter().map(|&member| Operand::Own(member)).collect());
        tree
    }

    /// Adds a node. Returns its number.
    pub(crate) fn add(&mut self, site: Site, inputs: Vec<Operand>) -> u32 {
        self.0.push(Node { site, inputs });
        self.0.len() as u32 - 1
    }

    pub(crate) fn node(&mut self, node: u32) -> &mut Node {
        &mut self.0[node as usize]
    }

    /// Lets the root's node fold what another node at its site folds, instead of that one.
    pub(crate) fn move_to_root(&mut self, node: u32) {
        let moved = Operand::Child(self.0.len() as u32 - 1);
        self.0[0].inputs = self.0.swap_remove(node as usize).inputs;
        let inputs = self.0.iter_mut().flat_map(|node| &mut node.inputs);
        inputs
            .filter(|input| **input == moved)
            .for_each(|input| *input = Operand::Child(node));
    }

    /// The parent of each node; `None` for the root's.
    pub(crate) fn parents(&self) -> Vec<Option<u32>> {
        let mut parents = vec![None; self.0.len()];
        for (parent, node) in self.0.iter().enumerate() {
            for input in &node.inputs {
                if let Operand::Child(child) = input {
                    parents[*child as usize] = Some(parent as u32);
                }
            }
        }
        parents
    }
}

#[cfg(test)]
impl Tree {
    /// The members in the order in which they are folded, which shows that each is there once.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        let mut rest = vec![Operand::Child(0)];
        while let Some(operand) = rest.pop() {
            match operand {
                Operand::Own(member) => members.push(member),
                Operand::Child(node) => rest.extend(self.0[node as usize].inputs.iter().rev()),
            }
        }
        members
    }

    /// The number of levels below the root's node.
    pub(crate) fn depth(&self) -> usize {
        let parents = self.parents();
        let depth_of = |mut node: u32| {
            let mut depth = 0;
            while let Some(parent) = parents[node as usize] {
                (node, depth) = (parent, depth + 1);
            }
            depth
        };
        (0..self.0.len() as u32).map(depth_of).max().unwrap_or_default()
    }
}
