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
    /// Chains of chains, as the bracketing wants it, in which a site folds so many operands into what comes to it.
    Blocks(u32),
}

impl Shape {
    const WIDTHS: [u32; 6] = [3, 4, 6, 8, 12, 16];
    /// The part by which the time of a link grows when runs get twice as long: each site receives several chunks in one
    /// class and none in others.
    const LONGER_RUNS: f64 = 0.35;

    /// The number of children of the site that is the next one to get some, where so many have got them before.
    pub(crate) fn children(self, before: usize) -> u64 {
        match self {
            Self::Chains(count) if before + 1 < count as usize => 2,
            Self::Chains(_) | Self::Blocks(_) => 1,
            Self::Wide(width) => width.into(),
        }
    }

    /// The number of children of the root.
    pub(crate) fn children_of_root(self) -> u32 {
        match self {
            Self::Chains(_) | Self::Blocks(_) => 1,
            Self::Wide(width) => width,
        }
    }

    /// The shapes to choose from for so many sites in a fixed order.
    pub(crate) fn ordered_choices(sites: usize) -> impl Iterator<Item = Self> {
        let block = bracketing::block_of(sites).min(sites.max(1)) as u32;
        let runs = (0..block.ilog2() + 1).map(|log2| 1 << log2);
        runs.chain([block]).map(Self::Blocks)
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
    pub(crate) fn sharing(self, sites: usize, classes: u16, ring: Option<Ring>) -> f64 {
        let count = match self {
            Self::Chains(count @ 2..) => count,
            Self::Chains(_) => return 1.0,
            Self::Blocks(run) => {
                let run = f64::from(run);
                return (run / f64::from(classes)).max(1.0) * (1.0 + Self::LONGER_RUNS * run.log2());
            }
            Self::Wide(width) => return width.into(),
        };
        let few = if ring.is_some() { 1.15 } else { 1.03 };
        few + 0.17 * 2.0 * f64::from(count) / sites as f64
    }

    /// Levels of a tree of so many sites: those where a site waits for one child, and those where it waits for more.
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
            Self::Blocks(run) => {
                let block = bracketing::block_of(sites);
                let runs = |items: usize| (items > 1).then(|| items.div_ceil(run as usize) as f64);
                let levels = [runs(sites.min(block)), runs(sites.div_ceil(block))];
                // All operands of the first run of a block come at once.
                let levels = levels.into_iter().flatten();
                levels.fold((0.0, 0.0), |(one, more), runs| (one + runs - 1.0, more + 1.0))
            }
        }
    }
}
