//! Rates as they are measured: by senders, for each site that they send to.
//!
//! The rate from one site to another is that of the slower link, so that one sender cannot tell whose it is. The
//! [`RateTable`], in which all tell theirs, can. Where several send to one site at once none sees the rate of its link:
//! each site also tells how much it receives of all.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::ids::Site;

mod table;
#[cfg(test)]
mod tests;

pub(crate) use self::table::RateTable;

/// The chunks that a site sends, and how long they take.
///
/// A driver calls [`handle_begun`](Self::handle_begun) when it begins to send a chunk,
/// [`handle_ended`](Self::handle_ended) when it knows that the chunk has arrived, or never will, and
/// [`handle_received`](Self::handle_received) when a chunk has come from another site.
#[derive(Debug)]
pub struct SendRates {
    own: Site,
    inwards: Inwards,
    receivers: BTreeMap<Site, Flow>,
    /// The chunks to all receivers together.
    all: Flow,
    /// The receivers to which chunks are on their way.
    busy: u32,
    /// The bytes of all chunks that have arrived.
    arrived: u64,
    /// The time from the beginning of a chunk to its answer without what it waits on its way: lately, on average.
    delay: Option<Duration>,
    /// So long the last answer waited on its way: the link in may be full.
    late: Duration,
    /// The rates as they were told last, and when.
    told: BTreeMap<Site, (RateBounds, Duration)>,
    /// No report before that: in trees that differ from class to class there is a new receiver every moment.
    next_report: Duration,
    counters: SendCounters,
}

/// The chunks that a site has sent since its [`SendRates`] were made, and the times that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Chunks that have arrived.
    pub chunks: u64,
    /// The bytes of these chunks.
    pub bytes: u64,
    /// The time from the beginning of each of these chunks to its answer, summed.
    pub send_time: Duration,
    /// The part of `send_time` in which chunks waited behind others, as far as the receivers' clocks show it.
    pub wait_time: Duration,
    /// The time from the beginning of the last chunk to its answer.
    pub last_send_time: Duration,
    /// The largest number of chunks that were on their way at once.
    pub queue_max: u32,
}

/// The least time lately between the beginning of a chunk, by our clock, and its arrival, by the receiver's: how far
/// the clocks are apart, and the way of a chunk that waits nowhere. Likewise of answers.
#[derive(Debug, Default)]
struct LeastTransit {
    chunks: u32,
    least: Option<i128>,
    /// The same of the chunks before these.
    before: Option<i128>,
}

impl LeastTransit {
    /// So many chunks are looked at: the first of a session find their link empty.
    const CHUNKS: u32 = 256;

    /// Takes the time of a chunk in nanoseconds. Returns how long it waited on its way, as it seems.
    fn note(&mut self, transit: i128) -> Duration {
        self.least = Some(self.least.map_or(transit, |least| least.min(transit)));
        self.chunks += 1;
        let least = self.least.into_iter().chain(self.before).min().unwrap_or(transit);
        if self.chunks == Self::CHUNKS {
            (self.chunks, self.before, self.least) = (0, self.least, None);
        }
        Duration::from_nanos(u64::try_from(transit - least).unwrap_or_default())
    }
}

/// Bounds of a rate, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateBounds {
    /// It is this at least: so much arrived in the time in which something was on its way, be it a chunk alone, which
    /// takes a latency besides the time of its bytes. 0 if too little was sent.
    pub least: f64,
    /// It is this at most: so close did chunks arrive one behind the other, or what is on its way does not arrive.
    /// Infinite if nothing says so.
    pub most: f64,
}

impl RateBounds {
    fn says_something(&self) -> bool {
        self.least > 0.0 || self.most.is_finite()
    }

    fn estimate(&self) -> f64 {
        if self.most.is_finite() {
            self.most
        } else {
            self.least
        }
    }
}

/// Chunks on their way to one receiver, or to all.
#[derive(Debug, Default)]
struct Flow {
    /// The times when the chunks that are on their way began it, and their bytes.
    begun: VecDeque<Duration>,
    bytes: u64,
    /// When the answer to the last chunk came, and when that chunk arrived by the receiver's clock, in nanoseconds.
    last: Duration,
    arrival: Option<i128>,
    /// The link out then, or when the next chunk began after a pause.
    before: Outwards,
    transit: LeastTransit,
    /// The same of answers, from the arrival of a chunk by the receiver's clock.
    back: LeastTransit,
    /// All that arrived.
    arrived: Tally,
    /// Those that arrived close behind others.
    in_row: Tally,
}

