use std::time::Duration;

use ropewalk_launch_core::{
    AgentStart, JobSpec, OnFailure, RespawnPolicy, Segment, TimeLimits, hosts::HostSlots,
};

use super::Programs;
use crate::{Dice, Nanos};

/// A job to simulate.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The job as a user asks for it.
    pub spec: JobSpec,
    /// The programs of its ranks.
    pub programs: Programs,
    /// The ranks hand memory to their agents and hear of departures.
    pub holds_memory: bool,
    /// The time that things take.
    pub costs: Costs,
    /// Things take up to twice their time, and sometimes up to 20 times, drawn from the seed.
    pub is_irregular: bool,
    /// Bytes per second of each host's link and direction.
    pub rate: f64,
    /// The faults. Their times and places are drawn from the seed.
    pub faults: Faults,
    /// The seed of all that is drawn while the job runs.
    pub seed: u64,
}

/// The time that things take. Each node does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A node's own time to start the command that starts an agent elsewhere.
    pub start_agent: Duration,
    /// The time from then until the agent has connected. The node above does other things meanwhile.
    pub login: Duration,
    /// An agent's own time to start a rank.
    pub start_rank: Duration,
    /// The ranks that an agent starts before it sends its reports.
    pub ranks_per_message: u32,
    /// The time that a message is under way besides that for its bytes.
    pub latency: Duration,
    /// A node's own time for a message that it sends or receives.
    pub message: Duration,
    /// A node's own time for each report in a message that it receives.
    pub report: Duration,
    /// A rank's own time between two things that it does.
    pub step: Duration,
}

impl Default for Costs {
    /// Assumed, not measured: fork and exec of ssh, a login, the start of a rank, a message between endpoints. The
    /// orders of magnitude matter for the shape of the tree.
    fn default() -> Self {
        Self {
            start_agent: Duration::from_millis(1),
            login: Duration::from_millis(150),
            start_rank: Duration::from_micros(400),
            ranks_per_message: 16,
            latency: Duration::from_micros(50),
            message: Duration::from_micros(20),
            report: Duration::from_nanos(300),
            step: Duration::from_millis(1),
        }
    }
}

/// The faults of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// So many times a process of a rank is killed.
    pub kills: u32,
    /// So many agents die, with their ranks.
    pub agent_deaths: u32,
    /// So many times the connection of two nodes is lost, with all that is under way, and made again.
    pub cuts: u32,
    /// One agent in so many never comes up; none if 0.
    pub missing_one_in: u64,
    /// The user ends the job at some time.
    pub is_interrupted: bool,
    /// After so many messages about PMI and the ends of hosts, a node does not hear one of them: an error that has to
    /// be found.
    pub forgets_after: Option<u32>,
}

impl Faults {
    /// True if nothing is to disturb the job. Connections that are made again do not.
    pub(super) fn are_harmless(&self) -> bool {
        let Self {
            kills,
            agent_deaths,
            cuts: _,
            missing_one_in,
            is_interrupted,
            forgets_after,
        } = *self;
        kills == 0 && agent_deaths == 0 && missing_one_in == 0 && !is_interrupted && forgets_after.is_none()
    }
}

impl Setting {
    /// A job whose ranks all start and then stay, to see how long the start takes. The ranks are spread evenly; in a
    /// star, which is a tree whose arity is the number of hosts, all agents are right below the launcher.
    pub fn start(hosts: u32, ranks: u32, arity: u32, costs: Costs) -> Self {
        let slots = ranks.div_ceil(hosts.max(1)).max(1);
        Self {
            spec: JobSpec {
                hosts: (0..hosts).map(|host| named(format!("h{host}"), slots)).collect(),
                time_limits: TimeLimits {
                    start_timeout: Some(Duration::from_secs(3_000)),
                    ..TimeLimits::default()
                },
                ..job(ranks, arity)
            },
            programs: Programs::Idle,
            holds_memory: false,
            costs,
            is_irregular: false,
            rate: 1.25e9,
            faults: Faults::default(),
            seed: 0,
        }
    }

    /// A job, mostly a small one, drawn from a seed: its programs speak PMI and spawn others.
    pub fn drawn(seed: u64, on_failure: OnFailure, faults: Faults) -> Self {
        let mut dice = Dice::new(seed);
        let letters = |names: &str| names.chars().map(|name| named(name.to_string(), 1)).collect();
        let hosts: Vec<HostSlots> = match dice.below(16) {
            0 => {
                let hosts = dice.within(8..65);
                (0..hosts).map(|host| named(format!("h{host}"), 1)).collect()
            }
            1 | 2 => {
                let mut hosts: Vec<HostSlots> = letters("abcde");
                hosts[0].slots = 2;
                hosts
            }
            few => letters(["a", "ab", "abc", "abcdefg"][few as usize % 4]),
        };
        Self {
            spec: JobSpec {
                hosts,
                reactions: on_failure.into(),
                ..job(dice.within(1..7) as u32, dice.within(1..4) as u32)
            },
            programs: Programs::Talkative { spawn: true },
            holds_memory: false,
            costs: Costs {
                login: Duration::from_millis(20),
                ranks_per_message: 1,
                latency: Duration::from_micros(100),
                ..Costs::default()
            },
            is_irregular: true,
            rate: 1.25e8,
            faults,
            seed,
        }
    }

    /// A job of a rank on each of up to 24 hosts, whose ranks write much, drawn from a seed. In the tree are up to
    /// five agents below each node.
    pub fn writing(seed: u64, on_failure: OnFailure, faults: Faults) -> Self {
        let mut dice = Dice::new(seed);
        let hosts = dice.within(1..25) as u32;
        let mut setting = Self::drawn(seed, on_failure, faults);
        setting.spec.first.ranks = hosts;
        setting.spec.hosts = (0..hosts).map(|host| named(format!("h{host}"), 1)).collect();
        setting.spec.agents.arity = dice.within(1..6) as u32;
        setting.programs = Programs::Writing;
        // Connections that break are simulated byte for byte.
        setting.faults.cuts = 0;
        setting
    }

    /// A small job with faults, all drawn from a seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(!seed);
        let respawn = OnFailure::Respawn(RespawnPolicy::default());
        let on_failure = [OnFailure::Abort, OnFailure::Continue, respawn][dice.below(3) as usize];
        let mut drawn = |one_in, limit| match dice.once_in(one_in) {
            true => dice.below(limit) as u32,
            false => 0,
        };
        let faults = Faults {
            kills: drawn(2, 4),
            agent_deaths: drawn(2, 4),
            cuts: drawn(3, 20),
            missing_one_in: 20 * u64::from(drawn(3, 2)),
            is_interrupted: drawn(4, 2) == 1,
            forgets_after: None,
        };
        let mut setting = match dice.once_in(3) {
            true => Self::writing(seed, on_failure, faults),
            false => Self::drawn(seed, on_failure, faults),
        };
        setting.holds_memory = dice.once_in(3);
        setting
    }

    pub(super) fn latency(&self) -> Nanos {
        self.costs.latency.into()
    }
}

/// A job of so many ranks, and so many agents below each node.
fn job(ranks: u32, arity: u32) -> JobSpec {
    let agents = AgentStart {
        arity,
        ..AgentStart::new("agent")
    };
    let program = Segment {
        ranks,
        ..Segment::new("program")
    };
    JobSpec::new(agents, program)
}

fn named(name: String, slots: u32) -> HostSlots {
    HostSlots::new(name, slots).expect("letters and digits are a name")
}
