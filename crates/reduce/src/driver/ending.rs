//! The end of a reduction on a rank: its memory is let go of, and its caller is told.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{AgentLink, AgentLinkError, HoldId, ToAgent};
use ropewalk_reduce_core::{Contributions, End, Session};

use super::{
    progress::ProgressThread,
    reduction::{Completion, SlotResult},
    seat::Seat,
};
use crate::outcome::{Receipt, ReductionError, verdict};

impl ProgressThread {
    pub(super) fn finish(&mut self, session: Session, end: End) {
        self.inherited.forget(session);
        self.copies.forget(&mut self.engine, session);
        let Some(running) = self.running.get(&session) else {
            return;
        };
        let circumstances = self.ended.get(&session).cloned().unwrap_or_default();
        let signature = running.introduction.signature.as_ref();
        let contributions = signature.map_or(Contributions::Each, |signature| signature.contributions);
        let root = signature.map_or(self.shared.rank, |signature| signature.root);
        let result = verdict(end, root, running.members.ranks(), contributions, circumstances);
        self.complete(session, result);
    }

    pub(super) fn complete(&mut self, session: Session, result: Result<Receipt, ReductionError>) {
        let Some(mut running) = self.running.remove(&session) else {
            return;
        };
        self.account.note_end();
        self.copies.disown(&mut self.engine, self.shared.rank, session);
        let hold = running.take_hold();
        let has_to_keep = |seat: &Seat| seat.has_to_keep(session);
        match (hold, self.seat.as_ref().is_some_and(has_to_keep)) {
            (Some(hold), true) => self.releases.keep(session, hold),
            (hold, _) => self.release(hold),
        }
        self.shared.set_failed(result.is_err());
        let rank = self.shared.rank;
        let signature = running.introduction.signature.as_ref();
        let is_for_all = signature.is_some_and(|signature| signature.is_spread);
        if let Ok(receipt) = &result {
            running.clear_blocks(&receipt.excluded);
        }
        let (completion, bytes) = running.into_result();
        let result = result.map(|receipt| {
            let bytes = bytes.filter(|_| is_for_all || receipt.root == rank);
            (receipt, bytes)
        });
        self.returns.end(completion, result.map_err(Into::into));
    }

    /// Nothing can be reduced on this rank any more. The others are told so, if they can be. If the agent is lost they
    /// hear it from the launcher, and can do without this rank then: they are told after a while, in case that the
    /// agent lives, and only does not hear this rank.
    pub(super) fn give_up(&mut self, error: &ReductionError) {
        if self.given_up.is_some() {
            return;
        }
        let patience = match error {
            ReductionError::AgentLost => AGENT_LOSS_TOLD_WITHIN,
            _ => Duration::ZERO,
        };
        self.given_up = Some(GivenUp {
            error: error.clone(),
            tell_at: Some(Instant::now() + patience),
        });
        self.end_step(error);
        self.leave_table(error);
        let sessions: Vec<Session> = self.running.keys().copied().collect();
        for session in sessions {
            self.complete(session, Err(error.clone()));
        }
        self.tell_that_given_up(Instant::now());
        self.shared.set_failed(true);
    }

    pub(super) fn tell_that_given_up(&mut self, now: Instant) {
        if let Some(given_up) = &mut self.given_up
            && given_up.tell_at.take_if(|at| *at <= now).is_some()
        {
            self.worker.leave(given_up.error.to_string());
        }
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    pub(super) fn release(&mut self, hold: Option<(Option<HoldId>, Bytes)>) {
        if let Some((name, memory)) = hold {
            self.releases.add(name, memory);
        }
    }

    /// Lets go of memory that nobody needs any more, and completes the reductions that waited for that.
    pub(super) fn give_back(&mut self) {
        self.releases.send(self.link.as_deref());
        self.returns.see_to(Instant::now());
    }
}

/// The reason for which nothing can be reduced on this rank any more.
pub(super) struct GivenUp {
    pub(super) error: ReductionError,
    /// When to tell the others.
    pub(super) tell_at: Option<Instant>,
}

/// The launcher tells of the loss of an agent within this time, with the usual time of detection.
const AGENT_LOSS_TOLD_WITHIN: Duration = Duration::from_secs(5);

/// The memory that the agent need not hold any longer and has not been told of yet. It is not used again before that:
/// if this process dies, the agent must not serve the next contribution in place of this one.
#[derive(Default)]
pub(super) struct Releases {
    due: VecDeque<(HoldId, Bytes)>,
    /// Memory of sessions whose ends others may not have heard.
    kept: BTreeMap<Session, (Option<HoldId>, Bytes)>,
}

impl Releases {
    /// Says if the agent had no room to hear of some.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The agent need not hold this memory any more. It is to be told if the memory has a name.
    pub(super) fn add(&mut self, name: Option<HoldId>, memory: Bytes) {
        self.due.extend(name.map(|name| (name, memory)));
    }

    fn keep(&mut self, session: Session, hold: (Option<HoldId>, Bytes)) {
        self.kept.insert(session, hold);
    }

    /// This rank leaves, and nobody waits for anything of it.
    pub(super) fn let_go_of_all(&mut self) {
        for (name, memory) in std::mem::take(&mut self.kept).into_values() {
            self.add(name, memory);
        }
    }

