//! The protection of a contribution by the agent of its host.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use ropewalk_fabric::{AgentLink, AgentLinkError, Held, HoldId, ToAgent};
use ropewalk_reduce_core::Session;

use super::{progress::ProgressThread, reduction::ReduceError};
use crate::message::Contribution;

/// The agent's part in the protection of a contribution.
#[derive(Debug)]
pub(super) enum Hold {
    /// The agent has the memory: the contribution outlives its process.
    Held(HoldId),
    /// The agent had no room for the message. No other rank hears of the contribution before the agent has it.
    Waits(Waiting),
}

/// Memory that the agent had no room for.
#[derive(Debug)]
pub(super) struct Waiting {
    link: Arc<AgentLink>,
    id: HoldId,
    message: ToAgent,
    memory: OwnedFd,
    since: Instant,
}

impl Hold {
    /// Offers memory to the agent. Never waits.
    ///
    /// # Errors
    /// If the agent cannot be told, for another reason than a full link.
    pub(super) fn offer(
        link: &Arc<AgentLink>,
        id: HoldId,
        contribution: &Contribution,
        memory: BorrowedFd<'_>,
    ) -> Result<Self, ReduceError> {
        let label = postcard::to_allocvec(contribution).map_err(AgentLinkError::Encoding);
        let label = label.map_err(ReduceError::Protection)?;
        if label.len() > AgentLink::LABEL_SIZE_MAX {
            let error = AgentLinkError::TooLarge { size: label.len() };
            return Err(ReduceError::Protection(error));
        }
        let message = ToAgent::Hold(Held { id, label });
        match link.send(&message, Some(memory)) {
            Ok(()) => Ok(Self::Held(id)),
            Err(AgentLinkError::Full) => Ok(Self::Waits(Waiting {
                link: Arc::clone(link),
                id,
                message,
                memory: memory.try_clone_to_owned().map_err(ReduceError::Memory)?,
                since: Instant::now(),
            })),
            Err(error) => Err(ReduceError::Protection(error)),
        }
    }

    /// Offers memory again that the agent had no room for. Returns how long it has waited, if that is over now.
    ///
    /// An error leaves it waiting: the link tells by itself that the agent is gone, and the system may lack memory for
    /// a moment only.
    pub(super) fn offer_again(&mut self) -> Poll<Option<Duration>> {
        let Self::Waits(waiting) = self else {
            return Poll::Ready(None);
        };
        let sent = waiting.link.send(&waiting.message, Some(waiting.memory.as_fd()));
        if sent.is_err() {
            return Poll::Pending;
        }
        let waited = waiting.since.elapsed();
        *self = Self::Held(waiting.id);
        Poll::Ready(Some(waited))
    }
}

impl ProgressThread {
    /// Announces a contribution when the agent has it. Returns false if the agent has no room for it yet.
    pub(super) fn protect_and_announce(&mut self, session: Session) -> bool {
        // It may have ended meanwhile.
        let Some(running) = self.running.get_mut(&session) else {
            return true;
        };
        if !running.offer_again() {
            return false;
        }
        let copies = running.take_copies();
        let waits = copies.as_ref().is_some_and(|wish| wish.is_acknowledged);
        if let Some(wish) = copies {
            self.copies.begin(&mut self.engine, self.shared.rank, wish);
        }
        if !waits {
            self.announce(session);
        }
        true
    }

    /// Goes on with the contributions that the agent had no room for, in the order of their calls.
    pub(super) fn see_to_waiting_for_agent(&mut self) {
        while let Some(&session) = self.waiting_for_agent.front()
            && self.protect_and_announce(session)
        {
            self.waiting_for_agent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_fabric::memfd::WritableMemfd;
    use ropewalk_names::Rank;
    use ropewalk_reduce_core::{Contributions, Member, OnLoss, Order, Token};

    use super::*;
    use crate::signature::{RootFailure, Signature};

    fn contribution() -> Contribution {
        Contribution {
            session: Session { group: 1, call: 2 },
            members: None,
            signature: Signature {
                operation: "sum".to_owned(),
                element: "u8".to_owned(),
                element_size: None,
                length: None,
                contributions: Contributions::Each,
                root: Rank(0),
                is_spread: false,
                order: Order::Any,
                on_loss: OnLoss::Fail,
                on_root_loss: RootFailure::Fail,
            },
            member: Member(0),
            token: Token(3),
            length: 4,
        }
    }

    /// The memory that the agent takes first.
    fn taken(agent: &AgentLink) -> Option<(HoldId, OwnedFd)> {
        match agent.receive().unwrap()? {
            (ToAgent::Hold(held), Some(memory)) => Some((held.id, memory)),
            other => panic!("not a hold: {other:?}"),
        }
    }

    /// While the agent reads nothing, an offer neither fails nor waits: it is repeated, and the agent gets the memory
    /// when it has room, once.
    #[test]
    fn memory_waits_for_an_agent_that_does_not_read() {
        let (agent, link) = AgentLink::pair().unwrap();
        let link = Arc::new(link);
        let memory = WritableMemfd::with("test", &[&[1, 2, 3, 4]], 4096).unwrap();
        let offer = |number| Hold::offer(&link, HoldId(number), &contribution(), memory.as_fd()).unwrap();
        let begun = Instant::now();
        let mut number = 0;
        let mut hold = loop {
            match offer(number) {
                Hold::Held(_) => number += 1,
                waits => break waits,
            }
        };
        for _ in 0..100 {
            assert_eq!(hold.offer_again(), Poll::Pending);
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "it has waited");
        for expected in 0..number {
            assert_eq!(taken(&agent).unwrap().0, HoldId(expected));
        }
        assert!(taken(&agent).is_none());
        let Poll::Ready(Some(waited)) = hold.offer_again() else {
            panic!("there is room");
        };
        assert!(waited <= begun.elapsed());
        assert!(matches!(hold, Hold::Held(HoldId(id)) if id == number));
        assert_eq!(hold.offer_again(), Poll::Ready(None));
        let (id, held) = taken(&agent).unwrap();
        let mut content = [0; 4];
        rustix::io::pread(&held, &mut content, 0).unwrap();
        assert_eq!((id, content), (HoldId(number), [1, 2, 3, 4]));
        assert!(taken(&agent).is_none());
    }

    /// A contribution goes on waiting when the agent is gone: the link tells that to the machines.
    #[test]
    fn memory_waits_for_the_word_that_the_agent_is_gone() {
        let (agent, link) = AgentLink::pair().unwrap();
        let link = Arc::new(link);
        let memory = WritableMemfd::with("test", &[&[1]], 4096).unwrap();
        let mut hold = loop {
            if let waits @ Hold::Waits(_) =
                Hold::offer(&link, HoldId(0), &contribution(), memory.as_fd()).unwrap()
            {
                break waits;
            }
        };
        drop(agent);
        assert_eq!(hold.offer_again(), Poll::Pending);
        let refused = Hold::offer(&link, HoldId(1), &contribution(), memory.as_fd());
        assert!(matches!(
            refused,
            Err(ReduceError::Protection(AgentLinkError::Closed))
        ));
    }
}
