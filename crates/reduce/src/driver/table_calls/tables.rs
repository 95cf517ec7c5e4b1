//! The tables of a job on one host: that of all ranks, and those of groups, which are sections of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use ropewalk_fabric::{CallRows, CallSection, CallState, RegionHandle, Taken};
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{Contributions, Member, Session};

use super::TableCalls;
use crate::{
    ids::{GroupId, ReductionId, ReductionNumber},
    message::Contribution,
    signature::Signature,
    source::shared_token,
};

/// The tables of this rank.
#[derive(Debug)]
pub(in crate::driver) struct Tables {
    /// That of all ranks.
    pub(in crate::driver) world: Arc<TableCalls>,
    epoch: Epoch,
    groups: Mutex<Groups>,
    /// A group with a lost rank has called.
    has_to_look: AtomicBool,
}

#[derive(Debug, Default)]
struct Groups {
    /// Those in which this rank has called; none if their calls go by the scheduler.
    known: BTreeMap<GroupId, Option<Arc<TableCalls>>>,
    lost: BTreeSet<Rank>,
    /// Further groups get no table.
    is_over: bool,
}

/// The search for what lost ranks have left in tables.
#[derive(Debug, Default)]
pub(in crate::driver) struct Legacies {
    /// The ranks of which it is known what they have left in the tables of these groups.
    known: BTreeSet<(GroupId, Rank)>,
    /// The rows of these are closed, and it will turn out from which call on they have left something.
    open: BTreeSet<(GroupId, Rank)>,
    /// The groups of sections, by their names.
    groups: BTreeMap<u64, ProcessGroup>,
    /// The contributions that agents have inherited of lost ranks for calls that [may end](Tables::may_end) in a table.
    pub(in crate::driver) held: Vec<(Rank, Contribution, RegionHandle)>,
}

/// A contribution that a lost rank has posted to a call which goes by the scheduler.
#[derive(Debug)]
pub(in crate::driver) struct Legacy {
    pub(in crate::driver) rank: Rank,
    pub(in crate::driver) contribution: Contribution,
    /// The data, if this rank is in the group: others do not read them.
    pub(in crate::driver) data: Option<Bytes>,
}

/// A table, as all ranks of the host see it.
pub(super) struct Seen<'a> {
    pub(super) rows: &'a CallRows,
    pub(super) group: GroupId,
    /// The ranks of its rows.
    pub(super) ranks: &'a [Rank],
    /// The group, if it is not that of all.
    pub(super) members: Option<ProcessGroup>,
    /// This rank is in it.
    pub(super) is_own: bool,
}

impl Tables {
    pub(in crate::driver) fn new(world: TableCalls, epoch: Epoch) -> Self {
        Self {
            world: Arc::new(world),
            epoch,
            groups: Mutex::default(),
            has_to_look: AtomicBool::new(false),
        }
    }

    /// The table of a group. All ranks of it find the same, none or that there is one, as long as they take part.
    pub(in crate::driver) fn of(&self, id: GroupId, members: &ProcessGroup) -> Option<Arc<TableCalls>> {
        if id == self.world.group {
            return Some(Arc::clone(&self.world));
        }
        if self.world.hosts.is_some() {
            return None;
        }
        let mut groups = self.lock();
        if let Some(known) = groups.known.get(&id) {
            return known.clone();
        }
        let made = self.world.of_group(id, members).map(Arc::new);
        if let Some(made) = &made {
            for lost in groups.lost.iter().filter(|lost| members.contains(**lost)) {
                made.close_of(*lost);
                self.has_to_look.store(true, Ordering::Release);
            }
            if groups.is_over {
                made.close();
            }
        }
        let made = made.filter(|_| !groups.is_over);
        groups.known.insert(id, made.clone());
        made
    }

    /// All tables in which this rank may have called.
    pub(in crate::driver) fn all(&self) -> Vec<Arc<TableCalls>> {
        let groups = self.lock();
        let known = groups.known.values().flatten();
        std::iter::once(&self.world).chain(known).cloned().collect()
    }

