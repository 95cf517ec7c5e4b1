//! The contributions that were announced, and the sites that hold them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Member, Site, Token};

#[derive(Debug, Default)]
pub(super) struct Announced {
    /// The sites that have told what they hold. A copy may be told of before the rank that it is of.
    pub(super) called: BTreeSet<Site>,
    /// Sites outside the group: they want to know the end, whatever they hold.
    pub(super) asking: BTreeSet<Site>,
    pub(super) originals: BTreeMap<Member, Original>,
    /// Sites that do not hold all bytes of their contributions.
    pub(super) parts: BTreeSet<Site>,
}

/// A contribution that was announced.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) token: Token,
    /// The sites that hold it, the best first.
    pub(super) sites: Vec<Site>,
    /// The scheduler's side has the data too.
    pub(super) is_enclosed: bool,
}

impl Announced {
    /// The sites that hold something.
    pub(super) fn holders(&self) -> impl Iterator<Item = Site> {
        let originals = self.originals.values();
        originals.flat_map(|original| original.sites.iter().copied())
    }

    pub(super) fn has_holder(&self, member: Member) -> bool {
        let original = self.originals.get(&member);
        original.is_some_and(|original| !original.sites.is_empty())
    }

    /// These members, as far as they are announced, with their tokens.
    pub(super) fn tokens_of(&self, members: &[Member]) -> Vec<(Member, Token)> {
        let token = |member: &Member| Some((*member, self.originals.get(member)?.token));
        members.iter().filter_map(token).collect()
    }

    /// Forgets all holders but those that stay.
    pub(super) fn retain_holders(&mut self, stays: impl Fn(&Site) -> bool) {
        for original in self.originals.values_mut() {
            original.sites.retain(&stays);
        }
    }
}
