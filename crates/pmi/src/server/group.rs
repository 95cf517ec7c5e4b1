//! The state of a process group that one agent keeps.

use std::collections::BTreeMap;

use bstr::BString;

use super::{
    Absence, ChildId, GroupId, KeyValuePairs,
    connections::Connections,
    fences::{Above, Fences, Membership},
    node_attributes::NodeAttributes,
    waiter::{FenceWaiter, Waiter},
};
use crate::{
    Form, KEY_SIZE_MAX, KVSNAME_SIZE_MAX, KeyValueSpace, LINE_VALUE_SIZE_MAX, ProcessMapping, PutError,
    RankSet,
};

/// The description of a process group for a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Its name among the groups of the job.
    pub id: GroupId,
    /// The name of its key-value space, without spaces.
    pub kvsname: String,
    /// How many processes it has.
    pub size: u32,
    /// The ranks that this agent serves.
    pub local: RankSet,
    /// The ranks that each agent directly below has, itself and all agents below it.
    pub children: Vec<(ChildId, RankSet)>,
    /// Where its processes are.
    pub mapping: ProcessMapping,
    /// How many processes each program of it has, in the order of ranks; all are one program if this is empty.
    pub segments: Vec<u32>,
    /// How many processes there could be, if that is known.
    pub universe_size: Option<u32>,
    /// The key-value space of the group that spawned this one.
    pub spawner: Option<String>,
    /// The pairs that the key-value space holds from the beginning.
    pub preput: KeyValuePairs,
    /// The attributes of the job, by key, that the process manager gives beside those that it always gives.
    pub attributes: KeyValuePairs,
    /// The policy of fences about processes that will never come.
    pub absent: AbsentMembers,
}

/// The policy of fences about processes that died, finalized or closed their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentMembers {
    /// It completes without them.
    Exclude,
    /// Every process that waits in it gets an error.
    Fail,
    /// They are replaced: every process that waits in it gets an error until then. Those are not replaced whose agent
    /// is lost, and it completes without them.
    FailUntilReplaced,
}

impl GroupOptions {
    /// A group of `size` processes, all served by this agent; a fence fails when one is gone.
    pub fn one_host(id: GroupId, kvsname: impl Into<String>, size: u32) -> Self {
        Self {
            id,
            kvsname: kvsname.into(),
            size,
            local: RankSet::range(0, size),
            children: Vec::new(),
            mapping: ProcessMapping::one_node(size),
            segments: Vec::new(),
            universe_size: None,
            spawner: None,
            preput: Vec::new(),
            attributes: Vec::new(),
            absent: AbsentMembers::Fail,
        }
    }
}

/// How far a process got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Silent,
    Initialized,
    Finalized,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) options: GroupOptions,
    pub(super) space: KeyValueSpace,
    /// The pairs that were put here and below, and are not known above.
    pub(super) unsent: KeyValuePairs,
    pub(super) unsent_size: usize,
    /// The data that bridges brought to fences that are not over.
    pub(super) data: BTreeMap<BString, BString>,
    pub(super) fences: Fences<FenceWaiter>,
    pub(super) phases: BTreeMap<u32, Phase>,
    pub(super) node_attributes: NodeAttributes,
    subtree: RankSet,
    absent: RankSet,
    /// Those of them whose agent is lost.
    lost: RankSet,
    dead: RankSet,
    /// Ranks below that came back, of which the root does not know yet, with how often.
    returning: BTreeMap<u32, u32>,
}

