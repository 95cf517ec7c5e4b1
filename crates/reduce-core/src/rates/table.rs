//! The rates of all links, as senders tell them, and the sites that are slow.

use std::{collections::BTreeMap, time::Duration};

use super::{RateBounds, Site};

/// The rates that senders have told, by receivers, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct RateTable {
    rates: BTreeMap<Site, RatesTo>,
    verdicts: BTreeMap<Site, Verdict>,
    usual: Option<f64>,
    /// Reports since the last look at all rates.
    reports: usize,
}

/// A site receives slowly.
#[derive(Debug)]
struct Verdict {
    /// Its rate, as a part of the usual one.
    part: f64,
    /// If it receives as much, it is not slow.
    limit: f64,
    /// It counts until then, and then gets another chance; the next time it counts twice as long.
    until: Duration,
    length: Duration,
}

impl Verdict {
    /// A verdict that is not [confirmed](Self::confirm) yet.
    fn new(limit: f64) -> Self {
        Self {
            part: 1.0,
            limit,
            until: Duration::ZERO,
            length: RateTable::VERDICT_MIN / 2,
        }
    }

    /// The site is found slow again, at this part of the usual rate. Returns true if the verdict did not count just
    /// before.
    fn confirm(&mut self, part: f64, now: Duration) -> bool {
        if self.until > now {
            // As a leaf it gets little, which passes at once: it seems faster than it is.
            self.part = self.part.min(part);
            return false;
        }
        self.part = part;
        self.length = (2 * self.length).min(RateTable::VERDICT_MAX);
        self.until = now + self.length;
        true
    }

    /// It has run out, not long ago, and nothing has shown that it does not hold any more.
    fn is_open(&self, now: Duration) -> bool {
        self.until <= now && now < self.until + self.length
    }
}

/// All that a site sends.
#[derive(Debug, Default)]
struct Sender {
    /// When it told of a rate last.
    last: Duration,
    /// Those that it sends to now.
    receivers: u32,
    /// Those that it is slow to, and that do not receive enough from all together.
    slow_receivers: u32,
    /// Those of them that do not count as slow.
    unexplained: u32,
    /// The rate that it has shown to one of them at least.
    least: f64,
}

impl Sender {
    /// A sender to so many that shows to none of them that it can send fast may be slow itself. With two they may be
    /// two slow sites that follow each other in a chain.
    const RECEIVERS: u32 = 3;

    fn is_proven(&self, slow: f64) -> bool {
        self.receivers < Self::RECEIVERS || self.least >= slow
    }

    /// It is slow to two sites that do not count as slow.
    fn is_slow_itself(&self, slow: f64) -> bool {
        self.unexplained > 1 && !self.is_proven(slow)
    }
}

/// The rates against which the others are judged.
#[derive(Debug)]
struct Scale {
    /// The rate that most links reach at least.
    usual: f64,
    /// A site that receives less may be slow.
    slow: f64,
    /// Some site has told how much it receives of all.
    is_received_told: bool,
}

/// The evidence about a site that the rates to it give.
#[derive(Debug)]
struct Receiver {
    /// The upper bound of its rate, by those that can be trusted; 0 if there are none.
    rate: f64,
    /// The rate that it has shown that it can receive.
    shown: f64,
    /// It is found slow.
    is_slow: bool,
    /// Somebody is slow to it, and everybody who is slow to it is slow itself.
    is_cleared: bool,
}

impl Receiver {
    fn new(
        to: Site,
        rates: &RatesTo,
        senders: &BTreeMap<Site, Sender>,
        scale: &Scale,
        now: Duration,
    ) -> Self {
        let received = received_by(to, rates);
        let rate = trusted_rate(to, rates, senders, scale.slow, now);
        let mut slow_to_it = of_others(to, rates)
            .filter(|(_, rate, _)| rate.most < scale.slow)
            .peekable();
        Self {
            rate,
            // What is on its way alone may pass at once, however slow the link is: that shows nothing.
            shown: if scale.is_received_told { received } else { rate },
            is_slow: rate > 0.0 && rate.max(received) < scale.slow,
            is_cleared: slow_to_it.peek().is_some()
                && slow_to_it.all(|(from, ..)| senders[&from].is_slow_itself(scale.slow)),
        }
    }
}