    /// Others have heard the end of a session.
    pub(super) fn let_go(&mut self, session: Session) {
        if let Some((name, memory)) = self.kept.remove(&session) {
            self.add(name, memory);
        }
    }

    /// Tells the agent, as far as it has room for that.
    fn send(&mut self, link: Option<&AgentLink>) {
        while let Some((hold, _)) = self.due.front() {
            let sent = link.map(|link| link.send(&ToAgent::Release(*hold), None));
            if let Some(Err(AgentLinkError::Full)) = sent {
                return;
            }
            self.due.pop_front();
        }
    }
}

/// The reductions whose ends are known and not told, because their callers get a buffer back that is still read: by the
/// sends of chunks that nobody waits for any more.
#[derive(Default)]
pub(super) struct Returns {
    waiting: Vec<Return>,
    /// Callers were told since somebody asked.
    has_told: bool,
}

struct Return {
    completion: Completion,
    result: SlotResult,
    /// The caller gets a copy of the buffer then.
    until: Instant,
}

impl Returns {
    /// Completes a reduction, as soon as its buffer is free.
    pub(super) fn end(&mut self, completion: Completion, result: SlotResult) {
        if completion.is_free() {
            self.has_told = true;
            return completion.complete(result);
        }
        let until = Instant::now() + PATIENCE;
        self.waiting.push(Return {
            completion,
            result,
            until,
        });
    }

    fn see_to(&mut self, now: Instant) {
        let is_due = |waiting: &mut Return| waiting.completion.is_free() || waiting.until <= now;
        for due in self.waiting.extract_if(.., is_due) {
            self.has_told = true;
            due.completion.complete(due.result);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Says if callers were told of ends since the last time.
    pub(super) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.has_told)
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        for waiting in self.waiting.drain(..) {
            waiting.completion.complete(waiting.result);
        }
    }
}

/// A buffer is waited for so long: a rank that gets a chunk of which nobody has any more use may be stopped.
const PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropewalk_fabric::memfd::WritableMemfd;

    use super::*;
    use crate::driver::{lent_memory::LentMemory, reduction::ReduceError};

    /// A reduction is over for its caller when its buffer is free, and after a while also if it is not.
    #[test]
    fn the_end_waits_for_the_buffer() {
        let begun = Instant::now();
        for is_freed in [true, false] {
            let memory = WritableMemfd::unforked("test", 10)
                .unwrap()
                .into_read_only()
                .unwrap();
            let (lent, loan) = LentMemory::new(Arc::new(memory), 10);
            let mut bytes = Bytes::from_owner(lent);
            let chunk = bytes.split_off(5);
            let (completion, slot) = Completion::new(Some(loan));
            let mut returns = Returns::default();
            returns.end(completion, Err(ReduceError::JobEnded));
            assert!(
                returns
                    .next_deadline()
                    .is_some_and(|until| until >= begun + PATIENCE)
            );
            drop(bytes);
            returns.see_to(begun);
            assert!(!slot.is_full(), "a chunk is still being sent");
            match is_freed {
                true => drop(chunk),
                false => returns.see_to(begun + PATIENCE * 1000),
            }
            returns.see_to(begun);
            assert!(slot.is_full() && returns.next_deadline().is_none());
        }
    }

    /// The end of a reduction of a vector does not wait, and at the end of the thread none does.
    #[test]
    fn other_ends_do_not_wait() {
        let (completion, slot) = Completion::new(None);
        let mut returns = Returns::default();
        returns.end(completion, Err(ReduceError::JobEnded));
        assert!(slot.is_full());
        let memory = WritableMemfd::unforked("test", 10)
            .unwrap()
            .into_read_only()
            .unwrap();
        let (_lent, loan) = LentMemory::new(Arc::new(memory), 10);
        let (completion, slot) = Completion::new(Some(loan));
        returns.end(completion, Err(ReduceError::JobEnded));
        assert!(!slot.is_full());
        drop(returns);
        assert!(slot.is_full());
    }

    /// Memory is not used again before the agent has been told to let go of it.
    #[test]
    fn memory_waits_for_the_agent() {
        let (agent, rank) = AgentLink::pair().unwrap();
        while rank.send(&ToAgent::Attach, None).is_ok() {}
        let memory = WritableMemfd::unforked("test", 10)
            .unwrap()
            .into_read_only()
            .unwrap();
        let (lent, loan) = LentMemory::new(Arc::new(memory), 10);
        let mut releases = Releases::default();
        let session = Session { group: 1, call: 2 };
        releases.keep(session, (Some(HoldId(3)), Bytes::from_owner(lent)));
        assert!(releases.due.is_empty());
        releases.let_go(session);
        releases.send(Some(&rank));
        assert!(!loan.is_over() && !releases.due.is_empty());
        while agent.receive::<ToAgent>().unwrap().is_some() {}
        releases.send(Some(&rank));
        assert!(loan.is_over() && releases.due.is_empty());
        assert_eq!(
            agent.receive::<ToAgent>().unwrap().unwrap().0,
            ToAgent::Release(HoldId(3))
        );
    }
}
