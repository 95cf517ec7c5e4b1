//! Who runs where in one process group, and where those go that a program spawns.

use std::ffi::{OsStr, OsString};

use bstr::{BString, ByteSlice};
use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    job::{JobSpec, Segment},
    placement::{RankRun, is_local},
    tree::NodeId,
};

/// A process group of the job, as all nodes of the tree know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// PMI's number of it; 0 is the one that the job began with.
    pub id: u32,
    /// The rank in the job of its first process; those of the others follow.
    pub first: Rank,
    /// How many processes it has.
    pub size: u32,
    /// Its processes on each host, by their ranks in the job.
    pub runs: Vec<Vec<RankRun>>,
    /// The programs of its processes, in order of the ranks.
    pub programs: Vec<GroupProgram>,
    /// The group that spawned it.
    pub(crate) spawner: Option<u32>,
    pub(crate) preput: pmi::KeyValuePairs,
}

/// A program that some of a group's processes run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupProgram {
    /// The program and how many processes run it.
    pub segment: Segment,
    /// Where the program is looked for before `PATH`.
    pub path: Option<OsString>,
}

impl GroupPlan {
    /// Returns true if the plan is one that a launcher makes: each of its processes runs in one place and one
    /// program, and there are not more than a job has.
    pub(crate) fn is_sound(&self) -> bool {
        let ranks = u64::from(self.first.0)..u64::from(self.first.0) + u64::from(self.size);
        let sum = |counts: &mut dyn Iterator<Item = u32>| counts.map(u64::from).sum::<u64>();
        let mut runs: Vec<_> = self.runs.iter().flatten().collect();
        runs.sort_unstable_by_key(|run| run.first);
        let is_apart = |pair: &[&RankRun]| pair[0].first.0 + pair[0].count <= pair[1].first.0;
        ranks.end <= u64::from(JobSpec::RANKS_MAX)
            && sum(&mut runs.iter().map(|run| run.count)) == u64::from(self.size)
            && sum(&mut self.programs.iter().map(|program| program.segment.ranks)) == u64::from(self.size)
            && runs.iter().all(|run| {
                let first = u64::from(run.first.0);
                run.count > 0 && ranks.start <= first && first + u64::from(run.count) <= ranks.end
            })
            && runs.windows(2).all(is_apart)
    }

    /// The ranks in the job of its processes on a host, in ascending order.
    pub fn job_ranks(&self, host: HostId) -> impl Iterator<Item = Rank> {
        let runs = self.runs.get(host.0 as usize).into_iter().flatten();
        runs.flat_map(|run| (run.first.0..run.first.0.saturating_add(run.count)).map(Rank))
    }

    /// Its own ranks on these hosts.
    pub(crate) fn ranks_on(&self, hosts: impl IntoIterator<Item = HostId>) -> pmi::RankSet {
        let runs = hosts
            .into_iter()
            .filter_map(|host| self.runs.get(host.0 as usize))
            .flatten();
        let ranges: Vec<_> = runs
            .map(|run| {
                let first = run.first.0 - self.first.0;
                (first, first + run.count)
            })
            .collect();
        ranges.into()
    }

    /// Returns true if a rank of the job belongs to this group.
    pub fn has(&self, rank: Rank) -> bool {
        rank.0
            .checked_sub(self.first.0)
            .is_some_and(|own| own < self.size)
    }

    /// The agent of a rank's host.
    pub fn node_of(&self, rank: Rank) -> Option<NodeId> {
        let is_here = |run: &RankRun| (run.first.0..run.first.0 + run.count).contains(&rank.0);
        let host = self.runs.iter().position(|runs| runs.iter().any(is_here))?;
        Some(NodeId::of(HostId(host as u32)))
    }

    /// The number of the program that a rank of the job runs, and the program.
    pub fn program_of(&self, rank: Rank) -> Option<(usize, &GroupProgram)> {
        let mut behind = self.first.0;
        self.programs.iter().enumerate().find(|(_, program)| {
            behind += program.segment.ranks;
            rank.0 < behind
        })
    }

