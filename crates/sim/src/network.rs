use std::collections::{BTreeMap, VecDeque};

use super::{Dice, Host, Nanos};

/// Hosts around one switch, each with a full-duplex link and a processor: bytes queue for the sender's link out and for
/// the receiver's link in, in the order in which they come. Work queues for the processor likewise: messages between
/// hosts, and what a host does besides.
#[derive(Clone, Debug)]
pub struct Network {
    links: Vec<Link>,
    latency: Nanos,
    /// The work of a processor for each message, at either end.
    message_time: Nanos,
    jitter: Option<Jitter>,
}

/// Messages that take longer than others.
#[derive(Clone, Debug)]
struct Jitter {
    most: Nanos,
    dice: Dice,
    /// When the last message reached the receiver's link, by sender and receiver.
    reached: BTreeMap<(Host, Host), Nanos>,
}

/// The two directions of a host's link, and its processor.
#[derive(Clone, Debug)]
struct Link {
    outwards: Lane,
    inwards: Lane,
    processor: Lane,
}

/// One direction of a link: bytes pass one after the other, at a rate that may change. Or a processor, whose bytes are
/// nanoseconds of work.
#[derive(Clone, Debug)]
struct Lane {
    /// In bytes per second.
    rate: f64,
    /// The rates from later times on, in the order of time.
    later: VecDeque<(Nanos, f64)>,
    bucket: Option<Bucket>,
    /// When the last byte that was queued has passed.
    free_at: Nanos,
    bytes: u64,
}

/// A token bucket: after a pause some bytes pass faster than the rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The rate at which these pass.
    peak: f64,
    /// The time that they take at the rate of the lane.
    span: Nanos,
    /// When the last byte that was queued would have passed at that rate.
    full_at: Nanos,
}

/// Nanoseconds of work that a whole processor does in a second.
const WORK_RATE: f64 = 1e9;

impl Lane {
    fn new(rate: f64) -> Self {
        Self {
            rate,
            later: VecDeque::new(),
            bucket: None,
            free_at: Nanos::ZERO,
            bytes: 0,
        }
    }

    /// Sets the rate from a time on. Times come in order.
    fn change(&mut self, at: Nanos, rate: f64) {
        self.later.push_back((at, rate));
    }

    /// Queues bytes. Returns when the first of them begins to pass and when the last has passed.
    fn pass(&mut self, now: Nanos, bytes: u64) -> (Nanos, Nanos) {
        let begin = now.max(self.free_at);
        self.bytes += bytes;
        self.free_at = match self.bucket {
            None => self.end(begin, bytes),
            Some(mut bucket) => {
                bucket.full_at = self.end(now.max(bucket.full_at), bytes);
                self.bucket = Some(bucket);
                let at_peak = begin + Nanos::of_transfer(bytes, bucket.peak);
                at_peak.max(Nanos(bucket.full_at.0.saturating_sub(bucket.span.0)))
            }
        };
        (begin, self.free_at)
    }

    /// When bytes have passed that begin to pass at this time. Nothing is queued later that begins earlier, so changes
    /// up to this time are applied and forgotten.
    fn end(&mut self, begin: Nanos, bytes: u64) -> Nanos {
        let (mut at, mut rest) = (begin, bytes);
        while let Some(&(change, rate)) = self.later.front() {
            let end = at + Nanos::of_transfer(rest, self.rate);
            if change > begin && end <= change {
                return end;
            }
            rest -= ((change - at).as_seconds() * self.rate).min(rest as f64) as u64;
            at = at.max(change);
            self.rate = rate;
            self.later.pop_front();
        }
        at + Nanos::of_transfer(rest, self.rate)
    }
}

impl Network {
    /// Hosts whose links all have the same `rate`, in bytes per second and direction. A message takes the `latency`
    /// on top of the time for its bytes.
    pub fn uniform(hosts: u32, rate: f64, latency: Nanos) -> Self {
        let link = Link {
            outwards: Lane::new(rate),
            inwards: Lane::new(rate),
            processor: Lane::new(WORK_RATE),
        };
        Self {
            links: vec![link; hosts as usize],
            latency,
            message_time: Nanos::ZERO,
            jitter: None,
        }
    }

