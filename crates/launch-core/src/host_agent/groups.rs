//! Process groups that programs spawn, as far as they are on this host.

use std::collections::BTreeMap;

use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use ropewalk_pmi as pmi;

use super::{Action, HostAgent};
use crate::{
    plan::FIRST_GROUP,
    protocol::{Report, StartError, StartErrorKind},
};

const SIGKILL: i32 = 9;

/// The process groups of the job, by the rank in the job of their first process.
#[derive(Debug)]
pub(super) struct Groups(BTreeMap<Rank, KnownGroup>);

/// A process group, of which this host may have nothing.
#[derive(Debug)]
struct KnownGroup {
    id: pmi::GroupId,
    size: u32,
    /// Nothing of it is left here, or never was.
    is_over: bool,
}

impl HostAgent {
    /// There is another process group, whose rank 0 has the rank `first` in the job. `ranks` are those in the job of
    /// its processes here. Returns whether they are to be started: not where all ranks are gone already.
    pub fn handle_group(&mut self, first: Rank, options: pmi::GroupOptions, ranks: &[Rank]) -> bool {
        let known = KnownGroup {
            id: options.id,
            size: options.size,
            is_over: ranks.is_empty(),
        };
        let behind = first.0 + options.size;
        let missing = behind.saturating_sub(self.members.size());
        self.members.grow(missing);
        self.pmi.add_group(options);
        self.groups.0.insert(first, known);
        if self.lives.swept {
            // The hosts below may have some of it, so that the group is known here all the same.
            if let Some(&rank) = ranks.first() {
                let error = StartError {
                    kind: StartErrorKind::HostLeft,
                    reason: "its host was left already".to_owned(),
                };
                self.report(Report::NotStarted { rank, error });
            }
            for &rank in ranks {
                self.pmi.handle_departure(self.groups.process(rank), false);
            }
            self.tell_if_group_is_over(first);
            self.forward_pmi();
            return false;
        }
        for &rank in ranks {
            self.open_pmi(rank);
        }
        self.lives.to_spawn.extend(ranks);
        self.forward_pmi();
        true
    }

    /// A process group is not wanted any more.
    pub fn handle_cancel(&mut self, id: u32) {
        let Some(first) = self.groups.first_of(pmi::GroupId(id)) else {
            return;
        };
        self.drop_unstarted(first);
        let behind = self.groups.behind(first);
        for &rank in self.lives.running.range(first..behind) {
            self.actions.push_back(Action::Signal(rank, SIGKILL));
        }
        self.tell_if_group_is_over(first);
        self.sweep_if_all_are_gone();
    }

    /// Nothing is left of a process group anywhere.
    pub fn handle_forget(&mut self, id: u32) {
        if let Some(first) = self.groups.first_of(pmi::GroupId(id)) {
            self.groups.0.remove(&first);
            self.pmi.remove_group(pmi::GroupId(id));
            self.pmix.forget(pmi::GroupId(id));
        }
    }

    /// Handles the result of a spawn that was reported.
    pub fn handle_spawn_answer(&mut self, id: u64, result: Result<pmi::Spawned, pmi::SpawnRefused>) {
        self.pmi.handle_spawned(pmi::SpawnId(id), result);
        self.forward_pmi();
    }

    /// Handles the answer to a question about names that was reported.
    pub fn handle_names_answer(&mut self, id: u64, answer: pmi::Answer) {
        self.pmi.handle_name_answer(pmi::NameQuestionId(id), answer);
        self.forward_pmi();
    }

    /// A process of a spawned group could not be started, and so no other of the group will be here.
    pub(super) fn give_up_group(&mut self, first: Rank, rank: Rank) {
        self.pmi.handle_departure(self.groups.process(rank), false);
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        self.members.handle_departure(rank, incarnation, Cause::Exited(0));
        self.drop_unstarted(first);
        self.tell_if_group_is_over(first);
    }

    /// Says once that nothing of a spawned group is left here.
    pub(super) fn tell_if_group_is_over(&mut self, first: Rank) {
        let Some(group) = self.groups.0.get_mut(&first) else {
            return;
        };
        let behind = Rank(first.0 + group.size);
        let is_left = self.lives.running.range(first..behind).next().is_some()
            || self
                .lives
                .to_spawn
                .iter()
                .any(|rank| (first..behind).contains(rank));
        if first != Rank(0) && !is_left && !std::mem::replace(&mut group.is_over, true) {
            let id = group.id.0;
            self.report(Report::GroupOver(id));
        }
    }

    fn drop_unstarted(&mut self, first: Rank) {
        let behind = self.groups.behind(first);
        let (dropped, kept) = std::mem::take(&mut self.lives.to_spawn)
            .into_iter()
            .partition::<Vec<_>, _>(|rank| (first..behind).contains(rank));
        self.lives.to_spawn = kept.into();
        for rank in dropped {
            self.pmi.handle_departure(self.groups.process(rank), false);
        }
    }
}

impl Groups {
    /// The group that the job began with.
    pub(super) fn new(size: u32) -> Self {
        let first = KnownGroup {
            id: FIRST_GROUP,
            size,
            is_over: false,
        };
        Self(BTreeMap::from([(Rank(0), first)]))
    }

    /// The rank in the job of the first of a rank's group.
    pub(super) fn first_beside(&self, rank: Rank) -> Rank {
        let known = self.0.range(..=rank).next_back();
        known.map_or(Rank(0), |(&first, _)| first)
    }

    pub(super) fn process(&self, rank: Rank) -> pmi::Process {
        let known = self.0.range(..=rank).next_back();
        let (first, group) = known.map_or((0, FIRST_GROUP), |(first, group)| (first.0, group.id));
        let rank = rank.0 - first;
        pmi::Process { group, rank }
    }

    /// The rank in the job of a process as PMI names it.
    pub(super) fn job_rank(&self, process: pmi::Process) -> Rank {
        let first = self.first_of(process.group).unwrap_or_default();
        Rank(first.0 + process.rank)
    }

    fn first_of(&self, id: pmi::GroupId) -> Option<Rank> {
        let mut groups = self.0.iter();
        let (&first, _) = groups.find(|(_, group)| group.id == id)?;
        Some(first)
    }

    /// The rank behind the last of a group; that of its first if it is not known.
    fn behind(&self, first: Rank) -> Rank {
        Rank(first.0 + self.0.get(&first).map_or(0, |group| group.size))
    }
}