impl Group {
    pub(super) fn new(options: GroupOptions) -> Self {
        let kvsname = options.kvsname.as_bytes();
        let is_name = kvsname.len() <= KVSNAME_SIZE_MAX && kvsname.iter().all(u8::is_ascii_graphic);
        assert!(is_name, "{:?} cannot name a key-value space", options.kvsname);
        let mut space = KeyValueSpace::new(KEY_SIZE_MAX);
        for (key, value) in &options.preput {
            // What is too large for a key-value space cannot be got from it either.
            let _ = space.put(key.clone(), value.clone());
        }
        let subtree = options
            .children
            .iter()
            .fold(options.local.clone(), |all, (_, below)| all.union(below));
        Self {
            options,
            space,
            unsent: Vec::new(),
            unsent_size: 0,
            data: BTreeMap::new(),
            fences: Fences::default(),
            phases: BTreeMap::new(),
            node_attributes: NodeAttributes::new(),
            subtree,
            absent: RankSet::default(),
            lost: RankSet::default(),
            dead: RankSet::default(),
            returning: BTreeMap::new(),
        }
    }

    pub(super) fn settle(&mut self, fence: &super::FenceId, above: Above) -> super::fences::Settled {
        let membership = Membership {
            size: self.options.size,
            local: &self.options.local,
            subtree: &self.subtree,
            absent: &self.absent,
            lost: &self.lost,
            dead: &self.dead,
            policy: self.options.absent,
            above,
        };
        self.fences.settle(fence, membership)
    }

    /// The ranks below a child, or none if it has none of this group.
    pub(super) fn below(&self, child: ChildId) -> RankSet {
        let found = self.options.children.iter().find(|(found, _)| *found == child);
        found.map(|(_, ranks)| ranks.clone()).unwrap_or_default()
    }

    pub(super) fn is_local(&self, rank: u32) -> bool {
        self.options.local.contains(rank)
    }

    /// How far a process got.
    pub(super) fn phase(&self, rank: u32) -> Phase {
        self.phases.get(&rank).copied().unwrap_or_default()
    }

    /// Those who wait for a node attribute that nobody is left to put: all other processes of the group here are
    /// gone, or wait themselves.
    pub(super) fn take_stuck_waiters(&mut self, connections: &Connections) -> Vec<Waiter> {
        let lost = self.absent.intersection(&self.options.local);
        if lost.is_empty() || !self.node_attributes.has_waiters() {
            return Vec::new();
        }
        let blocked = self.node_attributes.blocked(connections);
        let mut present = self.options.local.iter().filter(|rank| !lost.contains(*rank));
        match present.all(|rank| blocked.contains(&rank)) {
            true => self.node_attributes.take_waiters(),
            false => Vec::new(),
        }
    }

    pub(super) fn is_absent(&self, rank: u32) -> bool {
        self.absent.contains(rank)
    }

    /// Ranks of the subtree are gone. Says which of them were not, or not in a way that is as bad.
    pub(super) fn depart(&mut self, ranks: &RankSet, how: Absence) -> RankSet {
        let ranks = ranks.intersection(&self.subtree);
        let news = ranks.difference(match how {
            Absence::Closed => &self.absent,
            Absence::Failed => &self.dead,
            Absence::AgentLost => &self.lost,
        });
        if news.is_empty() {
            return news;
        }
        self.absent = self.absent.union(&news);
        if how >= Absence::Failed {
            self.dead = self.dead.union(&news);
        }
        if how >= Absence::AgentLost {
            self.lost = self.lost.union(&news);
        }
        self.fences.leave(&news);
        news
    }

    /// A rank of the subtree is back. Says whether it was gone.
    pub(super) fn come_back(&mut self, rank: u32, above: Above) -> bool {
        self.dead.remove(rank);
        self.lost.remove(rank);
        let was_gone = self.absent.remove(rank);
        if was_gone && above == Above::Parent {
            *self.returning.entry(rank).or_default() += 1;
        }
        was_gone
    }

    /// The root says that ranks failed. About its own subtree an agent knows better.
    pub(super) fn hear_of_departure(&mut self, ranks: &RankSet) {
        let elsewhere = ranks
            .intersection(&RankSet::range(0, self.options.size))
            .difference(&self.subtree);
        self.dead = self.dead.union(&elsewhere);
    }

