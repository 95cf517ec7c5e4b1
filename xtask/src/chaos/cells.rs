//! The reduction's column of the fault table, cell by cell.

use std::time::Duration;

use ropewalk_rig::Weather;

use super::{
    returns::Kills,
    steps::{Act, Draw, Layout, Moment, Step},
};

/// One kind of fault, and the promise about it.
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) fault: &'static str,
    pub(super) expected: Expected,
    /// Run i has the i-th of these, and again from the first.
    pub(super) layouts: &'static [Layout],
    pub(super) workload: Workload,
    /// The detection time of the job, in seconds.
    pub(super) detect: f64,
    /// So many seconds after the first fault the job has ended.
    pub(super) seconds_max: u32,
    /// How many runs, and how many in the short version.
    pub(super) runs: u64,
    pub(super) short_runs: u64,
    pub(super) draw: fn(&mut Draw) -> Vec<Step>,
    /// Between the second host and all others.
    pub(super) weather: Option<Weather>,
    /// One rank has too little of this.
    pub(super) shortage: Option<Shortage>,
    /// A rank that stays stopped for the detection time is killed, as `--stopped fail` asks.
    pub(super) kills_stopped: bool,
    /// Ranks that are killed come back: see [returns](super::returns).
    pub(super) returns: Option<fn(&mut Draw, u64) -> Kills>,
}

/// The calls that the ranks make.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    /// The length of the vectors.
    pub(super) bytes: u64,
    /// Hosts that keep a copy of each contribution before it counts.
    pub(super) copies: u32,
    /// The rank that follows the root calls so much later than the others, in milliseconds.
    pub(super) late_ms: u32,
    /// The ranks call as a group of their own order.
    pub(super) is_group: bool,
    /// They make the same call so many times before the one that is disturbed.
    pub(super) before: u32,
}

impl Workload {
    /// Vectors of so many bytes, of which nobody keeps copies. All ranks call at once.
    pub(super) const fn new(bytes: u64) -> Self {
        Self {
            bytes,
            copies: 0,
            late_ms: 0,
            is_group: false,
            before: 0,
        }
    }
}

/// The outcome that counts as right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The exact result.
    Exact,
    /// The exact result, or an error on all ranks that names one that is lost.
    ExactOrNamed,
}

/// Something of which a rank, the last one, has little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    Descriptors,
    Memory,
}

const fn cell(name: &'static str, fault: &'static str, draw: fn(&mut Draw) -> Vec<Step>) -> Cell {
    Cell {
        name,
        fault,
        expected: Expected::Exact,
        layouts: &[FOUR_HOSTS],
        workload: Workload::new(2 << 20),
        detect: 3.0,
        seconds_max: 20,
        runs: 20,
        short_runs: 2,
        draw,
        weather: None,
        shortage: None,
        kills_stopped: false,
        returns: None,
    }
}

const FOUR_HOSTS: Layout = Layout::new(4, 8);
/// Half of the runs are on four hosts or more, one in four with one rank a host.
const ALL: &[Layout] = &[
    Layout::new(1, 8),
    FOUR_HOSTS,
    Layout::new(1, 4),
    Layout::new(5, 5),
];

const ONE_HOST: &[Layout] = &[Layout::new(1, 2), Layout::new(1, 4), Layout::new(1, 8)];

const RANKS_BESIDE: &[Layout] = &[FOUR_HOSTS, Layout::new(2, 8)];

