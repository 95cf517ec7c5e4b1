//! Reports of agents about their hosts.

use std::time::Duration;

use ropewalk_membership::Cause;
use ropewalk_names::{HostId, Rank};

use super::{Action, NameAsker, Phase, SIGKILL, SIGTERM, Supervisor, ground::Running, groups::Asker, star};
use crate::{
    event::JobEvent,
    job::{OnFailure, RespawnPolicy},
    pmix::ModexAsker,
    protocol::{News, Order, Report, StartError, StartErrorKind, Up},
    tree::NodeId,
    verdict::{Ending, Failure, FailureKind, MemoryShortage},
};

impl Supervisor {
    /// A report about a host has come.
    pub fn handle_up(&mut self, now: Duration, Up { host, report, .. }: Up) {
        let ground = &mut self.ground;
        if ground.phase == Phase::Over || ground.hosts.get(host.0 as usize).is_none_or(|host| host.is_over) {
            return;
        }
        if !matches!(
            report,
            Report::Closed | Report::Late | Report::Notice { .. } | Report::Stopped { .. }
        ) {
            self.progress.note(now);
        }
        match report {
            // That it came is all.
            Report::Active => {}
            Report::Aborted {
                rank,
                exit_code,
                message,
            } => {
                let kind = FailureKind::Aborted { exit_code, message };
                self.fail(now, host, rank, kind, OnFailure::Abort, SIGTERM);
            }
            Report::AskNames { id, question } => {
                let asker = NameAsker::Agent(host, id);
                ground.actions.push_back(Action::AskNames(asker, question));
            }
            Report::Attached => ground.handle_attached(),
            Report::Bound {
                rank,
                is_bound,
                processors,
            } => ground.tell(JobEvent::Bound {
                rank,
                host: ground.name_of(host).to_owned(),
                is_bound,
                processors,
            }),
            Report::Closed => {
                ground.host(host).is_closed = true;
                self.served.release_if_all_are_closed(ground);
            }
            Report::Continued { rank } => self.stoppages.handle_continued(ground, host, rank),
            Report::Departed {
                departure,
                unfinished,
                attached,
                shortage,
                stage,
                at_ns,
            } => {
                if let Some(stage) = stage {
                    self.losses.note_stage(departure.rank, stage);
                }
                let kind = failure_of(departure.cause, unfinished, shortage);
                self.handle_departed(now, host, departure.rank, kind, attached);
                self.depart(host, departure.rank, departure.cause, at_ns);
            }
            Report::Link { rank, link, news } => {
                if let Some(ending) = self.notices.handle_link(now, ground, (host, rank, link), news) {
                    self.end(now, ending, SIGTERM);
                }
            }
            Report::Signalled { signal } => self.handle_agent_signalled(now, host, signal),
            Report::FenceBegan { group, fence } => ground.tell(JobEvent::FenceBegan { group, fence }),
            Report::FenceEnded {
                group,
                fence,
                members,
                failed,
            } => ground.tell(JobEvent::FenceEnded {
                group,
                fence,
                members,
                failed,
            }),
            Report::Finished => {
                ground.host(host).is_over = true;
                self.groups.handle_host_over(ground, host);
                self.forward_pmi(now);
                self.finish_if_all_are_over();
            }
            Report::GroupOver(id) => {
                self.groups.handle_over(ground, host, id);
                self.forward_pmi(now);
            }
            Report::Inherited {
                rank,
                incarnation,
                held,
                handle,
            } => {
                self.served.note(host);
                ground.spread(News::Inherited {
                    rank,
                    incarnation,
                    held,
                    handle,
                });
            }
            Report::ModexWanted { token, rank } => self.ask_for_modex(ModexAsker { host, token }, rank),
            Report::ModexFound { asker, data } => {
                let token = asker.token;
                self.ground.order(asker.host, Order::ModexFound { token, data });
            }
            Report::MayHang(may_hang) => self.progress.note_hanging(host, may_hang),
            Report::Late => ground.tell(JobEvent::HostLate {
                host: ground.name_of(host).to_owned(),
                after: ground.detect(),
            }),
            Report::Lost { how } => self.handle_lost(now, host, how),
            Report::Notice { rank, text } => ground.tell(JobEvent::Notice { rank, text }),
            Report::NotStarted { rank, error } => self.handle_not_started(now, host, rank, &error),
            // What carries bytes is counted and handed on by the driver, and what is about the way by the relay.
            Report::Heard | Report::Orphaned { .. } | Report::Output { .. } | Report::StdinTaken(_) => {}
            Report::Overwritten { rank, key } => ground.tell(JobEvent::Overwritten { rank, key }),
            Report::Pmi(up) => {
                star::handle_up(ground, host, up);
                self.forward_pmi(now);
            }
            Report::ProcessesWanted { token } => ground.tell_processes(host, token),
            Report::Ready { host_name } => ground.handle_ready(host, host_name),
            Report::Spawn { id, from, spawn } => {
                self.groups
                    .handle_spawn(ground, Asker::Agent(host, id), from, spawn);
            }
            Report::Started { rank, pid } => {
                ground.running.insert(rank, Running { host, pid });
                ground.tell(JobEvent::Started { rank, pid });
                self.groups.handle_started(ground, rank);
                self.forward_pmi(now);
            }
            Report::Stopped { rank, signal } => self.stoppages.handle_stopped(now, ground, rank, signal),
            Report::Trace { rank, event } => ground.tell(JobEvent::Trace { rank, event }),
        }
    }