    /// Blocks of ranks in their order, those alike on hosts side by side as one. Hosts without a rank do not count.
    pub(crate) fn process_mapping(&self) -> pmi::ProcessMapping {
        let used = self.runs.iter().filter(|runs| !runs.is_empty());
        let mut runs: Vec<_> = used
            .zip(0..)
            .flat_map(|(runs, node)| runs.iter().map(move |run| (run, node)))
            .collect();
        runs.sort_unstable_by_key(|(run, _)| run.first);
        let mut blocks: Vec<pmi::MappingBlock> = Vec::new();
        for (run, node) in runs {
            match blocks.last_mut() {
                Some(last) if last.ranks_per_node == run.count && last.node + last.nodes == node => {
                    last.nodes += 1
                }
                _ => blocks.push(pmi::MappingBlock {
                    node,
                    nodes: 1,
                    ranks_per_node: run.count,
                }),
            }
        }
        pmi::ProcessMapping::new(blocks)
    }
}

/// A host of the job, as far as spawning depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    pub name: &'a str,
    /// How many processes the job began with there, at least one.
    pub slots: u32,
    /// How many run there.
    pub load: u32,
    /// Its agent takes no more.
    pub is_over: bool,
}

/// The facts by which a spawn is planned, besides the wishes of the process that spawns.
pub(crate) struct Spawning<'a> {
    pub id: u32,
    pub first: Rank,
    pub(crate) spawner: u32,
    /// The launcher's own host.
    pub own_host: &'a str,
    /// Where programs start for which nothing else is said: where the spawner did.
    pub working_directory: Option<&'a OsStr>,
    /// How many processes there may be.
    pub(crate) size_max: u32,
}

/// Why the processes that a program wants to spawn are not started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpawnRefusal {
    #[error("host {host} is none of the job's")]
    ForeignHost { host: String },
    #[error("{max} spawned groups run already")]
    Groups { max: usize },
    #[error("host {host} takes no more processes")]
    HostClosed { host: String },
    #[error("the host file of info key hostfile was not read")]
    HostFileUnread,
    #[error("{value:?} names no host")]
    HostName { value: BString },
    #[error("the job is being ended")]
    JobEnding,
    #[error("no host of the job takes any more processes")]
    NoHost,
    #[error("each program of a spawn has at least one process, and all together at most {max}, not {asked}")]
    Processes { asked: u64, max: u32 },
    #[error("the spawner is gone")]
    SpawnerGone,
}

