//! The protection of a contribution by the agent of its host.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use ropewalk_fabric::{AgentLink, AgentLinkError, Held, HoldId, ToAgent};
use ropewalk_reduce_core::Session;

use super::{
    contribution::{ContributionMemory, StandingHold},
    progress::ProgressThread,
    reduction::ReduceError,
};
use crate::message::Contribution;

/// The agent's part in the protection of a contribution.
#[derive(Debug)]
pub(super) enum Hold {
    /// The agent has the memory: the contribution outlives its process. Without a name the memory itself says until
    /// when it counts, and the agent is not told.
    Held(Option<HoldId>),
    /// The agent had no room for the message. No other rank hears of the contribution before the agent has it.
    Waits(Waiting),
}

/// Memory that the agent had no room for.
#[derive(Debug)]
pub(super) struct Waiting {
    link: Arc<AgentLink>,
    message: ToAgent,
    memory: OwnedFd,
    /// For memory that the agent holds for good.
    standing: Option<Arc<StandingHold>>,
    since: Instant,
}

impl Hold {
    /// Offers a contribution to the agent, which knows new memory by this name. Never waits.
    ///
    /// # Errors
    /// If the agent cannot be told, for another reason than a full link.
    pub(super) fn offer(
        link: &Arc<AgentLink>,
        name: impl FnOnce() -> HoldId,
        contribution: &Contribution,
        memory: &mut ContributionMemory,
    ) -> Result<Self, ReduceError> {
        let label = postcard::to_allocvec(contribution).map_err(AgentLinkError::Encoding);
        let label = label.map_err(ReduceError::Protection)?;
        if label.len() > AgentLink::LABEL_SIZE_MAX {
            let error = AgentLinkError::TooLarge { size: label.len() };
            return Err(ReduceError::Protection(error));
        }
        let standing = memory.set_label(&label).cloned();
        let message = match &standing {
            Some(standing) if standing.is_held() => return Ok(Self::Held(None)),
            Some(standing) => ToAgent::HoldLabelled(standing.name(name)),
            None => ToAgent::Hold(Held { id: name(), label }),
        };
        // Memory that was given back is no contribution.
        let memory = memory.descriptor().ok_or(ReduceError::JobEnded)?;
        let mut hold = Self::Waits(Waiting {
            link: Arc::clone(link),
            message,
            memory: memory.try_clone_to_owned().map_err(ReduceError::Memory)?,
            standing,
            since: Instant::now(),
        });
        match hold.send() {
            Ok(()) | Err(AgentLinkError::Full) => Ok(hold),
            Err(error) => Err(ReduceError::Protection(error)),
        }
    }

    /// Offers memory again that the agent had no room for. Returns how long it has waited, if that is over now.
    ///
    /// An error leaves it waiting: the link tells by itself that the agent is gone, and the system may lack memory for
    /// a moment only.
    pub(super) fn offer_again(&mut self) -> Poll<Option<Duration>> {
        let since = match self {
            Self::Held(_) => return Poll::Ready(None),
            Self::Waits(waiting) => waiting.since,
        };
        match self.send() {
            Ok(()) => Poll::Ready(Some(since.elapsed())),
            Err(_) => Poll::Pending,
        }
    }

