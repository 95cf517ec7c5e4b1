//! Decides over a job: when it is being ended, how, and what the verdict is.

mod action;
mod groups;
mod memory;
mod names;
mod notices;
mod respawns;
mod stalls;
mod star;
mod stopped;
mod urgency;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Not,
    time::Duration,
};

use ropewalk_membership::{Cause, Membership};
use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use crate::{
    event::JobEvent,
    injection::Injector,
    job::{OnFailure, OnStopped},
    protocol::{Down, News, Plan, RankRun, Report, StartErrorKind, Up},
    tree::{NodeId, Tree},
    verdict::{Ending, Failure, FailureKind, Verdict},
};
pub use action::{Action, WantedSpawn};
use groups::{Asker, SpawnedGroup};
pub use names::NameAsker;
use notices::Notices;
use respawns::Respawns;
use stalls::Progress;
use stopped::Stopped;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The launcher's mind. `now` is the time since the start of the job.
///
/// Tell it what happens with `handle_*`; after each call do what [`poll_action`](Self::poll_action) says until
/// it says nothing, and call [`handle_timeout`](Self::handle_timeout) when
/// [`deadline`](Self::deadline) has come. It is over when [`JobEvent::Finished`] came out.
#[derive(Debug)]
pub struct Supervisor {
    tree: Tree,
    on_failure: OnFailure,
    on_stopped: OnStopped,
    limit: Option<Duration>,
    detect: Duration,
    /// The name of each segment's program, and the first rank behind it.
    programs: Vec<(Rank, String)>,
    hosts: Vec<Host>,
    members: Membership,
    running: BTreeMap<Rank, Running>,
    /// Beside `running`, which has thousands of entries and is kept small: what few ranks have.
    stopped: BTreeMap<Rank, Stopped>,
    /// How far the ranks that just ended were with PMI.
    stages: BTreeMap<Rank, pmi::Stage>,
    failures: Vec<Failure>,
    /// The first agent that was lost, and what was seen of it.
    lost: Option<(String, String)>,
    recovery: Recovery,
    /// What attached ranks have to hear; told as it comes once there are some.
    news: Vec<News>,
    has_attached: bool,
    /// The root of the PMI servers, if there are several hosts: one alone has it itself.
    pmi: Option<pmi::Server>,
    plan: Plan,
    /// What programs spawned and what is left, by PMI's number.
    groups: BTreeMap<u32, SpawnedGroup>,
    next_group: u32,
    /// What was told of a name server since it did something well.
    names_failed: BTreeSet<String>,
    /// Hosts that serve memory of ranks that are gone, and wait to hear that nobody needs it any more.
    serving: BTreeSet<HostId>,
    respawns: Respawns,
    injector: Option<Injector>,
    injected: u32,
    progress: Progress,
    notices: Notices,
    phase: Phase,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Host {
    name: String,
    /// Those that it ever had.
    ranks: Vec<RankRun>,
    /// How many the job began with there.
    slots: u32,
    /// How many it has.
    load: u32,
    is_ready: bool,
    /// It takes no more ranks.
    is_closed: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Running {
    host: HostId,
    pid: u32,
}

/// Whether the program did without the ranks that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// No rank has come to its end that did not fail.
    Unknown,
    /// All that did had heard who failed, and said that all went well.
    Made,
    /// One of them had not, or did not.
    NotMade,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The ranks were asked to end; at `kill_at` they are killed, and so are the agents if they show no sign of
    /// that until `despair_at`.
    Ending {
        ending: Ending,
        kill_at: Option<Duration>,
        despair_at: Option<Duration>,
    },
    Over,
}

impl Supervisor {
    /// The supervisor of a job that is about to start; `limit` is the time that it may take.
    pub fn new(plan: &Plan, on_failure: OnFailure, limit: Option<Duration>) -> Self {
        let mut behind = 0;
        let programs = plan.segments.iter().map(|segment| {
            behind += segment.ranks;
            (Rank(behind), segment.program.to_string_lossy().into_owned())
        });
        let hosts = plan
            .hosts
            .iter()
            .zip(groups::slots(plan))
            .map(|(host, slots)| Host {
                name: host.name.clone(),
                ranks: host.runs.clone(),
                slots,
                load: slots,
                is_ready: false,
                is_closed: false,
                is_over: false,
            });
        Self {
            tree: plan.tree(),
            on_failure,
            on_stopped: OnStopped::Notice,
            limit,
            detect: plan.detect,
            programs: programs.collect(),
            hosts: hosts.collect(),
            members: Membership::new(plan.size),
            running: BTreeMap::new(),
            stopped: BTreeMap::new(),
            stages: BTreeMap::new(),
            failures: Vec::new(),
            lost: None,
            recovery: Recovery::Unknown,
            news: Vec::new(),
            has_attached: false,
            pmi: (plan.hosts.len() > 1).then(|| {
                let mut pmi = pmi::Server::root();
                if plan.shares_names {
                    pmi.share_names();
                }
                pmi.add_group(plan.pmi_group(&plan.first_group(), NodeId::ROOT));
                pmi
            }),
            plan: plan.clone(),
            groups: BTreeMap::new(),
            next_group: 1,
            names_failed: BTreeSet::new(),
            serving: BTreeSet::new(),
            respawns: Respawns::default(),
            injector: None,
            injected: 0,
            progress: Progress::default(),
            notices: Notices::default(),
            phase: Phase::Running,
            actions: VecDeque::new(),
        }
    }

