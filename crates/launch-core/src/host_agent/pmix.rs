//! Ranks that speak PMIx: the agent's side of the PMIx server of its host.

mod contexts;

use std::collections::{BTreeMap, VecDeque};

use bstr::BString;
use ropewalk_names::Rank;
use ropewalk_pmi as pmi;

use crate::{
    pmix::{
        FenceEnd, FromHelper, ModexAsker, Namespace, PARENT_KEY, Process, RunningProcesses, ToHelper, Wish,
    },
    protocol::Report,
};
use contexts::Contexts;

/// The PMIx server of the host, as its agent knows it.
#[derive(Debug, Default)]
pub(super) struct Pmix {
    state: State,
    /// The process groups that it was told of, by their names.
    namespaces: BTreeMap<String, Known>,
    /// How many of them it has not answered yet.
    registering: usize,
    /// The texts of processes that have gone up; the processes wait until output is taken.
    logs: Vec<u64>,
    /// If a process has connected: from then on its processes hear of losses on other hosts.
    has_connected: bool,
    /// The groups that its processes construct.
    contexts: Contexts,
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

/// Names of PMIx are not those of PMI: what is published under them has another form.
const NAME_PREFIX: &str = "pmix:";
/// The word of fences that PMI does not use.
const FENCE_TAG: &str = "pmix";

impl Pmix {
    /// There is a PMIx server from now on, which is to serve this process group.
    pub(super) fn register(&mut self, namespace: Namespace) {
        self.state = State::Serving;
        self.registering += 1;
        if let Some(own) = namespace.own_node {
            self.contexts.host = namespace.nodes[own].id;
        }
        let known = Known {
            group: pmi::GroupId(namespace.group),
            first: Rank(namespace.offset),
            size: namespace.size,
        };
        self.namespaces.insert(namespace.name.clone(), known);
        self.tell(ToHelper::Register(Box::new(namespace)));
    }

    /// Ranks are not to be started before the server can say what belongs into their environment.
    pub(super) fn holds_back(&self) -> bool {
        self.state == State::Serving && self.registering > 0
    }

    /// The next that the server is to be told.
    pub(super) fn poll(&mut self) -> Option<ToHelper> {
        self.messages.pop_front()
    }

    /// The server says something, which the host's PMI server may have to know. Returns what the launcher is to hear.
    pub(super) fn handle(&mut self, message: FromHelper, pmi: &mut pmi::Server) -> Option<Report> {
        match message {
            FromHelper::Ready { .. } => {}
            // Nobody is served by it: the driver says if that is to be told.
            FromHelper::Failed { .. } => *self = Self::default(),
            FromHelper::Registered { .. } => self.registering = self.registering.saturating_sub(1),
            FromHelper::Connected(process) => {
                if let Some(process) = self.pmi_process(&process) {
                    pmi.begin_bridged(process);
                }
                if !std::mem::replace(&mut self.has_connected, true) {
                    return Some(Report::Attached);
                }
            }
            FromHelper::Finalized(process) => {
                if let Some(process) = self.pmi_process(&process) {
                    pmi.finalize_bridged(process);
                }
            }
            FromHelper::Aborted {
                process,
                exit_code,
                message,
            } => {
                return Some(Report::Aborted {
                    rank: self.job_rank_of(&process)?,
                    exit_code,
                    message,
                });
            }
            FromHelper::Fence {
                token,
                members,
                tag,
                data,
                constructs_group,
            } => match self.fence(&members, &tag) {
                Some((group, fence)) => {
                    let data = match constructs_group {
                        true => self.contexts.propose(token, data),
                        false => data,
                    };
                    pmi.enter_bridged(pmi::BridgeToken(token), group, fence, &data);
                }
                None => {
                    let end = FenceEnd::Unknown;
                    self.tell(ToHelper::FenceEnded { token, end });
                }
            },
            FromHelper::Ask { token, from, wish } => match self.pmi_process(&from) {
                Some(from) => pmi.ask_bridged(pmi::BridgeToken(token), question(from, wish)),
                None => {
                    let answer = pmi::Answer::Lost;
                    self.tell(ToHelper::Answered { token, answer });
                }
            },
            FromHelper::Refresh {
                token,
                all_hosts: true,
            } => return Some(Report::ProcessesWanted { token }),
            FromHelper::Refresh { token, .. } => {
                let running = RunningProcesses::new();
                self.tell(ToHelper::Refreshed { token, running });
            }
            FromHelper::Log {
                token,
                from,
                stream,
                lines,
            } => {
                self.logs.push(token);
                let rank = self.job_rank_of(&from)?;
                return Some(Report::Output { rank, stream, lines });
            }
            FromHelper::Modex { token, process } => match self.job_rank_of(&process) {
                Some(rank) => return Some(Report::ModexWanted { token, rank }),
                None => self.tell(ToHelper::ModexAnswered { token, data: None }),
            },
            FromHelper::ModexFound { asker, data } => return Some(Report::ModexFound { asker, data }),
        }
        None
    }

