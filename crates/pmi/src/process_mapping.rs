//! Which rank runs on which node, in the form in which MPICH asks for it.

use std::fmt;

use thiserror::Error;

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

    /// Reads what a process manager says: "`(vector{,(X,Y,Z)})`, spaces allowed between tokens".
    ///
    /// # Errors
    /// If it is no mapping, or one with more than [`BLOCKS_MAX`](Self::BLOCKS_MAX) blocks.
    pub fn parse(text: &[u8]) -> Result<Self, MappingError> {
        let text = std::str::from_utf8(text).map_err(|_| MappingError)?;
        let text: String = text.split_ascii_whitespace().collect();
        let rest = text
            .strip_prefix("(vector")
            .and_then(|rest| rest.strip_suffix(')'));
        let mut rest = rest.ok_or(MappingError)?;
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            let block = rest.strip_prefix(",(").ok_or(MappingError)?;
            let (block, after) = block.split_once(')').ok_or(MappingError)?;
            let numbers: Result<Vec<u32>, _> = block.split(',').map(str::parse).collect();
            let Ok([node, nodes, ranks_per_node]) = numbers.as_deref() else {
                return Err(MappingError);
            };
            if blocks.len() == Self::BLOCKS_MAX {
                return Err(MappingError);
            }
            blocks.push(MappingBlock {
                node: *node,
                nodes: *nodes,
                ranks_per_node: *ranks_per_node,
            });
            rest = after;
        }
        Ok(Self { blocks })
    }

    /// The node of each of the first `size` ranks; `None` for all if no block has any.
    pub fn nodes(&self, size: u32) -> Vec<Option<u32>> {
        let mut nodes = Vec::new();
        let is_empty = |block: &MappingBlock| block.nodes == 0 || block.ranks_per_node == 0;
        if self.blocks.iter().all(is_empty) {
            nodes.resize(size as usize, None);
        }
        while nodes.len() < size as usize {
            for block in self.blocks.iter().filter(|block| !is_empty(block)) {
                for node in 0..block.nodes {
                    let room = size as usize - nodes.len();
                    if room == 0 {
                        return nodes;
                    }
                    let ranks = room.min(block.ranks_per_node as usize);
                    nodes.extend(std::iter::repeat_n(Some(block.node.saturating_add(node)), ranks));
                }
            }
        }
        nodes
    }

    /// How many blocks one may have: many times what fits into a value.
    pub const BLOCKS_MAX: usize = 1024;

    /// All of `size` ranks on one node.
    pub fn one_node(size: u32) -> Self {
        Self::new(vec![MappingBlock {
            node: 0,
            nodes: 1,
            ranks_per_node: size,
        }])
    }
}

/// Text that is no process mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a process mapping looks like (vector,(0,1,2)): first node, number of nodes, ranks on each")]
pub struct MappingError;

impl fmt::Display for ProcessMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(vector")?;
        for block in &self.blocks {
            write!(f, ",({},{},{})", block.node, block.nodes, block.ranks_per_node)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str, size: u32) -> Vec<u32> {
        let mapping = ProcessMapping::parse(text.as_bytes()).unwrap();
        mapping.nodes(size).into_iter().map(Option::unwrap).collect()
    }

    /// The examples that were seen: "ranks are dealt Z per node over Y nodes starting at node X, block after block;
    /// when all blocks are used up and ranks remain, start again with the first block".
    #[test]
    fn ranks_are_dealt_to_nodes() {
        assert_eq!(nodes("(vector,(0,1,1))", 3), [0, 0, 0]);
        assert_eq!(nodes("(vector,(0,1,2),(1,1,1),(2,1,3))", 6), [0, 0, 1, 2, 2, 2]);
        assert_eq!(nodes(" (vector, (0,2,2), (2,1,1)) ", 5), [0, 0, 1, 1, 2]);
        assert_eq!(nodes("(vector,(0,2,1))", 5), [0, 1, 0, 1, 0]);
    }

    /// A text that is no mapping is an error, and a mapping without room gives no node; neither takes for
    /// ever.
    #[test]
    fn odd_mappings_are_told() {
        for text in [
            "",
            "(vector",
            "(vector,0)",
            "(vector,(0,1))",
            "(vector,(0,1,1)",
            "(vector,(0,1,-1))",
        ] {
            assert_eq!(
                ProcessMapping::parse(text.as_bytes()),
                Err(MappingError),
                "{text}"
            );
        }
        for text in ["(vector)", "(vector,(0,0,5),(1,5,0))"] {
            let mapping = ProcessMapping::parse(text.as_bytes()).unwrap();
            assert_eq!(mapping.nodes(2), [None, None]);
        }
        assert_eq!(
            nodes("(vector,(4294967295,4294967295,4294967295))", 2),
            [u32::MAX; 2]
        );
    }
}
