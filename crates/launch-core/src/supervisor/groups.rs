//! Process groups that programs spawn.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use super::{Action, WantedSpawn, ground::Ground};
use crate::{
    event::JobEvent,
    group_plan::{GroupPlan, Seat, SpawnRefusal, Spawning, plan_spawn},
    host_files::{HostFileError, names_host_files},
    job::JobSpec,
    protocol::{Down, Order, StartError, StartErrorKind},
    tree::NodeId,
    verdict::SpawnedAs,
};

/// The process groups that were spawned and of which something is left, by PMI's number.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<u32, SpawnedGroup>,
    /// How many there were.
    count: u32,
}

#[derive(Debug)]
struct SpawnedGroup {
    first: Rank,
    size: u32,
    /// Who waits for it to be started.
    asked: Option<Asked>,
    /// It could not be started whole and is ended; what becomes of its processes is no failure.
    is_cancelled: bool,
    /// Where something of it is left.
    hosts: BTreeSet<HostId>,
    plan: GroupPlan,
}

/// A spawn that somebody waits for.
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

impl Groups {
    /// How many spawned process groups there may be at a time.
    const MAX: usize = 4096;

    pub(super) fn plans(&self) -> impl Iterator<Item = &GroupPlan> {
        self.groups.values().map(|group| &group.plan)
    }

    /// A process wants more processes.
    pub(super) fn handle_spawn(
        &mut self,
        ground: &mut Ground,
        asker: Asker,
        from: pmi::Process,
        spawn: pmi::Spawn,
    ) {
        if names_host_files(&spawn) {
            let wanted = WantedSpawn { asker, from, spawn };
            return ground.actions.push_back(Action::ReadHostFiles(wanted));
        }
        self.begin_spawn(ground, asker, from, spawn);
    }

    /// The host files that a spawn names were read, and the hosts put in their place, unless one could not be used.
    pub(super) fn handle_host_files(
        &mut self,
        ground: &mut Ground,
        wanted: WantedSpawn,
        read: Result<pmi::Spawn, HostFileError>,
    ) {
        let WantedSpawn { asker, from, .. } = wanted;
        match read {
            Ok(spawn) => self.begin_spawn(ground, asker, from, spawn),
            Err(error) => self.refuse_spawner(ground, asker, from, &error.to_string()),
        }
    }

    fn begin_spawn(&mut self, ground: &mut Ground, asker: Asker, from: pmi::Process, spawn: pmi::Spawn) {
        match self.plan_group(ground, from, &spawn) {
            Ok(plan) => {
                let ranks = (plan.first.0..plan.first.0 + plan.size).map(Rank);
                let asked = Asked {
                    asker,
                    from,
                    spawn,
                    starting: ranks.collect(),
                };
                self.begin_group(ground, asked, plan);
            }
            Err(refusal) => self.refuse_spawner(ground, asker, from, &refusal.to_string()),
        }
    }

    fn plan_group(
        &self,
        ground: &Ground,
        from: pmi::Process,
        spawn: &pmi::Spawn,
    ) -> Result<GroupPlan, SpawnRefusal> {
        if !ground.is_running() {
            return Err(SpawnRefusal::JobEnding);
        }
        if self.groups.len() >= Self::MAX {
            return Err(SpawnRefusal::Groups { max: Self::MAX });
        }
        let first = Rank(ground.members.size());
        let rank = self.job_rank(from).ok_or(SpawnRefusal::SpawnerGone)?;
        let spawner = match from.group.0 {
            0 => ground
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
        let seats = ground.hosts.iter().map(|host| Seat {
            name: &host.name,
            slots: host.slots,
            load: host.load,
            is_over: host.is_over || host.is_closed,
        });
        let seats: Vec<_> = seats.collect();
        let own = ground
            .plan
            .hosts
            .iter()
            .zip(&ground.hosts)
            .find(|(plan, _)| plan.is_local);
        let around = Spawning {
            id: self.count + 1,
            first,
            spawner: from.group.0,
            own_host: own.map_or("localhost", |(_, host)| &host.name),
            working_directory: directory.as_ref().map(|directory| directory.as_os_str()),
            size_max: JobSpec::RANKS_MAX - first.0,
        };
        plan_spawn(spawn.clone(), &around, &seats)
    }

    fn begin_group(&mut self, ground: &mut Ground, asked: Asked, plan: GroupPlan) {
        self.count += 1;
        ground.members.grow(plan.size);
        let mut behind = plan.first.0;
        for program in &plan.programs {
            behind += program.segment.ranks;
            let name = program.segment.program.to_string_lossy().into_owned();
            ground.programs.push((Rank(behind), name));
        }
        let mut hosts = BTreeSet::new();
        for (host, runs) in (0..).zip(&plan.runs).filter(|(_, runs)| !runs.is_empty()) {
            hosts.insert(HostId(host));
            let known = &mut ground.hosts[host as usize];
            known.ranks.extend(runs);
            known.load += runs.iter().map(|run| run.count).sum::<u32>();
        }
        if let Some(pmi) = &mut ground.pmi {
            pmi.add_group(ground.plan.pmi_group(&plan, NodeId::ROOT));
        }
        ground.tell(JobEvent::Spawned {
            group: plan.id,
            first: plan.first,
            size: plan.size,
            by: self.job_rank(asked.from).unwrap_or_default(),
        });
        ground.send(Down::Group(Box::new(plan.clone())));
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
    pub(super) fn handle_started(&mut self, ground: &mut Ground, rank: Rank) {
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
                kvsname: ground.plan.kvsname(id).into(),
                errcodes: vec![0; size as usize],
            };
            answer(ground, asker, Ok(spawned));
        }
    }

