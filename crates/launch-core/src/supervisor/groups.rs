//! Process groups that programs spawn.

use std::{collections::BTreeSet, time::Duration};

use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use super::{Action, NameAsker, Phase, SIGTERM, Supervisor, WantedSpawn};
use crate::{
    event::JobEvent,
    group_plan::{GroupPlan, Seat, SpawnRefusal, Spawning, plan_spawn},
    host_files::{HostFileError, names_host_files},
    job::{JobSpec, OnFailure},
    protocol::{Down, Order, Plan, StartError, StartErrorKind},
    tree::NodeId,
    verdict::{FailureKind, SpawnedAs},
};

/// A process group that was spawned and of which something is left.
#[derive(Debug)]
pub(super) struct SpawnedGroup {
    first: Rank,
    size: u32,
    /// Who waits for it to be started.
    asked: Option<Asked>,
    /// It could not be started whole and is ended; what becomes of its processes is no failure.
    is_cancelled: bool,
    /// Where something of it is left.
    hosts: BTreeSet<HostId>,
    pub(super) plan: GroupPlan,
}

/// What somebody waits for.
#[derive(Debug)]
struct Asked {
    asker: Asker,
    from: pmi::Process,
    spawn: pmi::Spawn,
    /// The ranks that do not run yet.
    starting: BTreeSet<Rank>,
}

/// Who wants to know what came of a spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The PMI server of the only host.
    Agent(HostId, u64),
    /// Our own.
    Own(pmi::SpawnId),
}

impl Supervisor {
    /// The PMI server of an agent right below says something.
    pub fn handle_pmi(&mut self, now: Duration, child: NodeId, up: pmi::Up) {
        self.note_progress(now);
        if let Some(pmi) = &mut self.pmi {
            pmi.handle_up(pmi::ChildId(child.0), up);
        }
        self.forward_pmi(now);
    }

    /// An agent right below is gone.
    pub fn handle_child_lost(&mut self, now: Duration, child: NodeId) {
        if let Some(pmi) = &mut self.pmi {
            pmi.handle_child_lost(pmi::ChildId(child.0));
        }
        self.forward_pmi(now);
    }

    /// How many spawned process groups there may be at a time.
    const GROUPS_MAX: usize = 4096;

    /// A process wants more processes.
    pub(super) fn handle_spawn(&mut self, asker: Asker, from: pmi::Process, spawn: pmi::Spawn) {
        if names_host_files(&spawn) {
            let wanted = WantedSpawn { asker, from, spawn };
            return self.actions.push_back(Action::ReadHostFiles(wanted));
        }
        self.begin_spawn(asker, from, spawn);
    }

    /// The host files that a spawn names were read, and the hosts put in their place, unless one could not be used.
    pub fn handle_host_files(
        &mut self,
        now: Duration,
        wanted: WantedSpawn,
        read: Result<pmi::Spawn, HostFileError>,
    ) {
        let WantedSpawn { asker, from, .. } = wanted;
        match read {
            Ok(spawn) => self.begin_spawn(asker, from, spawn),
            Err(error) => self.refuse(asker, self.job_rank(from).unwrap_or_default(), &error.to_string()),
        }
        self.forward_pmi(now);
    }

    fn begin_spawn(&mut self, asker: Asker, from: pmi::Process, spawn: pmi::Spawn) {
        match self.plan_group(from, &spawn) {
            Ok(plan) => {
                let ranks = (plan.first.0..plan.first.0 + plan.size).map(Rank);
                let asked = Asked {
                    asker,
                    from,
                    spawn,
                    starting: ranks.collect(),
                };
                self.begin_group(asked, plan);
            }
            Err(refusal) => self.refuse(
                asker,
                self.job_rank(from).unwrap_or_default(),
                &refusal.to_string(),
            ),
        }
    }

    fn plan_group(&self, from: pmi::Process, spawn: &pmi::Spawn) -> Result<GroupPlan, SpawnRefusal> {
        if self.phase != Phase::Running {
            return Err(SpawnRefusal::JobEnding);
        }
        if self.groups.len() >= Self::GROUPS_MAX {
            return Err(SpawnRefusal::Groups {
                max: Self::GROUPS_MAX,
            });
        }
        let first = Rank(self.members.size());
        let rank = self.job_rank(from).ok_or(SpawnRefusal::SpawnerGone)?;
        let spawner = match from.group.0 {
            0 => self
                .plan
                .first_group()
                .program_of(rank)
                .map(|(_, program)| program.segment.clone()),
            group => self
                .groups
                .get(&group)
                .and_then(|group| Some(group.plan.program_of(rank)?.1.segment.clone())),
        };
        let directory = spawner.and_then(|segment| segment.working_directory);
        let seats = self.hosts.iter().map(|host| Seat {
            name: &host.name,
            slots: host.slots,
            load: host.load,
            is_over: host.is_over || host.is_closed,
        });
        let seats: Vec<_> = seats.collect();
        let own = self
            .plan
            .hosts
            .iter()
            .zip(&self.hosts)
            .find(|(plan, _)| plan.is_local);
        let around = Spawning {
            id: self.next_group,
            first,
            spawner: from.group.0,
            own_host: own.map_or("localhost", |(_, host)| &host.name),
            working_directory: directory.as_ref().map(|directory| directory.as_os_str()),
            size_max: JobSpec::RANKS_MAX - first.0,
        };
        plan_spawn(spawn.clone(), &around, &seats)
    }