    /// A report about a host has come.
    pub fn handle_up(&mut self, now: Duration, Up { host, report, .. }: Up) {
        if self.phase == Phase::Over || self.hosts.get(host.0 as usize).is_none_or(|host| host.is_over) {
            return;
        }
        if !matches!(
            report,
            Report::Closed | Report::Late | Report::Notice { .. } | Report::Stopped { .. }
        ) {
            self.note_progress(now);
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
            Report::AskNames { id, question } => self.ask_names(NameAsker::Agent(host, id), question),
            Report::Attached => {
                if !std::mem::replace(&mut self.has_attached, true) {
                    let news = std::mem::take(&mut self.news);
                    self.actions
                        .extend(news.into_iter().map(|news| Action::Send(Down::News(news))));
                }
            }
            Report::Closed => {
                self.hosts[host.0 as usize].is_closed = true;
                self.release_memory_if_all_are_closed();
            }
            Report::Continued { rank } => self.handle_continued(host, rank),
            Report::Departed {
                departure,
                unfinished,
                attached,
                shortage,
                stage,
                at_ns,
            } => {
                let rank = departure.rank;
                if let Some(stage) = stage {
                    self.stages.insert(rank, stage);
                }
                let kind = match departure.cause {
                    Cause::Exited(0) if unfinished => Some(FailureKind::Unfinished),
                    Cause::Exited(0) => None,
                    Cause::Exited(code) => Some(FailureKind::Exited(code)),
                    Cause::Signalled(signal) => {
                        let signalled = FailureKind::Signalled(signal);
                        Some(shortage.map_or(signalled, FailureKind::OutOfMemory))
                    }
                    // Only agents report, and what they report they saw.
                    _ => None,
                };
                let kind = kind.map(|kind| self.unless_overdue(rank, kind));
                match kind {
                    _ if self.is_cancelled(rank) => {}
                    Some(kind) if self.may_respawn(rank) => self.plan_respawn(now, host, rank, kind),
                    Some(kind) => self.fail(now, host, rank, kind, self.on_failure, SIGTERM),
                    // Whether the others did without a rank is told by those that the job began with.
                    None if rank.0 >= self.plan.size => {}
                    None if attached && self.recovery == Recovery::Unknown => self.recovery = Recovery::Made,
                    None if attached => {}
                    None => self.recovery = Recovery::NotMade,
                }
                self.depart(host, rank, departure.cause, at_ns);
            }
            Report::Link { rank, link, news } => self.handle_link(now, host, rank, link, news),
            Report::Signalled { signal } => self.handle_agent_signalled(now, host, signal),
            Report::FenceBegan { group, fence } => self.tell(JobEvent::FenceBegan { group, fence }),
            Report::FenceEnded {
                group,
                fence,
                members,
                failed,
            } => self.tell(JobEvent::FenceEnded {
                group,
                fence,
                members,
                failed,
            }),
            Report::Finished => {
                self.hosts[host.0 as usize].is_over = true;
                self.handle_host_over(host);
                self.forward_pmi(now);
                self.finish_if_all_are_over();
            }
            Report::GroupOver(id) => {
                self.handle_group_over(host, id);
                self.forward_pmi(now);
            }
            Report::Inherited {
                rank,
                incarnation,
                held,
                handle,
            } => {
                self.serving.insert(host);
                self.spread(News::Inherited {
                    rank,
                    incarnation,
                    held,
                    handle,
                });
            }
            Report::MayHang(may_hang) => self.note_hanging(host, may_hang),
            Report::Late => self.tell(JobEvent::HostLate {
                host: self.hosts[host.0 as usize].name.clone(),
                after: self.detect,
            }),
            Report::Lost { how } => self.handle_lost(now, host, how),
            Report::Notice { rank, text } => self.tell(JobEvent::Notice { rank, text }),
            Report::NotStarted { rank, ref error } if self.handle_group_not_started(host, rank, error) => {
                self.forward_pmi(now);
            }
            Report::NotStarted { rank, error } => {
                let exit_code = match error.kind {
                    StartErrorKind::NotFound => 127,
                    StartErrorKind::NotExecutable => 126,
                    StartErrorKind::System | StartErrorKind::HostLeft => 125,
                };
                let program = self.programs.iter().find(|(behind, _)| rank < *behind);
                let program = program.map_or("", |(_, program)| program);
                let reason = format!("{program}: {}", error.reason);
                // What runs already has just begun: there is nothing to finish in an orderly way.
                let kind = FailureKind::NotStarted { exit_code, reason };
                self.fail(now, host, rank, kind, OnFailure::Abort, SIGKILL);
            }
            // What carries bytes is counted and handed on by the driver, and what is about the way by the relay.
            Report::Heard
            | Report::Orphaned { .. }
            | Report::Output { .. }
            | Report::StdinTaken(_)
            | Report::Suspended => {}
            Report::Overwritten { rank, key } => self.tell(JobEvent::Overwritten { rank, key }),
            Report::Pmi(up) => self.handle_agent_pmi(now, host, up),
            Report::Ready { host_name } => {
                let known = &mut self.hosts[host.0 as usize];
                known.is_ready = true;
                // What users wrote is what they know; only for the own host they write nothing.
                if self.tree.is_single() {
                    known.name = host_name;
                }
                let ready = self.hosts.iter().filter(|host| host.is_ready).count();
                self.tell(JobEvent::HostReady {
                    host: self.hosts[host.0 as usize].name.clone(),
                    ready: ready as u32,
                    hosts: self.hosts.len() as u32,
                });
            }
            Report::Spawn { id, from, spawn } => self.handle_spawn(Asker::Agent(host, id), from, spawn),
            Report::Started { rank, pid } => {
                self.running.insert(rank, Running { host, pid });
                self.tell(JobEvent::Started { rank, pid });
                self.handle_group_started(rank);
                self.forward_pmi(now);
            }
            Report::Stopped { rank, signal } => self.handle_stopped(now, rank, signal),
            Report::Trace { rank, event } => self.tell(JobEvent::Trace { rank, event }),
        }
    }

