//! Rates as they are measured: by senders, for each site that they send to.
//!
//! The rate from one site to another is that of the slower link, so that one sender cannot tell whose it is. The
//! [`RateTable`] can: a site to which most senders are slow receives slowly, or folds slowly.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
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
    /// The chunks to all receivers together.
    all: Receiver,
    delay: LeastDelay,
    /// The rates as they were told last.
    told: BTreeMap<Site, f64>,
}

/// The shortest time that a chunk took lately.
#[derive(Debug, Default)]
struct LeastDelay {
    chunks: u32,
    least: Option<Duration>,
    /// The same of the chunks before these.
    before: Option<Duration>,
}

impl LeastDelay {
    /// So many chunks are looked at: the first of a session find their link empty.
    const CHUNKS: u32 = 256;

    fn note(&mut self, delay: Duration) {
        self.least = Some(self.least.map_or(delay, |least| least.min(delay)));
        self.chunks += 1;
        if self.chunks == Self::CHUNKS {
            (self.chunks, self.before, self.least) = (0, self.least, None);
        }
    }

    fn get(&self) -> Option<Duration> {
        self.least.into_iter().chain(self.before).min()
    }
}

#[derive(Debug, Default)]
struct Receiver {
    /// The times when the chunks that are on their way began it, and their bytes.
    begun: VecDeque<Duration>,
    bytes: u64,
    busy_since: Duration,
    /// The chunks and bytes that have arrived, and the time in which something was on its way.
    arrived_chunks: u32,
    arrived_bytes: u64,
    busy: Duration,
}

impl Receiver {
    /// Bytes per second, at most: as if all that is on its way arrived now. `None` if too little was sent.
    fn rate_max(&self, now: Duration) -> Option<f64> {
        let is_enough = self.arrived_chunks + self.begun.len() as u32 >= SendRates::CHUNKS_MIN;
        let pending = match self.begun.is_empty() {
            true => Duration::ZERO,
            false => now.saturating_sub(self.busy_since),
        };
        let time = (self.busy + pending).as_secs_f64();
        (is_enough && time > 0.0).then(|| (self.arrived_bytes + self.bytes) as f64 / time)
    }

    fn handle_begun(&mut self, now: Duration, bytes: u64) {
        if self.begun.is_empty() {
            self.busy_since = now;
        }
        self.begun.push_back(now);
        self.bytes += bytes;
    }

    /// Returns how long the chunk was on its way, as if chunks arrived in their order.
    fn handle_ended(&mut self, now: Duration, bytes: u64) -> Duration {
        let begun = self.begun.pop_front().unwrap_or(now);
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
        now.saturating_sub(begun)
    }
}

impl SendRates {
    /// The window before anything is known.
    pub const WINDOW_FIRST: u32 = 4;
    const WINDOW_MAX: u32 = 64;
    /// A rate is that of so many chunks at least.
    const CHUNKS_MIN: u32 = 4;
    /// After so many chunks half of what was measured is forgotten.
    const CHUNKS_MAX: u32 = 32;
    /// Two receivers do not tell which of them is odd.
    const RECEIVERS_MIN: usize = 3;

    /// A chunk of so many bytes begins its way to a site.
    pub fn handle_begun(&mut self, now: Duration, to: Site, bytes: u64) {
        self.receivers.entry(to).or_default().handle_begun(now, bytes);
        self.all.handle_begun(now, bytes);
    }

    /// A receiver is gone, or out of reach: what is on its way to it will not arrive.
    pub fn forget(&mut self, to: Site) {
        if let Some(receiver) = self.receivers.remove(&to) {
            let lost = receiver.begun.len().min(self.all.begun.len());
            self.all.begun.drain(..lost);
            self.all.bytes = self.all.bytes.saturating_sub(receiver.bytes);
        }
    }

    /// The number of chunks that should be on their way: those that the links hold, and two that wait. With fewer a
    /// link stands idle, with more a chunk that is needed waits behind others.
    pub fn window(&self) -> u32 {
        let busy = self.all.busy.as_secs_f64();
        let delay = self.delay.get().filter(|_| busy > 0.0);
        let Some(delay) = delay else {
            return Self::WINDOW_FIRST;
        };
        let held = f64::from(self.all.arrived_chunks) / busy * delay.as_secs_f64();
        (held.ceil() as u32 + 2).clamp(Self::WINDOW_FIRST, Self::WINDOW_MAX)
    }

    /// A chunk of so many bytes has arrived. Returns the rates to all receivers in bytes per second, if they differ and
    /// it is worth while to [tell](super::ToScheduler::Rates) the scheduler.
    pub fn handle_ended(&mut self, now: Duration, to: Site, bytes: u64) -> Option<Vec<(Site, f64)>> {
        let delay = self.receivers.get_mut(&to)?.handle_ended(now, bytes);
        self.all.handle_ended(now, bytes);
        self.delay.note(delay);
        let rates = self
            .receivers
            .iter()
            .filter_map(|(site, receiver)| Some((*site, receiver.rate_max(now)?)));
        let rates: Vec<(Site, f64)> = rates.collect();
        if rates.len() < Self::RECEIVERS_MIN {
            return None;
        }
        let rate_of = |slow| {
            rates
                .iter()
                .find(|(site, _)| *site == slow)
                .map(|(_, rate)| *rate)
        };
        let is_news = |slow: Site| {
            let (told, rate) = (self.told.get(&slow), rate_of(slow).unwrap_or_default());
            told.is_none_or(|told| rate * SPREAD < *told)
        };
        if !slow(&rates).any(is_news) {
            return None;
        }
        self.told = rates.iter().copied().collect();
        Some(rates)
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
    const SLOW: f64 = 0.4;

    /// Receivers that are known at most.
    const RECEIVERS_MAX: usize = 1 << 16;
    /// Receivers of one sender that are looked at: there is one for each class of chunks in a plan or two.
    const REPORTED_MAX: usize = 256;

    /// Takes the rates from a sender.
    pub(crate) fn note(&mut self, now: Duration, from: Site, rates: Vec<(Site, f64)>) {
        let rates = rates.into_iter().take(Self::REPORTED_MAX);
        for (to, rate) in rates.filter(|(_, rate)| rate.is_finite() && *rate > 0.0) {
            if self.rates.len() < Self::RECEIVERS_MAX || self.rates.contains_key(&to) {
                self.rates.entry(to).or_default().insert(from, (rate, now));
            }
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

/// The receivers that are far slower than the others.
pub(crate) fn slow(rates: &[(Site, f64)]) -> impl Iterator<Item = Site> {
    let usual = median(rates.iter().map(|(_, rate)| *rate));
    let slow = rates.iter().filter(move |(_, rate)| *rate * SPREAD < usual);
    slow.map(|(site, _)| *site)
}

/// Receivers whose rates differ by less are alike.
const SPREAD: f64 = 3.0;

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