/// All that a site sends at once passes its link out, each receiver getting a part.
#[derive(Clone, Copy, Debug, Default)]
struct Outwards {
    /// The bytes to all receivers that have arrived.
    arrived: u64,
    /// The other receivers to which chunks are on their way.
    others: u32,
}

impl Outwards {
    /// The bytes that a receiver would have got alone, which got this many since `before`. One that got no less than
    /// each other receiver would have got all of them.
    fn alone(self, bytes: u64, before: Self) -> u64 {
        let of_others = self.arrived.saturating_sub(before.arrived) as f64;
        let others = self.others.max(before.others).max(1);
        let bytes = bytes as f64;
        let largest = bytes.max(of_others / f64::from(others));
        (bytes * (bytes + of_others) / largest.max(1.0)) as u64
    }
}

fn nanoseconds(time: Duration) -> i128 {
    time.as_nanos().cast_signed()
}

/// Chunks, their bytes, and the time that they took.
#[derive(Debug, Default)]
struct Tally {
    chunks: u32,
    bytes: u64,
    time: Duration,
}

impl Tally {
    /// After so much time, and no fewer chunks, half of what was counted is forgotten.
    const TIME_MAX: Duration = Duration::from_millis(40);
    const CHUNKS_MAX: u32 = 32;

    fn add(&mut self, bytes: u64, time: Duration) {
        self.chunks += 1;
        self.bytes += bytes;
        self.time += time;
        if self.chunks >= Self::CHUNKS_MAX && self.time >= Self::TIME_MAX {
            self.chunks /= 2;
            self.bytes /= 2;
            self.time /= 2;
        }
    }

    /// Bytes per second, if there are so many chunks and enough time.
    fn rate(&self, chunks: u32) -> Option<f64> {
        let is_enough = self.chunks >= chunks && self.time >= SendRates::TIME_MIN;
        is_enough.then(|| self.bytes as f64 / self.time.as_secs_f64())
    }
}

impl Flow {
    fn handle_begun(&mut self, now: Duration, bytes: u64) {
        self.begun.push_back(now);
        self.bytes += bytes;
    }

    /// Returns how long it took from the beginning of the chunk to its answer, as if chunks arrived in their order, and
    /// if it began before the answer to the one before. So many bytes would have arrived `alone`.
    fn handle_ended(&mut self, now: Duration, bytes: u64, alone: u64) -> (Duration, bool) {
        let begun = self.begun.pop_front().unwrap_or(now);
        let is_close = begun <= self.last;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.arrived.add(alone, now.saturating_sub(begun.max(self.last)));
        self.last = now;
        (now.saturating_sub(begun), is_close)
    }

    /// A chunk to the one receiver that began so long ago has arrived, by the receiver's clock at `arrived`. Returns
    /// how long it waited on its way.
    ///
    /// The time of a chunk in a row is that since the one before arrived, or since it would have arrived had it not
    /// waited, by the receiver's clock: answers may wait for long where the sender receives slowly, and nothing may be
    /// on its way meanwhile.
    fn note_arrival(
        &mut self,
        now: Duration,
        (delay, is_close): (Duration, bool),
        (bytes, alone): (u64, u64),
        arrived: Duration,
    ) -> Duration {
        let arrived = nanoseconds(arrived);
        let waited = self
            .transit
            .note(arrived - nanoseconds(now.saturating_sub(delay)));
        if let Some(before) = self.arrival.replace(arrived)
            && is_close
        {
            let since = before.max(arrived - nanoseconds(waited));
            let time = u64::try_from(arrived - since).unwrap_or_default();
            // What others got before that did not pass in this time.
            let part = time as f64 / ((arrived - before) as f64).max(1.0);
            let of_others = alone.saturating_sub(bytes) as f64 * part;
            self.in_row
                .add(bytes + of_others as u64, Duration::from_nanos(time));
        }
        waited
    }

