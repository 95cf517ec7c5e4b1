//! Which calls ran, so that none runs twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::wire::{Body, Once};

/// Remembers the calls that run at most once, and their replies, until their callers need them no longer: a
/// caller says with each call below which number it has ended all of its own, and none is made again after its
/// deadline.
///
/// For each request ask [`handle_request`](Self::handle_request), and tell every end by
/// [`handle_reply`](Self::handle_reply) or [`forget`](Self::forget). `R` is where a reply goes.
#[derive(Debug)]
pub(crate) struct Executed<R> {
    calls_max: usize,
    bytes_max: usize,
    origins: BTreeMap<u64, Origin<R>>,
    /// Of all origins.
    calls: usize,
    bytes: usize,
    /// When to forget calls: (when, origin, sequence).
    call_expiries: BTreeSet<(Instant, u64, u64)>,
    /// When to look whether an origin can be forgotten: one for each.
    origin_expiries: BTreeSet<(Instant, u64)>,
    /// The calls whose replies are kept, (origin, sequence), by the order of the replies.
    replied: BTreeMap<u64, (u64, u64)>,
    next_reply: u64,
}

/// The treatment of a request that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It ran: this is its reply.
    Answered(Body),
    /// It ran, but its reply was too much to keep.
    Forgotten,
    /// There is no room to remember it, so it must not run.
    Full,
    /// It is running: its reply will go to where it was asked for last.
    InProgress,
    /// Run it.
    New,
    /// Its caller has ended it.
    Obsolete,
}

#[derive(Debug)]
struct Origin<R> {
    /// No call below this number will come again.
    lowest: u64,
    calls: BTreeMap<u64, Call<R>>,
    /// When the last of its calls is forgotten at the latest.
    expiry: Instant,
}

#[derive(Debug)]
struct Call<R> {
    expiry: Instant,
    state: State<R>,
}

#[derive(Debug)]
enum State<R> {
    Answered {
        reply: Body,
        /// Among all replies.
        order: u64,
    },
    Forgotten,
    InProgress {
        /// Where its reply goes.
        to: R,
        /// Where it came from at first, if it has come again.
        first: Option<R>,
    },
}

impl<R> Executed<R> {
    /// How long after its deadline a call is remembered still: an earlier attempt may be read later than that,
    /// from a connection that is lost.
    const LINGER: Duration = Duration::from_secs(10);

    pub(crate) fn new(calls_max: usize, bytes_max: usize) -> Self {
        Self {
            calls_max,
            bytes_max,
            origins: BTreeMap::new(),
            calls: 0,
            bytes: 0,
            call_expiries: BTreeSet::new(),
            origin_expiries: BTreeSet::new(),
            replied: BTreeMap::new(),
            next_reply: 0,
        }
    }

    /// Decides what to do with a request whose caller waits for `timeout` more.
    pub(crate) fn handle_request(
        &mut self,
        now: Instant,
        timeout: Duration,
        once: Once,
        reply_to: R,
    ) -> Arrival {
        self.expire(now);
        self.acknowledge(once.origin, once.lowest);
        let expiry = (now + Self::LINGER).checked_add(timeout);
        let expiry = expiry.unwrap_or(now + Self::LINGER * 1_000_000);
        let room = self.calls + self.origins.len() < self.calls_max;
        if let Some(origin) = self.origins.get_mut(&once.origin) {
            if once.sequence < origin.lowest {
                return Arrival::Obsolete;
            }
            if let Some(call) = origin.calls.get_mut(&once.sequence) {
                return match &mut call.state {
                    State::Answered { reply, .. } => Arrival::Answered(reply.clone()),
                    State::Forgotten => Arrival::Forgotten,
                    State::InProgress { to, first } => {
                        let earlier = std::mem::replace(to, reply_to);
                        first.get_or_insert(earlier);
                        Arrival::InProgress
                    }
                };
            }
        }
        if !room {
            return Arrival::Full;
        }
        let origin = self.origins.entry(once.origin).or_insert_with(|| {
            self.origin_expiries.insert((expiry, once.origin));
            Origin {
                lowest: once.lowest,
                calls: BTreeMap::new(),
                expiry,
            }
        });
        origin.expiry = origin.expiry.max(expiry);
        let state = State::InProgress {
            to: reply_to,
            first: None,
        };
        origin.calls.insert(once.sequence, Call { expiry, state });
        self.call_expiries.insert((expiry, once.origin, once.sequence));
        self.calls += 1;
        Arrival::New
    }

