//! Sessions that give way to others.

use super::{Call, End, Member, Scheduler, Session};

impl Scheduler {
    /// Ends the session that gives way, if a session and the one it gives way to are both called for. Returns the end
    /// of this one, if it is that, or if the other one has a result.
    pub(super) fn give_way(&mut self, session: Session, call: &Call, caller: Member) -> Option<End> {
        let mismatch = End::Mismatch(caller);
        if let Some(group) = self.note_way(session, call) {
            let before = Session { group, ..session };
            let is_called_for = self.sessions.contains_key(&before) || self.ended.contains(&before);
            return is_called_for.then(|| {
                self.end(session, mismatch.clone());
                mismatch
            });
        }
        let group = *self.giving_way.get(&session.group)?;
        let giving = Session { group, ..session };
        match self.ended.get(&giving) {
            Some(End::Done { .. }) => return Some(mismatch),
            None if self.sessions.contains_key(&giving) => self.end(giving, mismatch),
            _ => {}
        }
        None
    }

    /// The group to whose session this one gives way.
    pub(super) fn note_way(&mut self, session: Session, call: &Call) -> Option<u64> {
        let group = call
            .gives_way_to
            .filter(|_| self.groups.contains_key(&session.group))?;
        self.giving_way.insert(group, session.group);
        Some(group)
    }

    /// A new seat knows all sessions: those that have to give way do.
    pub(super) fn give_ways(&mut self) {
        let calls = self.sessions.iter();
        let calls: Vec<(Session, Call)> = calls
            .map(|(&session, known)| (session, known.call().clone()))
            .collect();
        for (session, call) in calls {
            if self.sessions.contains_key(&session)
                && let Some(end) = self.give_way(session, &call, Member(0))
            {
                self.end(session, end);
            }
        }
    }
}
