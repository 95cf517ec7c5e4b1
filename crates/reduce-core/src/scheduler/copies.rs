//! Copies of contributions that lack what nobody needs any more.

use super::{Member, Scheduler, Session, Site};

impl Scheduler {
    /// Bytes at the beginning of a member's contribution that nobody needs any more, whatever is lost: a copy that is
    /// made from its end on is whole as soon as it reaches them. They grow from plan to plan and from term to term.
    /// Nothing if the session has no plan yet.
    pub fn settled_bytes(&self, session: Session, member: Member) -> Option<u64> {
        self.sessions.get(&session)?.settled_bytes(member)
    }

    /// The contributions of this site begin behind bytes that were [settled](Self::settled_bytes) by then.
    pub fn note_part(&mut self, session: Session, site: Site) {
        if let Some(collective) = self.sessions.get_mut(&session) {
            collective.note_part(site);
        }
    }
}
