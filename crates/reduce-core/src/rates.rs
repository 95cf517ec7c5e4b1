//! Rates as they are measured: by senders, for each site that they send to.
//!
//! The rate from one site to another is that of the slower link, so that one sender cannot tell whose it is. The
//! [`RateTable`] can: a site to which most senders are slow receives slowly, or folds slowly.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::ids::Site;

/// The chunks that a site sends, and how long they take.
///
/// A driver calls [`handle_begun`](Self::handle_begun) when it begins to send a chunk, and
/// [`handle_ended`](Self::handle_ended) when it knows that the chunk has arrived, or never will.
#[derive(Debug, Default)]
pub struct SendRates {
    receivers: BTreeMap<Site, Receiver>,
    /// The rates as they were told last.
    told: BTreeMap<Site, f64>,
}

#[derive(Debug, Default)]
struct Receiver {
    /// Chunks on their way, and their bytes.
    chunks: u32,
    bytes: u64,
    busy_since: Duration,
    /// What has arrived, and the time in which something was on its way.
    arrived_chunks: u32,
    arrived_bytes: u64,
    busy: Duration,
}

impl Receiver {
    /// Bytes per second, at most: as if all that is on its way arrived now. `None` if too little was sent.
    fn rate_max(&self, now: Duration) -> Option<f64> {
        let is_enough = self.arrived_chunks + self.chunks >= SendRates::CHUNKS_MIN;
        let pending = match self.chunks {
            0 => Duration::ZERO,
            _ => now.saturating_sub(self.busy_since),
        };
        let time = (self.busy + pending).as_secs_f64();
        (is_enough && time > 0.0).then(|| (self.arrived_bytes + self.bytes) as f64 / time)
    }

    fn handle_ended(&mut self, now: Duration, bytes: u64) {
        self.chunks = self.chunks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.busy += now.saturating_sub(self.busy_since);
        self.busy_since = now;
        self.arrived_chunks += 1;
        self.arrived_bytes += bytes;
        if self.arrived_chunks >= SendRates::CHUNKS_MAX {
            // What is long ago counts less.
            self.arrived_chunks /= 2;
            self.arrived_bytes /= 2;
            self.busy /= 2;
        }
    }
}

impl SendRates {
    /// A rate is that of so many chunks at least.
    const CHUNKS_MIN: u32 = 3;
    /// After so many chunks half of what was measured is forgotten.
    const CHUNKS_MAX: u32 = 32;
    /// Receivers whose rates differ by less are alike.
    const SPREAD: f64 = 2.0;
    /// Two receivers do not tell which of them is odd.
    const RECEIVERS_MIN: usize = 3;

    /// A chunk of so many bytes begins its way to a site.
    pub fn handle_begun(&mut self, now: Duration, to: Site, bytes: u64) {
        let receiver = self.receivers.entry(to).or_default();
        if receiver.chunks == 0 {
            receiver.busy_since = now;
        }
        receiver.chunks += 1;
        receiver.bytes += bytes;
    }

    /// A chunk of so many bytes has arrived. Returns the rates to all receivers in bytes per second, if they differ and it
    /// is worth while to [tell](super::ToScheduler::Rates) the scheduler.
    pub fn handle_ended(&mut self, now: Duration, to: Site, bytes: u64) -> Option<Vec<(Site, f64)>> {
        self.receivers.get_mut(&to)?.handle_ended(now, bytes);
        let rates = self
            .receivers
            .iter()
            .filter_map(|(site, receiver)| Some((*site, receiver.rate_max(now)?)));
        let rates: Vec<(Site, f64)> = rates.collect();
        if rates.len() < Self::RECEIVERS_MIN {
            return None;
        }
        let usual = median(rates.iter().map(|(_, rate)| *rate));
        let is_slow = |rate: f64| rate * Self::SPREAD < usual;
        let is_news = |(site, rate): &(Site, f64)| {
            let told = self.told.get(site);
            is_slow(*rate) && told.is_none_or(|told| *rate * Self::SPREAD < *told)
        };
        if !rates.iter().any(is_news) {
            return None;
        }
        self.told = rates.iter().copied().collect();
        Some(rates)
    }

