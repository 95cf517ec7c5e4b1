//! Processes that speak another protocol than PMI, such as PMIx: a bridge takes their part in fences and asks for
//! them.

use bstr::BString;

use super::{
    Absence, Action, Answer, FenceId, FenceScope, GroupId, Process, Question, Server,
    fences::Failure,
    group::{Group, Phase},
    questions::Asker,
    waiter::FenceWaiter,
};
use crate::{KeyValueSpace, RankSet};

/// The number by which a bridge knows what it waits for. The bridge chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BridgeToken(pub u64);

/// How a fence ended for a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgedFence {
    /// All came; the data of all hosts, one after the other.
    Complete(Vec<u8>),
    /// This rank will never come.
    Gone(u32),
    /// The agent above is gone.
    Lost,
    /// The data of all hosts is more than [`KeyValueSpace::SIZE_MAX`].
    TooLarge,
}

/// Keys of data begin with it. No client can put such a key: none has a zero byte.
const DATA: &[u8] = b"\0data\0";
/// A piece of data in one message of the tree.
const PIECE_SIZE_MAX: usize = 512 << 10;

impl Server {
    /// A process here has begun to speak through a bridge. Its own connection, if it has one, counts no more.
    pub fn begin_bridged(&mut self, process: Process) {
        if let Some(connection) = self.connections.of(process) {
            self.connections.forget(connection);
        }
        self.come_back(process);
        self.set_phase(process, Phase::Initialized);
        self.resume();
    }

    /// A process that speaks through a bridge has ended that.
    pub fn finalize_bridged(&mut self, process: Process) {
        self.set_phase(process, Phase::Finalized);
        self.depart(
            process.group,
            &RankSet::range(process.rank, process.rank + 1),
            Absence::Closed,
        );
        self.resume();
    }

    /// Processes of a group come to a fence through a bridge, all that take part of this host, with data for all. Its
    /// end is [`Action::BridgedFenceEnded`].
    pub fn enter_bridged(&mut self, token: BridgeToken, id: GroupId, fence: FenceId, data: &[u8]) {
        let Some(group) = self.groups.get_mut(&id) else {
            return self.end_bridged(token, BridgedFence::Lost);
        };
        let members = match &fence.scope {
            FenceScope::Ranks(ranks) => ranks.intersection(&group.options.local),
            FenceScope::Node | FenceScope::World => group.options.local.clone(),
        };
        let present: Vec<_> = members.iter().filter(|rank| !group.is_absent(*rank)).collect();
        let Some(&first) = present.first() else {
            let gone = members.first().unwrap_or_default();
            return self.end_bridged(token, BridgedFence::Gone(gone));
        };
        if !group.put_data(&fence, first, data) {
            return self.end_bridged(token, BridgedFence::TooLarge);
        }
        for rank in present {
            group.fences.enter(&fence, rank, FenceWaiter::Bridge(token));
        }
        self.settle(id, &fence);
        self.resume();
    }

    /// Asks the root for a process that speaks through a bridge. The answer is [`Action::BridgedAnswer`].
    pub fn ask_bridged(&mut self, token: BridgeToken, question: Question) {
        self.ask(question, Asker::Bridge(token));
        self.resume();
    }

    pub(super) fn answer_bridge(&mut self, token: BridgeToken, answer: Answer) {
        self.outbox.push(Action::BridgedAnswer { token, answer });
    }

    /// A fence is over: who waited in it through a bridge gets the data of all.
    pub(super) fn end_bridged_fence(
        &mut self,
        id: GroupId,
        fence: &FenceId,
        mut tokens: Vec<BridgeToken>,
        failure: Option<Failure>,
    ) {
        let data = self.groups.get_mut(&id).map(|group| group.take_data(fence));
        tokens.dedup();
        for token in tokens {
            let end = match failure {
                Some(Failure::Gone(rank)) => BridgedFence::Gone(rank),
                Some(Failure::Lost) => BridgedFence::Lost,
                None => match &data {
                    Some(Some(data)) => BridgedFence::Complete(data.clone()),
                    _ => BridgedFence::TooLarge,
                },
            };
            self.end_bridged(token, end);
        }
    }

    fn end_bridged(&mut self, token: BridgeToken, end: BridgedFence) {
        self.outbox.push(Action::BridgedFenceEnded { token, end });
    }

    /// Returns true if any process of a group here has said anything, by PMI or through a bridge.
    pub fn has_spoken(&self, process: Process) -> bool {
        self.phase(process) != Phase::Silent
    }
}

impl Group {
    /// Keeps a host's data for a fence, in pieces, until the fence takes them up. Returns whether there was room.
    fn put_data(&mut self, fence: &FenceId, first: u32, data: &[u8]) -> bool {
        let room = KeyValueSpace::SIZE_MAX.saturating_sub(self.unsent_size);
        let pieces: Vec<_> = data.chunks(PIECE_SIZE_MAX).collect();
        let prefix = data_prefix(fence);
        let count = pieces.len();
        if data.len() + count * (prefix.len() + 32) > room {
            return false;
        }
        let pairs = pieces.into_iter().enumerate().map(|(index, piece)| {
            let number = format!("{first:010}/{index:06}/{count:06}");
            (bstr::concat([&prefix, number.as_bytes()]).into(), piece.into())
        });
        let pairs = pairs.collect();
        self.collect(pairs);
        true
    }

    /// Keeps a piece of data until its fence is over. Returns whether it was one.
    pub(super) fn take_in(&mut self, key: &BString, value: &BString) -> bool {
        let is_data = key.starts_with(DATA);
        if is_data {
            self.data.insert(key.clone(), value.clone());
        }
        is_data
    }

    /// The data of all hosts for a fence, which is forgotten; `None` if a piece is missing.
    fn take_data(&mut self, fence: &FenceId) -> Option<Vec<u8>> {
        let prefix = data_prefix(fence);
        let mut rest = self.data.split_off(&prefix);
        let behind = rest.keys().find(|key| !key.starts_with(&prefix)).cloned();
        if let Some(behind) = behind {
            self.data.append(&mut rest.split_off(&behind));
        }
        let mut data = Vec::new();
        let mut expected = 0;
        for (key, value) in rest {
            let number = std::str::from_utf8(&key[prefix.len()..]).ok()?;
            let mut parts = number.split('/').skip(1).map(str::parse::<usize>);
            let (Some(Ok(index)), Some(Ok(count))) = (parts.next(), parts.next()) else {
                return None;
            };
            if index != expected {
                return None;
            }
            expected = if index + 1 == count { 0 } else { index + 1 };
            data.extend_from_slice(&value);
        }
        (expected == 0).then_some(data)
    }
}

fn data_prefix(fence: &FenceId) -> BString {
    bstr::concat([DATA, fence.to_string().as_bytes(), b"\0"]).into()
}
