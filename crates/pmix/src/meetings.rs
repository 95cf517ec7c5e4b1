//! Connections and fences of processes of several groups.
//!
//! The members of each group meet in a fence of their own. Then the host of the first member of a group publishes a
//! sign, and every host waits for the signs of all groups.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_launch_core::pmix::Process;

use crate::{
    known::Known,
    sys::{
        replies::{ModexReply, OpReply},
        types::{Status, status},
    },
};

/// Who waits for a meeting.
pub(crate) enum MeetingReply {
    /// Processes that connect or disconnect.
    Op(OpReply),
    /// Processes of several groups in a fence, with the data of those groups that have members here: what members of
    /// the others have put is asked for when it is wanted.
    Fence(ModexReply, Vec<u8>),
}

impl MeetingReply {
    pub(crate) fn send(self, status: Status) {
        match self {
            Self::Op(reply) => reply.send(status),
            Self::Fence(reply, data) => reply.send(status, data),
        }
    }
}

/// A connection that is being made or ended.
pub(crate) struct Meeting {
    tag: String,
    /// The members of each group.
    groups: BTreeMap<String, Vec<Process>>,
    /// The groups with members here, and a member of each that is here; with `true` if it is the first of all.
    own: BTreeMap<String, (u32, bool)>,
    /// How many of them have not met yet.
    left: usize,
    failed: Option<Status>,
    pub(crate) reply: MeetingReply,
}

/// The names by which groups tell each other that they have met.
#[derive(Debug)]
pub(crate) struct Signs {
    /// A member here.
    pub(crate) from: Process,
    /// Those that this host publishes.
    pub(crate) own: Vec<String>,
    /// Those of all groups.
    pub(crate) expected: Vec<String>,
}

impl Meeting {
    pub(crate) fn new(
        kind: &str,
        members: Vec<Process>,
        known: &BTreeMap<String, Known>,
        reply: MeetingReply,
    ) -> Self {
        let sorted: BTreeSet<_> = members.into_iter().collect();
        let tag = format!("{kind}-{:016x}", hash(&sorted));
        let mut groups: BTreeMap<String, Vec<Process>> = BTreeMap::new();
        for member in sorted {
            groups.entry(member.namespace.clone()).or_default().push(member);
        }
        let own = groups.iter().filter_map(|(name, members)| {
            let local = known.get(name)?.namespace.local_ranks();
            let has_all = members.iter().any(|member| member.rank.is_none());
            let is_member = |rank: &&u32| has_all || members.iter().any(|member| member.rank == Some(**rank));
            let member = local.iter().find(is_member)?;
            let first = match has_all {
                true => Some(0),
                false => members.iter().filter_map(|member| member.rank).min(),
            };
            Some((name.clone(), (*member, first == Some(*member))))
        });
        let own: BTreeMap<_, _> = own.collect();
        Self {
            tag,
            left: own.len(),
            own,
            groups,
            failed: None,
            reply,
        }
    }

    /// The word that all hosts have for these members.
    pub(crate) fn tag(&self) -> String {
        self.tag.clone()
    }

    /// The members of each group that has some here.
    pub(crate) fn parts(&self) -> Vec<Vec<Process>> {
        let parts = self.own.keys().filter_map(|name| self.groups.get(name).cloned());
        parts.collect()
    }

    /// One group has met, with data, or cannot. Returns true if it was the last.
    pub(crate) fn is_whole(&mut self, found: Status, data: &[u8]) -> bool {
        if let MeetingReply::Fence(_, all) = &mut self.reply {
            all.extend_from_slice(data);
        }
        if found != status::SUCCESS {
            self.failed.get_or_insert(found);
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// The signs for the meeting of these members with this number.
    ///
    /// # Errors
    /// If a group could not meet.
    pub(crate) fn signs(&self, number: u64) -> Result<Signs, Status> {
        let name = |group: &str| format!("meeting{}-{number}-{group}", self.tag);
        let first = self.own.iter().next();
        let (Some((namespace, (rank, _))), None) = (first, self.failed) else {
            return Err(self.failed.unwrap_or(status::ERROR));
        };
        let own = self.own.iter().filter(|(_, (_, is_first))| *is_first);
        Ok(Signs {
            from: Process {
                namespace: namespace.clone(),
                rank: Some(*rank),
            },
            own: own.map(|(group, _)| name(group)).collect(),
            expected: self.groups.keys().map(|group| name(group)).collect(),
        })
    }
}

/// FNV-1a, which every host computes alike.
fn hash(members: &BTreeSet<Process>) -> u64 {
    let text = members
        .iter()
        .map(|member| format!("{}/{:?} ", member.namespace, member.rank));
    let bytes: Vec<u8> = text.flat_map(String::into_bytes).collect();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
