//! Taking what ranks ask of PMI.

use std::time::{Duration, Instant};

use ropewalk_names::Rank;
use ropewalk_pmi_client::Spin;
use rustix::event::epoll::EventFlags;

use super::{
    Agent,
    poller::{Channel, Source},
    rank_io::Reading,
};

/// The rank that is likely to ask again at once.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The one that asked last, if only that one had something to say.
    index: Option<usize>,
    /// How many of its requests were found since it was looked what else happens.
    found: u32,
    spin: Spin,
}

/// A process that dies closes its descriptors first. What others do when they hear of that, such as giving up too, is
/// not to be seen before its death, or they would be blamed for it: so it is waited for that long.
const DEATH: Duration = Duration::from_millis(20);

/// How many requests of one rank are answered before it is looked what else happens.
const FOUND_MAX: u32 = 32;

impl Asking {
    /// Takes what the poller found ready.
    pub(super) fn handle_ready(&mut self, ready: &[(Source, EventFlags)]) {
        self.found = 0;
        self.index = match ready {
            [(Source::Rank(index, Channel::Pmi), _)] => Some(*index),
            _ => None,
        };
    }
}

impl Agent {
    /// Takes what a rank says to PMI. Returns whether there may be more.
    pub(super) fn read_pmi(&mut self, index: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let reading = self
            .ranks
            .sockets(index)
            .map(|(rank, sockets)| (rank, sockets.read_pmi(&mut buffer)));
        let more = match reading {
            Some((rank, Reading::Some(length))) => {
                self.activity.note();
                self.mind.handle_pmi(rank, &buffer[..length]);
                true
            }
            Some((rank, Reading::Over)) => {
                self.ranks.ignore(index, Channel::Pmi, &self.poller);
                if self.ranks.is_foreign(index) {
                    self.mind.handle_pmi_closed(rank);
                    self.end_if_foreign(index);
                } else {
                    self.ends.closing.push((rank, Instant::now() + DEATH));
                }
                false
            }
            Some((_, Reading::Drained)) | None => false,
        };
        self.buffer = buffer;
        more
    }

    /// A rank is gone, or has closed its end and still lives long after: those who wait for it hear of that.
    pub(super) fn handle_closed(&mut self, gone: Option<Rank>) {
        let now = Instant::now();
        let is_due = |(rank, due): &mut (Rank, Instant)| Some(*rank) == gone || *due <= now;
        for (rank, _) in self.ends.closing.extract_if(.., is_due) {
            self.mind.handle_pmi_closed(rank);
        }
    }

    /// Looks for a while whether the rank that was answered last asks again, which it does soon or not at all. Returns
    /// whether it did.
    pub(super) fn look_for_request(&mut self) -> bool {
        let Some(index) = self.asking.index.filter(|_| self.asking.found < FOUND_MAX) else {
            return false;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut turn = self.asking.spin.begin();
        while turn.goes_on()
            && let Some((rank, sockets)) = self.ranks.sockets(index)
            // From one that leaves too many answers unread nothing is taken.
            && sockets.pmi_interest.contains(EventFlags::IN)
        {
            match sockets.read_pmi(&mut buffer) {
                Reading::Drained => {}
                Reading::Some(length) => {
                    self.activity.note();
                    self.mind.handle_pmi(rank, &buffer[..length]);
                    self.asking.found += 1;
                    turn.handle_found();
                }
                // The poller tells of it.
                Reading::Over => break,
            }
        }
        self.buffer = buffer;
        self.asking.spin.end(&turn);
        turn.has_found()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a rank that alone had something to say, and that to PMI, is looked for again.
    #[test]
    fn one_rank_is_looked_for() {
        let event = |source| (source, EventFlags::IN);
        let of_rank = |index, channel| event(Source::Rank(index, channel));
        let mut asking = Asking::default();
        for (ready, expected) in [
            (vec![of_rank(7, Channel::Pmi)], Some(7)),
            (vec![of_rank(7, Channel::Link)], None),
            (vec![of_rank(7, Channel::Pmi), of_rank(8, Channel::Pmi)], None),
            (vec![of_rank(0, Channel::Pmi)], Some(0)),
            (vec![event(Source::Branch)], None),
            (vec![event(Source::Children)], None),
            (vec![event(Source::Outputs)], None),
            (vec![], None),
        ] {
            asking.found = FOUND_MAX;
            asking.handle_ready(&ready);
            assert_eq!((asking.index, asking.found), (expected, 0), "{ready:?}");
        }
    }
}