    fn begin_group(&mut self, asked: Asked, plan: GroupPlan) {
        self.next_group += 1;
        self.members.grow(plan.size);
        let mut behind = plan.first.0;
        for program in &plan.programs {
            behind += program.segment.ranks;
            let name = program.segment.program.to_string_lossy().into_owned();
            self.programs.push((Rank(behind), name));
        }
        let mut hosts = BTreeSet::new();
        for (host, runs) in (0..).zip(&plan.runs).filter(|(_, runs)| !runs.is_empty()) {
            hosts.insert(HostId(host));
            let known = &mut self.hosts[host as usize];
            known.ranks.extend(runs);
            known.load += runs.iter().map(|run| run.count).sum::<u32>();
        }
        if let Some(pmi) = &mut self.pmi {
            pmi.add_group(self.plan.pmi_group(&plan, NodeId::ROOT));
        }
        self.tell(JobEvent::Spawned {
            group: plan.id,
            first: plan.first,
            size: plan.size,
            by: self.job_rank(asked.from).unwrap_or_default(),
        });
        self.actions
            .push_back(Action::Send(Down::Group(Box::new(plan.clone()))));
        let group = SpawnedGroup {
            first: plan.first,
            size: plan.size,
            asked: Some(asked),
            is_cancelled: false,
            hosts,
            plan,
        };
        self.groups.insert(group.plan.id, group);
    }

    /// A process of a spawned group runs. With the last the spawner hears of it.
    pub(super) fn handle_group_started(&mut self, rank: Rank) {
        let Some((id, group)) = self.group_of(rank) else {
            return;
        };
        let Some(asked) = &mut group.asked else {
            return;
        };
        asked.starting.remove(&rank);
        if asked.starting.is_empty() {
            let (asker, size) = (asked.asker, group.size);
            group.asked = None;
            let spawned = pmi::Spawned {
                kvsname: self.plan.kvsname(id).into(),
                errcodes: vec![0; size as usize],
            };
            self.answer(asker, Ok(spawned));
        }
    }

    /// A process of a spawned group could not be started: all of it is given up, and the spawner hears why. A host that was
    /// left just before it heard of the group is no reason: others take it. Returns whether the rank is of a spawned group.
    pub(super) fn handle_group_not_started(&mut self, host: HostId, rank: Rank, error: &StartError) -> bool {
        let Some((id, _)) = self.group_of(rank) else {
            return false;
        };
        if error.kind == StartErrorKind::HostLeft {
            self.hosts[host.0 as usize].is_closed = true;
            self.begin_elsewhere(id);
            return true;
        }
        let program = self.programs.iter().find(|(behind, _)| rank < *behind);
        let program = program.map_or("", |(_, program)| program);
        let reason = format!("{program}: {}", error.reason);
        self.cancel(id, reason);
        true
    }

    /// Nothing more will be heard of a host.
    pub(super) fn handle_host_over(&mut self, host: HostId) {
        let ids: Vec<_> = self.groups.keys().copied().collect();
        for id in ids {
            self.handle_group_over(host, id);
        }
    }