    /// The bounds of the rate. An answer that does not come may be so `late`.
    fn bounds(&self, now: Duration, outwards: Outwards, late: Duration) -> RateBounds {
        let pending = self
            .begun
            .front()
            .map(|&begun| now.saturating_sub(begun.max(self.last) + late));
        let pending = pending.unwrap_or_default();
        // The first of a row counts for nothing: it is the time between that is known.
        let row = self
            .in_row
            .rate(SendRates::CHUNKS_MIN - 1)
            .unwrap_or(f64::INFINITY);
        // As if all that is on its way arrived now.
        let halted = match pending >= SendRates::TIME_MIN {
            true => {
                let alone = outwards.alone(self.bytes, self.before);
                (self.in_row.bytes + alone) as f64 / (self.in_row.time + pending).as_secs_f64()
            }
            false => f64::INFINITY,
        };
        let most = row.min(halted);
        RateBounds {
            least: self
                .arrived
                .rate(SendRates::CHUNKS_MIN)
                .unwrap_or_default()
                .min(most),
            most,
        }
    }
}

/// All that a site receives.
#[derive(Debug, Default)]
struct Inwards {
    /// When the last span began, and the bytes since then.
    begun: Duration,
    bytes: u64,
    /// The rates in the spans before, the latest first.
    rates: [f64; Self::SPANS],
}

impl Inwards {
    /// The rates that senders tell are those of a few tenths of a second: in one of so many spans the site has received
    /// as much as it can, if there was so much.
    const SPANS: usize = 16;

    fn note(&mut self, now: Duration, bytes: u64) {
        let elapsed = now.saturating_sub(self.begun);
        if elapsed > SendRates::IDLE {
            *self = Self {
                begun: now,
                ..Self::default()
            };
            return;
        }
        self.bytes += bytes;
        if elapsed >= SendRates::TIME_MIN {
            self.rates.rotate_right(1);
            self.rates[0] = self.bytes as f64 / elapsed.as_secs_f64();
            (self.begun, self.bytes) = (now, 0);
        }
    }

    /// So much arrives at least; there may be nothing more to come.
    fn bounds(&self) -> RateBounds {
        RateBounds {
            least: self.rates.iter().copied().fold(0.0, f64::max),
            most: f64::INFINITY,
        }
    }
}

impl SendRates {
    /// The window before anything is known.
    pub const WINDOW_FIRST: u32 = 4;
    const WINDOW_MAX: u32 = 256;
    /// A rate is that of so many chunks and of so much time at least: in less, a process that waits for its processor
    /// looks like a slow link.
    const CHUNKS_MIN: u32 = 4;
    const TIME_MIN: Duration = Duration::from_millis(10);
    /// After so long without a chunk the clocks may have drifted apart.
    const IDLE: Duration = Duration::from_secs(1);
    /// A rate is told again if it is bounded for the first time, or so much less or more than what was told,
    const NEWS: f64 = 2.0;
    /// and so long after.
    const TELL_AGAIN: Duration = Duration::from_millis(100);

    /// Those of a site.
    pub fn new(own: Site) -> Self {
        Self {
            own,
            inwards: Inwards::default(),
            receivers: BTreeMap::new(),
            all: Flow::default(),
            busy: 0,
            arrived: 0,
            delay: None,
            late: Duration::ZERO,
            told: BTreeMap::new(),
            next_report: Duration::ZERO,
            counters: SendCounters::default(),
        }
    }

    /// The chunks that were sent until now.
    pub fn counters(&self) -> SendCounters {
        self.counters
    }

    /// The rates at which this site sends to all receivers and receives from all senders, in bytes per second; 0 if
    /// too little has passed.
    pub fn totals(&self) -> (f64, f64) {
        let sent = self.all.arrived.rate(Self::CHUNKS_MIN).unwrap_or_default();
        (sent, self.inwards.bounds().least)
    }

    /// A chunk of so many bytes has come from another site.
    pub fn handle_received(&mut self, now: Duration, bytes: u64) {
        self.inwards.note(now, bytes);
    }

    /// A chunk of so many bytes begins its way to a site.
    pub fn handle_begun(&mut self, now: Duration, to: Site, bytes: u64) {
        let receiver = self.receivers.entry(to).or_default();
        if receiver.begun.is_empty() {
            receiver.before = Outwards {
                arrived: self.arrived,
                others: self.busy,
            };
            self.busy += 1;
        }
        receiver.handle_begun(now, bytes);
        self.all.handle_begun(now, bytes);
        self.counters.queue_max = self.counters.queue_max.max(self.all.begun.len() as u32);
    }