    /// Nothing is on its way any more: the next session is measured by itself.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The rates that senders have told, by receivers.
#[derive(Debug, Default)]
pub(crate) struct RateTable {
    rates: BTreeMap<Site, BTreeMap<Site, (f64, Duration)>>,
}

impl RateTable {
    /// A rate that nobody has told again for so long says nothing any more: a site that was slow gets another chance.
    const AGE_MAX: Duration = Duration::from_secs(2);
    /// A site counts as slow if its rate is below this part of the usual one.
    const SLOW: f64 = 0.5;

    /// Takes the rates from a sender.
    pub(crate) fn note(&mut self, now: Duration, from: Site, rates: Vec<(Site, f64)>) {
        for (to, rate) in rates
            .into_iter()
            .filter(|(_, rate)| rate.is_finite() && *rate > 0.0)
        {
            self.rates.entry(to).or_default().insert(from, (rate, now));
        }
    }

    /// Forgets what is old.
    pub(crate) fn age(&mut self, now: Duration) {
        for senders in self.rates.values_mut() {
            senders.retain(|_, (_, at)| *at + Self::AGE_MAX > now);
        }
        self.rates.retain(|_, senders| !senders.is_empty());
    }

    /// The sites that receive slowly, and how fast they do, as a part of the usual rate.
    pub(crate) fn slow(&self) -> BTreeMap<Site, f64> {
        let medians = self.rates.iter().map(|(to, senders)| {
            let rate = median(senders.values().map(|(rate, _)| *rate));
            (*to, rate, senders.len())
        });
        let medians: Vec<(Site, f64, usize)> = medians.collect();
        let senders: BTreeSet<Site> = self.rates.values().flat_map(BTreeMap::keys).copied().collect();
        let usual = median(medians.iter().map(|(_, rate, _)| *rate));
        // One sender alone may be the slow one.
        let is_certain = |count: usize| count > 1 || senders.len() == 1;
        let slow = medians
            .into_iter()
            .filter(|(_, rate, count)| is_certain(*count) && *rate < usual * Self::SLOW);
        slow.map(|(site, rate, _)| (site, rate / usual)).collect()
    }
}

/// The middle one of some numbers, the lower of two; 0 of none.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().saturating_sub(1) / 2;
    numbers.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends chunks of 100 bytes to receivers, each of which takes some milliseconds for one, for a while.
    fn reports(times: &[(u32, u64)], from: Site, table: &mut RateTable) -> usize {
        let mut rates = SendRates::default();
        let mut reports = 0;
        for (to, _) in times {
            rates.handle_begun(Duration::ZERO, Site(*to), 100);
        }
        for ms in 1..200 {
            let now = Duration::from_millis(ms);
            for (to, span) in times {
                if ms % span == 0 {
                    if let Some(report) = rates.handle_ended(now, Site(*to), 100) {
                        reports += 1;
                        table.note(now, from, report);
                    }
                    rates.handle_begun(now, Site(*to), 100);
                }
            }
        }
        reports
    }

    /// Equal receivers are nothing to tell of; a slow one is told of once, before its first chunks have arrived.
    #[test]
    fn a_slow_receiver_is_told_of() {
        let mut table = RateTable::default();
        assert_eq!(reports(&[(1, 5), (2, 5), (3, 6)], Site(0), &mut table), 0);
        assert_eq!(table.slow(), BTreeMap::new());
        let count = reports(&[(1, 5), (2, 5), (3, 60)], Site(0), &mut table);
        assert!((1..4).contains(&count), "{count} reports");
    }

    /// Whose link is slow follows from several senders: a slow receiver is, a slow sender is not.
    #[test]
    fn the_slow_link_is_found() {
        let mut table = RateTable::default();
        for from in [0, 1, 2] {
            reports(&[(4, 5), (5, 5), (6, 5), (7, 50)], Site(from), &mut table);
        }
        // Everything from this one is slow.
        reports(&[(4, 50), (5, 50), (6, 50), (7, 120)], Site(3), &mut table);
        let slow = table.slow();
        assert_eq!(slow.keys().collect::<Vec<_>>(), [&Site(7)]);
        assert!((0.05..0.3).contains(&slow[&Site(7)]), "{slow:?}");
        table.age(10 * SECOND);
        assert_eq!(table.slow(), BTreeMap::new());
    }
}