    /// Sends what waits.
    fn send(&mut self) -> Result<(), AgentLinkError> {
        let Self::Waits(waiting) = self else { return Ok(()) };
        waiting
            .link
            .send(&waiting.message, Some(waiting.memory.as_fd()))?;
        if let Some(standing) = &waiting.standing {
            standing.note_held();
        }
        *self = Self::Held(match &waiting.message {
            ToAgent::Hold(held) => Some(held.id),
            _ => None,
        });
        Ok(())
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
    use ropewalk_fabric::{LabelledMemfd, memfd::HeldMemfd};
    use ropewalk_names::Rank;
    use ropewalk_reduce_core::{Contributions, Member, OnLoss, Order, Token};

    use super::*;
    use crate::{
        driver::contribution::SpareMemory,
        signature::{RootFailure, Signature},
    };

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

    fn offer(link: &Arc<AgentLink>, id: u64, memory: &mut ContributionMemory) -> Result<Hold, ReduceError> {
        Hold::offer(link, || HoldId(id), &contribution(), memory)
    }

    /// The memory that the agent takes first.
    fn taken(agent: &AgentLink) -> Option<(HoldId, OwnedFd)> {
        match agent.receive().unwrap()? {
            (ToAgent::HoldLabelled(id), Some(memory)) => Some((id, memory)),
            other => panic!("not a hold: {other:?}"),
        }
    }

    /// While the agent reads nothing, an offer neither fails nor waits: it is repeated, and the agent gets the memory
    /// when it has room, once.
    #[test]
    fn memory_waits_for_an_agent_that_does_not_read() {
        let (agent, link) = AgentLink::pair().unwrap();
        let link = Arc::new(link);
        let spare = SpareMemory::default();
        let begun = Instant::now();
        let mut number = 0;
        let mut offered = Vec::new();
        let mut hold = loop {
            offered.push(ContributionMemory::new(&spare, &[1, 2, 3, 4]).unwrap());
            match offer(&link, number, offered.last_mut().unwrap()).unwrap() {
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
        assert!(matches!(hold, Hold::Held(None)));
        assert_eq!(hold.offer_again(), Poll::Ready(None));
        let (id, held) = taken(&agent).unwrap();
        let mut content = [0; 4];
        rustix::io::pread(&held, &mut content, 0).unwrap();
        assert_eq!((id, content), (HoldId(number), [1, 2, 3, 4]));
        assert!(taken(&agent).is_none());
    }

    /// The agent is told of short memory once, and finds in it the contribution that counts when the rank is gone.
    #[test]
    fn short_memory_is_held_for_good() {
        let (agent, link) = AgentLink::pair().unwrap();
        let link = Arc::new(link);
        let spare = SpareMemory::new(Some(Arc::clone(&link)));
        for round in 0..10_u8 {
            let mut memory = ContributionMemory::new(&spare, &[round; 4]).unwrap();
            let hold = offer(&link, u64::from(round), &mut memory).unwrap();
            assert!(matches!(hold, Hold::Held(None)));
        }
        let mut last = ContributionMemory::new(&spare, &[77; 4]).unwrap();
        offer(&link, 11, &mut last).unwrap();
        let (id, memory) = taken(&agent).unwrap();
        assert_eq!(id, HoldId(0));
        assert!(taken(&agent).is_none());
        let held = HeldMemfd::of(memory.try_clone().unwrap()).unwrap();
        // A process that is gone cannot write any more.
        std::mem::forget(last);
        let (label, data) = LabelledMemfd::left_in(held).unwrap().unwrap();
        assert_eq!(
            postcard::from_bytes::<Contribution>(&label).unwrap(),
            contribution()
        );
        assert_eq!(data[..4], [77; 4]);
        drop(spare);
    }

    /// A contribution goes on waiting when the agent is gone: the link tells that to the machines.
    #[test]
    fn memory_waits_for_the_word_that_the_agent_is_gone() {
        let (agent, link) = AgentLink::pair().unwrap();
        let link = Arc::new(link);
        let spare = SpareMemory::default();
        let memory = || ContributionMemory::new(&spare, &[1]).unwrap();
        let mut offered = Vec::new();
        let mut hold = loop {
            offered.push(memory());
            if let waits @ Hold::Waits(_) = offer(&link, 0, offered.last_mut().unwrap()).unwrap() {
                break waits;
            }
        };
        drop(agent);
        assert_eq!(hold.offer_again(), Poll::Pending);
        let refused = offer(&link, 1, &mut memory());
        assert!(matches!(
            refused,
            Err(ReduceError::Protection(AgentLinkError::Closed))
        ));
    }
}
