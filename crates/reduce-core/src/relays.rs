//! The relays between the sites of a large job and its scheduler.
//!
//! A scheduler that hears each site by itself takes as many messages in a row as there are sites, and sends as many.
//! With relays it has one message from each group of sites, and one to each. A relay only carries: what it has not
//! brought to its receiver is sent again without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::Site;

/// The groups of a job's sites; the lowest site of each is its relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relays {
    /// The relay of each site; empty if there are none.
    relays: Vec<Site>,
}

impl Relays {
    /// Smaller jobs have none: a message through a relay is under way twice.
    pub const SITES_MIN: usize = 48;

    /// The relays of a job whose sites, from 0 on, are on these hosts. Sites of one host are a group, since the way to
    /// its relay is short. If no host has several, neighbours are.
    pub fn of(hosts: &[u64]) -> Self {
        if hosts.len() < Self::SITES_MIN {
            return Self { relays: Vec::new() };
        }
        let mut lowest = BTreeMap::new();
        let of_hosts: Vec<Site> = hosts
            .iter()
            .zip((0..).map(Site))
            .map(|(host, site)| *lowest.entry(host).or_insert(site))
            .collect();
        match lowest.len() < hosts.len() {
            true => Self { relays: of_hosts },
            false => Self::in_groups(hosts.len(), hosts.len().isqrt()),
        }
    }

    /// The relays of so many sites, in groups of this size; none if that is one.
    pub fn in_groups(sites: usize, in_group: usize) -> Self {
        let sites = if in_group > 1 { sites } else { 0 };
        let relays = (0..sites).map(|site| Site((site - site % in_group) as u32));
        Self {
            relays: relays.collect(),
        }
    }

    /// Says if there are any.
    pub fn are_any(&self) -> bool {
        !self.relays.is_empty()
    }

    /// The relay between a site and a scheduler. None is between the two if either is the relay itself, and those that
    /// are no sites of the job have none.
    pub fn between(&self, site: Site, scheduler: Site) -> Option<Site> {
        let relay = *self.relays.get(site.0 as usize)?;
        (![site, scheduler].contains(&relay) && site != scheduler).then_some(relay)
    }

    /// The relay that brings a site what a scheduler has for sites of its group, the relay itself too.
    pub fn bringing(&self, site: Site, scheduler: Site) -> Option<Site> {
        let relay = *self.relays.get(site.0 as usize)?;
        (relay != scheduler && site != scheduler).then_some(relay)
    }

    /// The number of sites to which one site sends at most if a scheduler has a message for so many.
    pub fn receivers(&self, sites: usize) -> usize {
        let mut in_groups = BTreeMap::<Site, usize>::new();
        for relay in &self.relays {
            *in_groups.entry(*relay).or_default() += 1;
        }
        let largest = in_groups.values().max().copied().unwrap_or(sites);
        sites.min(in_groups.len() + largest)
    }

    /// The sites of a relay's group without itself.
    pub fn served(&self, relay: Site) -> impl Iterator<Item = Site> {
        let sites = self.relays.iter().zip((0..).map(Site));
        let served = sites.filter(move |(its, site)| **its == relay && *site != relay);
        served.map(|(_, site)| site)
    }
}

/// The messages to schedulers that a relay holds, until each site has sent one that did so lately, or some have waited
/// for long enough.
#[derive(Debug)]
pub struct Gathering<M> {
    /// The senders of the messages that went on last, and before that; at the beginning all sites of the group.
    lately: [BTreeSet<Site>; 2],
    held: BTreeMap<Site, Held<M>>,
}

/// The messages to one scheduler.
#[derive(Debug)]
struct Held<M> {
    messages: Vec<M>,
    senders: BTreeSet<Site>,
    due: Duration,
}

impl<M> Gathering<M> {
    /// So long a message waits for those of the others of its group.
    pub const PATIENCE: Duration = Duration::from_micros(200);

    /// A relay that holds nothing yet.
    pub fn new(relays: &Relays, relay: Site) -> Self {
        Self {
            lately: [relays.served(relay).collect(), BTreeSet::new()],
            held: BTreeMap::new(),
        }
    }

    /// A message has come for a scheduler.
    pub fn take(&mut self, now: Duration, from: Site, to: Site, message: M) {
        let held = self.held.entry(to).or_insert_with(|| Held {
            messages: Vec::new(),
            senders: BTreeSet::new(),
            due: now + Self::PATIENCE,
        });
        held.messages.push(message);
        held.senders.insert(from);
    }

