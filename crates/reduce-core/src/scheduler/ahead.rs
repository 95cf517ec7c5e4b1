//! Plans that are made before they are called for.
//!
//! A program mostly makes the same calls over and over. If a group made the call of a session before, the scheduler
//! plans the next session, as soon as all have called for this one in time, for the call that came next then. So the
//! ranks have their rows when they call, and send without a word of the scheduler. The plan holds for that call alone,
//! if all ranks make it and none is late or lost; otherwise the scheduler begins anew, as after any change of the
//! roster.

use std::collections::{BTreeMap, VecDeque};

use super::{Call, Collective, Contributions, Session};

/// The calls that groups will make, as far as that can be told, and the plans for them.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    groups: BTreeMap<u64, Calls>,
    /// Sessions to plan, and their calls.
    due: Vec<(Session, Call)>,
}

/// The calls of a group.
#[derive(Debug, Default)]
struct Calls {
    /// The last ones, without a gap, the newest at the end.
    last: VecDeque<Call>,
    /// The number of the next one.
    next: u64,
    planned: Option<(Session, Collective)>,
}

impl Calls {
    /// So many calls of a group are remembered.
    const LAST_MAX: usize = 64;

    /// Notes the call of a session, once. Returns the one that came after the same call the last time.
    fn note(&mut self, session: Session, call: &Call) -> Option<Call> {
        if session.call < self.next {
            return None;
        }
        if session.call > self.next {
            self.last.clear();
        }
        self.next = session.call + 1;
        let before = self.last.iter().rposition(|known| known == call);
        self.last.push_back(call.clone());
        let expected = before.map(|at| self.last[at + 1].clone());
        if self.last.len() > Self::LAST_MAX {
            self.last.pop_front();
        }
        expected
    }
}

impl Ahead {
    /// Longer contributions gain nothing: the scheduler is soon done, for what they take.
    const BYTES_MAX: u64 = 4 << 20;

    /// All ranks of a group have called for a session. If one was late or lost, that is expected again.
    pub(super) fn note(&mut self, session: Session, call: &Call, ranks: usize, has_begun_anew: bool) {
        let calls = self.groups.entry(session.group).or_default();
        let gains = |call: &Call| {
            let is_planned = match call.contributions {
                Contributions::Each => true,
                // Shorter ones need no plan.
                Contributions::One(_) => call.bytes > Call::RESULT_BYTES_MAX,
                Contributions::Shared(_) | Contributions::SideBySide => false,
            };
            is_planned
                && call.gives_way_to.is_none()
                && call.bytes <= Self::BYTES_MAX
                && !call.may_be_enclosed(ranks)
        };
        let expected = calls.note(session, call).filter(gains);
        if let Some(expected) = expected.filter(|_| !has_begun_anew) {
            let next = Session {
                call: calls.next,
                ..session
            };
            self.due.push((next, expected));
        }
    }

    /// Sites are far slower than they counted: what is planned is to be planned again.
    pub(super) fn plan_again(&mut self) {
        let planned = self.groups.values().filter_map(|calls| calls.planned.as_ref());
        let again = planned.map(|(session, planned)| (*session, planned.call().clone()));
        self.due.extend(again);
    }

    /// Says if there is something to plan.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The sessions to plan, and their calls.
    pub(super) fn take_due(&mut self) -> Vec<(Session, Call)> {
        std::mem::take(&mut self.due)
    }

    /// Keeps a session that is planned until it is called for.
    pub(super) fn keep(&mut self, session: Session, planned: Collective) {
        let calls = self.groups.entry(session.group).or_default();
        calls.planned = Some((session, planned));
    }

    /// The session, if it is planned.
    pub(super) fn take(&mut self, session: Session) -> Option<Collective> {
        let planned = &mut self.groups.get_mut(&session.group)?.planned;
        let (_, collective) = planned.take_if(|(known, _)| *known == session)?;
        Some(collective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The call that came next the last time is expected; nothing is after a gap.
    #[test]
    fn the_next_call_is_expected() {
        let call = |bytes| Call {
            bytes,
            ..Call::default()
        };
        let mut calls = Calls::default();
        let mut note = |number, bytes| {
            let session = Session {
                group: 1,
                call: number,
            };
            calls.note(session, &call(bytes)).map(|call| call.bytes)
        };
        let expected = [
            (1, None),
            (2, None),
            (1, Some(2)),
            (3, None),
            (3, Some(3)),
            (1, Some(3)),
        ];
        for (number, (bytes, next)) in (0..).zip(expected) {
            assert_eq!(note(number, bytes), next);
        }
        assert_eq!((note(4, 3), note(7, 1)), (None, None));
    }
}
