//! Short contributions and results, which travel with the messages that speak of them: a contribution with its
//! announcement, a result with the word that it is complete, and with the end.

use std::collections::BTreeMap;

use bytes::Bytes;
use ropewalk_reduce_core::{Call, Member, Scheduler, Session, ToScheduler};

use super::progress::ProgressThread;

/// Short data of sessions that have not ended, on the rank with the scheduler's seat.
#[derive(Default)]
pub(super) struct Enclosed {
    contributions: BTreeMap<Session, BTreeMap<Member, Bytes>>,
    /// Each with the generation of the roster that it is of.
    results: BTreeMap<Session, (u32, Bytes)>,
    /// Bytes of all of them.
    length: usize,
}

impl Enclosed {
    /// The most bytes that are kept of all sessions together.
    const BYTES_MAX: usize = 16 << 20;

    /// Keeps what came with a message, as far as there is room for it. The message says afterwards if that is so.
    pub(super) fn keep(&mut self, message: &mut ToScheduler, enclosed: Vec<(Session, Bytes)>) {
        let mut enclosed = enclosed.into_iter();
        let mut of = |session: &Session| enclosed.find(|(known, _)| known == session);
        match message {
            ToScheduler::Announce {
                session,
                call,
                originals,
                are_enclosed,
            } => {
                let in_all_max = call.enclosed_in_all_max();
                *are_enclosed = match (&originals[..], of(session)) {
                    ([(member, _)], Some((_, data))) => {
                        self.keep_contribution(*session, *member, data, in_all_max)
                    }
                    _ => false,
                };
            }
            ToScheduler::Complete {
                session,
                generation,
                is_enclosed,
                ..
            } => {
                let result = of(session);
                *is_enclosed = result.is_some_and(|(_, data)| self.keep_result(*session, *generation, data));
            }
            // These are of ends, so that nothing newer can come.
            ToScheduler::Standing { .. } => {
                for (session, data) in enclosed {
                    self.keep_result(session, u32::MAX, data);
                }
            }
            _ => {}
        }
    }

    fn keep_contribution(&mut self, session: Session, member: Member, data: Bytes, in_all_max: u64) -> bool {
        let known = self.contributions.get(&session);
        let of_session: usize = known.map_or(0, |known| known.values().map(Bytes::len).sum());
        let fits = data.len() as u64 <= Call::ENCLOSED_BYTES_MAX
            && (of_session + data.len()) as u64 <= in_all_max
            && self.length + data.len() <= Self::BYTES_MAX;
        if fits {
            self.length += data.len();
            let before = self
                .contributions
                .entry(session)
                .or_default()
                .insert(member, data);
            self.length -= before.map_or(0, |before| before.len());
        }
        fits
    }

    /// A result of an older roster than the one that is known is none.
    fn keep_result(&mut self, session: Session, generation: u32, data: Bytes) -> bool {
        let known = self.results.get(&session);
        let fits = data.len() as u64 <= Call::RESULT_BYTES_MAX
            && known.is_none_or(|(known, _)| *known <= generation)
            && self.length + data.len() <= Self::BYTES_MAX;
        if fits {
            self.length += data.len();
            let before = self.results.insert(session, (generation, data));
            self.length -= before.map_or(0, |(_, before)| before.len());
        }
        // Those of ends of which nobody asked.
        while self.results.len() > Scheduler::ENDED_MAX
            && let Some((_, (_, oldest))) = self.results.pop_first()
        {
            self.length -= oldest.len();
        }
        fits
    }

    /// The contributions of these members.
    pub(super) fn of(&self, session: Session, members: &[Member]) -> Vec<(Member, Bytes)> {
        let known = self.contributions.get(&session);
        let data = |member: &Member| Some((*member, known?.get(member)?.clone()));
        members.iter().filter_map(data).collect()
    }

    /// A session has ended. Returns its result.
    pub(super) fn forget(&mut self, session: Session) -> Option<Bytes> {
        let contributions = self.contributions.remove(&session).unwrap_or_default();
        let result = self.results.remove(&session).map(|(_, result)| result);
        let forgotten = contributions.values().chain(&result);
        self.length -= forgotten.map(Bytes::len).sum::<usize>();
        result
    }
}

