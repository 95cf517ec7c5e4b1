//! Which job is simulated.

use ropewalk_names::JobId;

use super::*;
use crate::{
    hosts::parse_hosts,
    job::JobSpec,
    plan::{self, Surroundings},
};

impl World {
    /// A job, mostly a small one, drawn from the seed.
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random(seed);
        let hosts = match random.below(16) {
            0 => (0..8 + random.below(57))
                .map(|host| format!("h{host}"))
                .collect::<Vec<_>>()
                .join(","),
            few => ["a", "a,b", "a,b,c", "a:2,b,c,d,e", "a,b,c,d,e,f,g"][few % 5].to_owned(),
        };
        let spec = JobSpec {
            ranks: 1 + random.below(6) as u32,
            hosts: parse_hosts(&hosts).unwrap(),
            arity: 1 + random.below(3) as u32,
            on_failure: faults.on_failure,
            ..JobSpec::new("agent", "program")
        };
        Self {
            kills_left: faults.kills,
            agent_deaths_left: faults.agent_deaths,
            cuts_left: faults.cuts,
            forgotten_left: faults.forgets_after,
            ..Self::of(&spec, random)
        }
    }

    /// This job, in which nothing goes wrong.
    pub(super) fn of(spec: &JobSpec, random: Random) -> Self {
        let around = Surroundings {
            job: JobId([0; 16]),
            host_name: "a".to_owned(),
            processors: 1,
            environment: vec![],
            working_directory: None,
        };
        let plan = plan::plan(spec, around).unwrap();
        Self {
            random,
            now: Duration::ZERO,
            groups: vec![plan.first_group()],
            supervisor: Supervisor::new(&plan, spec.on_failure, None),
            root: Relay::of(&plan, NodeId::ROOT),
            plan,
            nodes: BTreeMap::new(),
            connecting: Vec::new(),
            sights: Vec::new(),
            parents: BTreeMap::new(),
            adoptions: 0,
            cuts: 0,
            exited_well: BTreeSet::new(),
            on_failure: spec.on_failure,
            links: Links::default(),
            processes: BTreeMap::new(),
            kills_left: 0,
            agent_deaths_left: 0,
            cuts_left: 0,
            forgotten_left: None,
            has_forgotten: false,
            spawns_answered: 0,
            verdict: None,
            script: None,
            fence_traffic: BTreeMap::new(),
            memory: Memory::default(),
        }
    }
}
