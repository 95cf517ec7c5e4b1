//! Who copies from whom.

use std::collections::BTreeSet;

/// The host that copies what a host's ranks save: the next one of the ring that is not gone, never itself. Nobody if it is
/// alone.
pub fn partner_of(host: usize, hosts: usize, gone: &BTreeSet<usize>) -> Option<usize> {
    (1..hosts)
        .map(|distance| (host + distance) % hosts)
        .find(|other| !gone.contains(other))
}

/// The host whose ranks' parts a host copies: the one of which it is the [partner](partner_of).
pub fn guarded_by(host: usize, hosts: usize, gone: &BTreeSet<usize>) -> Option<usize> {
    (1..hosts)
        .map(|distance| (host + hosts - distance) % hosts)
        .find(|other| !gone.contains(other))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever is gone, each of the others has a partner that is another one of them, guards whom it is the partner of,
        /// and no two have the same.
        #[test]
        fn everybody_has_a_partner_of_its_own(hosts in 1usize..20, gone in proptest::collection::btree_set(0usize..20, 0..20)) {
            let alive: Vec<usize> = (0..hosts).filter(|host| !gone.contains(host)).collect();
            let mut partners = BTreeSet::new();
            for &host in &alive {
                let partner = partner_of(host, hosts, &gone);
                prop_assert_eq!(partner.is_none(), alive.len() == 1);
                if let Some(partner) = partner {
                    prop_assert!(partner != host && alive.contains(&partner) && partners.insert(partner));
                    prop_assert_eq!(guarded_by(partner, hosts, &gone), Some(host));
                }
            }
        }
    }
}