/// The upper bound of the rate to a receiver by the senders that can be trusted, where a rate below `slow` is slow; 0
/// if there are none.
fn trusted_rate(
    to: Site,
    rates: &RatesTo,
    senders: &BTreeMap<Site, Sender>,
    slow: f64,
    now: Duration,
) -> f64 {
    let accusers =
        of_others(to, rates).filter(|(from, rate, _)| rate.most < slow && senders[from].slow_receivers == 1);
    let is_accused = accusers.count() > 1;
    let is_believed = |from: Site| {
        let sender = &senders[&from];
        sender.is_proven(slow) || (is_accused && sender.slow_receivers == 1)
    };
    let last = of_others(to, rates)
        .map(|(_, _, at)| at)
        .max()
        .unwrap_or_default();
    let trusted = of_others(to, rates).filter(|&(from, rate, at)| {
        // A bound that does not come soon is of a site that sends there no more.
        let may_say =
            at + RateTable::REPLACED > last && (rate.most.is_finite() || at + RateTable::SOON > now);
        may_say && rate.says_something() && (rate.most >= slow || is_believed(from))
    });
    trusted.map(|(_, rate, _)| rate.most).fold(0.0, f64::max)
}

/// The rates to a receiver, and when they were told, by sender.
type RatesTo = BTreeMap<Site, (RateBounds, Duration)>;

/// The rates that others than the receiver have told.
fn of_others(to: Site, rates: &RatesTo) -> impl Iterator<Item = (Site, RateBounds, Duration)> {
    let others = rates.iter().filter(move |(from, _)| **from != to);
    others.map(|(from, (rate, at))| (*from, *rate, *at))
}

/// The rate at which the receiver receives from all, as it has told itself; 0 if it has not.
fn received_by(to: Site, rates: &RatesTo) -> f64 {
    rates.get(&to).map_or(0.0, |(rate, _)| rate.least)
}

impl RateTable {
    /// A rate that nobody has told again for so long says nothing any more.
    const AGE_MAX: Duration = Duration::from_secs(2);
    /// A rate without an upper bound says nothing any more after this.
    const SOON: Duration = Duration::from_millis(100);
    /// A rate says nothing any more if others have told of the receiver so long after it.
    const REPLACED: Duration = Duration::from_millis(200);
    const VERDICT_MIN: Duration = Duration::from_secs(2);
    const VERDICT_MAX: Duration = Duration::from_secs(64);
    /// A site counts as slow if its rate is below this part of the usual one, and some site has received as much as the
    /// usual rate is in a span of time,
    const SLOW: f64 = 0.4;
    /// or if it is below this part of the usual one. What a link lets through at once after a pause makes it look
    /// faster than it is, as long as it waits for chunks.
    const FAR_TOO_SLOW: f64 = 0.2;
    /// After reports of one of so many receivers all are looked at, which costs O(p log p): O(log p) for each report.
    const REPORTS: usize = 16;

    /// Receivers that are known at most.
    const RECEIVERS_MAX: usize = 1 << 16;
    /// Receivers of one sender that are looked at: there is one for each class of chunks in a plan or two.
    const REPORTED_MAX: usize = 256;

    /// Takes the rates from a sender.
    pub(crate) fn note(&mut self, now: Duration, from: Site, rates: Vec<(Site, RateBounds)>) {
        self.reports += 1;
        let rates = rates.into_iter().take(Self::REPORTED_MAX);
        let makes_sense = |rate: &RateBounds| rate.least.is_finite() && rate.least >= 0.0 && rate.most > 0.0;
        for (to, rate) in rates.filter(|(_, rate)| makes_sense(rate)) {
            if self.rates.len() < Self::RECEIVERS_MAX || self.rates.contains_key(&to) {
                self.rates.entry(to).or_default().insert(from, (rate, now));
            }
        }
    }

    /// Says if there is enough news to [judge](Self::judge) again.
    pub(crate) fn has_news(&self) -> bool {
        self.reports * Self::REPORTS >= self.rates.len()
    }

