//! Ranks that speak PMIx: the agent's side of the PMIx server of its host.

use std::collections::{BTreeMap, VecDeque};

use bstr::BString;
use ropewalk_names::Rank;
use ropewalk_pmi as pmi;

use super::HostAgent;
use crate::{
    pmix::{FenceEnd, FromHelper, ModexAsker, Namespace, PARENT_KEY, Process, ToHelper, Wish},
    protocol::Report,
};

/// The PMIx server of the host, as its agent knows it.
#[derive(Debug, Default)]
pub(super) struct Pmix {
    state: State,
    /// The process groups that it was told of, by their names.
    namespaces: BTreeMap<String, Known>,
    /// How many of them it has not answered yet.
    registering: usize,
    /// Messages for it.
    messages: VecDeque<ToHelper>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is none.
    #[default]
    None,
    /// It starts, or serves.
    Serving,
    /// It is gone, and was not to go.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    group: pmi::GroupId,
    first: Rank,
    size: u32,
}

impl Pmix {
    /// Ranks are not to be started before it can say what belongs into their environment.
    pub(super) fn holds_back(&self) -> bool {
        self.state == State::Serving && self.registering > 0
    }
}

/// Names of PMIx are not those of PMI: what is published under them has another form.
const NAME_PREFIX: &str = "pmix:";
/// The word of fences that PMI does not use.
const FENCE_TAG: &str = "pmix";

impl HostAgent {
    /// There is a PMIx server on this host from now on, which is to serve this process group. Its ranks are started
    /// when it has answered.
    pub fn register_namespace(&mut self, namespace: Namespace) {
        self.pmix.state = State::Serving;
        self.pmix.registering += 1;
        let known = Known {
            group: pmi::GroupId(namespace.group),
            first: Rank(namespace.offset),
            size: namespace.size,
        };
        self.pmix.namespaces.insert(namespace.name.clone(), known);
        self.tell_helper(ToHelper::Register(Box::new(namespace)));
    }

    /// The next that the PMIx server is to be told. Ask after each call, as for actions.
    pub fn poll_helper(&mut self) -> Option<ToHelper> {
        self.pmix.messages.pop_front()
    }

    /// The PMIx server says something.
    pub fn handle_helper(&mut self, message: FromHelper) {
        match message {
            FromHelper::Ready { .. } => {}
            // Nobody is served by it: the driver says if that is to be told.
            FromHelper::Failed { .. } => self.pmix = Pmix::default(),
            FromHelper::Registered { .. } => {
                self.pmix.registering = self.pmix.registering.saturating_sub(1);
            }
            FromHelper::Connected(process) => {
                if let Some(process) = self.pmi_process(&process) {
                    self.pmi.begin_bridged(process);
                }
            }
            FromHelper::Finalized(process) => {
                if let Some(process) = self.pmi_process(&process) {
                    self.pmi.finalize_bridged(process);
                }
            }
            FromHelper::Aborted {
                process,
                exit_code,
                message,
            } => self.handle_pmix_abort(&process, exit_code, message),
            FromHelper::Fence {
                token,
                members,
                tag,
                data,
            } => self.enter_pmix_fence(token, &members, &tag, &data),
            FromHelper::Ask { token, from, wish } => self.handle_wish(token, &from, wish),
            FromHelper::Modex { token, process } => match self.job_rank_of(&process) {
                Some(rank) => self.report(Report::ModexWanted { token, rank }),
                None => self.tell_helper(ToHelper::ModexAnswered { token, data: None }),
            },
            FromHelper::ModexFound { asker, data } => self.report(Report::ModexFound { asker, data }),
        }
        self.forward_pmi();
        self.tell_whether_ranks_may_hang();
    }

    /// The PMIx server is gone. Returns a rank that was served by it, if there is one: it cannot go on.
    pub fn handle_helper_lost(&mut self) -> Option<Rank> {
        let was_serving = self.pmix.state == State::Serving;
        self.pmix.state = State::Lost;
        self.pmix.registering = 0;
        (was_serving && !self.lives.is_ending && !self.lives.swept)
            .then(|| self.lives.running.first().copied())
            .flatten()
    }

    /// Returns true if a rank has said anything by PMI or PMIx.
    pub fn has_spoken(&self, rank: Rank) -> bool {
        self.pmi.has_spoken(self.groups.process(rank))
    }

    /// A rank of another host wants what one of this host has put.
    pub fn handle_modex_wanted(&mut self, asker: ModexAsker, rank: Rank) {
        let process = self.pmix_process(rank);
        match process {
            Some(process) if self.pmix.state == State::Serving => {
                self.tell_helper(ToHelper::ModexWanted { asker, process });
            }
            _ => self.report(Report::ModexFound { asker, data: None }),
        }
    }

    /// The data of a rank of another host has come.
    pub fn handle_modex_found(&mut self, token: u64, data: Option<Vec<u8>>) {
        self.tell_helper(ToHelper::ModexAnswered { token, data });
    }

    /// Nothing is left of a process group anywhere.
    pub(super) fn forget_namespace(&mut self, id: pmi::GroupId) {
        let known = self.pmix.namespaces.iter().find(|(_, known)| known.group == id);
        if let Some(name) = known.map(|(name, _)| name.clone()) {
            self.pmix.namespaces.remove(&name);
            self.tell_helper(ToHelper::Forget(name));
        }
    }

    /// A rank failed: those that asked for it hear of it.
    pub(super) fn tell_helper_of_departure(&mut self, rank: Rank) {
        if let Some(process) = self.pmix_process(rank) {
            self.tell_helper(ToHelper::Departed(process));
        }
    }

