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
