use ropewalk_reduce_core::{Call, Contributions, Member, OnLoss, OnRootLoss, Order, Relays};

use crate::{Dice, Host, Nanos, Network};

/// A job to simulate.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Hosts, each with one rank.
    pub hosts: u32,
    /// The reductions that all ranks call.
    pub calls: Calls,
    /// The links and processors of the hosts.
    pub cluster: Cluster,
    /// When a process is given up, or not waited for.
    pub timeouts: Timeouts,
    /// The ranks through which messages to and from the scheduler go.
    pub relays: Relays,
    /// So long after its rank has called a contribution is also on the next host; never if there is no time.
    pub copies: Option<Nanos>,
    /// Calls count only so long after their copies are made; if there is no time, at once.
    pub acknowledged: Option<Nanos>,
    /// Ranks that call later than at time zero.
    pub late: Vec<(u32, Nanos)>,
    /// Senders report the rates that they measure, and the scheduler may change its plan.
    pub are_rates_reported: bool,
    /// The faults, and when they strike.
    pub faults: Vec<(Nanos, Fault)>,
    /// A process that dies has handed nothing to the system of what has not arrived yet.
    pub loses_sent: bool,
    /// So long after the first end on the rank with the scheduler that rank is killed.
    pub killed_after_end: Option<Nanos>,
    /// The seed of the tokens.
    pub seed: u64,
}

/// The reductions that all ranks call.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The number of reductions.
    pub count: u32,
    /// A rank makes each call when it knows the end of the one before, and not all at once. A late rank is late for
    /// each.
    pub are_in_turn: bool,
    /// Bytes of each contribution.
    pub bytes: u64,
    /// From this call on contributions have half as many.
    pub halved_from: u64,
    /// Bytes of an element, which is in one chunk: of long ones few fit into the windows.
    pub element_bytes: u32,
    /// The rank that gets the result.
    pub root: u32,
    /// All ranks get the result.
    pub is_spread: bool,
    /// The contributions, if each may be on several hosts; otherwise ranks make them.
    pub shared: Option<Shared>,
    /// The ranks that make contributions, if they are not shared, and how these make the result.
    pub made: Made,
    /// The order of folding.
    pub order: Order,
    /// The answer to the loss of contributions.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: OnRootLoss,
}

/// The links and processors of the hosts.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Bytes per second of each link and direction.
    pub rate: f64,
    /// The links are token buckets.
    pub burst: Option<Burst>,
    /// The time that a message takes on top of its bytes.
    pub latency: Nanos,
    /// The work of a processor for each message between hosts, at either end.
    pub message_time: Nanos,
    /// Bytes per second that a host's processor folds if it does nothing else.
    pub fold_rate: f64,
    /// The answer to a chunk takes so much longer than a message.
    pub completion: Nanos,
    /// The hosts whose links or processors are slower than the others'.
    pub slow: Vec<Slow>,
    /// Other programs on the hosts, in the order of time. Nobody tells the planner of them.
    pub changes: Vec<Change>,
}

/// The bytes that a link lets through faster than its rate after a pause.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// So many.
    pub bytes: u64,
    /// At so many bytes per second.
    pub peak: f64,
}

/// When a process is given up, or not waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The agent of a host sees that a rank is lost after so long; other hosts see a lost host after 20 times as long.
    pub detection: Nanos,
    /// A site that is cut off counts as unreachable after so long.
    pub link: Nanos,
    /// The scheduler begins without ranks that are late by so much.
    pub late_rank: Nanos,
}

/// Contributions that several ranks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The number of contributions.
    pub members: u32,
    /// The number of ranks that hold each: from the rank of its own number on, one after the other.
    pub holders: u32,
}

/// The contributions that ranks make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Each rank makes one, and they are folded.
    ByEach,
    /// The rank of this number makes the only one.
    ByOne(u32),
    /// Each rank makes one, and they stand side by side.
    SideBySide,
}

/// A slow host.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// The host.
    pub host: u32,
    /// Its rate out, as a part of the others'.
    pub outwards: f64,
    /// Its rate in, as a part of the others'.
    pub inwards: f64,
    /// The part of its processor that it has: for messages, and for folding.
    pub folding: f64,
    /// The planner has measured it.
    pub is_known: bool,
}