    /// Somebody wants the job to end, and says so with this signal.
    pub fn handle_interrupt(&mut self, now: Duration, signal: i32) {
        let ending = Ending::Interrupted(signal);
        // Whoever types ^C does not want to wait.
        if signal != SIGTERM || !self.notice(now, &ending, Some(now + self.notices.grace)) {
            self.end(now, ending, signal);
        }
    }

    /// The time has come that [`deadline`](Self::deadline) named.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.tell_of_stopped(now);
        self.respawn_and_inject(now);
        self.look_for_stall(now);
        let due = |at: &Option<Duration>| at.is_some_and(|at| at <= now);
        match &mut self.phase {
            Phase::Running => self.look_for_end(now),
            Phase::Ending { kill_at, .. } if due(kill_at) => {
                *kill_at = None;
                self.signal_all(SIGKILL);
            }
            Phase::Ending {
                kill_at: None,
                despair_at,
                ..
            } if due(despair_at) => {
                *despair_at = None;
                // If no rank is left the agents wait for somebody to take the output, and rightly.
                if !self.running.is_empty() || self.hosts.iter().any(|host| !host.is_ready && !host.is_over) {
                    self.actions.push_back(Action::AbandonAgents);
                    self.finish();
                }
            }
            _ => {}
        }
    }