    /// Output of this host is taken: processes whose texts have gone up go on.
    pub(super) fn release_logs(&mut self) {
        for token in std::mem::take(&mut self.logs) {
            self.tell(ToHelper::Logged { token });
        }
    }

    /// The server is gone. Returns true if it served ranks.
    pub(super) fn handle_lost(&mut self) -> bool {
        let was_serving = self.state == State::Serving;
        self.state = State::Lost;
        self.registering = 0;
        was_serving
    }

    /// A rank of another host wants what one of this host has put. Returns the answer if there is nobody to ask.
    pub(super) fn handle_modex_wanted(&mut self, asker: ModexAsker, rank: Rank) -> Option<Report> {
        match self.process(rank) {
            Some(process) if self.state == State::Serving => {
                self.tell(ToHelper::ModexWanted { asker, process });
                None
            }
            _ => Some(Report::ModexFound { asker, data: None }),
        }
    }

    /// The data of a rank of another host has come.
    pub(super) fn handle_modex_found(&mut self, token: u64, data: Option<Vec<u8>>) {
        self.tell(ToHelper::ModexAnswered { token, data });
    }

    /// The processes of all hosts that run have come.
    pub(super) fn handle_processes(&mut self, token: u64, running: &[(Rank, u32)]) {
        let mut groups = RunningProcesses::new();
        for (name, known) in &self.namespaces {
            let of_group = running.iter().filter_map(|(rank, pid)| {
                let rank = rank.0.checked_sub(known.first.0)?;
                (rank < known.size).then_some((rank, *pid))
            });
            groups.insert(name.clone(), of_group.collect());
        }
        let running = groups;
        self.tell(ToHelper::Refreshed { token, running });
    }

    /// Nothing is left of a process group anywhere.
    pub(super) fn forget(&mut self, id: pmi::GroupId) {
        let known = self.namespaces.iter().find(|(_, known)| known.group == id);
        if let Some(name) = known.map(|(name, _)| name.clone()) {
            self.namespaces.remove(&name);
            self.tell(ToHelper::Forget(name));
        }
    }

    /// A rank of this host runs, with this number, or has ended.
    pub(super) fn handle_life(&mut self, rank: Rank, pid: Option<u32>) {
        if let Some(process) = self.process(rank) {
            self.tell(ToHelper::Lives { process, pid });
        }
    }

    /// A rank of any host failed: the processes here that registered for it hear of it.
    pub(super) fn handle_departure(&mut self, rank: Rank) {
        if let Some(process) = self.process(rank) {
            self.tell(ToHelper::Departed(process));
        }
    }

    /// A fence is over that ranks entered through the server.
    pub(super) fn handle_fence(&mut self, token: pmi::BridgeToken, end: pmi::BridgedFence) {
        let token = token.0;
        let end = match end {
            pmi::BridgedFence::Complete(data) => match self.contexts.decide(token, data) {
                Some((data, context)) => FenceEnd::Complete { data, context },
                None => FenceEnd::Lost,
            },
            pmi::BridgedFence::Gone(_) => FenceEnd::Gone,
            pmi::BridgedFence::Lost => FenceEnd::Lost,
            pmi::BridgedFence::TooLarge => FenceEnd::TooLarge,
        };
        self.contexts.forget(token);
        self.tell(ToHelper::FenceEnded { token, end });
    }

    /// The root has answered a question that the server had asked.
    pub(super) fn handle_answer(&mut self, token: pmi::BridgeToken, answer: pmi::Answer) {
        let token = token.0;
        self.tell(ToHelper::Answered { token, answer });
    }

    fn tell(&mut self, message: ToHelper) {
        if self.state == State::Serving {
            self.messages.push_back(message);
        }
    }

