//! Requests that wait for an input that is being pulled: their own, or one of the same peer before them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use ropewalk_fabric::Buffer;

use crate::{BusyReason, wire::Body};

/// Keeps the requests of each peer in the order in which they came. `K` names a peer, `O` a transfer.
#[derive(Debug)]
pub(crate) struct Arrivals<K, O> {
    requests_max: usize,
    bytes_max: u64,
    peers: BTreeMap<K, VecDeque<Waiting<O>>>,
    requests: usize,
    /// Of inputs and messages.
    bytes: u64,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) tag: u64,
    pub(crate) message: Body,
    /// When it came.
    pub(crate) at: Instant,
    /// The input that was pulled, if it did not come with the message.
    pub(crate) input: Option<Buffer>,
}

#[derive(Debug)]
struct Waiting<O> {
    request: Arrived,
    /// The transfer of its input, until that has ended.
    pulling: Option<O>,
    bytes: u64,
}

impl<K: Copy + Ord, O: Copy + Eq> Arrivals<K, O> {
    pub(crate) fn new(requests_max: usize, bytes_max: u64) -> Self {
        Self {
            requests_max,
            bytes_max,
            peers: BTreeMap::new(),
            requests: 0,
            bytes: 0,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.requests
    }

    /// Returns true if requests of this peer wait: a new one has to wait behind them.
    pub(crate) fn holds(&self, peer: K) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Checks that a request with an input of this size may wait.
    pub(crate) fn check_room(&self, size: u64) -> Result<(), BusyReason> {
        let bytes = self.bytes.saturating_add(size);
        match self.requests < self.requests_max && bytes <= self.bytes_max {
            true => Ok(()),
            false => Err(BusyReason::Inputs),
        }
    }

    /// Keeps a request, with the transfer of its input if that is `pulling`, of this many bytes.
    pub(crate) fn push(&mut self, peer: K, request: Arrived, pulling: Option<O>, bytes: u64) {
        let bytes = bytes + request.message.len() as u64;
        self.requests += 1;
        self.bytes += bytes;
        let waiting = Waiting {
            request,
            pulling,
            bytes,
        };
        self.peers.entry(peer).or_default().push_back(waiting);
    }

    /// An input was pulled.
    pub(crate) fn handle_pulled(&mut self, peer: K, transfer: O, input: Buffer) {
        let requests = self.peers.get_mut(&peer).into_iter().flatten();
        for waiting in requests {
            if waiting.pulling == Some(transfer) {
                waiting.pulling = None;
                waiting.request.input = Some(input);
                return;
            }
        }
    }

    /// An input cannot be pulled. Returns its request.
    pub(crate) fn handle_failed(&mut self, peer: K, transfer: O) -> Option<Arrived> {
        let found = |waiting: &Waiting<O>| waiting.pulling == Some(transfer);
        self.remove(peer, found).map(|waiting| waiting.request)
    }

    /// The caller waits no longer. Returns the transfer to cancel, if there is one.
    pub(crate) fn cancel(&mut self, peer: K, tag: u64) -> Option<O> {
        self.remove(peer, |waiting| waiting.request.tag == tag)?.pulling
    }

    /// Forgets the requests of a peer that is gone. Returns the transfers to cancel.
    pub(crate) fn forget(&mut self, peer: K) -> Vec<O> {
        let forgotten = self.peers.remove(&peer).unwrap_or_default();
        for waiting in &forgotten {
            self.requests -= 1;
            self.bytes -= waiting.bytes;
        }
        forgotten
            .into_iter()
            .filter_map(|waiting| waiting.pulling)
            .collect()
    }

    /// The next request of this peer if nothing before it is being pulled still.
    pub(crate) fn pop_ready(&mut self, peer: K) -> Option<Arrived> {
        let first = self.peers.get(&peer)?.front()?;
        if first.pulling.is_some() {
            return None;
        }
        self.take(peer, 0).map(|waiting| waiting.request)
    }

    fn remove(&mut self, peer: K, found: impl Fn(&Waiting<O>) -> bool) -> Option<Waiting<O>> {
        let at = self.peers.get(&peer)?.iter().position(found)?;
        self.take(peer, at)
    }

    fn take(&mut self, peer: K, at: usize) -> Option<Waiting<O>> {
        let requests = self.peers.get_mut(&peer)?;
        let waiting = requests.remove(at)?;
        if requests.is_empty() {
            self.peers.remove(&peer);
        }
        self.requests -= 1;
        self.bytes -= waiting.bytes;
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push { peer: u8, pulling: bool },
        End { nth: usize, good: bool },
        Cancel { nth: usize },
        Forget { peer: u8 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3u8, any::<bool>()).prop_map(|(peer, pulling)| Step::Push { peer, pulling }),
            3 => (0..8usize, prop::bool::weighted(0.8)).prop_map(|(nth, good)| Step::End { nth, good }),
            1 => (0..8usize).prop_map(|nth| Step::Cancel { nth }),
            1 => (0..3u8).prop_map(|peer| Step::Forget { peer }),
        ]
    }

