//! Shapes of trees, and how long a stream through them takes.

use super::{bracketing, planner::Ring};

/// A shape of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// So many chains, at least one, whose ends a binary tree joins. Each chain ends in a leaf, and who has two
    /// children in one class is a leaf in another. With one chain the fewest sites share a link; with as many as there
    /// can be each inner site has two children, and the depth is logarithmic (Sanders, Speck, Traeff: "Two-tree
    /// algorithms for full bandwidth broadcast, reduction and scan", 2009).
    Chains(u32),
    /// The root and each inner site have so many children: for vectors so short that levels take longer than links.
    Wide(u32),
    /// Chains of chains, as the bracketing wants it.
    Blocks,
}

impl Shape {
    const WIDTHS: [u32; 6] = [3, 4, 6, 8, 12, 16];

    /// The number of children of the site that is the next one to get some, where so many have got them before.
    pub(crate) fn children(self, before: usize) -> u64 {
        match self {
            Self::Chains(count) if before + 1 < count as usize => 2,
            Self::Chains(_) | Self::Blocks => 1,
            Self::Wide(width) => width.into(),
        }
    }

    /// The number of children of the root.
    pub(crate) fn children_of_root(self) -> u32 {
        match self {
            Self::Chains(_) | Self::Blocks => 1,
            Self::Wide(width) => width,
        }
    }

    /// The shapes to choose from for so many sites.
    pub(crate) fn choices(sites: usize) -> impl Iterator<Item = Self> {
        let most = (sites.div_ceil(2).max(1)) as u32;
        let counts = (0..most.ilog2() + 1).map(|log2| 1 << log2);
        let chains = counts.chain([most]).map(Self::Chains);
        let widths = Self::WIDTHS
            .into_iter()
            .filter(move |width| *width as usize <= sites);
        chains.chain(widths.map(Self::Wide))
    }

    /// The time of a link, in times of what its bytes take. Who joins two chains is sent to by two others at once in
    /// one class and by nobody in the next, and these do not alternate as evenly as they should: the more so the more
    /// sites are joints, the more hosts are slow at times, and in a ring. Measured by `ropewalk sim reduce` with 16 to
    /// 1,000 hosts, alone and beside other programs.
    pub(crate) fn sharing(self, sites: usize, ring: Option<Ring>) -> f64 {
        let count = match self {
            Self::Chains(count @ 2..) => count,
            Self::Chains(_) | Self::Blocks => return 1.0,
            Self::Wide(width) => return width.into(),
        };
        let few = if ring.is_some() { 1.15 } else { 1.03 };
        few + 0.17 * 2.0 * f64::from(count) / sites as f64
    }

    /// Levels of a tree of so many sites: those where a site has one child, and those where it has more.
    pub(crate) fn depth(self, sites: usize) -> (f64, f64) {
        match self {
            Self::Chains(count) => {
                let count = f64::from(count);
                ((sites as f64 + 1.0 - count) / count, count.log2())
            }
            Self::Wide(width) => {
                let (sites, width) = (sites as f64 + 1.0, f64::from(width));
                (0.0, (sites * (width - 1.0) + 1.0).log(width).ceil() - 1.0)
            }
            Self::Blocks => {
                let block = bracketing::block_of(sites);
                ((block + sites / block) as f64, 0.0)
            }
        }
    }
}