/// All of them. Each run draws the root and who follows it; the scheduler is rank 0.
pub(super) const CELLS: &[Cell] = &[
    Cell {
        layouts: ALL,
        runs: 100,
        short_runs: 24,
        ..cell("kill", "kill -9 of any rank", |draw| {
            let victim = draw.any_rank();
            vec![draw.kill(victim)]
        })
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell(
            "worker-kill",
            "kill -9 of a rank that neither schedules nor is root",
            |draw| {
                let victim = draw.rank_but(&[draw.root, SCHEDULER]);
                vec![draw.kill(victim)]
            },
        )
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell(
            "scheduler-kill",
            "kill -9 of the scheduler, which is not the root",
            |draw| {
                (draw.root, draw.next) = (draw.rank_but(&[SCHEDULER]), SCHEDULER);
                draw.next = draw.rank_but(&[draw.root, SCHEDULER]);
                vec![draw.kill(SCHEDULER)]
            },
        )
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell("root-kill", "kill -9 of the root, which may move", |draw| {
            vec![draw.kill(draw.root)]
        })
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell(
            "two-kills",
            "kill -9 of two ranks at once, half of them neighbours",
            |draw| {
                let first = draw.rank_but(&[draw.next]);
                let neighbour = ropewalk_names::Rank((first.0 + 1) % draw.layout.ranks);
                let second = match draw.below(2) == 0 && neighbour != draw.next {
                    true => neighbour,
                    false => draw.rank_but(&[first, draw.next]),
                };
                let kill = draw.kill(first);
                let act = Act::Kill(second);
                vec![kill, Step { act, ..kill }]
            },
        )
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell(
            "kill-in-recovery",
            "kill -9 of a second rank up to 20 ms after the first",
            |draw| {
                let first = draw.rank_but(&[draw.next]);
                let second = draw.rank_but(&[first, draw.next]);
                let kill = draw.kill(first);
                let delay = kill.delay + draw.within(Duration::from_millis(20));
                let act = Act::Kill(second);
                vec![kill, Step { delay, act, ..kill }]
            },
        )
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        ..cell(
            "kill-in-call",
            "kill -9 of any rank within 8 ms of its call; V if that had not returned",
            |draw| {
                let victim = draw.any_rank();
                vec![Step {
                    from: Moment::Calls(victim),
                    delay: draw.within(Duration::from_millis(8)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: ALL,
        short_runs: 4,
        workload: Workload::new(512),
        ..cell(
            "kill-in-short-call",
            "kill -9 of any rank within 3 ms of its call with 512 bytes; V if that had not returned",
            |draw| {
                let victim = draw.any_rank();
                vec![Step {
                    from: Moment::Calls(victim),
                    delay: draw.within(Duration::from_millis(3)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: &[FOUR_HOSTS, Layout::new(5, 5)],
        short_runs: 4,
        workload: Workload {
            before: 3,
            ..Workload::new(256 << 10)
        },
        ..cell(
            "kill-in-repeated-call",
            "kill -9 of any rank within 8 ms of its fourth call of one kind; V if that had not returned",
            |draw| {
                let victim = draw.any_rank();
                vec![Step {
                    from: Moment::Calls(victim),
                    delay: draw.within(Duration::from_millis(8)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: ONE_HOST,
        short_runs: 4,
        workload: Workload {
            late_ms: 20,
            ..Workload::new(512)
        },
        ..cell(
            "kill-in-table",
            "on one host, kill -9 of any rank within 25 ms of a call with 512 bytes; one rank calls 20 ms late",
            |draw| {
                let (first, victim) = (draw.any_rank(), draw.any_rank());
                vec![Step {
                    from: Moment::Calls(first),
                    delay: draw.within(Duration::from_millis(25)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: ONE_HOST,
        short_runs: 4,
        workload: Workload {
            late_ms: 20,
            is_group: true,
            ..Workload::new(512)
        },
        ..cell(
            "kill-in-group",
            "on one host, kill -9 of any rank of a group within 25 ms of a call with 512 bytes; one calls 20 ms late",
            |draw| {
                let (first, victim) = (draw.any_rank(), draw.any_rank());
                vec![Step {
                    from: Moment::Calls(first),
                    delay: draw.within(Duration::from_millis(25)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: RANKS_BESIDE,
        short_runs: 4,
        workload: Workload {
            late_ms: 20,
            ..Workload::new(512)
        },
        ..cell(
            "kill-among-hosts",
            "several ranks on each host, kill -9 of any within 25 ms of a call with 512 bytes; one calls 20 ms late",
            |draw| {
                let (first, victim) = (draw.any_rank(), draw.any_rank());
                vec![Step {
                    from: Moment::Calls(first),
                    delay: draw.within(Duration::from_millis(25)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: ONE_HOST,
        short_runs: 4,
        workload: Workload {
            late_ms: 5,
            ..Workload::new(LONG)
        },
        ..cell(
            "kill-in-long-call",
            "on one host, kill -9 of any rank within 25 ms of a call with 8 MiB; one rank calls 5 ms late",
            |draw| {
                let (first, victim) = (draw.any_rank(), draw.any_rank());
                vec![Step {
                    from: Moment::Calls(first),
                    delay: draw.within(Duration::from_millis(25)),
                    act: Act::Kill(victim),
                }]
            },
        )
    },
    Cell {
        layouts: &[Layout::new(1, 6), Layout::new(3, 6), Layout::new(4, 4)],
        runs: 100,
        short_runs: 6,
        returns: Some(Kills::draw),
        ..cell(
            "return",
            "kill -9 of all ranks but one, or of each in turn, in a job of 100 steps or more whose ranks come back",
            |_| Vec::new(),
        )
    },
    Cell {
        layouts: &[Layout::new(4, 4), Layout::new(3, 6), Layout::new(4, 8)],
        detect: 1.0,
        runs: 60,
        short_runs: 4,
        seconds_max: 30,
        returns: Some(|draw, _| Kills::draw_with_host(draw)),
        ..cell(
            "return-host-kill",
            "the same, and a host is lost with its ranks",
            |_| Vec::new(),
        )
    },
    Cell {
        workload: Workload::new(LONG),
        detect: 1.0,
        expected: Expected::ExactOrNamed,
        ..cell("agent-kill", "kill -9 of a host's agent", |draw| {
            let host = draw.any_host();
            vec![draw.step_at(host, Act::KillAgent(host))]
        })
    },
    Cell {
        workload: Workload::new(LONG),
        detect: 1.0,
        expected: Expected::ExactOrNamed,
        ..cell("host-kill", "loss of a host, agent and links at once", |draw| {
            let host = draw.any_host();
            vec![draw.step_at(host, Act::KillHost(host))]
        })
    },
    Cell {
        workload: Workload {
            copies: 1,
            ..Workload::new(LONG)
        },
        detect: 1.0,
        // One rank a host: a second one might not be protected yet.
        layouts: &[Layout::new(4, 4), Layout::new(5, 5)],
        // Under load it has hung: see docs/faults.md.
        short_runs: 0,
        ..cell(
            "host-kill-copied",
            "the same, with a copy of each contribution on another host",
            |draw| {
                let host = draw.any_host();
                vec![draw.step_at(host, Act::KillHost(host))]
            },
        )
    },
    Cell {
        workload: Workload::new(LONG),
        detect: 1.0,
        expected: Expected::ExactOrNamed,
        runs: 5,
        short_runs: 0,
        seconds_max: 30,
        ..cell("agent-stop", "SIGSTOP of a host's agent for 10 s", |draw| {
            let host = draw.any_host();
            let stop = draw.step_at(host, Act::StopAgent(host));
            vec![
                stop,
                then(stop, Duration::from_secs(10), Act::ContinueAgent(host)),
            ]
        })
    },
    Cell {
        layouts: ALL,
        detect: 0.5,
        runs: 40,
        short_runs: 4,
        ..cell("stop", "SIGSTOP of any rank, SIGCONT 0.1 to 3 s later", |draw| {
            let length = draw.between(Duration::from_millis(100), Duration::from_secs(3));
            stop(draw, length)
        })
    },
    Cell {
        layouts: ALL,
        detect: 0.5,
        runs: 5,
        short_runs: 0,
        seconds_max: 30,
        ..cell("stop-10", "SIGSTOP of any rank, SIGCONT 10 s later", |draw| {
            stop(draw, Duration::from_secs(10))
        })
    },
    Cell {
        layouts: ALL,
        detect: 0.5,
        seconds_max: 5,
        kills_stopped: true,
        ..cell(
            "stop-fail",
            "SIGSTOP of any rank, in a job with `--stopped fail`",
            |draw| stop(draw, Duration::from_secs(10))[..1].to_vec(),
        )
    },
    Cell {
        layouts: ALL,
        runs: 8,
        shortage: Some(Shortage::Memory),
        ..cell(
            "memory",
            "the memory limit of a control group kills a rank that has contributed",
            |_| Vec::new(),
        )
    },
    Cell {
        expected: Expected::ExactOrNamed,
        seconds_max: 45,
        layouts: ALL,
        runs: 12,
        // A rank with so few that it cannot join its job leaves the others without a call to judge.
        short_runs: 0,
        shortage: Some(Shortage::Descriptors),
        ..cell("descriptors", "a rank may open 8 to 39 descriptors", |_| {
            Vec::new()
        })
    },
    Cell {
        workload: Workload::new(LONG),
        // With a detection time of 1 s a host may be lost: TCP may send again as late as 0.8 s after the end.
        ..cell("cut-short", "a host's links cut both ways for 0.5 s", |draw| {
            let host = draw.any_host();
            let cut = draw.step_at(host, Act::Cut(host));
            vec![cut, then(cut, Duration::from_millis(500), Act::Mend(host))]
        })
    },
    Cell {
        workload: Workload::new(LONG),
        detect: 1.0,
        expected: Expected::ExactOrNamed,
        ..cell("cut", "a host's links cut both ways for ever", |draw| {
            let host = draw.any_host();
            vec![draw.step_at(host, Act::Cut(host))]
        })
    },
    Cell {
        workload: Workload::new(LONG),
        detect: 1.0,
        seconds_max: 10,
        ..cell(
            "one-way",
            "nothing arrives at one host from another; a third reaches both",
            |draw| {
                let host = draw.any_host();
                let other = (host + draw.below(3) as u8) % 4 + 1;
                vec![draw.step_at(host, Act::CutOneWay(host, other))]
            },
        )
    },
    Cell {
        workload: Workload::new(128 << 10),
        runs: 8,
        short_runs: 1,
        seconds_max: 30,
        ..cell("slow-link", "1 Mbit/s from and to one host", |draw| {
            let host = draw.any_host();
            vec![Step {
                from: Moment::Calls(draw.layout.ranks_of(host)[0]),
                delay: Duration::ZERO,
                act: Act::SetRate(host, 1),
            }]
        })
    },
    Cell {
        runs: 8,
        short_runs: 1,
        weather: Some(Weather {
            delay: Duration::from_millis(5),
            ..CALM
        }),
        ..cell(
            "delays",
            "every 64 KiB from and to one host come 5 ms late",
            |_| Vec::new(),
        )
    },
    Cell {
        workload: Workload::new(LONG),
        runs: 8,
        short_runs: 2,
        seconds_max: 60,
        weather: Some(Weather {
            reset_every: Some(RESET_EVERY),
            ..CALM
        }),
        ..cell(
            "resets",
            "a reset of every connection of one host after 1.2 MB",
            |_| Vec::new(),
        )
    },
    Cell {
        workload: Workload::new(LONG),
        runs: 8,
        short_runs: 2,
        seconds_max: 60,
        weather: Some(Weather {
            reset_every: Some(RESET_EVERY),
            late_after_reset: Duration::from_millis(50),
            ..CALM
        }),
        ..cell(
            "late-after-reset",
            "the same, and what was sent before arrives 50 ms after",
            |_| Vec::new(),
        )
    },
    Cell {
        runs: 8,
        short_runs: 2,
        seconds_max: 60,
        weather: Some(Weather {
            flip_every: Some(1_000_000),
            ..CALM
        }),
        ..cell(
            "wrong-bits",
            "one wrong bit in each megabyte of one host's connections",
            |_| Vec::new(),
        )
    },
];

/// On four hosts the reduction of so much takes a quarter of a second; a change of a link takes some milliseconds.
const LONG: u64 = 8 << 20;
/// A chunk, which has at most a mebibyte, has to pass between two resets.
const RESET_EVERY: usize = 1_200_000;
const SCHEDULER: ropewalk_names::Rank = ropewalk_names::Rank(0);

const CALM: Weather = Weather {
    reset_every: None,
    flip_every: None,
    dial_delay: Duration::ZERO,
    stall: None,
    cut: None,
    late_after_reset: Duration::ZERO,
    delay: Duration::ZERO,
    end_after: None,
    outage: None,
    rate: None,
};

fn stop(draw: &mut Draw, length: Duration) -> Vec<Step> {
    let victim = draw.any_rank();
    let usual = draw.usual;
    let stop = Step {
        from: Moment::Calls(victim),
        delay: draw.within(usual),
        act: Act::Stop(victim),
    };
    vec![stop, then(stop, length, Act::Continue(victim))]
}

fn then(step: Step, pause: Duration, act: Act) -> Step {
    Step {
        delay: step.delay + pause,
        act,
        ..step
    }
}
