//! Ends that too few sites have heard.
//!
//! A site lets go of its contribution when it hears an end. If the seat's own site did so before any
//! other has heard, and its process died then, the next seat would know of no end and find no contribution.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Scheduler, SchedulerAction, Session, Site};

/// The ends of which the seat's own site may be the only one that knows.
#[derive(Debug, Default)]
pub(super) struct UnheardEnds(BTreeMap<Session, UnheardEnd>);

#[derive(Debug)]
struct UnheardEnd {
    begun: Duration,
    /// Other sites that live and have not said that they have heard.
    unheard: BTreeSet<Site>,
    heard: u32,
}

impl UnheardEnds {
    /// Of so many other sites one is there still if two sites are lost at once: this one and another.
    const ENOUGH: u32 = 2;
    /// So many others are sent an end before the seat's own site is.
    pub(super) const TOLD_FIRST: usize = 8;
    /// After so long one other site is enough: the rest may be stopped.
    const PATIENCE: Duration = Duration::from_millis(20);
    /// After so long it is enough that the others were sent word: they may all be stopped.
    const PATIENCE_WITH_NONE: Duration = Duration::from_secs(1);

    /// All of `others` are sent an end.
    pub(super) fn insert(&mut self, now: Duration, session: Session, others: BTreeSet<Site>) {
        let end = UnheardEnd {
            begun: now,
            unheard: others,
            heard: 0,
        };
        self.0.insert(session, end);
    }

    pub(super) fn contains(&self, session: Session) -> bool {
        self.0.contains_key(&session)
    }

    /// A site has heard an end.
    pub(super) fn handle_heard(&mut self, site: Site, session: Session) {
        if let Some(end) = self.0.get_mut(&session)
            && end.unheard.remove(&site)
        {
            end.heard += 1;
        }
    }

    /// A site will not hear anything any more.
    pub(super) fn handle_lost(&mut self, site: Site) {
        for end in self.0.values_mut() {
            end.unheard.remove(&site);
        }
    }

    /// The time at which one more can be [taken](Self::take_due).
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.values().map(UnheardEnd::deadline).min()
    }

    /// The ends that enough sites have heard.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Session> {
        let due = self.0.iter().filter(|(_, end)| end.deadline() <= now);
        let due: Vec<Session> = due.map(|(session, _)| *session).collect();
        self.0.retain(|session, _| !due.contains(session));
        due
    }
}

impl UnheardEnd {
    fn deadline(&self) -> Duration {
        let patience = match self.heard {
            _ if self.unheard.is_empty() => return self.begun,
            UnheardEnds::ENOUGH.. => return self.begun,
            0 => UnheardEnds::PATIENCE_WITH_NONE,
            _ => UnheardEnds::PATIENCE,
        };
        self.begun + patience
    }
}

impl Scheduler {
    /// A member's site, not this one, has been sent the end of a session and has answered that it has it.
    pub fn handle_end_heard(&mut self, now: Duration, site: Site, session: Session) {
        self.view.now = now;
        self.unheard_ends.handle_heard(site, session);
        self.let_go();
    }

    /// Says if this site has to keep what it contributed to a session that has ended, until
    /// [`LetGo`](SchedulerAction::LetGo).
    pub fn has_to_keep(&self, session: Session) -> bool {
        self.unheard_ends.contains(session)
    }

    /// Enough others have heard of ends.
    pub(super) fn let_go(&mut self) {
        let due = self.unheard_ends.take_due(self.view.now);
        self.actions.extend(due.into_iter().map(SchedulerAction::LetGo));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Session = Session { group: 1, call: 2 };

    fn ends(others: u32) -> UnheardEnds {
        let mut ends = UnheardEnds::default();
        ends.insert(Duration::ZERO, SESSION, (1..=others).map(Site).collect());
        ends
    }

    fn is_due(ends: &mut UnheardEnds, millis: u64) -> bool {
        !ends.take_due(Duration::from_millis(millis)).is_empty()
    }

    /// Nobody else is there; or the one that is has heard, or is lost; or two of several have heard.
    #[test]
    fn others_hear_first() {
        assert!(is_due(&mut ends(0), 0));
        for is_lost in [true, false] {
            let mut ends = ends(1);
            assert!(!is_due(&mut ends, 999));
            match is_lost {
                true => ends.handle_lost(Site(1)),
                false => ends.handle_heard(Site(1), SESSION),
            }
            assert!(is_due(&mut ends, 0));
            assert!(!ends.contains(SESSION));
        }
        let mut ends = ends(5);
        for site in [1, 1, 3] {
            assert!(!is_due(&mut ends, 0));
            ends.handle_heard(Site(site), SESSION);
        }
        assert!(is_due(&mut ends, 0));
    }

    /// Sites that do not answer are waited for only so long.
    #[test]
    fn silent_sites_are_not_waited_for() {
        let mut silent = ends(3);
        assert!(!is_due(&mut silent, 999));
        assert!(is_due(&mut silent, 1_000));
        let mut silent = ends(3);
        silent.handle_heard(Site(2), SESSION);
        assert_eq!(silent.deadline(), Some(Duration::from_millis(20)));
        assert!(!is_due(&mut silent, 19));
        assert!(is_due(&mut silent, 20));
    }
}
