//! Calls of a job on several hosts. The ranks of each host have a table; one of them makes the call among the hosts,
//! with what all have posted, and tells the others the end in the table.
//!
//! The scheduler knows the call among hosts as a session of its own, of the group of these ranks. If it ends with a
//! result, the call has ended so, on all hosts. If it ends otherwise, the call and those after it go by the scheduler
//! on all hosts, as calls of all ranks. The session among hosts [gives way](ropewalk_reduce_core::Call::gives_way_to)
//! to these: the first rank that makes such a call ends it. So both never have a result.
//!
//! When the rank that stands for a host is lost, the others ask the scheduler for the end. The result has come with it,
//! since only short ones go this way to all.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use ropewalk_fabric::{CallState, CallTable, Taken};
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{Call, Contributions, End, Member, OnLoss, Order, Session, Standing};

use super::{ANNOUNCEMENT_TIME, OwnCall, Standing as Step, TableCall, TableCalls, offering::Offered};
use crate::{
    driver::{
        bootstrap::HostMark,
        group::Protection,
        reduction::{Completion, Slot, SlotResult},
        session::{Begin, Originals},
    },
    ids::{GroupId, ReductionId, ReductionNumber},
    message::Introduction,
    operation::{Fold, FoldError, ResultMemory},
    signature::{RootFailure, Signature},
    source::shared_token,
};

/// The hosts of a job whose ranks are on several.
#[derive(Debug)]
pub(super) struct Hosts {
    /// The lowest rank of each host, which stands for it.
    standing: ProcessGroup,
    /// The place of this host in that group.
    place: Member,
    /// The host of each rank, by its place in that group.
    places: Vec<Member>,
    epoch: Epoch,
}

impl Hosts {
    /// The hosts of a job's ranks, as one of them sees them; none if all are on one.
    pub(super) fn of(marks: &[HostMark], own: Rank, epoch: Epoch) -> Option<Self> {
        let mut found = BTreeMap::new();
        let mut lowest = Vec::new();
        let mut places = Vec::new();
        for (mark, rank) in marks.iter().zip((0..).map(Rank)) {
            let place = *found.entry(*mark).or_insert_with(|| {
                lowest.push(rank);
                Member(lowest.len() as u32 - 1)
            });
            places.push(place);
        }
        let place = *places.get(own.index())?;
        let standing = ProcessGroup::new(lowest).ok().filter(|group| group.len() > 1)?;
        Some(Self {
            standing,
            place,
            places,
            epoch,
        })
    }

    fn id(&self, number: u64) -> ReductionId {
        ReductionId {
            group: GroupId::of(&self.standing, self.epoch),
            number: ReductionNumber::AmongHosts(number),
        }
    }

    fn place_of(&self, rank: Rank) -> Member {
        self.places.get(rank.index()).copied().unwrap_or_default()
    }

    /// The rank that stands for the host of a rank.
    fn standing_for(&self, rank: Rank) -> Rank {
        self.standing.ranks()[self.place_of(rank).0 as usize]
    }

    /// The rank that stands for this host.
    pub(super) fn own(&self) -> Rank {
        self.standing.ranks()[self.place.0 as usize]
    }

    /// The call among hosts. A root that does not stand for its host gets the result as all do.
    fn signature(&self, signature: &Signature) -> Signature {
        let root = self.standing_for(signature.root);
        Signature {
            contributions: match signature.contributions {
                Contributions::One(member) => Contributions::One(self.place_of(Rank(member.0))),
                contributions => contributions,
            },
            is_spread: signature.is_spread || root != signature.root,
            root,
            on_loss: OnLoss::Fail,
            on_root_loss: RootFailure::Fail,
            ..signature.clone()
        }
    }

    /// The same, as the core knows it.
    fn call(&self, signature: &Signature, calls: &TableCalls) -> Option<Call> {
        Some(Call {
            gives_way_to: Some(calls.group.0),
            ..signature.call(&self.standing)?
        })
    }

    /// Says if a call may be made among hosts. All ranks that call alike find the same.
    pub(super) fn suits(&self, offered: &Offered<'_>, calls: &TableCalls) -> bool {
        let signature = offered.signature;
        let is_for_others = match signature.contributions {
            Contributions::Each => signature.order == Order::Any,
            Contributions::One(_) => true,
            Contributions::SideBySide | Contributions::Shared(_) => false,
        };
        let among = self.signature(signature);
        let is_short = signature.length <= Some(CallTable::DATA_SIZE_MAX as u64);
        let may_end = || {
            self.call(&among, calls)
                .is_some_and(|call| call.may_end_with_result(self.standing.len(), self.standing.len()))
        };
        let has_copies = matches!(offered.options.protection, Protection::Hosts { .. });
        is_for_others && !offered.is_block && !has_copies && is_short && (!among.is_spread || may_end())
    }

    /// Says if this rank tells the others of its host the result of a call.
    pub(super) fn tells_result(&self, own: Rank, signature: &Signature) -> bool {
        let is_here = self.place_of(signature.root) == self.place;
        let is_told = signature.is_spread || is_here && signature.root != own;
        own == self.own() && is_told && signature.length > Some(0)
    }
}

