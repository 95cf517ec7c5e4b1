//! From holders to the sources of a plan, and from its trees to the nodes of rows.

use std::collections::BTreeMap;

use crate::{
    ids::{Member, Site},
    message::{Input, RowNode},
    planner::Source,
    tree::{Operand, Tree},
};

/// The sites that contribute to a plan, ascending.
pub(super) fn sources(dealt: Vec<(Member, Site)>, capacity: impl Fn(&Site) -> f64) -> Vec<Source> {
    let mut by_site: BTreeMap<Site, Vec<Member>> = BTreeMap::new();
    for (member, site) in dealt {
        by_site.entry(site).or_default().push(member);
    }
    let sources = by_site.into_iter().map(|(site, members)| Source {
        site,
        members,
        capacity: capacity(&site),
    });
    sources.collect()
}

/// Lets sites whose links are crowded and others take turns, from the root on. What goes from a crowded link into another
/// one waits twice, and gets a part of a part of the rate.
pub(super) fn take_turns(sources: Vec<Source>, root: Site, is_crowded: impl Fn(Site) -> bool) -> Vec<Source> {
    let (crowded, others): (Vec<_>, Vec<_>) =
        sources.into_iter().partition(|source| is_crowded(source.site));
    let (mut crowded, mut others) = (crowded.into_iter(), others.into_iter());
    let mut in_turns = Vec::with_capacity(crowded.len() + others.len());
    let mut is_crowded_next = !is_crowded(root);
    loop {
        let next = match is_crowded_next {
            true => crowded.next().or_else(|| others.next()),
            false => others.next().or_else(|| crowded.next()),
        };
        let Some(next) = next else { return in_turns };
        // The root is among them, and has its place already.
        is_crowded_next ^= next.site != root;
        in_turns.push(next);
    }
}

/// The nodes of a tree, each with its site.
pub(super) fn nodes(tree: &Tree, class: u16, from: u32) -> impl Iterator<Item = (Site, RowNode)> {
    let parents = tree.parents();
    tree.0.iter().enumerate().map(move |(at, node)| {
        let inputs = node.inputs.iter().map(|input| match *input {
            Operand::Own(member) => Input::Own(member),
            Operand::Child(child) => Input::Child(tree.0[child as usize].site, child),
        });
        let row = RowNode {
            class,
            node: at as u32,
            from,
            inputs: inputs.collect(),
            parent: parents[at].map(|parent| (tree.0[parent as usize].site, parent)),
        };
        (node.site, row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those with crowded links follow each other only where there are too many. Without such all stay where they are.
    #[test]
    fn crowded_links_are_kept_apart() {
        let order = |crowded: &[u32]| {
            let sources = sources((0..8).map(|at| (Member(at), Site(at))).collect(), |_| 1.0);
            let turns = take_turns(sources, Site(0), |site| crowded.contains(&site.0));
            turns.iter().map(|source| source.site.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&[]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order(&[1, 2, 3, 4]), [1, 0, 5, 2, 6, 3, 7, 4]);
        assert_eq!(order(&[0, 1]), [2, 0, 1, 3, 4, 5, 6, 7]);
        assert_eq!(order(&[1, 2, 3, 4, 5]), [1, 0, 6, 2, 7, 3, 4, 5]);
    }
}