    /// A site is gone: nobody waits for it.
    pub fn handle_lost(&mut self, site: Site) {
        for senders in &mut self.lately {
            senders.remove(&site);
        }
    }

    /// Takes the messages that go on now, in their order, with their receiver.
    pub fn poll(&mut self, now: Duration) -> Option<(Site, Vec<M>)> {
        let goes = |(to, held): &(&Site, &Held<M>)| {
            let mut lately = self.lately.iter().flatten();
            held.due <= now || lately.all(|site| site == *to || held.senders.contains(site))
        };
        let to = *self.held.iter().find(goes)?.0;
        let Held {
            messages, senders, ..
        } = self.held.remove(&to)?;
        let [last, _] = std::mem::take(&mut self.lately);
        self.lately = [senders, last];
        Some((to, messages))
    }

    /// When to [`poll`](Self::poll) at the latest.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.held.values().map(|held| held.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each site has the relay of its group, unless one of the two ends is that, and small jobs have none.
    #[test]
    fn the_lowest_of_a_group_is_its_relay() {
        let relays = Relays::of(&(0..200).collect::<Vec<_>>());
        assert_eq!(relays.between(Site(15), Site(0)), Some(Site(14)));
        assert_eq!(relays.between(Site(199), Site(0)), Some(Site(196)));
        assert_eq!(relays.between(Site(14), Site(0)), None);
        assert_eq!(relays.between(Site(13), Site(0)), None);
        assert_eq!(relays.between(Site(13), Site(1)), Some(Site(0)));
        assert_eq!(relays.between(Site(15), Site(15)), None);
        assert_eq!(relays.between(Site(15), Site(14)), None);
        assert_eq!(relays.between(Site(215), Site(0)), None);
        assert!(relays.served(Site(196)).eq([197, 198, 199].map(Site)));
        let small = Relays::of(&(0..47).collect::<Vec<_>>());
        assert!(!small.are_any() && relays.are_any());
        assert!((0..47).all(|site| small.between(Site(site), Site(0)).is_none()));
    }

    /// Where hosts have several sites, the lowest of each is the relay of the others, however they are dealt.
    #[test]
    fn sites_of_a_host_are_a_group() {
        let hosts: Vec<u64> = (0..64).map(|site| site % 4).collect();
        let relays = Relays::of(&hosts);
        assert_eq!(relays.between(Site(7), Site(0)), Some(Site(3)));
        assert_eq!(relays.between(Site(3), Site(0)), None);
        assert_eq!(relays.between(Site(8), Site(0)), None);
        assert_eq!(relays.served(Site(3)).count(), 15);
    }

    /// Messages go on when each site has sent one that did so lately, but for the receiver and those that are gone, or
    /// when the first of them has waited.
    #[test]
    fn messages_wait_for_those_of_the_group() {
        let mut gathering = Gathering::new(&Relays::in_groups(8, 4), Site(4));
        let at = Duration::from_micros;
        gathering.take(at(0), Site(5), Site(0), "first");
        gathering.take(at(1), Site(5), Site(0), "second");
        gathering.take(at(2), Site(6), Site(0), "third");
        assert_eq!(gathering.poll(at(100)), None);
        gathering.take(at(100), Site(7), Site(0), "last");
        let all = vec!["first", "second", "third", "last"];
        assert_eq!(gathering.poll(at(100)), Some((Site(0), all)));
        gathering.take(at(200), Site(5), Site(0), "late");
        assert_eq!(
            gathering.poll_timeout(),
            Some(at(200) + Gathering::<&str>::PATIENCE)
        );
        assert_eq!(gathering.poll(at(399)), None);
        assert_eq!(gathering.poll(at(400)), Some((Site(0), vec!["late"])));
        gathering.handle_lost(Site(6));
        gathering.take(at(500), Site(7), Site(5), "to another");
        assert_eq!(gathering.poll(at(500)), Some((Site(5), vec!["to another"])));
        // The others have sent nothing for two rounds.
        gathering.take(at(600), Site(7), Site(0), "alone");
        assert_eq!(gathering.poll(at(600)), None);
        assert_eq!(gathering.poll(at(800)), Some((Site(0), vec!["alone"])));
        gathering.take(at(900), Site(7), Site(0), "alone");
        assert_eq!(gathering.poll(at(900)), Some((Site(0), vec!["alone"])));
        assert_eq!(gathering.poll_timeout(), None);
    }
}