impl ProgressThread {
    /// Short data that go with a message of this rank's worker.
    pub(super) fn enclose(&mut self, message: &mut ToScheduler) -> Vec<(Session, Bytes)> {
        match message {
            ToScheduler::Announce {
                session,
                call,
                are_enclosed,
                ..
            } => {
                let running = self.running.get(session);
                let running = running.filter(|running| call.may_be_enclosed(running.members.len()));
                let own = running.and_then(|running| running.own());
                let own = own.filter(|data| data.len() as u64 <= Call::ENCLOSED_BYTES_MAX);
                *are_enclosed = own.is_some();
                Vec::from_iter(own.map(|data| (*session, Bytes::copy_from_slice(data))))
            }
            ToScheduler::Complete {
                session, is_enclosed, ..
            } => {
                let running = self.running.get_mut(session);
                let relays = self.outbox.lines.relays();
                let result = running.and_then(|running| running.short_result(relays));
                *is_enclosed = result.is_some();
                Vec::from_iter(result.map(|result| (*session, result)))
            }
            ToScheduler::Standing { sessions, .. } => {
                let ended = sessions.iter().filter(|standing| standing.end.is_some());
                let result = |session| Some((session, self.ended.get(&session)?.result.clone()?));
                let mut results: Vec<_> = ended.filter_map(|standing| result(standing.session)).collect();
                let tables = self.shared.tables.as_ref();
                let among_hosts = tables.map(|tables| tables.world.ended_among_hosts());
                for (standing, result) in among_hosts.into_iter().flatten() {
                    if !self.ended.contains(&standing.session) {
                        results.extend(result.map(|result| (standing.session, result)));
                        sessions.push(standing);
                    }
                }
                results
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_reduce_core::{Term, Token};

    use super::*;

    fn session(call: u64) -> Session {
        Session { group: 1, call }
    }

    fn announce(enclosed: &mut Enclosed, call: u64, member: u32, length: usize) -> bool {
        let session = session(call);
        let mut message = ToScheduler::Announce {
            session,
            call: Call::default(),
            originals: vec![(Member(member), Token(1))],
            are_enclosed: true,
        };
        let data = Bytes::from(vec![0; length]);
        enclosed.keep(&mut message, vec![(session, data)]);
        matches!(
            message,
            ToScheduler::Announce {
                are_enclosed: true,
                ..
            }
        )
    }

    fn complete(enclosed: &mut Enclosed, generation: u32, result: &'static [u8]) -> bool {
        let session = session(0);
        let mut message = ToScheduler::Complete {
            session,
            term: Term(0),
            generation,
            tokens: Token(1),
            is_for_all: false,
            is_enclosed: true,
        };
        enclosed.keep(&mut message, vec![(session, Bytes::from_static(result))]);
        matches!(
            message,
            ToScheduler::Complete {
                is_enclosed: true,
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
        for call in 1..64 {
            assert!((0..32).all(|member| announce(&mut enclosed, call, member, 8192)));
        }
        assert!(!announce(&mut enclosed, 64, 0, 1));
        assert_eq!(enclosed.of(session(7), &[Member(3), Member(40)]).len(), 1);
        assert_eq!(enclosed.forget(session(7)), None);
        assert!(announce(&mut enclosed, 64, 0, 8192));
        assert_eq!(enclosed.length, Enclosed::BYTES_MAX - 31 * 8192);
    }

    /// The result of an older roster does not take the place of a newer one.
    #[test]
    fn the_newest_result_is_kept() {
        let mut enclosed = Enclosed::default();
        assert!(complete(&mut enclosed, 1, b"old"));
        assert!(complete(&mut enclosed, 2, b"new"));
        assert!(!complete(&mut enclosed, 1, b"old"));
        assert!(!complete(&mut enclosed, 3, &[0; 4097]));
        assert_eq!(enclosed.forget(session(0)).as_deref(), Some(&b"new"[..]));
        assert_eq!(enclosed.length, 0);
    }
}
