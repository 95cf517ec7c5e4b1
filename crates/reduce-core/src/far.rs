//! Sites that are far away: behind queues that others keep full, as a transfer of files does that never ends.
//!
//! A chunk that passes such a site waits in its queue, and in a chain each chunk waits for all of them, one after the
//! other. As a leaf a site only delays what it sends itself, and all of them do so at once. But then the others
//! receive more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::ids::Site;

/// How much longer than others a site takes to be reached and to answer, as measured.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// In seconds, and when each was measured last.
    of: BTreeMap<Site, (f64, Duration)>,
}

impl Delays {
    /// A queue that nobody has measured for so long may be empty.
    const AGE_MAX: Duration = Duration::from_secs(30);
    /// A site counts as far if its delay is that of a near one so many times.
    const FAR: f64 = 4.0;

    /// Takes the times, in seconds, from which it follows: from the beginning of a chunk to its answer, between two
    /// sites.
    pub(crate) fn measure(&mut self, now: Duration, pairs: impl Iterator<Item = (Site, Site, f64)>) {
        let pairs: Vec<(Site, Site, f64)> = pairs.collect();
        let mut least = BTreeMap::<Site, f64>::new();
        for &(one, other, time) in &pairs {
            for site in [one, other] {
                let known = least.entry(site).or_insert(time);
                *known = known.min(time);
            }
        }
        let mut times: Vec<f64> = least.values().copied().collect();
        times.sort_by(f64::total_cmp);
        // Half of the sites, or more, may be far.
        let Some(near) = times.get(times.len() / 4).copied() else {
            return;
        };
        let is_far = |site: &Site| least[site] > Self::FAR * near;
        let mut measured = BTreeMap::<Site, f64>::new();
        for &(one, other, time) in &pairs {
            for (site, other) in [(one, other), (other, one)] {
                let delay = match (is_far(&site), is_far(&other)) {
                    (false, _) => 0.0,
                    (true, false) => time,
                    // As if both were equally far.
                    (true, true) => time / 2.0,
                };
                let known = measured.entry(site).or_insert(delay);
                *known = known.min(delay);
            }
        }
        self.of.retain(|_, (_, at)| *at + Self::AGE_MAX > now);
        self.of
            .extend(measured.into_iter().map(|(site, delay)| (site, (delay, now))));
    }

    fn of(&self, site: Site, now: Duration) -> f64 {
        let known = self.of.get(&site).filter(|(_, at)| *at + Self::AGE_MAX > now);
        known.map_or(0.0, |(delay, _)| *delay)
    }

    /// The sites that had better be leaves of a tree of all these, by which so many bytes go to the root, or from it.
    /// Sites of one host are one place of a chain.
    pub(crate) fn leaves(
        &self,
        now: Duration,
        sites: impl Iterator<Item = Site>,
        hosts: &BTreeMap<Site, u64>,
        links: Links,
    ) -> BTreeSet<Site> {
        if self.of.values().all(|(delay, _)| *delay == 0.0) {
            return BTreeSet::new();
        }
        let mut places = BTreeMap::<Result<u64, Site>, (f64, Vec<Site>)>::new();
        for site in sites {
            let place = hosts.get(&site).copied().ok_or(site);
            let (delay, together) = places.entry(place).or_default();
            *delay = delay.max(self.of(site, now));
            together.push(site);
        }
        let mut places: Vec<(f64, Vec<Site>)> = places.into_values().collect();
        places.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let delays: Vec<f64> = places.iter().map(|(delay, _)| *delay).collect();
        let leaves = links.leaves(&delays);
        places.into_iter().take(leaves).flat_map(|(_, sites)| sites).collect()
    }
}

/// The times that a vector takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// Over most links, in seconds.
    pub(crate) usual: f64,
    /// Over the slowest one that it has to pass.
    pub(crate) slowest: f64,
}

impl Links {
    /// A plan has to be so much better than a chain: what is measured is never exact.
    const BETTER: f64 = 0.9;

    /// The best number of leaves among sites with these delays, the longest first, if it pays.
    fn leaves(&self, delays: &[f64]) -> usize {
        let far = delays.iter().take_while(|delay| **delay > 0.0).count();
        let time = |leaves: usize| {
            // The root receives one vector, and those that are left all others.
            let inner = delays.len() - leaves;
            let received = match leaves {
                0 | 1 => 1.0,
                _ => (delays.len() - 1) as f64 / inner as f64,
            };
            let passed: f64 = delays[leaves..].iter().sum();
            let last = if leaves > 0 { delays[0] } else { 0.0 };
            self.slowest.max(received * self.usual) + passed + last
        };
        let best = (0..=far.min(delays.len().saturating_sub(1))).min_by(|one, other| time(*one).total_cmp(&time(*other)));
        best.filter(|best| time(*best) < Self::BETTER * time(0)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    /// A chain of eight sites of which 1 to 4 send through queues of 40 ms.
    fn chain() -> Delays {
        let far = |site: u32| if (1..5).contains(&site) { 0.04 } else { 0.001 };
        let mut delays = Delays::default();
        let pairs = (1..8).map(|site| (Site(site), Site(site - 1), far(site) + far(site - 1)));
        delays.measure(NOW, pairs);
        delays
    }

    fn leaves(delays: &Delays, now: Duration, usual: f64, slowest: f64) -> Vec<u32> {
        let sites = (1..8).map(Site);
        let leaves = delays.leaves(now, sites, &BTreeMap::new(), Links { usual, slowest });
        leaves.into_iter().map(|site| site.0).collect()
    }

    /// Short vectors wait for no queue but their own. Long ones do if the others' links would have to carry more than
    /// that costs; not if a slow link bounds them in any case.
    #[test]
    fn far_sites_are_leaves_where_that_pays() {
        let delays = chain();
        assert_eq!(leaves(&delays, NOW, 0.02, 0.02), [1, 2, 3, 4]);
        assert_eq!(leaves(&delays, NOW, 10.0, 10.0), []);
        assert_eq!(leaves(&delays, NOW, 0.4, 0.8), [1, 2, 3, 4]);
        assert_eq!(leaves(&delays, NOW + Delays::AGE_MAX, 0.02, 0.02), []);
    }

    /// Sites that are all as far as the others are not far, and neither are those that nobody has measured.
    #[test]
    fn distance_is_relative() {
        let mut delays = Delays::default();
        assert_eq!(leaves(&delays, NOW, 0.02, 0.02), []);
        delays.measure(NOW, (1..8).map(|site| (Site(site), Site(site - 1), 0.1)));
        assert_eq!(leaves(&delays, NOW, 0.02, 0.02), []);
    }

    /// The sites of a host are leaves together, and count once.
    #[test]
    fn hosts_are_far() {
        let hosts: BTreeMap<Site, u64> = (0..8).map(|site| (Site(site), u64::from(site / 2))).collect();
        let mut delays = Delays::default();
        let pairs = [(2, 0, 0.04), (4, 2, 0.08), (6, 4, 0.04), (6, 0, 0.001)];
        delays.measure(NOW, pairs.map(|(one, other, time)| (Site(one), Site(other), time)).into_iter());
        let links = Links { usual: 0.02, slowest: 0.04 };
        let leaves = delays.leaves(NOW, (2..8).map(Site), &hosts, links);
        assert_eq!(leaves, (2..6).map(Site).collect());
    }
}