    fn pmi_process(&self, process: &Process) -> Option<pmi::Process> {
        let known = self.namespaces.get(&process.namespace)?;
        let rank = process.rank.filter(|rank| *rank < known.size)?;
        let group = known.group;
        Some(pmi::Process { group, rank })
    }

    fn job_rank_of(&self, process: &Process) -> Option<Rank> {
        let known = self.namespaces.get(&process.namespace)?;
        let rank = process.rank.filter(|rank| *rank < known.size)?;
        Some(Rank(known.first.0 + rank))
    }

    fn process(&self, rank: Rank) -> Option<Process> {
        let has = |known: &Known| (known.first.0..known.first.0 + known.size).contains(&rank.0);
        let (name, known) = self.namespaces.iter().find(|(_, known)| has(known))?;
        Some(Process {
            namespace: name.clone(),
            rank: Some(rank.0 - known.first.0),
        })
    }

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

/// The question for the root by which a process gets its wish.
fn question(from: pmi::Process, wish: Wish) -> pmi::Question {
    let service = |name: String| BString::from(format!("{NAME_PREFIX}{name}"));
    match wish {
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

    /// A server of two process groups, with two ranks each.
    fn serving() -> Pmix {
        let mut pmix = Pmix {
            state: State::Serving,
            ..Pmix::default()
        };
        for (name, id) in [("a", 0), ("b", 1)] {
            let known = Known {
                group: pmi::GroupId(id),
                first: Rank(id * 2),
                size: 2,
            };
            pmix.namespaces.insert(name.to_owned(), known);
        }
        pmix
    }

    /// A text that a process logs goes up as its output, and the process waits until output is taken.
    #[test]
    fn logs_wait_for_output_to_be_taken() {
        let mut pmix = serving();
        let (stream, lines) = (crate::OutputStream::Stdout, b"text\n".to_vec());
        let log = FromHelper::Log {
            token: 7,
            from: process("b", Some(1)),
            stream,
            lines: lines.clone(),
        };
        let report = pmix.handle(log, &mut pmi::Server::root());
        let Some(Report::Output {
            rank,
            stream: on,
            lines: said,
        }) = report
        else {
            panic!("{report:?} is no output");
        };
        assert_eq!((rank, on, said), (Rank(3), stream, lines));
        assert_eq!(pmix.poll(), None);
        pmix.release_logs();
        assert_eq!(pmix.poll(), Some(ToHelper::Logged { token: 7 }));
        pmix.release_logs();
        assert_eq!(pmix.poll(), None, "once");
    }

    /// A question about the processes of all hosts goes up, and its answer has them by group; others are answered here.
    #[test]
    fn processes_of_all_hosts_are_asked_for() {
        let (mut pmix, mut pmi) = (serving(), pmi::Server::root());
        let mut refresh = |all_hosts| pmix.handle(FromHelper::Refresh { token: 7, all_hosts }, &mut pmi);
        assert!(refresh(false).is_none());
        assert!(matches!(
            refresh(true),
            Some(Report::ProcessesWanted { token: 7 })
        ));
        pmix.handle_processes(7, &[(Rank(1), 11), (Rank(2), 12), (Rank(9), 19)]);
        let answered = |running| Some(ToHelper::Refreshed { token: 7, running });
        assert_eq!(pmix.poll(), answered(RunningProcesses::new()));
        let groups = [("a", 1, 11), ("b", 0, 12)];
        let running = groups.map(|(name, rank, pid)| (name.to_owned(), BTreeMap::from([(rank, pid)])));
        assert_eq!(pmix.poll(), answered(RunningProcesses::from(running)));
    }

    /// The launcher hears once that somebody here wants to hear of losses, and a lost rank of any host is told.
    #[test]
    fn losses_are_told_to_those_who_connected() {
        let (mut pmix, mut pmi) = (serving(), pmi::Server::root());
        let mut connect = |rank| {
            let connected = FromHelper::Connected(process("a", Some(rank)));
            pmix.handle(connected, &mut pmi)
        };
        assert!(matches!(connect(0), Some(Report::Attached)));
        assert!(connect(1).is_none());
        pmix.handle_departure(Rank(3));
        assert_eq!(pmix.poll(), Some(ToHelper::Departed(process("b", Some(1)))));
    }

    /// A fence of all is the same whether its members are counted or not; one of several groups is none.
    #[test]
    fn fences_are_known_by_their_members() {
        let pmix = serving();
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
