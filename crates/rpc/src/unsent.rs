//! Replies that wait for room.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use bytes::Bytes;
use ropewalk_fabric::Address;

use crate::{responder::ReplyTo, wire::Reply};

/// The replies that could not be queued yet, because their callers asked for more than they have read so far.
///
/// Those for one caller go in order; none waits for another caller, nor longer than its own.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    callers: BTreeMap<Address, VecDeque<(ReplyTo, Bytes)>>,
    replies: usize,
    bytes: usize,
}

impl Unsent {
    /// Above this many bytes a caller is only told that there is no room.
    const BYTES_MAX: usize = 256 << 20;
    /// Above this many replies the rest is dropped, and their calls end by their deadlines.
    const REPLIES_MAX: usize = 1 << 17;

    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// Whether replies for this caller wait: a new one has to go behind them.
    pub(crate) fn holds(&self, caller: &Address) -> bool {
        self.callers.contains_key(caller)
    }

    pub(crate) fn push(&mut self, to: ReplyTo, mut body: Bytes) {
        if self.replies >= Self::REPLIES_MAX {
            return;
        }
        if self.bytes + body.len() > Self::BYTES_MAX {
            body = Reply::<()>::Busy.encode();
        }
        self.replies += 1;
        self.bytes += body.len();
        let queue = self.callers.entry(to.peer.clone()).or_default();
        queue.push_back((to, body));
    }

    /// Offers to each caller the next replies until `send` has no room for one. Returns how many went.
    pub(crate) fn send(&mut self, now: Instant, mut send: impl FnMut(&ReplyTo, &Bytes) -> bool) -> usize {
        let before = self.replies;
        self.callers.retain(|_, queue| {
            while let Some((to, body)) = queue.front() {
                let overdue = to.deadline.is_some_and(|deadline| deadline <= now);
                if !overdue && !send(to, body) {
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
    pub(crate) fn forget(&mut self, caller: &Address) {
        for (_, body) in self.callers.remove(caller).unwrap_or_default() {
            self.replies -= 1;
            self.bytes -= body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reply_to(port: u16, tag: u64, deadline: Option<Instant>) -> ReplyTo {
        ReplyTo {
            peer: format!("tcp://127.0.0.1:{port}").parse().unwrap(),
            tag,
            deadline,
        }
    }

    /// A caller without room keeps only its own replies waiting, and those nobody waits for are dropped.
    #[test]
    fn callers_do_not_wait_for_each_other() {
        let now = Instant::now();
        let mut unsent = Unsent::default();
        unsent.push(reply_to(1, 0, Some(now)), Bytes::from_static(b"late"));
        for (port, tag) in [(1, 1), (1, 2), (2, 3)] {
            let later = Some(now + Duration::from_secs(1));
            unsent.push(reply_to(port, tag, later), Bytes::from_static(b"reply"));
        }
        let mut offered = Vec::new();
        unsent.send(now, |to, _| {
            offered.push(to.tag);
            to.peer.location().ends_with(":2")
        });
        assert_eq!(offered, [1, 3]);
        assert!(!unsent.is_empty() && unsent.holds(&reply_to(1, 0, None).peer));
        unsent.forget(&reply_to(1, 0, None).peer);
        assert!(unsent.is_empty() && unsent.bytes == 0 && unsent.replies == 0);
    }

    /// What would be too much is replaced by the word that it is.
    #[test]
    fn replies_without_room_say_so() {
        let mut unsent = Unsent::default();
        let large = Bytes::from(vec![0; Unsent::BYTES_MAX / 2 + 1]);
        for tag in 0..2 {
            unsent.push(reply_to(1, tag, None), large.clone());
        }
        let mut sent = Vec::new();
        let count = unsent.send(Instant::now(), |_, body| {
            sent.push(body.clone());
            true
        });
        assert_eq!((count, sent), (2, vec![large, Reply::<()>::Busy.encode()]));
    }
}