impl TableCalls {
    /// The next step of a call that all ranks of this host have posted alike.
    pub(super) fn standing_among_hosts(&self, hosts: &Hosts, number: u64, call: &mut TableCall) -> Step {
        if let Some(slot) = &call.among_hosts {
            return match slot.take() {
                None => Step::Open,
                Some(result) => self.end_among_hosts(number, call, result),
            };
        }
        let standing = hosts.own();
        if standing != self.own {
            match self.taken(standing, number) {
                Taken::NotYet => return Step::Open,
                Taken::Yes => {
                    let mut result = self.told_result(standing, number, call);
                    if let Ok(result) = &mut result {
                        self.remember(number, call, result.as_mut());
                    }
                    return Step::Ends(self.named(result));
                }
                // It is lost, or was not told of a result. The scheduler knows.
                Taken::Never => {}
            }
        }
        match self.begin_among_hosts(hosts, number, call) {
            Some((begin, slot)) => {
                call.among_hosts = Some(slot);
                self.begun.store(number + 1, Ordering::Release);
                Step::Begins(Box::new(begin))
            }
            None => Step::Leaves,
        }
    }

    /// Says if the progress thread has to see to it that the call among hosts begins: this rank posted last, and others
    /// may compute.
    pub(super) fn has_to_begin_among_hosts(&self, number: u64) -> bool {
        let Some(hosts) = self
            .hosts
            .as_ref()
            .filter(|_| self.table.state(number) != CallState::Open)
        else {
            return false;
        };
        if hosts.own() != self.own {
            self.has_to_ask.store(true, Ordering::Release);
        }
        true
    }

    /// Says if this rank stands for a host among several.
    pub(in crate::driver) fn stands_for_host(&self) -> bool {
        self.hosts.as_ref().is_some_and(|hosts| hosts.own() == self.own)
    }

    /// Says if all ranks of this host have posted a call, so that this one, which stands for them, waits for other
    /// hosts alone.
    pub(in crate::driver) fn waits_for_hosts(&self, number: u64) -> bool {
        self.stands_for_host() && self.table.state(number) == CallState::Posted
    }

    /// The session among hosts that waits while the time of a call is over: all have to leave the table.
    pub(in crate::driver) fn overdue_among_hosts(&self) -> Option<(Session, Member)> {
        let hosts = self.hosts.as_ref()?;
        let state = self.lock();
        let is_pending = |slot: &Arc<Slot>| !slot.is_full();
        match state.calls.front() {
            Some(Some(OwnCall::Here(first))) if first.among_hosts.as_ref().is_some_and(is_pending) => {
                Some((hosts.id(state.next).session(), hosts.place))
            }
            _ => None,
        }
    }

    /// The scheduler has told the end of a call of all ranks. If this host waits for some of its ranks to post it, it
    /// waits for nothing.
    pub(in crate::driver) fn hear_end(&self, session: Session) {
        if self.hosts.is_none() || session.group != self.group.0 || self.has_left() {
            return;
        }
        let is_elsewhere = {
            let state = self.lock();
            let own = session
                .call
                .checked_sub(state.next)
                .map(|at| state.calls.get(at as usize));
            matches!(own, None | Some(Some(Some(OwnCall::Elsewhere))))
        };
        if !is_elsewhere {
            self.table
                .missing(session.call)
                .for_each(|row| self.table.close(row));
            self.is_to_look.store(true, Ordering::Release);
        }
    }

    /// The call among hosts, with what the ranks of this one contribute.
    fn begin_among_hosts(&self, hosts: &Hosts, number: u64, call: &TableCall) -> Option<(Begin, Arc<Slot>)> {
        let signature = hosts.signature(&call.signature);
        let id = hosts.id(number);
        let contribution = self.contribution_of_host(number, call).ok()?;
        let originals = match contribution {
            Some(bytes) => Originals::Own {
                token: shared_token(id.session(), hosts.place),
                bytes: Bytes::from(bytes),
                begin: 0,
                hold: None,
            },
            None => Originals::Shared(BTreeMap::new()),
        };
        let left = |timeout: Duration| {
            timeout
                .saturating_sub(call.since.elapsed())
                .max(ANNOUNCEMENT_TIME)
        };
        let (completion, slot) = Completion::new(None);
        let begin = Begin {
            id,
            members: hosts.standing.clone(),
            call: hosts.call(&signature, self)?,
            place: hosts.place,
            introduction: Introduction {
                session: id.session(),
                members: Some(hosts.standing.clone()),
                signature: Some(signature),
            },
            originals,
            length: call.begin.length,
            fold: call.begin.fold.clone(),
            timeout: call.begin.timeout.map(left),
            copies: None,
            completion,
        };
        Some((begin, slot))
    }