    /// Keeps the reply to a call that ran, and returns where it goes; `None` if its caller has ended it.
    pub(crate) fn handle_reply(&mut self, origin: u64, sequence: u64, reply: &Body) -> Option<R> {
        let call = self.origins.get_mut(&origin)?.calls.get_mut(&sequence)?;
        if !matches!(call.state, State::InProgress { .. }) {
            return None;
        }
        let order = self.next_reply;
        let next = match reply.len() <= self.bytes_max {
            true => State::Answered {
                reply: reply.clone(),
                order,
            },
            false => State::Forgotten,
        };
        if matches!(next, State::Answered { .. }) {
            self.next_reply += 1;
            self.bytes += reply.len();
            self.replied.insert(order, (origin, sequence));
        }
        let State::InProgress { to, .. } = std::mem::replace(&mut call.state, next) else {
            unreachable!("it was in progress above");
        };
        while self.bytes > self.bytes_max {
            self.forget_oldest_reply();
        }
        Some(to)
    }

    /// Where a call that is running came from when it was begun, by which its handler is known.
    pub(crate) fn begun_by(&self, origin: u64, sequence: u64) -> Option<&R> {
        match &self.origins.get(&origin)?.calls.get(&sequence)?.state {
            State::InProgress { to, first } => Some(first.as_ref().unwrap_or(to)),
            State::Answered { .. } | State::Forgotten => None,
        }
    }

    /// The call did not run, and may when it comes again.
    pub(crate) fn forget(&mut self, origin: u64, sequence: u64) {
        let removed = self
            .origins
            .get_mut(&origin)
            .and_then(|origin| origin.calls.remove(&sequence));
        if let Some(call) = removed {
            self.call_expiries.remove(&(call.expiry, origin, sequence));
            self.handle_removed(&call.state);
        }
    }

    /// Drops what the origin will not ask for again.
    fn acknowledge(&mut self, origin: u64, lowest: u64) {
        let Some(known) = self.origins.get_mut(&origin) else {
            return;
        };
        if lowest <= known.lowest {
            return;
        }
        known.lowest = lowest;
        let kept = known.calls.split_off(&lowest);
        for (sequence, call) in std::mem::replace(&mut known.calls, kept) {
            self.call_expiries.remove(&(call.expiry, origin, sequence));
            self.handle_removed(&call.state);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(expiry, origin, sequence)) = self.call_expiries.first()
            && expiry <= now
        {
            self.call_expiries.pop_first();
            let known = self.origins.get_mut(&origin);
            if let Some(call) = known.and_then(|known| known.calls.remove(&sequence)) {
                self.handle_removed(&call.state);
            }
        }
        while let Some(&(expiry, origin)) = self.origin_expiries.first()
            && expiry <= now
        {
            self.origin_expiries.pop_first();
            match self.origins.get(&origin) {
                Some(known) if known.expiry > now => {
                    self.origin_expiries.insert((known.expiry, origin));
                }
                _ => drop(self.origins.remove(&origin)),
            }
        }
    }

    fn handle_removed(&mut self, state: &State<R>) {
        self.calls -= 1;
        if let State::Answered { reply, order } = state {
            self.bytes -= reply.len();
            self.replied.remove(order);
        }
    }