    proptest! {
        /// Whatever ends in whatever order, the requests of a peer are handled in the order they came, each at
        /// most once, and what is counted comes to nothing in the end.
        #[test]
        fn order_is_kept(steps in prop::collection::vec(step(), 1..200)) {
            let mut arrivals = Arrivals::new(1000, 1 << 20);
            let mut pulling: Vec<(u8, u64)> = Vec::new();
            let mut waiting: Vec<(u8, u64)> = Vec::new();
            let mut handled: [u64; 3] = [0; 3];
            let mut count = 0;
            let now = Instant::now();
            for step in steps {
                match step {
                    Step::Push { peer, pulling: pulls } => {
                        count += 1;
                        prop_assert!(arrivals.check_room(10).is_ok());
                        let transfer = pulls.then_some(count);
                        let request = Arrived {
                            tag: count,
                            message: Body::from(&b"x"[..]),
                            at: now,
                            input: None,
                        };
                        arrivals.push(peer, request, transfer, 10);
                        waiting.push((peer, count));
                        pulling.extend(transfer.map(|transfer| (peer, transfer)));
                    }
                    Step::End { nth, good } if nth < pulling.len() => {
                        let (peer, transfer) = pulling.remove(nth);
                        if good {
                            arrivals.handle_pulled(peer, transfer, Buffer::zeroed(1));
                        } else {
                            let failed = arrivals.handle_failed(peer, transfer).unwrap();
                            prop_assert_eq!(failed.tag, transfer);
                            waiting.retain(|&(_, tag)| tag != transfer);
                        }
                    }
                    Step::Cancel { nth } if nth < waiting.len() => {
                        let (peer, tag) = waiting.remove(nth);
                        let transfer = arrivals.cancel(peer, tag);
                        prop_assert_eq!(transfer.is_some(), pulling.contains(&(peer, tag)));
                        pulling.retain(|&(_, transfer)| transfer != tag);
                    }
                    Step::Forget { peer } => {
                        let mut cancelled = arrivals.forget(peer);
                        cancelled.sort_unstable();
                        let expected: Vec<_> = pulling.iter().filter(|(of, _)| *of == peer).collect();
                        prop_assert_eq!(cancelled.len(), expected.len());
                        pulling.retain(|&(of, _)| of != peer);
                        waiting.retain(|&(of, _)| of != peer);
                    }
                    Step::End { .. } | Step::Cancel { .. } => {}
                }
                for peer in 0..3 {
                    while let Some(request) = arrivals.pop_ready(peer) {
                        prop_assert!(request.tag > handled[usize::from(peer)]);
                        handled[usize::from(peer)] = request.tag;
                        let first = waiting.iter().position(|&(of, _)| of == peer);
                        prop_assert_eq!(waiting.remove(first.unwrap()), (peer, request.tag));
                    }
                    prop_assert_eq!(arrivals.holds(peer), waiting.iter().any(|&(of, _)| of == peer));
                }
                prop_assert_eq!(arrivals.requests, waiting.len());
                prop_assert_eq!(arrivals.bytes, waiting.len() as u64 * 11);
            }
        }
    }
}