    /// The time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn deadline(&self) -> Option<Duration> {
        let next = match &self.phase {
            Phase::Running => self.end_deadline(),
            Phase::Ending {
                kill_at, despair_at, ..
            } => kill_at.or(*despair_at),
            Phase::Over => return None,
        };
        self.stopped_deadline()
            .into_iter()
            .chain(next)
            .chain(self.respawn_deadline())
            .chain(self.stall_deadline())
            .min()
    }

    /// The next thing that has to be done for this machine.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns true if nothing of the job is left.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// An agent is gone, and whoever is below it can tell nothing any more, unless the launcher adopts them: their ranks
    /// count as dead.
    fn handle_lost(&mut self, now: Duration, host: HostId, how: String) {
        let name = self.hosts[host.0 as usize].name.clone();
        self.lost.get_or_insert((name.clone(), how.clone()));
        let lost = match self.plan.adopts() {
            true => vec![host],
            false => self.tree.hosts_below(NodeId::of(host)),
        };
        for host in lost {
            if std::mem::replace(&mut self.hosts[host.0 as usize].is_over, true) {
                continue;
            }
            let runs = self.hosts[host.0 as usize].ranks.clone();
            for rank in runs
                .iter()
                .flat_map(|run| (run.first.0..run.first.0 + run.count).map(Rank))
            {
                self.depart(host, rank, Cause::AgentLost, 0);
            }
            self.tell_pmi_of_lost(host);
            self.handle_host_over(host);
        }
        self.forward_pmi(now);
        if self.on_failure.ends_job() {
            let continued = false;
            let ending = Ending::AgentLost {
                host: name,
                how,
                continued,
            };
            self.end(now, ending, SIGTERM);
        } else if self.phase == Phase::Running {
            self.note_loss(format!("the agent on host {name} {how}"), None);
        }
        self.finish_if_all_are_over();
    }

    /// A rank is gone: whoever watches hears of it, and so do attached ranks of other hosts.
    fn depart(&mut self, host: HostId, rank: Rank, cause: Cause, at_ns: u64) {
        self.running.remove(&rank);
        self.stopped.remove(&rank);
        self.stages.remove(&rank);
        self.notices.forget_rank(rank);
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        let Some(departure) = self.members.handle_departure(rank, incarnation, cause) else {
            return;
        };
        let known = &mut self.hosts[host.0 as usize];
        known.load = known.load.saturating_sub(1);
        if rank.0 < self.plan.size {
            self.spread(News::Departed {
                rank,
                incarnation,
                cause,
            });
        }
        self.tell(JobEvent::Departed {
            departure,
            host: self.hosts[host.0 as usize].name.clone(),
            at_ns,
        });
    }

    /// Agents know what concerns their own ranks.
    fn spread(&mut self, news: News) {
        if self.tree.is_single() {
        } else if self.has_attached {
            self.actions.push_back(Action::Send(Down::News(news)));
        } else {
            self.news.push(news);
        }
    }

    fn finish_if_all_are_over(&mut self) {
        self.release_memory_if_all_are_closed();
        if self.hosts.iter().all(|host| host.is_over) {
            self.finish();
        }
    }

    /// What happens while the job is being ended is a consequence, not a failure.
    fn fail(
        &mut self,
        now: Duration,
        host: HostId,
        rank: Rank,
        kind: FailureKind,
        reaction: OnFailure,
        signal: i32,
    ) {
        if self.phase != Phase::Running {
            return;
        }
        let failure = self.failure(now, host, rank, kind);
        let what = failure.to_string();
        self.failures.push(failure);
        if reaction.ends_job() {
            self.end(now, Ending::Failed, signal);
        } else {
            self.note_loss(what, Some(rank));
        }
    }

    fn failure(&self, now: Duration, host: HostId, rank: Rank, kind: FailureKind) -> Failure {
        let running = self.running.get(&rank);
        Failure {
            rank,
            spawned: self.spawned_as(rank),
            host: self.hosts[host.0 as usize].name.clone(),
            pid: running.map(|running| running.pid),
            kind,
            stage: self.stages.get(&rank).cloned(),
            after: now,
        }
    }

    fn end(&mut self, now: Duration, ending: Ending, signal: i32) {
        if self.phase != Phase::Running {
            return;
        }
        let (ending, grace_end) = self.take_notice(now, ending);
        let kill_at = (signal != SIGKILL).then_some(grace_end);
        self.phase = Phase::Ending {
            ending,
            kill_at,
            despair_at: Some(kill_at.unwrap_or(now) + self.detect),
        };
        self.signal_all(signal);
    }

    fn finish(&mut self) {
        let ending = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Ending { ending, .. } => ending,
            Phase::Over => return,
            Phase::Running => match self.lost.take() {
                Some((host, how)) => Ending::AgentLost {
                    host,
                    how,
                    continued: self.tree.is_single().not(),
                },
                None => Ending::Completed,
            },
        };
        let verdict = Verdict {
            ending,
            failures: std::mem::take(&mut self.failures),
            recovered: self.recovery == Recovery::Made,
            respawned: std::mem::take(&mut self.respawns.failures),
            injected: self.injected,
            saved: self.notices.is_saved(),
            ..Verdict::new(self.members.size())
        };
        self.tell(JobEvent::Finished(verdict));
    }

    fn tell(&mut self, event: JobEvent) {
        self.note_fence(&event);
        self.actions.push_back(Action::Event(event));
    }
}

#[cfg(test)]
mod tests;
