//! The root of the PMI servers, and those who answer it: agents, the driver that reads host files, the name server.

use std::time::Duration;

use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use super::{Action, NameAsker, SIGTERM, Supervisor, WantedSpawn, groups::Asker, star};
use crate::{event::JobEvent, host_files::HostFileError, job::OnFailure, tree::NodeId, verdict::FailureKind};

impl Supervisor {
    /// The PMI server of an agent right below says something.
    pub fn handle_pmi(&mut self, now: Duration, child: NodeId, up: pmi::Up) {
        self.progress.note(now);
        if let Some(pmi) = &mut self.ground.pmi {
            pmi.handle_up(pmi::ChildId(child.0), up);
        }
        self.forward_pmi(now);
    }

    /// An agent right below is gone.
    pub fn handle_child_lost(&mut self, now: Duration, child: NodeId) {
        if let Some(pmi) = &mut self.ground.pmi {
            pmi.handle_child_lost(pmi::ChildId(child.0));
        }
        self.forward_pmi(now);
    }

    /// The host files that a spawn names were read, and the hosts put in their place, unless one could not be used.
    pub fn handle_host_files(
        &mut self,
        now: Duration,
        wanted: WantedSpawn,
        read: Result<pmi::Spawn, HostFileError>,
    ) {
        self.groups.handle_host_files(&mut self.ground, wanted, read);
        self.forward_pmi(now);
    }

    /// The name server that several jobs share did not do something, as this sentence says.
    pub fn handle_names_failed(&mut self, reason: String) {
        self.names.handle(&mut self.ground, reason);
    }

    /// The name server that several jobs share has answered, or has not, as the answer says.
    pub fn handle_names_answer(&mut self, now: Duration, asker: NameAsker, answer: pmi::Answer) {
        self.names.handle_answer(&mut self.ground, asker, answer);
        self.forward_pmi(now);
    }

    pub(super) fn forward_pmi(&mut self, now: Duration) {
        while let Some(action) = self.ground.pmi.as_mut().and_then(pmi::Server::poll_action) {
            match action {
                pmi::Action::Abort {
                    process,
                    exit_code,
                    message,
                } => {
                    let kind = FailureKind::Aborted {
                        exit_code,
                        message: message.unwrap_or_default().to_string(),
                    };
                    let rank = self.groups.job_rank(process).unwrap_or_default();
                    let host = self
                        .ground
                        .running
                        .get(&rank)
                        .map_or(HostId(0), |running| running.host);
                    self.fail(now, host, rank, kind, OnFailure::Abort, SIGTERM);
                }
                pmi::Action::AskNames { id, question } => {
                    let asker = NameAsker::Own(id);
                    self.ground.actions.push_back(Action::AskNames(asker, question));
                }
                pmi::Action::FenceBegan { group, fence } => {
                    let (group, fence) = (group.0, fence.to_string());
                    self.ground.tell(JobEvent::FenceBegan { group, fence });
                }
                pmi::Action::FenceEnded {
                    group,
                    fence,
                    members,
                    failed,
                } => self.ground.tell(JobEvent::FenceEnded {
                    group: group.0,
                    fence: fence.to_string(),
                    members,
                    failed: failed.map(Rank),
                }),
                pmi::Action::ToChild { message, .. } if self.ground.plan.adopts() => {
                    star::tell_agents(&mut self.ground, message);
                }
                pmi::Action::ToChild { child, message } => {
                    self.ground
                        .actions
                        .push_back(Action::SendPmi(NodeId(child.0), message));
                }
                pmi::Action::Spawn { id, from, spawn } => {
                    let asker = Asker::Own(id);
                    self.groups.handle_spawn(&mut self.ground, asker, from, spawn);
                }
                // The root has no processes of its own, and nobody above.
                _ => {}
            }
        }
    }
}
