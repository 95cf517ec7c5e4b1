//! Short contributions that came with their announcements, on the rank that has the scheduler's seat.

use std::collections::BTreeMap;

use bytes::Bytes;
use ropewalk_reduce_core::{Call, Member, Session, ToScheduler};

/// The data of contributions to sessions that have not ended, until the root gets them with its row.
#[derive(Default)]
pub(super) struct Enclosed {
    sessions: BTreeMap<Session, BTreeMap<Member, Bytes>>,
    /// Bytes of all of them.
    length: usize,
}

impl Enclosed {
    /// The most bytes that are kept of all sessions together.
    const BYTES_MAX: usize = 16 << 20;

    /// Keeps what came with a message, if it is an announcement and there is room for it. The scheduler reads in the
    /// message if that is so.
    pub(super) fn keep(&mut self, message: &mut ToScheduler, data: Option<Bytes>) {
        let ToScheduler::Announce {
            session,
            originals,
            are_enclosed,
            ..
        } = message
        else {
            return;
        };
        *are_enclosed = match (&originals[..], data) {
            ([(member, _)], Some(data)) => self.insert(*session, *member, data),
            _ => false,
        };
    }

    fn insert(&mut self, session: Session, member: Member, data: Bytes) -> bool {
        let known = self.sessions.get(&session);
        let of_session: usize = known.map_or(0, |known| known.values().map(Bytes::len).sum());
        let fits = data.len() as u64 <= Call::ENCLOSED_BYTES_MAX
            && (of_session + data.len()) as u64 <= Call::ENCLOSED_IN_ALL_MAX
            && self.length + data.len() <= Self::BYTES_MAX;
        if fits {
            self.length += data.len();
            let before = self.sessions.entry(session).or_default().insert(member, data);
            self.length -= before.map_or(0, |before| before.len());
        }
        fits
    }

    /// The data of these members.
    pub(super) fn of(&self, session: Session, members: &[Member]) -> Vec<(Member, Bytes)> {
        let known = self.sessions.get(&session);
        let data = |member: &Member| Some((*member, known?.get(member)?.clone()));
        members.iter().filter_map(data).collect()
    }

    /// A session has ended.
    pub(super) fn forget(&mut self, session: Session) {
        let forgotten = self.sessions.remove(&session).unwrap_or_default();
        self.length -= forgotten.values().map(Bytes::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_reduce_core::Token;

    use super::*;

    fn announce(enclosed: &mut Enclosed, session: u64, member: u32, length: usize) -> bool {
        let mut message = ToScheduler::Announce {
            session: Session {
                group: 1,
                call: session,
            },
            call: Call::default(),
            originals: vec![(Member(member), Token(1))],
            are_enclosed: true,
        };
        enclosed.keep(&mut message, Some(Bytes::from(vec![0; length])));
        matches!(
            message,
            ToScheduler::Announce {
                are_enclosed: true,
                ..
            }
        )
    }

    /// A contribution, a session and all of them together have their bounds, and an end makes room.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut enclosed = Enclosed::default();
        assert!(!announce(&mut enclosed, 0, 0, 8193));
        assert!((0..32).all(|member| announce(&mut enclosed, 0, member, 8192)));
        assert!(!announce(&mut enclosed, 0, 32, 1));
        for session in 1..64 {
            assert!((0..32).all(|member| announce(&mut enclosed, session, member, 8192)));
        }
        assert!(!announce(&mut enclosed, 64, 0, 1));
        let session = Session { group: 1, call: 7 };
        assert_eq!(enclosed.of(session, &[Member(3), Member(40)]).len(), 1);
        enclosed.forget(session);
        assert!(announce(&mut enclosed, 64, 0, 8192));
        assert_eq!(enclosed.length, Enclosed::BYTES_MAX - 31 * 8192);
    }
}