    /// A receiver is gone, or out of reach: what is on its way to it will not arrive.
    pub fn forget(&mut self, to: Site) {
        self.told.remove(&to);
        if let Some(receiver) = self.receivers.remove(&to) {
            self.busy -= u32::from(!receiver.begun.is_empty());
            let lost = receiver.begun.len().min(self.all.begun.len());
            self.all.begun.drain(..lost);
            self.all.bytes = self.all.bytes.saturating_sub(receiver.bytes);
        }
    }

    /// The number of chunks that should be on their way: twice those that the links hold, as it seems, and two that
    /// wait. With fewer a link stands idle, with more a chunk that is needed waits behind others. Twice, since what a
    /// link holds is only seen when more is on its way.
    pub fn window(&self) -> u32 {
        let arrived = &self.all.arrived;
        let busy = arrived.time.as_secs_f64();
        let Some(delay) = self.delay.filter(|_| busy > 0.0) else {
            return Self::WINDOW_FIRST;
        };
        let held = f64::from(arrived.chunks) / busy * delay.as_secs_f64();
        ((2.0 * held).ceil() as u32 + 2).clamp(Self::WINDOW_FIRST, Self::WINDOW_MAX)
    }

    /// A chunk of so many bytes has arrived, by the receiver's own clock at `arrived`. Returns the rates to receivers,
    /// if it is worth while to [tell](super::ToScheduler::Rates) the scheduler: of those too of which nothing is known
    /// yet, since who has several receivers shows less of each.
    pub fn handle_ended(
        &mut self,
        now: Duration,
        to: Site,
        bytes: u64,
        arrived: Duration,
    ) -> Option<Vec<(Site, RateBounds)>> {
        let receiver = self.receivers.get_mut(&to)?;
        let was_busy = !receiver.begun.is_empty();
        let is_fresh = now.saturating_sub(receiver.last) > Self::IDLE;
        let mut outwards = Outwards {
            arrived: self.arrived,
            others: self.busy - u32::from(was_busy),
        };
        let alone = outwards.alone(bytes, receiver.before);
        let (delay, is_close) = receiver.handle_ended(now, bytes, alone);
        self.busy -= u32::from(was_busy && receiver.begun.is_empty());
        self.arrived += bytes;
        outwards.arrived = self.arrived;
        receiver.before = outwards;
        if is_fresh {
            (receiver.transit, receiver.arrival) = (LeastTransit::default(), None);
            receiver.back = LeastTransit::default();
        }
        self.late = receiver.back.note(nanoseconds(now) - nanoseconds(arrived));
        let waited = receiver.note_arrival(now, (delay, is_close), (bytes, alone), arrived);
        self.counters.note(bytes, delay, waited);
        let delay = delay.saturating_sub(waited);
        self.delay = Some(self.delay.map_or(delay, |known| (known * 7 + delay) / 8));
        self.all.handle_ended(now, bytes, bytes);
        if now < self.next_report {
            return None;
        }
        let current = self
            .receivers
            .iter()
            .filter(|(site, flow)| **site == to || !flow.begun.is_empty());
        let rates = current.map(|(site, flow)| (*site, flow.bounds(now, outwards, self.late)));
        let received = Some((self.own, self.inwards.bounds())).filter(|(_, rate)| rate.says_something());
        let rates: Vec<_> = rates.chain(received).collect();
        let is_news = |&(site, rate): &(Site, RateBounds)| {
            let is_new = self.told.get(&site).is_none_or(|&(told, at)| {
                let is_bounded = rate.most.is_finite() && told.most.is_infinite();
                let (told, rate) = (told.estimate(), rate.estimate());
                let is_other = is_bounded || rate * Self::NEWS < told || rate > told * Self::NEWS;
                let age = now.saturating_sub(at);
                age > Self::TELL_AGAIN || (is_other && age > Self::TIME_MIN)
            });
            is_new && rate.says_something()
        };
        if !rates.iter().any(is_news) {
            return None;
        }
        self.next_report = now + Self::TIME_MIN;
        self.told
            .extend(rates.iter().map(|&(site, rate)| (site, (rate, now))));
        Some(rates)
    }
}

impl SendCounters {
    fn note(&mut self, bytes: u64, took: Duration, waited: Duration) {
        self.chunks += 1;
        self.bytes += bytes;
        self.send_time += took;
        self.wait_time += waited.min(took);
        self.last_send_time = took;
    }
}
