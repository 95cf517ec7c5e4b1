//! Which rank runs on which node, in the form in which MPICH asks for it.

use std::fmt;

/// The value of the key `PMI_process_mapping`: blocks of ranks, dealt to nodes in order.
///
/// When all blocks are used up and ranks remain, the first block begins again.
///
/// ```
/// # use ropewalk_pmi::{MappingBlock, ProcessMapping};
/// let mapping = ProcessMapping::new(vec![
///     MappingBlock { node: 0, nodes: 1, ranks_per_node: 2 },
///     MappingBlock { node: 1, nodes: 1, ranks_per_node: 1 },
/// ]);
/// assert_eq!(mapping.to_string(), "(vector,(0,1,2),(1,1,1))");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMapping {
    blocks: Vec<MappingBlock>,
}

/// A run of nodes with the same number of ranks on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingBlock {
    /// The first node.
    pub node: u32,
    /// How many nodes.
    pub nodes: u32,
    /// How many ranks each of them gets.
    pub ranks_per_node: u32,
}

impl ProcessMapping {
    /// The mapping made of these blocks.
    pub fn new(blocks: Vec<MappingBlock>) -> Self {
        Self { blocks }
    }

    /// All of `size` ranks on one node.
    pub fn one_node(size: u32) -> Self {
        Self::new(vec![MappingBlock {
            node: 0,
            nodes: 1,
            ranks_per_node: size,
        }])
    }
}

impl fmt::Display for ProcessMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(vector")?;
        for block in &self.blocks {
            write!(f, ",({},{},{})", block.node, block.nodes, block.ranks_per_node)?;
        }
        f.write_str(")")
    }
}