/// Other programs on a host take more or less from a time on. The parts are of what the host has alone.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// From this time on, until the next change of the host.
    pub at: Nanos,
    /// The host.
    pub host: u32,
    /// The part of its rate out that is left.
    pub outwards: f64,
    /// The part of its rate in that is left.
    pub inwards: f64,
    /// The part of its processor that is left.
    pub folding: f64,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rank dies; its agent lives.
    KillRank(u32),
    /// A rank and its agent die.
    KillHost(u32),
    /// A rank stops for so long.
    Freeze(u32, Nanos),
    /// No message passes from one host to another for so long.
    Cut(u32, u32, Nanos),
    /// A rank cancels all its calls that have not ended.
    Cancel(u32),
}

impl Calls {
    /// Bytes of each contribution to the call of this number.
    pub(super) fn bytes_of(&self, call: u64) -> u64 {
        match call < self.halved_from {
            true => self.bytes,
            false => self.bytes / 2,
        }
    }
}

impl Setting {
    /// Links of 400 Mbit/s and 50 microseconds, as on the rig of `docs/benchmarks_of_reductions.md`.
    pub fn new(hosts: u32, bytes: u64) -> Self {
        Self {
            hosts,
            calls: Calls {
                count: 1,
                are_in_turn: false,
                bytes,
                halved_from: u64::MAX,
                element_bytes: 1,
                root: 0,
                is_spread: false,
                shared: None,
                made: Made::ByEach,
                order: Order::Any,
                on_loss: OnLoss::Fail,
                on_root_loss: OnRootLoss::Fail,
            },
            cluster: Cluster {
                rate: 50e6,
                burst: None,
                latency: Nanos::from_micros(50),
                message_time: Nanos::from_micros(5),
                fold_rate: 2e9,
                completion: Nanos::ZERO,
                slow: Vec::new(),
                changes: Vec::new(),
            },
            timeouts: Timeouts {
                detection: Nanos::from_millis(1),
                link: Nanos::from_millis(100),
                late_rank: Nanos::from_millis(5),
            },
            relays: Relays::of(&(0..hosts.into()).collect::<Vec<_>>()),
            copies: None,
            acknowledged: None,
            late: Vec::new(),
            are_rates_reported: true,
            faults: Vec::new(),
            loses_sent: false,
            killed_after_end: None,
            seed: 1,
        }
    }

    /// The rates of a host's links, and its processor, in the network, where it has another number there.
    pub(crate) fn set_rates(&self, host: u32, network: &mut Network, there: Host) {
        let (outwards, inwards, processor) = match self.slow_host(host) {
            Some(slow) => (
                self.cluster.rate * slow.outwards,
                self.cluster.rate * slow.inwards,
                slow.folding,
            ),
            None => (self.cluster.rate, self.cluster.rate, 1.0),
        };
        network.set_rate_out(there, outwards);
        network.set_rate_in(there, inwards);
        network.set_processor(there, processor);
        for change in self.cluster.changes.iter().filter(|change| change.host == host) {
            network.change_rate_out(there, change.at, outwards * change.outwards);
            network.change_rate_in(there, change.at, inwards * change.inwards);
            network.change_processor(there, change.at, processor * change.folding);
        }
    }

    pub(super) fn slow_host(&self, host: u32) -> Option<&Slow> {
        self.cluster.slow.iter().find(|slow| slow.host == host)
    }