    /// Nothing of a group is left on a host.
    pub(super) fn handle_group_over(&mut self, host: HostId, id: u32) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if !group.hosts.remove(&host) {
            return;
        }
        let runs = &group.plan.runs[host.0 as usize];
        let is_missing = |rank: &Rank| {
            runs.iter()
                .any(|run| (run.first.0..run.first.0 + run.count).contains(&rank.0))
        };
        let is_incomplete = group
            .asked
            .as_ref()
            .is_some_and(|asked| asked.starting.iter().any(is_missing));
        let is_last = group.hosts.is_empty();
        if is_incomplete {
            // Nothing more is planned for it, so that this comes to an end.
            self.hosts[host.0 as usize].is_closed = true;
            self.begin_elsewhere(id);
        }
        if is_last {
            self.groups.remove(&id);
            if let Some(pmi) = &mut self.pmi {
                pmi.remove_group(pmi::GroupId(id));
            }
            self.actions.push_back(Action::Send(Down::Forget(id)));
        }
    }

    /// Whether what becomes of a rank is no failure.
    pub(super) fn is_cancelled(&self, rank: Rank) -> bool {
        self.groups
            .values()
            .any(|group| group.is_cancelled && group.plan.has(rank))
    }

    /// How a rank of the job is called in the group that it was spawned in.
    pub(super) fn spawned_as(&self, rank: Rank) -> Option<SpawnedAs> {
        let group = self.groups.values().find(|group| group.plan.has(rank))?;
        Some(SpawnedAs {
            group: group.plan.id,
            rank: rank.0 - group.first.0,
        })
    }

    /// The rank in the job of a process as PMI names it.
    pub(super) fn job_rank(&self, process: pmi::Process) -> Option<Rank> {
        match process.group.0 {
            0 => Some(Rank(process.rank)),
            group => Some(Rank(self.groups.get(&group)?.first.0 + process.rank)),
        }
    }

    fn group_of(&mut self, rank: Rank) -> Option<(u32, &mut SpawnedGroup)> {
        let mut groups = self.groups.iter_mut();
        let (&id, group) = groups.find(|(_, group)| group.plan.has(rank))?;
        Some((id, group))
    }

    fn cancel(&mut self, id: u32, reason: String) {
        let Some(first) = self.groups.get(&id).map(|group| group.first) else {
            return;
        };
        if let Some(asked) = self.give_up(id) {
            self.refuse(asked.asker, first, &reason);
        }
    }

    /// A group that was planned where nothing is started any more makes room for another, which is.
    fn begin_elsewhere(&mut self, id: u32) {
        if let Some(asked) = self.give_up(id) {
            self.handle_spawn(asked.asker, asked.from, asked.spawn);
        }
    }

    /// Ends what runs of a group. Returns who still waits for it to be started.
    fn give_up(&mut self, id: u32) -> Option<Asked> {
        let group = self.groups.get_mut(&id)?;
        if std::mem::replace(&mut group.is_cancelled, true) {
            return None;
        }
        self.actions.push_back(Action::Send(Down::Cancel(id)));
        group.asked.take()
    }

    fn refuse(&mut self, asker: Asker, rank: Rank, why: &str) {
        let reason = why.into();
        self.answer(asker, Err(pmi::SpawnRefused { reason }));
        let text = format!("could not be spawned: {why}");
        self.tell(JobEvent::Notice { rank, text });
    }

    fn answer(&mut self, asker: Asker, result: Result<pmi::Spawned, pmi::SpawnRefused>) {
        match asker {
            Asker::Agent(host, id) => {
                let answer = Order::Spawned { id, result };
                let node = NodeId::of(host);
                self.actions.push_back(Action::Send(Down::To(node, answer)));
            }
            Asker::Own(id) => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.handle_spawned(id, result);
                }
            }
        }
    }

    pub(super) fn forward_pmi(&mut self, now: Duration) {
        while let Some(action) = self.pmi.as_mut().and_then(pmi::Server::poll_action) {
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
                    let rank = self.job_rank(process).unwrap_or_default();
                    let host = self.running.get(&rank).map_or(HostId(0), |running| running.host);
                    self.fail(now, host, rank, kind, OnFailure::Abort, SIGTERM);
                }
                pmi::Action::AskNames { id, question } => self.ask_names(NameAsker::Own(id), question),
                pmi::Action::FenceBegan { group, fence } => {
                    let (group, fence) = (group.0, fence.to_string());
                    self.tell(JobEvent::FenceBegan { group, fence });
                }
                pmi::Action::FenceEnded {
                    group,
                    fence,
                    members,
                    failed,
                } => self.tell(JobEvent::FenceEnded {
                    group: group.0,
                    fence: fence.to_string(),
                    members,
                    failed: failed.map(Rank),
                }),
                pmi::Action::ToChild { message, .. } if self.plan.adopts() => self.tell_agents_pmi(message),
                pmi::Action::ToChild { child, message } => {
                    self.actions.push_back(Action::SendPmi(NodeId(child.0), message));
                }
                pmi::Action::Spawn { id, from, spawn } => self.handle_spawn(Asker::Own(id), from, spawn),
                // The root has no processes of its own, and nobody above.
                _ => {}
            }
        }
    }
}

/// What a job has at its begin that spawning changes.
pub(super) fn slots(plan: &Plan) -> impl Iterator<Item = u32> {
    plan.hosts
        .iter()
        .map(|host| host.runs.iter().map(|run| run.count).sum())
}
