//! The result of a session on this site: how far it is here, and where it goes on to.

use super::{ToScheduler, Worker, merge::Merge};
use crate::ids::{Session, ShareId, StreamId};

impl Worker {
    /// More of the result may be here: it is sent on, and not taken again.
    pub(super) fn spread(&mut self, session: Session, class: u16) {
        let Some(part) = self.sessions.get_mut(&session) else {
            return;
        };
        let (Some(&plan), Some(merge)) = (part.plans.get(&ShareId::SPREAD), &mut part.merge) else {
            return;
        };
        let of_class = |node| StreamId { plan, class, node };
        let streams = part.streams.range_mut(of_class(0)..=of_class(u32::MAX));
        let (finals, tokens) = (merge.finals(class), merge.tokens());
        let mut moved = Vec::new();
        for (id, stream) in streams {
            stream.note_final(finals, tokens);
            moved.push(*id);
        }
        moved.into_iter().for_each(|id| self.advance(session, id));
    }

    /// Those who merge tell their watermarks now and then, and that they are complete.
    pub(super) fn report(&mut self, session: Session) {
        let term = self.term;
        let Some(part) = self.sessions.get_mut(&session) else {
            return;
        };
        let generation = part.generation().unwrap_or_default();
        let is_for_all = part.call.is_spread;
        let Some(merge) = &mut part.merge else { return };
        let tokens = merge.take_completion();
        let merged = merge.take_report();
        if let Some(tokens) = tokens {
            return self.tell(ToScheduler::Complete {
                session,
                term,
                generation,
                tokens,
                is_for_all,
                is_enclosed: false,
            });
        }
        if !merged.is_empty() {
            self.tell(ToScheduler::Progress {
                session,
                generation,
                merged,
            });
        }
    }

    /// The root's side of a session.
    pub(super) fn merge(&mut self, session: Session) -> Option<&mut Merge> {
        self.sessions.get_mut(&session)?.merge.as_mut()
    }
}
