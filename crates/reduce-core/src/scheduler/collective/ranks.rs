//! The ranks of a group.

use std::collections::BTreeMap;

use super::{Member, Site};

#[derive(Debug)]
pub(super) struct Ranks {
    sites: Vec<Site>,
    /// The places of the sites in the group.
    places: BTreeMap<Site, Member>,
}

impl Ranks {
    /// Ranks on these sites, in the order of their places.
    pub(super) fn new(sites: Vec<Site>) -> Self {
        Self {
            places: sites.iter().copied().zip((0..).map(Member)).collect(),
            sites,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sites.len()
    }

    /// The sites of all ranks, in the order of their places.
    pub(super) fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The places of all ranks.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + use<> {
        (0..self.sites.len() as u32).map(Member)
    }

    /// The site of the rank at this place; one that nobody has if there is no such place.
    pub(super) fn site_of(&self, rank: Member) -> Site {
        let site = self.sites.get(rank.0 as usize);
        site.copied().unwrap_or(Site(u32::MAX))
    }

    /// The place of the rank on this site.
    pub(super) fn place_of(&self, site: Site) -> Option<Member> {
        self.places.get(&site).copied()
    }
}