    /// A process of a rank is gone; `kind` says how it failed if it did.
    fn handle_departed(
        &mut self,
        now: Duration,
        host: HostId,
        rank: Rank,
        kind: Option<FailureKind>,
        attached: bool,
    ) {
        let ground = &mut self.ground;
        let kind = kind.map(|kind| self.stoppages.unless_overdue(ground, rank, kind));
        match kind {
            _ if self.groups.is_cancelled(rank) => {}
            Some(kind) => match self.respawns.policy_for(ground, rank) {
                Some(policy) => self.plan_respawn(now, host, rank, kind, policy),
                None => self.fail(now, host, rank, kind, self.ground.on_failure, SIGTERM),
            },
            // Those that the job began with tell if they did without a rank.
            None if rank.0 >= ground.plan.size => {}
            None => self.losses.note_good_end(attached),
        }
    }

    /// A rank could not be started.
    fn handle_not_started(&mut self, now: Duration, host: HostId, rank: Rank, error: &StartError) {
        let ground = &mut self.ground;
        if self.groups.handle_not_started(ground, host, rank, error) {
            return self.forward_pmi(now);
        }
        let exit_code = match error.kind {
            StartErrorKind::NotFound => 127,
            StartErrorKind::NotExecutable => 126,
            StartErrorKind::System | StartErrorKind::HostLeft => 125,
        };
        let reason = format!("{}: {}", ground.program_of(rank), error.reason);
        // What runs already has just begun: there is nothing to finish in an orderly way.
        let kind = FailureKind::NotStarted { exit_code, reason };
        self.fail(now, host, rank, kind, OnFailure::Abort, SIGKILL);
    }

    /// A rank wants what another has put by PMIx: the agent of its host knows.
    fn ask_for_modex(&mut self, asker: ModexAsker, rank: Rank) {
        let first = self.ground.plan.first_group();
        let mut groups = std::iter::once(&first).chain(self.groups.plans());
        let node = groups
            .find(|group| group.has(rank))
            .and_then(|group| group.node_of(rank));
        let host = node
            .and_then(NodeId::host)
            .filter(|host| !self.ground.host(*host).is_over);
        match host {
            Some(host) => self.ground.order(host, Order::ModexWanted { asker, rank }),
            None => {
                let (token, data) = (asker.token, None);
                self.ground.order(asker.host, Order::ModexFound { token, data });
            }
        }
    }

    /// The agent of a host was sent a signal.
    fn handle_agent_signalled(&mut self, now: Duration, host: HostId, signal: i32) {
        match signal {
            SIGTERM => self.handle_interrupt(now, signal),
            _ if self.notices.is_notice(now, &mut self.ground, signal) => {}
            _ => self.ground.order(host, Order::Forward { signal }),
        }
    }