    /// Says if no call is under way in any of them.
    pub(in crate::driver) fn are_idle(&self) -> bool {
        self.all().iter().all(|calls| calls.is_idle())
    }

    /// When to look at the calls again.
    pub(in crate::driver) fn next_deadline(&self) -> Option<Instant> {
        self.all().iter().filter_map(|calls| calls.next_deadline()).min()
    }

    /// The ranks that the first calls wait for.
    pub(in crate::driver) fn awaited(&self) -> BTreeSet<Rank> {
        self.all().iter().flat_map(|calls| calls.awaited()).collect()
    }

    /// A rank is lost: it posts nothing any more.
    pub(super) fn close_of(&self, lost: Rank) {
        self.lock().lost.insert(lost);
        self.world.count_as_joined(lost);
        self.all().iter().for_each(|calls| calls.close_of(lost));
    }

    /// This rank makes no further calls in tables. Others must not wait for them, in no group.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.world.close();
        let own = self.world.own_row();
        for section in self.world.table.sections() {
            let row = section.members.iter().position(|member| *member == own);
            row.into_iter().for_each(|row| section.rows.close(row));
        }
    }

    /// Says once if a lost rank may have posted something since it was looked last.
    pub(super) fn has_to_look(&self) -> bool {
        self.has_to_look.swap(false, Ordering::AcqRel)
    }

    /// All is over: nobody ends the calls that are left.
    pub(in crate::driver) fn abandon(&self) {
        self.end();
        self.all().iter().for_each(|calls| calls.abandon());
    }

    /// Looks for contributions of lost ranks to calls that go by the scheduler, as far as they are not known, also to
    /// calls of groups that this rank is not in: the scheduler may be here. On several hosts the agents have
    /// everything.
    pub(in crate::driver) fn left_by(&self, lost: &BTreeSet<Rank>, legacies: &mut Legacies) -> Vec<Legacy> {
        let world = &*self.world;
        if world.hosts.is_some() {
            return Vec::new();
        }
        let mut left = world.seen().left_by_all(lost, legacies);
        for section in world.table.sections() {
            let Some(group) = legacies.group(&section, &world.ranks, self.epoch) else {
                continue;
            };
            let seen = Seen {
                rows: &section.rows,
                group: GroupId(section.name),
                ranks: group.ranks(),
                members: Some(group.clone()),
                is_own: group.contains(world.own),
            };
            left.extend(seen.left_by_all(lost, legacies));
        }
        left
    }

    /// Says if a call of a lost rank may still end in a table. The agent may hold its contribution all the same: it had
    /// to wait for a place there. A scheduler that hears of it now takes a rank for lost whose contribution is in the
    /// table, where nobody looks before it is known that the call goes by the scheduler.
    pub(in crate::driver) fn may_end(&self, lost: Rank, session: Session) -> bool {
        let world = &*self.world;
        if world.hosts.is_some() {
            return false;
        }
        if session.group == world.group.0 {
            return world.seen().may_end(lost, session.call);
        }
        let mut sections = world.table.sections();
        sections
            .find(|section| section.name == session.group)
            .is_some_and(|section| {
                let ranks = section.members.iter().map(|row| world.ranks.get(*row).copied());
                let seen = |ranks: Vec<Rank>| {
                    let seen = Seen {
                        rows: &section.rows,
                        group: GroupId(section.name),
                        ranks: &ranks,
                        members: None,
                        is_own: false,
                    };
                    seen.may_end(lost, session.call)
                };
                ranks.collect::<Option<_>>().is_some_and(seen)
            })
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        // Whatever panicked left tables that are whole.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableCalls {
    /// The table as all see it.
    pub(super) fn seen(&self) -> Seen<'_> {
        Seen {
            rows: self.table.view(),
            group: self.group,
            ranks: &self.ranks,
            members: None,
            is_own: true,
        }
    }
}