    /// Lets each message from now on take up to `most` longer, drawn from a seed. Messages from one host to another
    /// stay in order.
    pub fn set_jitter(&mut self, most: Nanos, seed: u64) {
        self.jitter = Some(Jitter {
            most,
            dice: Dice::new(seed),
            reached: BTreeMap::new(),
        });
    }

    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.links.len() as u32
    }

    /// The time that a message takes on top of the time for its bytes.
    pub fn latency(&self) -> Nanos {
        self.latency
    }

    /// Sets the rate, in bytes per second, of what a host sends from now on.
    pub fn set_rate_out(&mut self, host: Host, rate: f64) {
        self.links[host.0 as usize].outwards.rate = rate;
    }

    /// Sets the rate, in bytes per second, of what a host receives from now on.
    pub fn set_rate_in(&mut self, host: Host, rate: f64) {
        self.links[host.0 as usize].inwards.rate = rate;
    }

    /// Sets the rate of what a host sends from a time on. The changes of a host come in the order of time.
    pub fn change_rate_out(&mut self, host: Host, at: Nanos, rate: f64) {
        self.links[host.0 as usize].outwards.change(at, rate);
    }

    /// Sets the rate of what a host receives from a time on. The changes of a host come in the order of time.
    pub fn change_rate_in(&mut self, host: Host, at: Nanos, rate: f64) {
        self.links[host.0 as usize].inwards.change(at, rate);
    }

    /// Lets all links be token buckets from now on: after a pause so many `bytes` pass at a rate of `peak` bytes per
    /// second. Rates are set before.
    pub fn set_buckets(&mut self, bytes: u64, peak: f64) {
        let lanes = self
            .links
            .iter_mut()
            .flat_map(|link| [&mut link.outwards, &mut link.inwards]);
        for lane in lanes {
            lane.bucket = Some(Bucket {
                peak,
                span: Nanos::of_transfer(bytes, lane.rate),
                full_at: Nanos::ZERO,
            });
        }
    }

    /// Lets each message between hosts from now on cost so much work of the sender's processor, and as much of the
    /// receiver's.
    pub fn set_message_time(&mut self, time: Nanos) {
        self.message_time = time;
    }

    /// Sets the part of a processor that a host has from now on.
    pub fn set_processor(&mut self, host: Host, part: f64) {
        self.links[host.0 as usize].processor.rate = WORK_RATE * part;
    }

    /// Sets the part of a processor that a host has from a time on. The changes of a host come in the order of time.
    pub fn change_processor(&mut self, host: Host, at: Nanos, part: f64) {
        self.links[host.0 as usize].processor.change(at, WORK_RATE * part);
    }

    /// The processor of a host gets work that takes so long alone. Returns when it is done.
    pub(super) fn work(&mut self, now: Nanos, host: Host, span: Nanos) -> Nanos {
        self.links[host.0 as usize].processor.pass(now, span.0).1
    }

    /// The processor of a host gets the work for a message. Returns when it is done.
    pub(super) fn handle_message(&mut self, now: Nanos, host: Host) -> Nanos {
        match self.message_time {
            Nanos::ZERO => now,
            span => self.work(now, host, span),
        }
    }

    /// The bytes that a host has sent, and those it has received.
    pub fn bytes_of(&self, host: Host) -> (u64, u64) {
        let link = &self.links[host.0 as usize];
        (link.outwards.bytes, link.inwards.bytes)
    }

    /// A message enters the sender's link. Returns when it has left, when its first byte reaches the receiver's link,
    /// and when its last one does.
    pub(super) fn leave(&mut self, now: Nanos, from: Host, to: Host, bytes: u64) -> (Nanos, Nanos, Nanos) {
        let (first, left) = self.links[from.0 as usize].outwards.pass(now, bytes);
        let (mut reaches, mut last) = (first + self.latency, left + self.latency);
        if let Some(jitter) = &mut self.jitter {
            let longer = Nanos(jitter.dice.below(jitter.most.0));
            let before = jitter.reached.entry((from, to)).or_default();
            reaches = (reaches + longer).max(*before);
            last += longer;
            *before = reaches;
        }
        (left, reaches, last)
    }

    /// The first byte of a message has reached the receiver's link; its last one does so at `last`. Returns when
    /// the message has arrived.
    pub(super) fn enter(&mut self, now: Nanos, last: Nanos, to: Host, bytes: u64) -> Nanos {
        let lane = &mut self.links[to.0 as usize].inwards;
        lane.pass(now, bytes);
        lane.free_at = lane.free_at.max(last);
        lane.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are under way when the rate changes go on at the new rate.
    #[test]
    fn rates_change_under_way() {
        let seconds = |count: u64| Nanos::from_millis(1000 * count);
        let mut lane = Lane::new(100.0);
        lane.change(seconds(2), 50.0);
        lane.change(seconds(4), 0.0);
        lane.change(seconds(5), 200.0);
        assert_eq!(lane.pass(Nanos::ZERO, 100), (Nanos::ZERO, seconds(1)));
        // One second at 100, two at 50, one at nothing, one at 200.
        assert_eq!(lane.pass(Nanos::ZERO, 400), (seconds(1), seconds(6)));
        assert_eq!(lane.pass(seconds(8), 200), (seconds(8), seconds(9)));
    }
}
