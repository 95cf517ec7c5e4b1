//! Looking for the next request of a rank to PMI without waiting for the poller.

use ropewalk_pmi_client::Spin;
use rustix::event::epoll::EventFlags;

use super::poller::{Channel, Source};

/// The rank that is likely to ask again at once.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The one that asked last, if only that one had something to say.
    index: Option<usize>,
    /// How many of its requests were found since it was looked what else happens.
    found: u32,
    pub(super) spin: Spin,
}

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

    /// The rank to look for a request of, unless enough of its requests were found.
    pub(super) fn candidate(&self) -> Option<usize> {
        self.index.filter(|_| self.found < FOUND_MAX)
    }

    /// A request of that rank was found.
    pub(super) fn handle_found(&mut self) {
        self.found += 1;
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