/// Places what a process wants to spawn: on the hosts that it names or on all of the job, each process where the
/// fewest run for what the host is for, and those of a program on one host in a row.
///
/// # Errors
/// If the hosts or so many processes cannot be had.
pub(crate) fn plan_spawn(
    spawn: pmi::Spawn,
    around: &Spawning<'_>,
    seats: &[Seat<'_>],
) -> Result<GroupPlan, SpawnRefusal> {
    let processes = spawn.processes();
    let has_none = spawn.commands.iter().any(|command| command.processes == 0);
    if has_none || processes == 0 || processes > u64::from(around.size_max) {
        return Err(SpawnRefusal::Processes {
            asked: processes,
            max: around.size_max,
        });
    }
    let mut plan = GroupPlan {
        id: around.id,
        first: around.first,
        size: processes as u32,
        runs: vec![Vec::new(); seats.len()],
        programs: Vec::new(),
        spawner: Some(around.spawner),
        preput: spawn.preput,
    };
    let mut load: Vec<u32> = seats.iter().map(|seat| seat.load).collect();
    let mut next = around.first.0;
    for command in spawn.commands {
        let info = Info::of(&command.info)?;
        let open = info.open_hosts(around.own_host, seats)?;
        let mut counts = vec![0u32; seats.len()];
        for _ in 0..command.processes {
            let emptiest = open
                .iter()
                .copied()
                .min_by_key(|&host| (u64::from(load[host]) << 20) / u64::from(seats[host].slots.max(1)));
            let host = emptiest.ok_or(SpawnRefusal::NoHost)?;
            counts[host] += 1;
            load[host] += 1;
        }
        for (runs, count) in plan.runs.iter_mut().zip(counts) {
            match runs.last_mut() {
                _ if count == 0 => {}
                Some(last) if last.first.0 + last.count == next => last.count += count,
                _ => runs.push(RankRun {
                    first: Rank(next),
                    count,
                }),
            }
            next += count;
        }
        let directory = info.wdir.or(around.working_directory);
        plan.programs.push(GroupProgram {
            segment: Segment {
                program: os(&command.program),
                arguments: command.arguments.iter().map(os).collect(),
                ranks: command.processes,
                environment: info.environment,
                inherited: None,
                working_directory: directory.map(Into::into),
            },
            path: info.path.map(OsStr::to_owned),
        });
    }
    Ok(plan)
}

/// The wishes of a spawn that are granted; others may be ignored (MPI standard 4.0, section 11.8.4).
#[derive(Default)]
struct Info<'a> {
    hosts: Vec<&'a str>,
    path: Option<&'a OsStr>,
    wdir: Option<&'a OsStr>,
    environment: Vec<(OsString, OsString)>,
}

/// The key of a wish that PMI has no word for: a variable of the new processes, as `NAME=VALUE`.
pub const ENVIRONMENT_KEY: &str = "ropewalk_env";

fn variable(text: &BString) -> Option<(OsString, OsString)> {
    let (name, value) = text.split_once_str("=")?;
    Some((os(&name.into()), os(&value.into())))
}

impl<'a> Info<'a> {
    fn of(pairs: &'a [(BString, BString)]) -> Result<Self, SpawnRefusal> {
        let mut info = Self::default();
        for (key, value) in pairs {
            match key.as_slice() {
                b"host" | b"hosts" => {
                    let names = value
                        .to_str()
                        .map_err(|_| SpawnRefusal::HostName { value: value.clone() })?;
                    let names = names.split(',').map(str::trim);
                    info.hosts.extend(names.filter(|name| !name.is_empty()));
                }
                // Its hosts stand here once it is read; to ignore it would put processes where they are not wanted.
                b"hostfile" => return Err(SpawnRefusal::HostFileUnread),
                b"path" => info.path = value.to_os_str().ok(),
                key if key == ENVIRONMENT_KEY.as_bytes() => info.environment.extend(variable(value)),
                b"wdir" => info.wdir = value.to_os_str().ok(),
                _ => {}
            }
        }
        Ok(info)
    }

    fn open_hosts(&self, own: &str, seats: &[Seat<'_>]) -> Result<Vec<usize>, SpawnRefusal> {
        let is_open = |&host: &usize| !seats[host].is_over;
        if self.hosts.is_empty() {
            return Ok((0..seats.len()).filter(is_open).collect());
        }
        let mut open = Vec::new();
        for name in &self.hosts {
            // As in host lists, a number of slots may follow.
            let name = name.split(':').next().unwrap_or(name);
            let is_it = |seat: &Seat<'_>| {
                seat.name == name
                    || seat.name.rsplit('@').next() == Some(name)
                    || (is_local(name, own) && is_local(seat.name, own))
            };
            let host = seats.iter().position(is_it);
            let host = host.ok_or_else(|| SpawnRefusal::ForeignHost {
                host: name.to_owned(),
            })?;
            if !is_open(&host) {
                return Err(SpawnRefusal::HostClosed {
                    host: name.to_owned(),
                });
            }
            open.push(host);
        }
        Ok(open)
    }
}

