//! Contributions that several sites hold, dealt to one site each.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::{Member, Site};

/// Deals each member to the first site that holds it and can fold, or to one that only holds it if there is no such.
pub(crate) fn first(held: &[(Member, &[Site])], capacity: impl Fn(&Site) -> f64) -> Vec<(Member, Site)> {
    let site_for = |sites: &[Site]| {
        let folds = sites.iter().find(|site| capacity(site) > 0.0);
        folds.or(sites.first()).copied()
    };
    let dealt = held
        .iter()
        .filter_map(|(member, sites)| Some((*member, site_for(sites)?)));
    dealt.collect()
}

/// Deals members to sites that hold them, in runs of consecutive members whose lengths follow the capacities. The
/// root's run is the last one: what the others have folded comes to it once, and it folds its own onto that.
pub(crate) fn deal(
    held: &[(Member, &[Site])],
    root: Site,
    capacity: impl Fn(&Site) -> f64,
) -> Vec<(Member, Site)> {
    let holders: BTreeSet<Site> = held.iter().flat_map(|(_, sites)| sites.iter().copied()).collect();
    let mut order: Vec<Site> = holders.into_iter().collect();
    order.sort_by_key(|site| (*site == root, *site));
    let whole: f64 = order.iter().map(&capacity).sum();
    // The place in the order that each site has is the end of its run, as a part of all members.
    let mut ends: BTreeMap<Site, (usize, f64)> = BTreeMap::new();
    let mut end = 0.0;
    for (at, site) in order.iter().enumerate() {
        end += capacity(site) / whole.max(f64::MIN_POSITIVE);
        ends.insert(*site, (at, end));
    }
    let deal_one = |(at, (member, sites)): (usize, &(Member, &[Site]))| {
        let position = (at as f64 + 0.5) / held.len() as f64;
        let distance = |site: &&Site| {
            let (place, end) = ends[*site];
            let begin = place.checked_sub(1).map_or(0.0, |before| ends[&order[before]].1);
            (begin - position).max(position - end).max(0.0)
        };
        let nearest = sites.iter().min_by(|one, other| {
            let by_distance = distance(one).total_cmp(&distance(other));
            by_distance.then(ends[*one].0.cmp(&ends[*other].0))
        });
        nearest.map(|site| (*member, *site))
    };
    held.iter().enumerate().filter_map(deal_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(held: &[(Member, &[Site])], root: u32, capacity: impl Fn(&Site) -> f64) -> Vec<(u32, usize)> {
        let mut runs: Vec<(u32, usize)> = Vec::new();
        for (_, site) in deal(held, Site(root), capacity) {
            match runs.last_mut() {
                Some((last, count)) if *last == site.0 => *count += 1,
                _ => runs.push((site.0, 1)),
            }
        }
        runs
    }

    /// Sites that hold everything get a run each, the root the last one.
    #[test]
    fn runs_are_equal_and_the_roots_is_last() {
        let all = [Site(0), Site(1), Site(2)];
        let held: Vec<(Member, &[Site])> = (0..9).map(|member| (Member(member), &all[..])).collect();
        assert_eq!(runs(&held, 0, |_| 1.0), [(1, 3), (2, 3), (0, 3)]);
        assert_eq!(runs(&held, 2, |_| 1.0), [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(runs(&held[..1], 0, |_| 1.0), [(2, 1)]);
    }

    /// A site of half the capacity gets half as many, and one that folds nothing none.
    #[test]
    fn runs_follow_capacities() {
        let all = [Site(0), Site(1), Site(2)];
        let held: Vec<(Member, &[Site])> = (0..10).map(|member| (Member(member), &all[..])).collect();
        let capacity = |site: &Site| [1.0, 0.5, 1.0][site.0 as usize];
        assert_eq!(runs(&held, 0, capacity), [(1, 2), (2, 4), (0, 4)]);
        let capacity = |site: &Site| [1.0, 0.0, 1.0][site.0 as usize];
        assert_eq!(runs(&held, 0, capacity), [(2, 5), (0, 5)]);
    }

    /// A member that one site alone holds is that site's, and the others' runs go on around it.
    #[test]
    fn a_single_holder_gets_its_member() {
        let (all, one) = ([Site(0), Site(1)], [Site(1)]);
        let held: Vec<(Member, &[Site])> = (0..6)
            .map(|member| (Member(member), if member == 4 { &one[..] } else { &all[..] }))
            .collect();
        assert_eq!(runs(&held, 0, |_| 1.0), [(1, 3), (0, 1), (1, 1), (0, 1)]);
    }
}
