//! Who copies from whom.

use std::collections::BTreeSet;

/// The host that copies the saves of a host's ranks: the next one of the ring that is not gone, never itself.
/// `None` if it is alone.
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

/// The hosts that stand outside of the ring, since no rank saves there. If only one host has ranks, the next
/// one is in the ring and copies their saves.
pub(super) fn without_ranks(hosts: usize, host_of_rank: &[usize]) -> BTreeSet<usize> {
    let with_ranks: BTreeSet<usize> = host_of_rank.iter().copied().collect();
    let mut without: BTreeSet<usize> = (0..hosts).filter(|host| !with_ranks.contains(host)).collect();
    if let (1, Some(only)) = (with_ranks.len(), with_ranks.first()) {
        without.remove(&((only + 1) % hosts));
    }
    without
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_without_ranks_stand_outside() {
        assert_eq!(without_ranks(4, &[0, 2, 0]), [1, 3].into());
        assert_eq!(without_ranks(4, &[3, 3]), [1, 2].into());
        assert_eq!(without_ranks(2, &[0, 1]), [].into());
        assert_eq!(without_ranks(1, &[0]), [].into());
    }

    proptest! {
        /// With any hosts gone, each of the others has a partner that is another one of them, and guards the
        /// host whose partner it is. No two have the same partner.
        #[test]
        fn everybody_has_a_partner_of_its_own(
            hosts in 1usize..20,
            gone in proptest::collection::btree_set(0usize..20, 0..20),
        ) {
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