    /// A process of a spawned group could not be started: all of it is given up, and the spawner hears why. A
    /// host that was left just before it heard of the group is no reason: others take it. Returns whether the
    /// rank is of a spawned group.
    pub(super) fn handle_not_started(
        &mut self,
        ground: &mut Ground,
        host: HostId,
        rank: Rank,
        error: &StartError,
    ) -> bool {
        let Some((id, _)) = self.group_of(rank) else {
            return false;
        };
        if error.kind == StartErrorKind::HostLeft {
            ground.host(host).is_closed = true;
            self.begin_elsewhere(ground, id);
            return true;
        }
        let reason = format!("{}: {}", ground.program_of(rank), error.reason);
        self.cancel(ground, id, &reason);
        true
    }

    /// Nothing more will be heard of a host.
    pub(super) fn handle_host_over(&mut self, ground: &mut Ground, host: HostId) {
        let ids: Vec<_> = self.groups.keys().copied().collect();
        for id in ids {
            self.handle_over(ground, host, id);
        }
    }

    /// Nothing of a group is left on a host.
    pub(super) fn handle_over(&mut self, ground: &mut Ground, host: HostId, id: u32) {
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
            ground.host(host).is_closed = true;
            self.begin_elsewhere(ground, id);
        }
        if is_last {
            self.groups.remove(&id);
            if let Some(pmi) = &mut ground.pmi {
                pmi.remove_group(pmi::GroupId(id));
            }
            ground.send(Down::Forget(id));
        }
    }

    /// The end of a rank is no failure.
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

    fn cancel(&mut self, ground: &mut Ground, id: u32, reason: &str) {
        let Some(first) = self.groups.get(&id).map(|group| group.first) else {
            return;
        };
        if let Some(asked) = self.give_up(ground, id) {
            refuse(ground, asked.asker, first, reason);
        }
    }

    /// A group that was planned where nothing is started any more makes room for another, which is.
    fn begin_elsewhere(&mut self, ground: &mut Ground, id: u32) {
        if let Some(asked) = self.give_up(ground, id) {
            self.handle_spawn(ground, asked.asker, asked.from, asked.spawn);
        }
    }

    /// Ends what runs of a group. Returns who still waits for it to be started.
    fn give_up(&mut self, ground: &mut Ground, id: u32) -> Option<Asked> {
        let group = self.groups.get_mut(&id)?;
        if std::mem::replace(&mut group.is_cancelled, true) {
            return None;
        }
        ground.send(Down::Cancel(id));
        group.asked.take()
    }

    fn refuse_spawner(&self, ground: &mut Ground, asker: Asker, from: pmi::Process, why: &str) {
        refuse(ground, asker, self.job_rank(from).unwrap_or_default(), why);
    }
}

fn refuse(ground: &mut Ground, asker: Asker, rank: Rank, why: &str) {
    let reason = why.into();
    answer(ground, asker, Err(pmi::SpawnRefused { reason }));
    let text = format!("could not be spawned: {why}");
    ground.tell(JobEvent::Notice { rank, text });
}

fn answer(ground: &mut Ground, asker: Asker, result: Result<pmi::Spawned, pmi::SpawnRefused>) {
    match asker {
        Asker::Agent(host, id) => ground.order(host, Order::Spawned { id, result }),
        Asker::Own(id) => {
            if let Some(pmi) = &mut ground.pmi {
                pmi.handle_spawned(id, result);
            }
        }
    }
}
