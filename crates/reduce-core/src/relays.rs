//! The relays between the sites of a large job and its scheduler.
//!
//! A scheduler that hears each site by itself takes as many messages in a row as there are sites, and sends as many.
//! With relays it has one message from each group of sites, and one to each. There are about as many groups as a group
//! has sites. A relay only carries: what it has not brought to its receiver is sent again without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::Site;

/// The groups of a job's sites; the lowest site of each is its relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relays {
    sites: u32,
    in_group: u32,
}

impl Relays {
    /// Smaller jobs have none: a message through a relay is under way twice.
    pub const SITES_MIN: u32 = 48;

    /// The relays of a job of so many sites, the numbers of which begin at 0.
    pub fn of(sites: u32) -> Self {
        let in_group = match sites {
            0..Self::SITES_MIN => 1,
            _ => sites.isqrt(),
        };
        Self::in_groups(sites, in_group)
    }

    /// The same, with groups of this size.
    pub fn in_groups(sites: u32, in_group: u32) -> Self {
        Self {
            sites,
            in_group: in_group.max(1),
        }
    }

    /// Says if there are any.
    pub fn are_any(self) -> bool {
        self.in_group > 1
    }

    /// The relay between a site and a scheduler. None is between the two if either is the relay itself, and those that
    /// are no sites of the job have none.
    pub fn between(self, site: Site, scheduler: Site) -> Option<Site> {
        let relay = Site(site.0 - site.0 % self.in_group);
        let has_relay = site.0 < self.sites && ![site, scheduler].contains(&relay) && site != scheduler;
        has_relay.then_some(relay)
    }

    /// The sites of a relay's group without itself.
    pub fn served(self, relay: Site) -> impl Iterator<Item = Site> {
        let end = relay.0.saturating_add(self.in_group).min(self.sites);
        (relay.0 + 1..end).map(Site)
    }
}

/// The messages to schedulers that a relay holds, until each site of its group has sent one or some have waited for
/// long enough.
#[derive(Debug)]
pub struct Gathering<M> {
    served: BTreeSet<Site>,
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
    pub fn new(relays: Relays, relay: Site) -> Self {
        Self {
            served: relays.served(relay).collect(),
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
        self.served.remove(&site);
    }

    /// Takes the messages that go on now, in their order, with their receiver.
    pub fn poll(&mut self, now: Duration) -> Option<(Site, Vec<M>)> {
        let goes = |(to, held): &(&Site, &Held<M>)| {
            held.due <= now
                || self
                    .served
                    .iter()
                    .all(|site| site == *to || held.senders.contains(site))
        };
        let to = *self.held.iter().find(goes)?.0;
        self.held.remove(&to).map(|held| (to, held.messages))
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
        let relays = Relays::of(200);
        assert_eq!(relays.between(Site(15), Site(0)), Some(Site(14)));
        assert_eq!(relays.between(Site(199), Site(0)), Some(Site(196)));
        assert_eq!(relays.between(Site(14), Site(0)), None);
        assert_eq!(relays.between(Site(13), Site(0)), None);
        assert_eq!(relays.between(Site(13), Site(1)), Some(Site(0)));
        assert_eq!(relays.between(Site(15), Site(15)), None);
        assert_eq!(relays.between(Site(15), Site(14)), None);
        assert_eq!(relays.between(Site(215), Site(0)), None);
        assert!(relays.served(Site(196)).eq([197, 198, 199].map(Site)));
        let small = Relays::of(Relays::SITES_MIN - 1);
        assert!(!small.are_any() && relays.are_any());
        assert!((0..Relays::SITES_MIN).all(|site| small.between(Site(site), Site(0)).is_none()));
    }

    /// Messages go on when each site of the group has sent one, but for the receiver and those that are gone, or when
    /// the first of them has waited.
    #[test]
    fn messages_wait_for_those_of_the_group() {
        let mut gathering = Gathering::new(Relays::in_groups(8, 4), Site(4));
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
        assert_eq!(gathering.poll_timeout(), None);
    }
}