fn os(text: &BString) -> OsString {
    text.to_os_str_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(processes: u32, info: &[(&str, &str)]) -> pmi::SpawnCommand {
        let pair = |&(key, value): &(&str, &str)| (key.into(), value.into());
        pmi::SpawnCommand {
            program: "worker".into(),
            processes,
            arguments: vec!["x=y;z".into()],
            info: info.iter().map(pair).collect(),
        }
    }

    fn planned(commands: Vec<pmi::SpawnCommand>, seats: &[Seat<'_>]) -> Result<GroupPlan, SpawnRefusal> {
        let around = Spawning {
            id: 1,
            first: Rank(10),
            spawner: 0,
            own_host: "own",
            working_directory: Some(OsStr::new("/here")),
            size_max: 100,
        };
        let preput = vec![("k".into(), "v".into())];
        plan_spawn(pmi::Spawn { preput, commands }, &around, seats)
    }

    fn seat(name: &str, slots: u32, load: u32) -> Seat<'_> {
        Seat {
            name,
            slots,
            load,
            is_over: false,
        }
    }

    fn ranks(plan: &GroupPlan, host: u32) -> Vec<u32> {
        plan.job_ranks(HostId(host)).map(|rank| rank.0).collect()
    }

    /// Processes go where there is room, those of a program on one host in a row.
    #[test]
    fn processes_go_where_fewest_are() {
        let seats = [seat("a", 2, 2), seat("b", 4, 0)];
        let plan = planned(vec![command(3, &[]), command(2, &[])], &seats).unwrap();
        assert_eq!(
            (ranks(&plan, 0), ranks(&plan, 1)),
            (vec![13], vec![10, 11, 12, 14])
        );
        assert_eq!(plan.ranks_on([HostId(0)]), pmi::RankSet::range(3, 4));
        assert_eq!(plan.process_mapping().to_string(), "(vector,(1,1,3),(0,2,1))");
        assert_eq!(plan.program_of(Rank(13)).map(|(number, _)| number), Some(1));
        assert_eq!(plan.node_of(Rank(14)), Some(NodeId(2)));
    }

    /// "Info keys acted on by Hydra: `path` (prefix dir), `wdir`, `host`/`hosts` (comma list), `hostfile`; others
    /// ignored."
    #[test]
    fn info_is_heeded() {
        let seats = [seat("own", 1, 9), seat("user@b", 1, 0), seat("c", 1, 0)];
        let info = [
            ("host", "localhost"),
            ("wdir", "/there"),
            ("path", "/bin"),
            ("soft", "1:2"),
        ];
        let plan = planned(vec![command(2, &info), command(1, &[("hosts", "b:4")])], &seats).unwrap();
        assert_eq!((ranks(&plan, 0), ranks(&plan, 1)), (vec![10, 11], vec![12]));
        let program = &plan.programs[0];
        assert_eq!(program.path.as_deref(), Some(OsStr::new("/bin")));
        assert_eq!(program.segment.working_directory, Some("/there".into()));
        assert_eq!(program.segment.arguments, ["x=y;z"]);
        assert_eq!(plan.programs[1].segment.working_directory, Some("/here".into()));
        // A mapping numbers the hosts that the group uses.
        assert_eq!(plan.process_mapping().to_string(), "(vector,(0,1,2),(1,1,1))");
    }

    /// A spawn that cannot be had is refused with a reason.
    #[test]
    fn what_cannot_be_had_is_refused() {
        let mut over = seat("a", 1, 1);
        over.is_over = true;
        let seats = [over, seat("b", 1, 1)];
        for (command, reason) in [
            (command(0, &[]), "at least one process"),
            (command(101, &[]), "at most 100, not 101"),
            (command(1, &[("host", "nowhere")]), "host nowhere is none"),
            (command(1, &[("host", "a")]), "host a takes no more"),
            (command(1, &[("hostfile", "f")]), "hostfile was not read"),
        ] {
            let error = planned(vec![command], &seats).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(planned(vec![command(1, &[])], &seats[..1]).is_err());
    }
}