    /// A small job with faults drawn from a seed.
    pub fn random(seed: u64) -> Self {
        const BYTES_MAX: u64 = 4 << 20;
        let mut dice = Dice::new(seed);
        let hosts = dice.within(2..20) as u32;
        let mut setting = Self::new(hosts, dice.within(0..BYTES_MAX));
        setting.seed = seed;
        setting.calls.root = dice.below(hosts.into()) as u32;
        if dice.once_in(3) {
            setting.calls.order = Order::Ordered;
        }
        let rank = |dice: &mut Dice| dice.below(hosts.into()) as u32;
        if dice.once_in(2) {
            setting.calls.on_loss = OnLoss::Exclude;
        }
        if dice.once_in(2) {
            setting.calls.on_root_loss = OnRootLoss::MoveTo(Member(rank(&mut dice)));
        }
        // Faults strike while the job runs, for the most part.
        let span = setting.reduction_floor().0 * 3 / 2 + Nanos::from_millis(10).0;
        let when = |dice: &mut Dice| Nanos(dice.below(span));
        if dice.once_in(4) {
            setting.cluster.completion = Nanos::from_micros(dice.below(3_000));
        }
        for _ in 0..dice.below(3) {
            setting.late.push((rank(&mut dice), when(&mut dice)));
        }
        if dice.once_in(3) {
            setting.cluster.slow.push(Slow {
                host: rank(&mut dice),
                outwards: 0.1 + dice.fraction(),
                inwards: 0.1 + dice.fraction(),
                folding: 0.1 + dice.fraction(),
                is_known: dice.once_in(2),
            });
        }
        for _ in 0..dice.below(5) {
            let fault = match dice.below(6) {
                // Rank 0 is the first scheduler.
                0 => Fault::KillRank(0),
                1 | 2 => Fault::KillRank(rank(&mut dice)),
                3 => Fault::KillHost(rank(&mut dice)),
                4 if dice.once_in(2) => Fault::Freeze(0, when(&mut dice)),
                4 => Fault::Freeze(rank(&mut dice), when(&mut dice)),
                _ => Fault::Cut(rank(&mut dice), rank(&mut dice), when(&mut dice)),
            };
            setting.faults.push((when(&mut dice), fault));
        }
        if dice.once_in(4) {
            setting.calls.shared = Some(Shared {
                members: dice.within(1..40) as u32,
                holders: dice.within(1..u64::from(hosts) + 1) as u32,
            });
        } else if dice.once_in(3) {
            setting.copies = Some(when(&mut dice));
            setting.acknowledged = dice.once_in(2).then(|| when(&mut dice));
        }
        if dice.once_in(4) {
            setting.calls.on_root_loss = OnRootLoss::MoveToLowest;
        }
        setting.calls.is_spread = dice.once_in(3);
        match dice.below(4) {
            _ if setting.calls.shared.is_some() => {}
            0 => setting.calls.made = Made::ByOne(rank(&mut dice)),
            1 => {
                setting.calls.made = Made::SideBySide;
                setting.calls.bytes /= u64::from(hosts);
                if dice.once_in(3) {
                    setting.calls.bytes %= 2_000;
                }
            }
            // So short that contributions come with their announcements, or results with the end.
            _ if dice.once_in(5) => setting.calls.bytes %= Call::ENCLOSED_BYTES_MAX,
            _ if dice.once_in(4) => setting.calls.bytes %= Call::RESULT_BYTES_MAX,
            _ => {}
        }
        setting.loses_sent = dice.once_in(2);
        if dice.once_in(6) {
            setting.killed_after_end = Some(Nanos(dice.below(2 * setting.cluster.latency.0)));
        }
        setting
    }

    /// The sites of two hosts, each with each, both ways.
    pub(super) fn pairs(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let hosts = self.hosts;
        let of = move |host: u32| [host, host + hosts, 2 * hosts + (host + hosts - 1) % hosts];
        let both = move |one, other| [(one, other), (other, one)];
        of(from)
            .into_iter()
            .flat_map(move |one| of(to).into_iter().flat_map(move |other| both(one, other)))
    }

    pub(super) fn contributions(&self) -> Contributions {
        match (self.calls.shared, self.calls.made) {
            (Some(shared), _) => Contributions::Shared(shared.members),
            (None, Made::ByEach) => Contributions::Each,
            (None, Made::ByOne(rank)) => Contributions::One(Member(rank)),
            (None, Made::SideBySide) => Contributions::SideBySide,
        }
    }

    /// The call of this number, as all ranks make it.
    pub(super) fn call(&self, number: u64) -> Call {
        Call {
            bytes: self.calls.bytes_of(number),
            element_bytes: self.calls.element_bytes,
            contributions: self.contributions(),
            root: Member(self.calls.root),
            is_spread: self.calls.is_spread,
            order: self.calls.order,
            operation: 7,
            on_loss: self.calls.on_loss,
            on_root_loss: self.calls.on_root_loss,
            gives_way_to: None,
        }
    }

    /// The time that a rank takes before it calls.
    pub(super) fn delay_of(&self, rank: u32) -> Nanos {
        let late = self.late.iter().find(|(late, _)| *late == rank);
        late.map_or(Nanos::ZERO, |(_, delay)| *delay)
    }

    /// Says if a rank makes a contribution.
    pub(super) fn makes_one(&self, rank: u32) -> bool {
        match self.calls.made {
            _ if self.calls.shared.is_some() => false,
            Made::ByEach | Made::SideBySide => true,
            Made::ByOne(one) => rank == one,
        }
    }

    /// The members whose originals a rank has when it calls.
    pub(super) fn held_by(&self, rank: u32) -> Vec<Member> {
        let Some(Shared { members, holders }) = self.calls.shared else {
            return Vec::from_iter(self.makes_one(rank).then_some(Member(rank)));
        };
        let hosts = self.hosts;
        let is_held = move |member: &u32| (rank + hosts - member % hosts) % hosts < holders;
        (0..members).filter(is_held).map(Member).collect()
    }
}