    /// Looks at all rates, and makes and removes verdicts.
    ///
    /// A slow rate may be the sender's or the receiver's. A sender to several that has shown to none that it sends fast
    /// may be slow itself, and is believed only if it is slow to this receiver alone and another one is so too.
    /// Otherwise it is the receiver, which will have other senders if that is wrong.
    ///
    /// A verdict is removed if the site receives what it was found to lack, or if each sender that is slow to it is
    /// slow itself: slow to two sites without a verdict, and fast to none.
    pub(crate) fn judge(&mut self, now: Duration) {
        self.reports = 0;
        self.forget_old(now);
        if self.rates.is_empty() {
            return;
        }
        let scale = self.scale();
        let senders = self.senders(scale.slow);
        let mut is_found = false;
        for (&to, rates) in &self.rates {
            let receiver = Receiver::new(to, rates, &senders, &scale, now);
            let verdict = self.verdicts.get(&to);
            if receiver.is_cleared || verdict.is_some_and(|verdict| receiver.shown >= verdict.limit) {
                self.verdicts.remove(&to);
            }
            if receiver.is_slow {
                let verdict = self.verdicts.entry(to);
                let verdict = verdict.or_insert_with(|| Verdict::new(scale.slow));
                is_found |= verdict.confirm(receiver.rate / scale.usual, now);
            }
        }
        if is_found {
            // A slow site hides others that are slow: they have nothing to wait for.
            for verdict in self.verdicts.values_mut().filter(|verdict| verdict.is_open(now)) {
                verdict.until = now + verdict.length;
            }
        }
    }

    /// Forgets the rates that say nothing any more.
    fn forget_old(&mut self, now: Duration) {
        for senders in self.rates.values_mut() {
            senders.retain(|_, (_, at)| *at + Self::AGE_MAX > now);
        }
        self.rates.retain(|_, senders| !senders.is_empty());
    }

    /// Finds the usual rate anew, and the rate below which one is slow.
    fn scale(&mut self) -> Scale {
        let bounds = self.rates.iter().filter_map(|(to, rates)| {
            let others = of_others(*to, rates).map(|(_, rate, _)| rate);
            others.reduce(|one, other| RateBounds {
                least: one.least.max(other.least),
                most: one.most.max(other.most),
            })
        });
        let usual = usual_rate(&bounds.collect::<Vec<_>>());
        self.usual = Some(usual).filter(|usual| *usual > 0.0).or(self.usual);
        let usual = self.usual.unwrap_or_default();
        let received = self
            .rates
            .iter()
            .filter_map(|(to, rates)| Some(rates.get(to)?.0.least));
        // Nobody tells it of hosts with several ranks.
        let received = received.reduce(f64::max);
        let most_received = received.unwrap_or(usual).min(usual);
        Scale {
            usual,
            slow: (Self::SLOW * most_received).max(Self::FAR_TOO_SLOW * usual),
            is_received_told: received.is_some(),
        }
    }

    /// All that send, where a rate below this is slow.
    fn senders(&self, slow: f64) -> BTreeMap<Site, Sender> {
        let mut senders = BTreeMap::<Site, Sender>::new();
        let told = self.rates.iter().flat_map(|(to, rates)| of_others(*to, rates));
        for (from, _, at) in told {
            let sender = senders.entry(from).or_default();
            sender.last = sender.last.max(at);
        }
        for (&to, rates) in &self.rates {
            let received = received_by(to, rates);
            for (from, rate, at) in of_others(to, rates) {
                let sender = senders.entry(from).or_default();
                sender.receivers += u32::from(at + Self::SOON > sender.last);
                let is_slow = rate.most.max(received) < slow;
                sender.slow_receivers += u32::from(is_slow);
                sender.unexplained += u32::from(is_slow && !self.verdicts.contains_key(&to));
                sender.least = sender.least.max(rate.least);
            }
        }
        senders
    }

    /// The sites that receive slowly, and how fast they do, as a part of the usual rate.
    pub(crate) fn slow(&self, now: Duration) -> BTreeMap<Site, f64> {
        let current = self.verdicts.iter().filter(|(_, verdict)| verdict.until > now);
        current.map(|(&site, verdict)| (site, verdict.part)).collect()
    }

    /// The rate of most links in bytes per second, as far as it was ever told.
    pub(crate) fn usual(&self) -> Option<f64> {
        self.usual
    }
}

/// The rate that most links reach at least. A link that may be slow or fast says nothing: answers to a site that
/// receives slowly wait for long, so that all links from it seem to reach little.
fn usual_rate(links: &[RateBounds]) -> f64 {
    let most = links.iter().map(|link| link.least).fold(0.0, f64::max);
    let slow = RateTable::SLOW * most;
    let known = links.iter().filter(|link| link.least >= slow || link.most < slow);
    median(known.map(|link| link.least))
}

/// The middle one of some numbers, the higher of two; 0 of none.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}
