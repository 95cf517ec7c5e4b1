//! Generations that survive the loss of any single host, and generations that may still come to that.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Part,
    guard::GuardOptions,
    ring::{guarded_by, without_ranks},
    whole::{whole, whole_on},
};
use crate::{advisor::Level, generation::KEEP_MIN};

/// Which generations hosts have pulled, as one host knows it by what all have last said, even if they are silent now.
///
/// A host has pulled a generation when it has its own ranks' parts of it and those of the host before it in
/// the ring of all hosts. A generation that every host has pulled is protected: whichever host is lost with
/// its disk, another has its parts. Hosts pull only generations that are newer than all that they ever
/// pulled, so a generation that a host has passed over is never protected. Any other generation that is
/// pulled here may be protected already, which this host has yet to hear, and is pending.
///
/// Nobody removes pending generations, and nobody pulls more while there are many of them, unless that lasts.
/// So a protected generation stays on all hosts, whether they know of it or not, until a newer one is
/// protected, and the amount that a host keeps is bounded.
#[derive(Clone, Debug)]
pub(super) struct Protection {
    host: usize,
    own_ranks: BTreeSet<u32>,
    /// Each host that has to pull.
    pullers: BTreeMap<usize, Puller>,
    ranks: u32,
    next: u64,
    /// The generations that the own ranks have saved.
    saved: BTreeSet<u64>,
    highest_pulled: Option<u64>,
    /// The generations that are pulled here and that another host has passed over.
    passed_over: BTreeSet<u64>,
    /// The newest that are known to be protected.
    protected: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Puller {
    /// The ranks whose parts it then has.
    ranks: BTreeSet<u32>,
    pulled: BTreeSet<u64>,
}

impl Protection {
    /// Nothing is known yet.
    pub(super) fn new(options: &GuardOptions) -> Self {
        let ranks_of = |host: usize| -> BTreeSet<u32> {
            let hosts = (0u32..).zip(&options.host_of_rank);
            hosts
                .filter(|&(_, &of)| of == host)
                .map(|(rank, _)| rank)
                .collect()
        };
        let outside = without_ranks(options.hosts, &options.host_of_rank);
        let in_ring = (0..options.hosts).filter(|host| !outside.contains(host));
        let pullers = in_ring.filter_map(|host| {
            let theirs = ranks_of(guarded_by(host, options.hosts, &outside)?);
            let puller = || Puller {
                ranks: &ranks_of(host) | &theirs,
                pulled: BTreeSet::new(),
            };
            (!theirs.is_empty()).then(|| (host, puller()))
        });
        Self {
            host: options.host,
            own_ranks: ranks_of(options.host),
            pullers: pullers.collect(),
            ranks: options.host_of_rank.len() as u32,
            next: options.next,
            saved: BTreeSet::new(),
            highest_pulled: None,
            passed_over: BTreeSet::new(),
            protected: BTreeSet::new(),
        }
    }

    /// A host has these parts now: this one, or another by what it says.
    pub(super) fn learn(&mut self, host: usize, parts: &BTreeSet<Part>) {
        let pulled = (self.pullers.get(&host)).map(|puller| self.whole_of(parts, &puller.ranks));
        if host == self.host {
            self.saved = self.whole_of(parts, &self.own_ranks);
            self.highest_pulled = self
                .highest_pulled
                .max(pulled.as_ref().and_then(|pulled| pulled.last().copied()));
        }
        if let (Some(puller), Some(pulled)) = (self.pullers.get_mut(&host), pulled) {
            puller.pulled = pulled;
        }
        let by_each = self.pullers.values().map(|puller| puller.pulled.clone());
        let by_all = by_each.reduce(|by_all, also| &by_all & &also);
        // Alone, a host protects by itself.
        let by_all = by_all.unwrap_or_else(|| whole_on([parts], self.ranks).into_keys().collect());
        let protected = &by_all | &self.protected;
        self.protected = protected.into_iter().rev().take(KEEP_MIN).collect();

        let is_passed_over = |generation: &u64| {
            let mut by_each = self.pullers.values().map(|puller| &puller.pulled);
            by_each.any(|pulled| pulled.last() > Some(generation) && !pulled.contains(generation))
        };
        let pulled = self.pulled().into_iter();
        self.passed_over = pulled
            .filter(|generation| self.passed_over.contains(generation) || is_passed_over(generation))
            .collect();
    }

    /// The newest generations that are known to be protected.
    pub(super) fn protected(&self) -> &BTreeSet<u64> {
        &self.protected
    }

    /// The generations that are pulled here and newer than those known to be protected, and that may be
    /// protected too. Of many, the oldest: the others were pulled only because nothing had become of these.
    pub(super) fn pending(&self) -> BTreeSet<u64> {
        let open = &self.pulled() - &self.passed_over;
        let newest = self.protected.last();
        let open = open.into_iter().filter(|generation| Some(generation) > newest);
        open.take(PENDING_MAX).collect()
    }

    /// Returns true if so many generations are pending that this host waits for others.
    pub(super) fn is_full(&self) -> bool {
        self.pending().len() == PENDING_MAX
    }

    /// A host that has not pulled the oldest pending generation.
    pub(super) fn awaited(&self) -> Option<usize> {
        let oldest = self.pending().first().copied()?;
        let mut pullers = self.pullers.iter();
        let lacking = pullers.find(|(_, puller)| !puller.pulled.contains(&oldest));
        lacking.map(|(&host, _)| host)
    }

    /// Returns true if this host may pull a generation, if it need not wait.
    pub(super) fn lets_in(&self, generation: u64) -> bool {
        Some(generation) > self.highest_pulled
            && (self.own_ranks.is_empty() || self.saved.contains(&generation))
    }

    /// Returns true if a part may have a copy. A part that was there when the ranks started may, of whatever
    /// level it is, since the generation that ranks start from is copied.
    pub(super) fn is_copied(&self, part: &Part) -> bool {
        part.level == Level::Full || part.generation < self.next
    }

    /// The generations that are pulled here.
    fn pulled(&self) -> BTreeSet<u64> {
        let puller = self.pullers.get(&self.host);
        puller.map_or_else(BTreeSet::new, |puller| puller.pulled.clone())
    }

    /// The generations that may have copies of which the parts of all these ranks are among those.
    fn whole_of(&self, parts: &BTreeSet<Part>, ranks: &BTreeSet<u32>) -> BTreeSet<u64> {
        let counted = |part: &&Part| ranks.contains(&part.rank) && self.is_copied(part);
        let parts = parts.iter().filter(counted).copied();
        whole(parts, ranks.len(), self.ranks).into_keys().collect()
    }
}

/// So many generations may be pending: hosts then wait for the one that is slowest.
const PENDING_MAX: usize = 8;
