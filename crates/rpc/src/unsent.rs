//! Replies that wait for room.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use crate::{BusyReason, reply::Reply, wire::Body};

/// The replies that could not be queued yet, because their callers asked for more than they have read so far.
///
/// Those for one caller go in order; none waits for another caller, nor longer than its own. `K` names a peer.
#[derive(Debug)]
pub(crate) struct Unsent<K> {
    callers: BTreeMap<K, VecDeque<Waiting>>,
    replies: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    tag: u64,
    /// When its caller waits no longer.
    deadline: Option<Instant>,
    body: Body,
}

impl<K: Copy + Ord> Unsent<K> {
    /// Above this many bytes a caller is only told that there is no room.
    const BYTES_MAX: usize = 256 << 20;
    /// Above this many replies the rest is dropped, and their calls end by their deadlines.
    const REPLIES_MAX: usize = 1 << 17;

    pub(crate) const fn new() -> Self {
        Self {
            callers: BTreeMap::new(),
            replies: 0,
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.replies
    }

    /// Returns true if replies for this caller wait: a new one has to go behind them.
    pub(crate) fn holds(&self, caller: K) -> bool {
        self.callers.contains_key(&caller)
    }

    pub(crate) fn push(&mut self, caller: K, tag: u64, deadline: Option<Instant>, mut body: Body) {
        if self.replies >= Self::REPLIES_MAX {
            return;
        }
        if self.bytes + body.len() > Self::BYTES_MAX {
            body = Reply::Busy(BusyReason::Outputs).encode(None);
        }
        self.replies += 1;
        self.bytes += body.len();
        let waiting = Waiting { tag, deadline, body };
        self.callers.entry(caller).or_default().push_back(waiting);
    }

    /// Offers to each caller the next replies until `send` has no room for one. Returns how many went.
    pub(crate) fn send(&mut self, now: Instant, mut send: impl FnMut(K, u64, &Body) -> bool) -> usize {
        let before = self.replies;
        self.callers.retain(|&caller, queue| {
            while let Some(Waiting { tag, deadline, body }) = queue.front() {
                let overdue = deadline.is_some_and(|deadline| deadline <= now);
                if !overdue && !send(caller, *tag, body) {
                    return true;
                }
                self.replies -= 1;
                self.bytes -= body.len();
                queue.pop_front();
            }
            false
        });
        before - self.replies
    }

    /// Drops the replies for a caller that is gone.
    pub(crate) fn forget(&mut self, caller: K) {
        for waiting in self.callers.remove(&caller).unwrap_or_default() {
            self.replies -= 1;
            self.bytes -= waiting.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A caller without room keeps only its own replies waiting, and those nobody waits for are dropped.
    #[test]
    fn callers_do_not_wait_for_each_other() {
        let now = Instant::now();
        let mut unsent = Unsent::new();
        unsent.push(1, 0, Some(now), Body::from(&b"late"[..]));
        for (caller, tag) in [(1, 1), (1, 2), (2, 3)] {
            let later = Some(now + Duration::from_secs(1));
            unsent.push(caller, tag, later, Body::from(&b"reply"[..]));
        }
        let mut offered = Vec::new();
        unsent.send(now, |caller, tag, _| {
            offered.push(tag);
            caller == 2
        });
        assert_eq!(offered, [1, 3]);
        assert!(!unsent.is_empty() && unsent.holds(1) && !unsent.holds(2));
        unsent.forget(1);
        assert!(unsent.is_empty() && unsent.bytes == 0 && unsent.replies == 0);
    }

    /// A reply for which there is no room is replaced by one that says so.
    #[test]
    fn replies_without_room_say_so() {
        let mut unsent = Unsent::new();
        let large = Body::from(vec![0; Unsent::<u8>::BYTES_MAX / 2 + 1]);
        for tag in 0..2 {
            unsent.push(1, tag, None, large.clone());
        }
        let mut sent = Vec::new();
        let count = unsent.send(Instant::now(), |_, _, body| {
            sent.push(body.to_vec());
            true
        });
        assert_eq!((count, sent.len()), (2, 2));
        assert!(sent[0] == *large && sent[1] == *Reply::Busy(BusyReason::Outputs).encode(None));
    }
}