    /// The end of the call among hosts is known here.
    fn end_among_hosts(&self, number: u64, call: &TableCall, result: SlotResult) -> Step {
        // That some were lost on the way is no matter.
        let Ok((_, mut memory)) = result else {
            return Step::Leaves;
        };
        if let (Some(ResultMemory::Elements(result)), Some(told)) =
            (&mut memory, self.table.result(self.own_row(), number))
        {
            told.write(0, result.bytes_mut());
        }
        // It counts whatever has become of this row.
        self.table.take(number);
        let is_wanted = call.signature.is_spread || call.signature.root == self.own;
        let length = call.signature.length.unwrap_or_default() as usize;
        match is_wanted && memory.is_none() {
            true => Step::Ends(self.named(Err(FoldError::Elements {
                left: 0,
                right: length,
            }))),
            false => Step::Ends(Ok(memory.filter(|_| is_wanted))),
        }
    }

    /// The last calls that have ended among hosts, as this rank tells a new scheduler: perhaps nobody else that lives
    /// has heard of them. Each with its result, if the rank that stands for this host told one.
    pub(in crate::driver) fn ended_among_hosts(&self) -> Vec<(Standing, Option<Bytes>)> {
        let Some(hosts) = &self.hosts else {
            return Vec::new();
        };
        let ended = self
            .ended_among_hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let standing = |(number, signature, result): &(u64, Signature, Option<Bytes>)| {
            let among = hosts.signature(signature);
            let standing = Standing {
                session: hosts.id(*number).session(),
                call: hosts.call(&among, self)?,
                originals: Vec::new(),
                shares: Vec::new(),
                chunking: None,
                roster: None,
                end: Some(End::Done {
                    root: hosts.place_of(among.root),
                    excluded: Vec::new(),
                }),
            };
            Some((standing, result.clone()))
        };
        ended.iter().filter_map(standing).collect()
    }

    /// Remembers a call that has ended among hosts. The others are at most so many calls behind.
    fn remember(&self, number: u64, call: &TableCall, result: Option<&mut ResultMemory>) {
        let result = match result {
            Some(ResultMemory::Elements(result)) => Some(Bytes::copy_from_slice(result.bytes_mut())),
            _ => None,
        };
        let mut ended = self
            .ended_among_hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if ended.len() as u64 > CallTable::PLACES {
            ended.pop_front();
        }
        ended.push_back((number, call.signature.clone(), result));
    }

    /// The result that the rank that stands for this host tells, if this one gets it.
    fn told_result(
        &self,
        standing: Rank,
        number: u64,
        call: &TableCall,
    ) -> Result<Option<ResultMemory>, FoldError> {
        let is_wanted = call.signature.is_spread || call.signature.root == self.own;
        let (Fold::Elements(elements), true) = (&call.begin.fold, is_wanted) else {
            return Ok(None);
        };
        let mut result = elements.result(call.signature.length.unwrap_or_default() as usize);
        let wanted = result.bytes_mut();
        if !wanted.is_empty() {
            let row = self.row_of(standing);
            let told = row.and_then(|row| self.table.result(row, number));
            let right = wanted.len();
            match told.filter(|told| told.length() >= right) {
                Some(told) => told.read(0, wanted),
                None => return Err(FoldError::Elements { left: 0, right }),
            }
        }
        Ok(Some(ResultMemory::Elements(result)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that are dealt to hosts in turn: the lowest of each stands for it, also for a root.
    #[test]
    fn the_lowest_rank_stands_for_its_host() {
        let [first, second] = ["first", "second"].map(HostMark::of);
        let marks = [first, second, first, second];
        let hosts = Hosts::of(&marks, Rank(3), Epoch(0)).unwrap();
        assert_eq!(hosts.standing.ranks(), [Rank(0), Rank(1)]);
        assert_eq!((hosts.own(), hosts.place), (Rank(1), Member(1)));
        assert_eq!(HostMark::ranks_beside(Rank(3), &marks), [Rank(1), Rank(3)]);
        let reduce = |root| Signature {
            operation: "sum".to_owned(),
            element: "u64".to_owned(),
            element_size: None,
            length: Some(8),
            contributions: Contributions::Each,
            root: Rank(root),
            is_spread: false,
            order: Order::Any,
            on_loss: OnLoss::Exclude,
            on_root_loss: RootFailure::MoveToLowest,
        };
        // Its root gets the result itself.
        let among = hosts.signature(&reduce(1));
        assert_eq!((among.root, among.is_spread), (Rank(1), false));
        assert_eq!(
            (among.on_loss, among.on_root_loss),
            (OnLoss::Fail, RootFailure::Fail)
        );
        assert!(!hosts.tells_result(Rank(1), &reduce(1)));
        // Another has to be told.
        let among = hosts.signature(&reduce(3));
        assert_eq!((among.root, among.is_spread), (Rank(1), true));
        assert!(hosts.tells_result(Rank(1), &reduce(3)));
        assert!(!hosts.tells_result(Rank(1), &reduce(2)));
        let broadcast = Signature {
            contributions: Contributions::One(Member(2)),
            is_spread: true,
            ..reduce(2)
        };
        assert_eq!(
            hosts.signature(&broadcast).contributions,
            Contributions::One(Member(0))
        );
        assert!(Hosts::of(&[first; 4], Rank(0), Epoch(0)).is_none());
    }
}