    fn forget_oldest_reply(&mut self) {
        let Some((_, (origin, sequence))) = self.replied.pop_first() else {
            return;
        };
        let known = self.origins.get_mut(&origin);
        if let Some(call) = known.and_then(|known| known.calls.get_mut(&sequence))
            && let State::Answered { reply, .. } = &call.state
        {
            self.bytes -= reply.len();
            call.state = State::Forgotten;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn once(origin: u64, sequence: u64, lowest: u64) -> Once {
        Once {
            origin,
            sequence,
            lowest,
            target: 0,
        }
    }

    fn reply(origin: u64, sequence: u64, size: usize) -> Body {
        Body::from(vec![(origin * 16 + sequence) as u8; size])
    }

    /// A duplicate waits for the first, gets its reply, and is obsolete when its caller says so.
    #[test]
    fn duplicates_get_the_first_reply() {
        let now = Instant::now();
        let mut executed = Executed::new(10, 100);
        let ask = |executed: &mut Executed<u32>, once, to| executed.handle_request(now, TIMEOUT, once, to);
        assert_eq!(ask(&mut executed, once(1, 5, 5), 1), Arrival::New);
        assert_eq!(executed.begun_by(1, 5), Some(&1));
        assert_eq!(ask(&mut executed, once(1, 5, 5), 2), Arrival::InProgress);
        assert_eq!(executed.begun_by(1, 5), Some(&1));
        assert_eq!(executed.handle_reply(1, 5, &reply(1, 5, 3)), Some(2));
        assert_eq!(
            ask(&mut executed, once(1, 5, 5), 3),
            Arrival::Answered(reply(1, 5, 3))
        );
        assert_eq!(ask(&mut executed, once(1, 6, 6), 4), Arrival::New);
        assert_eq!(ask(&mut executed, once(1, 5, 5), 5), Arrival::Obsolete);
        executed.forget(1, 6);
        assert_eq!(ask(&mut executed, once(1, 6, 6), 6), Arrival::New);
    }

    /// Too many calls are refused, too large replies are forgotten, oldest first, and all goes with time.
    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut executed = Executed::new(4, 100);
        for sequence in 0..3 {
            let arrival = executed.handle_request(now, TIMEOUT, once(1, sequence, 0), ());
            assert_eq!(arrival, Arrival::New);
            executed
                .handle_reply(1, sequence, &reply(1, sequence, 40))
                .unwrap();
        }
        for (origin, sequence) in [(1, 3), (2, 0)] {
            let arrival = executed.handle_request(now, TIMEOUT, once(origin, sequence, 0), ());
            assert_eq!(arrival, Arrival::Full);
        }
        let arrival = executed.handle_request(now, TIMEOUT, once(1, 0, 0), ());
        assert_eq!(arrival, Arrival::Forgotten);
        let arrival = executed.handle_request(now, TIMEOUT, once(1, 1, 0), ());
        assert_eq!(arrival, Arrival::Answered(reply(1, 1, 40)));
        executed.expire(now + TIMEOUT + Executed::<()>::LINGER);
        assert!(executed.origins.is_empty() && executed.replied.is_empty());
        assert!(executed.call_expiries.is_empty() && executed.origin_expiries.is_empty());
        assert_eq!((executed.calls, executed.bytes), (0, 0));
    }

    proptest! {
        /// However requests are lost, doubled and reordered, each call runs at most once, and whoever is
        /// answered gets the reply of that one run; what is kept stays within its bounds.
        #[test]
        fn nothing_runs_twice(
            steps in prop::collection::vec((0..3u64, 0..12u64, 0..4u8, 0..40usize), 1..300),
        ) {
            let mut now = Instant::now();
            let mut executed = Executed::new(12, 200);
            let mut running: BTreeMap<(u64, u64), u32> = BTreeMap::new();
            let mut ran: BTreeMap<(u64, u64), Body> = BTreeMap::new();
            let mut lowest = [0; 3];
            for (step, (origin, sequence, kind, size)) in steps.into_iter().enumerate() {
                let (key, to) = ((origin, sequence), step as u32);
                now += Duration::from_millis(1);
                match kind {
                    0 | 1 => {
                        let once = once(origin, sequence, lowest[origin as usize].min(sequence));
                        match executed.handle_request(now, TIMEOUT, once, to) {
                            Arrival::New => {
                                prop_assert!(!ran.contains_key(&key) && !running.contains_key(&key));
                                running.insert(key, to);
                            }
                            Arrival::InProgress => {
                                prop_assert!(running.insert(key, to).is_some());
                            }
                            Arrival::Answered(reply) => prop_assert_eq!(Some(&reply), ran.get(&key)),
                            Arrival::Forgotten => prop_assert!(ran.contains_key(&key)),
                            Arrival::Obsolete => prop_assert!(sequence < lowest[origin as usize]),
                            Arrival::Full => {
                                prop_assert!(executed.calls + executed.origins.len() >= 12);
                            }
                        }
                    }
                    2 => if let Some(to) = running.remove(&key) {
                        let reply = reply(origin, sequence, size);
                        let goes_to = executed.handle_reply(origin, sequence, &reply);
                        prop_assert!(goes_to == Some(to) || sequence < lowest[origin as usize]);
                        ran.insert(key, reply);
                    },
                    _ => {
                        let known = &mut lowest[origin as usize];
                        *known = (*known).max(sequence);
                        let next = once(origin, *known, *known);
                        if executed.handle_request(now, TIMEOUT, next, to) == Arrival::New {
                            prop_assert!(!ran.contains_key(&(origin, *known)));
                            executed.forget(origin, *known);
                        } else if let Some(running) = running.get_mut(&(origin, *known)) {
                            *running = to;
                        }
                    }
                }
                let calls = executed.origins.values().map(|origin| origin.calls.len()).sum::<usize>();
                prop_assert_eq!((calls, calls), (executed.calls, executed.call_expiries.len()));
                prop_assert!(executed.bytes <= 200 && calls <= 12);
            }
        }
    }
}