    pub(super) fn handle_bridged_fence(&mut self, token: pmi::BridgeToken, end: pmi::BridgedFence) {
        let end = match end {
            pmi::BridgedFence::Complete(data) => FenceEnd::Complete(data),
            pmi::BridgedFence::Gone(_) => FenceEnd::Gone,
            pmi::BridgedFence::Lost => FenceEnd::Lost,
            pmi::BridgedFence::TooLarge => FenceEnd::TooLarge,
        };
        let token = token.0;
        self.tell_helper(ToHelper::FenceEnded { token, end });
    }

    pub(super) fn handle_bridged_answer(&mut self, token: pmi::BridgeToken, answer: pmi::Answer) {
        let token = token.0;
        self.tell_helper(ToHelper::Answered { token, answer });
    }

    fn handle_pmix_abort(&mut self, process: &Process, exit_code: i32, message: String) {
        let Some(rank) = self.job_rank_of(process) else {
            return;
        };
        if !std::mem::replace(&mut self.reported.abort, true) {
            self.report(Report::Aborted {
                rank,
                exit_code,
                message,
            });
        }
    }

    fn enter_pmix_fence(&mut self, token: u64, members: &[Process], tag: &str, data: &[u8]) {
        match self.pmix.fence(members, tag) {
            Some((group, fence)) => {
                self.pmi
                    .enter_bridged(pmi::BridgeToken(token), group, fence, data);
            }
            None => {
                let end = FenceEnd::Unknown;
                self.tell_helper(ToHelper::FenceEnded { token, end });
            }
        }
    }

    fn handle_wish(&mut self, token: u64, from: &Process, wish: Wish) {
        let Some(from) = self.pmi_process(from) else {
            let answer = pmi::Answer::Lost;
            return self.tell_helper(ToHelper::Answered { token, answer });
        };
        let service = |name: String| BString::from(format!("{NAME_PREFIX}{name}"));
        let question = match wish {
            Wish::Lookup { name } => pmi::Question::Lookup {
                service: service(name),
            },
            Wish::Publish { name, value } => pmi::Question::Publish {
                service: service(name),
                port: value.into(),
            },
            Wish::Spawn(mut spawn) => {
                let parent = (PARENT_KEY.into(), from.rank.to_string().into());
                spawn.preput.push(parent);
                pmi::Question::Spawn { from, spawn }
            }
            Wish::Unpublish { name } => pmi::Question::Unpublish {
                service: service(name),
            },
        };
        self.pmi.ask_bridged(pmi::BridgeToken(token), question);
    }

    fn pmi_process(&self, process: &Process) -> Option<pmi::Process> {
        let known = self.pmix.namespaces.get(&process.namespace)?;
        let rank = process.rank.filter(|rank| *rank < known.size)?;
        let group = known.group;
        Some(pmi::Process { group, rank })
    }

    fn job_rank_of(&self, process: &Process) -> Option<Rank> {
        let known = self.pmix.namespaces.get(&process.namespace)?;
        let rank = process.rank.filter(|rank| *rank < known.size)?;
        Some(Rank(known.first.0 + rank))
    }

    fn pmix_process(&self, rank: Rank) -> Option<Process> {
        let has = |known: &Known| (known.first.0..known.first.0 + known.size).contains(&rank.0);
        let (name, known) = self.pmix.namespaces.iter().find(|(_, known)| has(known))?;
        Some(Process {
            namespace: name.clone(),
            rank: Some(rank.0 - known.first.0),
        })
    }

    fn tell_helper(&mut self, message: ToHelper) {
        if self.pmix.state == State::Serving {
            self.pmix.messages.push_back(message);
        }
    }
}

impl Pmix {
    /// Which fence of which group has these members; `None` if they are of several groups.
    fn fence(&self, members: &[Process], tag: &str) -> Option<(pmi::GroupId, pmi::FenceId)> {
        let first = members.first()?;
        let known = self.namespaces.get(&first.namespace)?;
        if members.iter().any(|member| member.namespace != first.namespace) {
            return None;
        }
        let all = pmi::RankSet::range(0, known.size);
        let is_all = members.iter().any(|member| member.rank.is_none());
        let ranks: pmi::RankSet = members.iter().filter_map(|member| member.rank).collect();
        if !ranks.is_subset(&all) {
            return None;
        }
        let scope = match is_all || ranks == all {
            true => pmi::FenceScope::World,
            false => pmi::FenceScope::Ranks(ranks),
        };
        let tag = format!("{FENCE_TAG}{tag}").into();
        Some((known.group, pmi::FenceId { scope, tag }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(namespace: &str, rank: Option<u32>) -> Process {
        Process {
            namespace: namespace.to_owned(),
            rank,
        }
    }

    /// A fence of all is the same whether its members are counted or not; one of several groups is none.
    #[test]
    fn fences_are_known_by_their_members() {
        let mut pmix = Pmix::default();
        for (name, id) in [("a", 0), ("b", 1)] {
            let known = Known {
                group: pmi::GroupId(id),
                first: Rank(id * 2),
                size: 2,
            };
            pmix.namespaces.insert(name.to_owned(), known);
        }
        let scope = |members: &[Process]| {
            pmix.fence(members, "")
                .map(|(group, fence)| (group.0, fence.scope))
        };
        let world = Some((1, pmi::FenceScope::World));
        assert_eq!(scope(&[process("b", None)]), world);
        assert_eq!(scope(&[process("b", Some(1)), process("b", Some(0))]), world);
        let one = pmi::RankSet::range(1, 2);
        assert_eq!(
            scope(&[process("a", Some(1))]),
            Some((0, pmi::FenceScope::Ranks(one)))
        );
        for members in [
            vec![],
            vec![process("a", Some(2))],
            vec![process("c", None)],
            vec![process("a", None), process("b", None)],
        ] {
            assert_eq!(scope(&members), None, "{members:?}");
        }
    }
}