impl Legacies {
    /// Says if there is more to know.
    pub(super) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The group of a section in a table of these ranks.
    fn group(&mut self, section: &CallSection, ranks: &[Rank], epoch: Epoch) -> Option<ProcessGroup> {
        if let Some(known) = self.groups.get(&section.name) {
            return Some(known.clone());
        }
        let ranks = section.members.iter().map(|row| ranks.get(*row).copied());
        let group = ProcessGroup::new(ranks.collect::<Option<Vec<_>>>()?).ok()?;
        // What is in the table is not to be believed.
        if GroupId::of(&group, epoch).0 != section.name {
            return None;
        }
        self.groups.insert(section.name, group.clone());
        Some(group)
    }
}

impl Seen<'_> {
    /// The contributions that lost ranks have left here and that are not known.
    fn left_by_all(&self, lost: &BTreeSet<Rank>, legacies: &mut Legacies) -> Vec<Legacy> {
        let mut left = Vec::new();
        for (row, rank) in self.ranks.iter().enumerate() {
            let legacy = (self.group, *rank);
            if !lost.contains(rank) || legacies.known.contains(&legacy) {
                continue;
            }
            if legacies.open.insert(legacy) {
                self.rows.close(row);
            }
            if let Some(from) = self.first_left() {
                legacies.open.remove(&legacy);
                legacies.known.insert(legacy);
                left.extend(self.left_by(row, from));
            }
        }
        left
    }

    /// The first call that goes by the scheduler, with all after it, if it is known already. All ranks find the same.
    pub(super) fn first_left(&self) -> Option<u64> {
        let mut number = self.rows.finished();
        loop {
            match self.rows.state(number) {
                CallState::Open => return None,
                CallState::Closed => return Some(number),
                CallState::Posted => {}
            }
            let first = self.called(0, number);
            if (1..self.rows.count()).any(|row| self.called(row, number) != first) {
                // A rank that counts as lost may live. Then it goes on, and others use the places again.
                let finished = self.rows.finished();
                if finished <= number {
                    return Some(number);
                }
                number = finished;
                continue;
            }
            let taker = match postcard::from_bytes::<(Signature, bool)>(&first) {
                Ok((signature, true)) => self.ranks.iter().position(|rank| *rank == signature.root),
                Ok((_, false)) | Err(_) => None,
            };
            match taker.map(|taker| self.rows.taken(taker, number)) {
                Some(Taken::Never) => return Some(number),
                Some(Taken::NotYet) => return None,
                Some(Taken::Yes) | None => number += 1,
            }
        }
    }

    /// Says if a call of a lost rank may still end here. One that does not suit a table goes by the scheduler at once.
    pub(super) fn may_end(&self, lost: Rank, number: u64) -> bool {
        let Some(row) = self.ranks.iter().position(|rank| *rank == lost) else {
            return false;
        };
        let suits = || {
            let is_posted = number < self.rows.posted(row);
            !is_posted || postcard::from_bytes::<(Signature, bool)>(&self.called(row, number)).is_ok()
        };
        let is_open = || self.first_left().is_none_or(|from| number < from);
        number >= self.rows.finished() && suits() && is_open()
    }

    fn called(&self, row: usize, number: u64) -> Vec<u8> {
        let mut call = Vec::new();
        self.rows.read_call(row, number, &mut call);
        call
    }

    /// The contributions that the rank of a row has posted to the calls from that one on.
    pub(super) fn left_by(&self, row: usize, from: u64) -> Vec<Legacy> {
        let member = Member(row as u32);
        let contributions = (from..self.rows.posted(row)).filter_map(|number| {
            // A call that goes by the scheduler anyway has none.
            let (signature, _): (Signature, bool) = postcard::from_bytes(&self.called(row, number)).ok()?;
            if matches!(signature.contributions, Contributions::One(other) if other != member) {
                return None;
            }
            let length = signature.length?;
            let data = self.rows.data(row, number);
            if data.len() as u64 != length {
                return None;
            }
            let id = ReductionId {
                group: self.group,
                number: ReductionNumber::Call(number),
            };
            let contribution = Contribution {
                session: id.session(),
                members: self.members.clone(),
                signature,
                member,
                token: shared_token(id.session(), member),
                length,
            };
            Some(Legacy {
                rank: self.ranks[row],
                contribution,
                data: self.is_own.then(|| Bytes::copy_from_slice(data)),
            })
        });
        contributions.collect()
    }
}
