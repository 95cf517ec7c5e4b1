//! The calls that handlers have taken and not answered yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{BusyReason, Cancellation};

/// Counts them, and finds those to cancel. `K` names a peer.
///
/// A call counts until its [`end`](Self::end), also when it was cancelled: its handler may be at work still.
#[derive(Debug)]
pub(crate) struct Deferred<K> {
    calls_max: usize,
    calls_per_peer_max: usize,
    calls: BTreeMap<(K, u64), Call>,
    peers: BTreeMap<K, usize>,
    deadlines: BTreeSet<(Instant, K, u64)>,
}

#[derive(Debug)]
struct Call {
    cancellation: Cancellation,
    /// Until it is cancelled.
    deadline: Option<Instant>,
    /// True if its caller may come back after its connection was lost.
    outlives_connection: bool,
}

impl<K: Copy + Ord> Deferred<K> {
    pub(crate) fn new(calls_max: usize, calls_per_peer_max: usize) -> Self {
        Self {
            calls_max,
            calls_per_peer_max,
            calls: BTreeMap::new(),
            peers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// A call that a handler may take, or why it may not.
    pub(crate) fn begin(
        &mut self,
        peer: K,
        tag: u64,
        deadline: Option<Instant>,
        outlives_connection: bool,
    ) -> Result<Cancellation, BusyReason> {
        if self.calls.len() >= self.calls_max {
            return Err(BusyReason::Calls);
        }
        let of_peer = self.peers.entry(peer).or_default();
        // A second call with the tag of one in progress could not be told from it.
        if *of_peer >= self.calls_per_peer_max || self.calls.contains_key(&(peer, tag)) {
            return Err(BusyReason::CallsOfPeer);
        }
        *of_peer += 1;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, peer, tag));
        }
        let cancellation = Cancellation::default();
        let call = Call {
            cancellation: cancellation.clone(),
            deadline,
            outlives_connection,
        };
        self.calls.insert((peer, tag), call);
        Ok(cancellation)
    }

    /// The call is answered, or given up by its handler. Returns whether it was cancelled before.
    pub(crate) fn end(&mut self, peer: K, tag: u64) -> bool {
        let Some(ended) = self.calls.remove(&(peer, tag)) else {
            return false;
        };
        if let Some(deadline) = ended.deadline {
            self.deadlines.remove(&(deadline, peer, tag));
        }
        if let Some(of_peer) = self.peers.get_mut(&peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                self.peers.remove(&peer);
            }
        }
        ended.cancellation.is_cancelled()
    }

    /// The caller waits no longer. Returns what to cancel.
    pub(crate) fn cancel(&mut self, peer: K, tag: u64) -> Option<Cancellation> {
        let call = self.calls.get_mut(&(peer, tag))?;
        if let Some(deadline) = call.deadline.take() {
            self.deadlines.remove(&(deadline, peer, tag));
        }
        Some(call.cancellation.clone())
    }

    /// The connection is lost. Returns what to cancel.
    pub(crate) fn handle_peer_death(&mut self, peer: K) -> Vec<Cancellation> {
        let tags: Vec<_> = self
            .calls
            .range((peer, 0)..=(peer, u64::MAX))
            .filter(|(_, call)| !call.outlives_connection)
            .map(|(&(_, tag), _)| tag)
            .collect();
        tags.into_iter()
            .filter_map(|tag| self.cancel(peer, tag))
            .collect()
    }

    /// Returns what to cancel because its caller waits no longer by now.
    pub(crate) fn handle_deadlines(&mut self, now: Instant) -> Vec<Cancellation> {
        let mut cancelled = Vec::new();
        while let Some(&(deadline, peer, tag)) = self.deadlines.first()
            && deadline <= now
        {
            cancelled.extend(self.cancel(peer, tag));
        }
        cancelled
    }

    /// When [`handle_deadlines`](Self::handle_deadlines) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, ..)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A limit stops the calls it is for, and those only, until one has ended; cancelling does not end it.
    #[test]
    fn limits_count_until_the_end() {
        let mut deferred = Deferred::new(3, 2);
        deferred.begin(1, 1, None, false).unwrap();
        deferred.begin(1, 2, None, false).unwrap();
        assert_eq!(
            deferred.begin(1, 3, None, false).unwrap_err(),
            BusyReason::CallsOfPeer
        );
        assert_eq!(deferred.begin(2, 1, None, false).err(), None);
        assert_eq!(deferred.begin(3, 1, None, false).unwrap_err(), BusyReason::Calls);
        deferred.cancel(1, 1).unwrap().cancel();
        assert_eq!(deferred.begin(3, 1, None, false).unwrap_err(), BusyReason::Calls);
        deferred.end(1, 1);
        deferred.end(1, 1);
        deferred.begin(3, 1, None, false).unwrap();
        for (peer, tag) in [(1, 2), (2, 1), (3, 1)] {
            deferred.end(peer, tag);
        }
        assert!(deferred.peers.is_empty() && deferred.calls.is_empty() && deferred.deadlines.is_empty());
    }

    /// A caller that is gone cancels its calls but for those it may come back for; those end by their deadline.
    #[test]
    fn deaths_and_deadlines_cancel() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut deferred = Deferred::new(10, 10);
        let mut begin = |peer, tag, outlives| deferred.begin(peer, tag, Some(later), outlives).unwrap();
        let (dies, returns, other) = (begin(1, 1, false), begin(1, 2, true), begin(2, 1, false));
        for cancellation in deferred.handle_peer_death(1) {
            cancellation.cancel();
        }
        assert!(dies.is_cancelled() && !returns.is_cancelled() && !other.is_cancelled());
        assert!(deferred.handle_deadlines(now).is_empty());
        assert_eq!(deferred.next_deadline(), Some(later));
        for cancellation in deferred.handle_deadlines(later) {
            cancellation.cancel();
        }
        assert!(returns.is_cancelled() && other.is_cancelled());
        assert_eq!(deferred.next_deadline(), None);
    }
}
