//! The digests of shared contributions: ranks that read the same one have to come to the same.
//!
//! A rank tells the scheduler the digest of a contribution before it sends a chunk of it. When another rank has to
//! make the contribution again, because that one is lost, the scheduler compares.

use std::collections::BTreeMap;

use ropewalk_names::Rank;
use ropewalk_reduce_core::{Contributions, Failure, Member, Session, Site};

use super::progress::ProgressThread;
use crate::message::ToSeat;

/// The digests of which a scheduler has heard, and from whom first.
#[derive(Default)]
pub(super) struct Digests(BTreeMap<Session, BTreeMap<Member, (Rank, [u8; 32])>>);

impl Digests {
    const SESSIONS_MAX: usize = 1_024;

    /// A rank has come to a digest. If another one has come to another one this is the failure that it means.
    pub(super) fn insert(
        &mut self,
        session: Session,
        member: Member,
        from: Rank,
        digest: [u8; 32],
    ) -> Option<Failure> {
        if member.0 >= Contributions::SHARED_MAX {
            return None;
        }
        let known = self.0.entry(session).or_default();
        let (first, expected) = known.entry(member).or_insert((from, digest));
        let failure = (*expected != digest).then(|| Failure::Source {
            site: Site(from.0),
            why: format!(
                "it made number {} with other bits than rank {first} had; they have to be the same on all ranks",
                member.0
            ),
        });
        while self.0.len() > Self::SESSIONS_MAX {
            self.0.pop_first();
        }
        failure
    }

    /// A session has ended.
    pub(super) fn forget(&mut self, session: Session) {
        self.0.remove(&session);
    }
}

impl ProgressThread {
    /// Tells the scheduler of the digests that this rank has come to since it was told last.
    pub(super) fn tell_digests(&mut self, session: Session) {
        let running = self.running.get_mut(&session);
        let digests = running.map_or_else(Vec::new, |running| running.take_digests());
        self.tell_seat_digests(self.peers.seat, session, digests);
    }

    /// Tells a new scheduler of all of them.
    pub(super) fn tell_all_digests(&mut self, seat: Rank) {
        let all = self
            .running
            .iter()
            .map(|(session, running)| (*session, running.digests()));
        for (session, digests) in all.collect::<Vec<_>>() {
            self.tell_seat_digests(seat, session, digests);
        }
    }

    fn tell_seat_digests(&mut self, seat: Rank, session: Session, digests: Vec<(Member, [u8; 32])>) {
        for digests in digests.chunks(DIGESTS_MAX) {
            let digests = digests.to_vec();
            self.tell_seat(seat, ToSeat::Digests { session, digests });
        }
    }
}

/// The most digests in a message.
const DIGESTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Different digests of a contribution are a failure of who came last; those of others have nothing to do with it.
    #[test]
    fn other_digests_are_failures() {
        let session = |call| Session { group: 1, call };
        let mut digests = Digests::default();
        assert_eq!(digests.insert(session(1), Member(3), Rank(1), [1; 32]), None);
        assert_eq!(digests.insert(session(1), Member(3), Rank(2), [1; 32]), None);
        assert_eq!(digests.insert(session(1), Member(4), Rank(2), [2; 32]), None);
        assert_eq!(digests.insert(session(2), Member(3), Rank(2), [2; 32]), None);
        let failure = digests.insert(session(1), Member(3), Rank(5), [2; 32]);
        let Some(Failure::Source { site, why }) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(site, Site(5));
        assert!(why.contains("number 3") && why.contains("rank 1"), "{why}");
        digests.forget(session(1));
        assert_eq!(digests.insert(session(1), Member(3), Rank(5), [2; 32]), None);
    }
}