    /// The root says that a rank is back.
    pub(super) fn hear_of_return(&mut self, rank: u32) {
        if !self.subtree.contains(rank) {
            self.dead.remove(rank);
        } else if let Some(count) = self.returning.get_mut(&rank) {
            *count -= 1;
            if *count == 0 {
                self.returning.remove(&rank);
            }
        }
    }

    /// Those of the members of a fence that the root means: what it said before it knew that a rank came back is
    /// about the process that the rank had before.
    pub(super) fn current(&self, members: RankSet) -> RankSet {
        if self.returning.is_empty() {
            return members;
        }
        members.difference(&self.returning.keys().copied().collect())
    }

    /// Keeps what a process put. Says whether it replaces something else.
    pub(super) fn put(&mut self, key: BString, value: BString, is_alone: bool) -> Result<bool, PutError> {
        let replaces = self.space.value(&key).is_some_and(|old| *old != value);
        if !is_alone {
            let size = key.len() + value.len();
            if self.unsent_size + size > KeyValueSpace::SIZE_MAX {
                return Err(PutError::Full);
            }
            self.space.put(key.clone(), value.clone())?;
            self.unsent_size += size;
            self.unsent.push((key, value));
        } else {
            self.space.put(key, value)?;
        }
        Ok(replaces)
    }

    /// Pairs from below, to be handed on with the next fence.
    pub(super) fn collect(&mut self, pairs: KeyValuePairs) {
        for (key, value) in pairs {
            let size = key.len() + value.len();
            if self.unsent_size + size > KeyValueSpace::SIZE_MAX {
                return;
            }
            self.unsent_size += size;
            self.unsent.push((key, value));
        }
    }

    pub(super) fn take_unsent(&mut self) -> KeyValuePairs {
        self.unsent_size = 0;
        std::mem::take(&mut self.unsent)
    }

    /// Pairs that all are to see.
    pub(super) fn spread(&mut self, pairs: &KeyValuePairs) {
        for (key, value) in pairs {
            if self.take_in(key, value) {
                continue;
            }
            // The agent of the process that put it has told it already if the space is full.
            let _ = self.space.put(key.clone(), value.clone());
        }
    }

    pub(super) fn appnum(&self, rank: u32) -> i32 {
        let mut end = 0;
        for (appnum, segment) in (0..).zip(&self.options.segments) {
            end += segment;
            if rank < end {
                return appnum;
            }
        }
        0
    }

    /// The value that the process manager itself gives for a key.
    pub(super) fn attribute(&self, key: &[u8], form: Form) -> Option<BString> {
        match key {
            b"PMI_process_mapping" => {
                // "if it cannot fit, answer not found": the client then finds out by itself. Half of one would be
                // wrong.
                let mapping = self.options.mapping.to_string();
                let size_max = match form {
                    Form::Frame => KeyValueSpace::VALUE_SIZE_MAX,
                    Form::Block | Form::Line => LINE_VALUE_SIZE_MAX,
                };
                (mapping.len() <= size_max).then(|| mapping.into())
            }
            b"PMI_dead_processes" => Some(self.dead_processes()),
            _ => {
                let mut attributes = self.options.attributes.iter();
                attributes
                    .find(|(found, _)| found == key)
                    .map(|(_, value)| value.clone())
            }
        }
    }

    /// Returns true if a key is the process manager's own.
    pub(super) fn is_served(&self, key: &[u8]) -> bool {
        key == b"PMI_process_mapping"
            || key == b"PMI_dead_processes"
            || self.options.attributes.iter().any(|(found, _)| found == key)
    }

    /// As many as fit into a value of any form: a client that asks wants to know whether there are any.
    fn dead_processes(&self) -> BString {
        let mut list = String::new();
        for rank in self.dead.iter() {
            let separator = if list.is_empty() { "" } else { "," };
            let next = format!("{separator}{rank}");
            if list.len() + next.len() > LINE_VALUE_SIZE_MAX {
                break;
            }
            list.push_str(&next);
        }
        list.into()
    }
}
