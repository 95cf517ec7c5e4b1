//! How far a process got.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    FenceId,
    group::{Group, Phase},
};

/// How far a process got with PMI, as its server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Stage {
    /// It has finalized.
    Finalized,
    /// It waits in a fence.
    InFence(FenceId),
    /// It has begun, and not finalized.
    Initialized,
    /// It has not begun, while others of its group on this host have.
    Silent,
}

impl Stage {
    /// How far a process of a group got; `None` if none of the group has begun here.
    pub(super) fn of(group: &Group, rank: u32) -> Option<Self> {
        match group.phase(rank) {
            Phase::Finalized => Some(Self::Finalized),
            Phase::Initialized => Some(match group.fences.of(rank) {
                Some(fence) => Self::InFence(fence.clone()),
                None => Self::Initialized,
            }),
            Phase::Silent => {
                let mut phases = group.phases.values();
                phases
                    .any(|phase| *phase != Phase::Silent)
                    .then_some(Self::Silent)
            }
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finalized => f.write_str("after PMI_Finalize"),
            Self::InFence(fence) => {
                // Programs name fences, and ranks may be many.
                let name = fence.to_string();
                let shown: String = name.escape_debug().take(FENCE_NAME_SHOWN_MAX).collect();
                let more = if shown.len() < name.len() { ".." } else { "" };
                write!(f, "in fence {shown}{more}")
            }
            Self::Initialized => f.write_str("between PMI_Init and PMI_Finalize"),
            Self::Silent => f.write_str("before PMI_Init"),
        }
    }
}

const FENCE_NAME_SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::{
        super::{ConnectionId, GroupId, GroupOptions, Peer, Process, Server},
        *,
    };

    /// A process is before, in the middle, in a fence, and behind; nobody is anywhere if nobody has begun.
    #[test]
    fn stages_follow_the_process() {
        let group = GroupId(0);
        let mut server = Server::root();
        server.add_group(GroupOptions::one_host(group, "kvs", 2));
        for rank in 0..2 {
            let process = Process { group, rank };
            server.open(ConnectionId(rank.into()), Peer::Process(process));
        }
        let (first, second) = (Process { group, rank: 0 }, Process { group, rank: 1 });
        assert_eq!(server.stage(first), None);
        let mut say = |words: &str| {
            server.handle_bytes(ConnectionId(0), words.as_bytes());
            (server.stage(first), server.stage(second))
        };
        let begun = say("cmd=init pmi_version=1 pmi_subversion=1\n");
        assert_eq!(begun, (Some(Stage::Initialized), Some(Stage::Silent)));
        let (waits, _) = say("cmd=barrier_in\n");
        assert_eq!(waits, Some(Stage::InFence(FenceId::WORLD)));
        assert_eq!(waits.unwrap().to_string(), "in fence WORLD");
    }

    /// The name that a program gives a fence can neither change the terminal nor fill it.
    #[test]
    fn names_of_fences_are_bounded() {
        let fence = FenceId {
            tag: vec![b'\x1b'; 1000].into(),
            ..FenceId::WORLD
        };
        let text = Stage::InFence(fence).to_string();
        assert!(text.starts_with(r"in fence WORLD:\u{1b}"), "{text}");
        assert!(text.ends_with("..") && text.len() < 60, "{text}");
    }
}