    /// An agent is gone, and those below it can tell nothing any more, unless the launcher adopts them: their ranks
    /// count as dead.
    fn handle_lost(&mut self, now: Duration, host: HostId, how: String) {
        let name = self.ground.name_of(host).to_owned();
        self.losses.note_lost_agent(&name, &how);
        let lost = match self.ground.plan.adopts() {
            true => vec![host],
            false => self.ground.tree.hosts_below(NodeId::of(host)),
        };
        for host in lost {
            if std::mem::replace(&mut self.ground.host(host).is_over, true) {
                continue;
            }
            let runs = self.ground.host(host).ranks.clone();
            for rank in runs
                .iter()
                .flat_map(|run| (run.first.0..run.first.0 + run.count).map(Rank))
            {
                self.respawns.forget_rank(rank);
                self.depart(host, rank, Cause::AgentLost, 0);
            }
            star::handle_lost(&mut self.ground, &self.groups, host);
            self.groups.handle_host_over(&mut self.ground, host);
        }
        self.forward_pmi(now);
        if self.ground.on_failure.ends_job_with_host() {
            let continued = false;
            let ending = Ending::AgentLost {
                host: name,
                how,
                more: Vec::new(),
                continued,
            };
            self.end(now, ending, SIGTERM);
        } else if self.ground.is_running() {
            let what = format!("the agent on host {name} {how}");
            self.progress.note_loss(&mut self.ground, what, None);
        }
        self.finish_if_all_are_over();
    }

    /// A rank is gone.
    fn depart(&mut self, host: HostId, rank: Rank, cause: Cause, at_ns: u64) {
        self.stoppages.forget_rank(rank);
        self.losses.forget_rank(rank);
        self.notices.forget_rank(rank);
        self.ground.depart(host, rank, cause, at_ns);
    }

    /// A rank failed, and gets another process after a while.
    fn plan_respawn(
        &mut self,
        now: Duration,
        host: HostId,
        rank: Rank,
        kind: FailureKind,
        policy: RespawnPolicy,
    ) {
        let failure = self.failure(now, host, rank, kind);
        let pause = self.respawns.plan(now, policy, &failure);
        self.progress.watch(&mut self.ground);
        let stall = self.progress.limit(&self.ground);
        self.ground.tell(JobEvent::Respawning {
            failure,
            pause,
            stall,
        });
    }

    /// A rank failed. A failure while the job is being ended is a consequence of that, and does not count.
    pub(super) fn fail(
        &mut self,
        now: Duration,
        host: HostId,
        rank: Rank,
        kind: FailureKind,
        reaction: OnFailure,
        signal: i32,
    ) {
        if !self.ground.is_running() {
            return;
        }
        let failure = self.failure(now, host, rank, kind);
        let what = failure.to_string();
        self.losses.failures.push(failure);
        if reaction.ends_job() {
            self.end(now, Ending::Failed, signal);
        } else {
            self.progress.note_loss(&mut self.ground, what, Some(rank));
        }
    }

    fn failure(&self, now: Duration, host: HostId, rank: Rank, kind: FailureKind) -> Failure {
        self.losses
            .failure(now, &self.ground, &self.groups, (host, rank), kind)
    }
}

/// How a process failed that ended so, if it did. Its host was short of memory then if there is a `shortage`.
fn failure_of(cause: Cause, unfinished: bool, shortage: Option<MemoryShortage>) -> Option<FailureKind> {
    match cause {
        Cause::Exited(0) if unfinished => Some(FailureKind::Unfinished),
        Cause::Exited(0) => None,
        Cause::Exited(code) => Some(FailureKind::Exited(code)),
        Cause::Signalled(signal) => {
            let signalled = FailureKind::Signalled(signal);
            Some(shortage.map_or(signalled, FailureKind::OutOfMemory))
        }
        // Only agents report, and what they report they saw.
        _ => None,
    }
}
