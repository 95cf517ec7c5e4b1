//! A job whose hosts copy checkpoints from each other and are lost.

use std::{collections::BTreeSet, time::Duration};

use ropewalk_checkpoint_core::{
    Level,
    partner::{Action, Guard, GuardOptions, Inventory, Part, plan_recovery},
};
use ropewalk_sim::{Dice, Event, Host, Nanos, Network, Process, Simulation, World};

/// So many generations a host keeps at most: two that are protected, eight that may be, of the others the newest four
/// and one of each precedence, three fast ones, two that are whole, the one that was started from, what was left
/// without each host, and the one that is being copied.
const KEPT_MAX: usize = 2 + 8 + 4 + 9 + 3 + 2 + 1 + 5 + 1;
/// The bytes of a part; those of an answer do not count.
const PART_BYTES: u64 = 1_000_000;
/// A host looks once in this time and the number of hosts, about.
const MOMENT: Nanos = Nanos::from_millis(300);

/// Something that happens to a host.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A rank saves, of any host.
    Save,
    /// All ranks save.
    SaveAll,
    /// A guard looks at its disk.
    Look,
    /// Another host has told what it has, or nothing.
    Told(usize, Option<BTreeSet<Part>>),
    /// The copy with this number is there.
    Arrived(u64),
    /// The guard hears of it.
    Heard(u64),
    /// The test goes on.
    Pause,
}

/// A job: what is on the disk of each host, and who guards it.
pub(crate) struct Job {
    simulation: Simulation<What>,
    pub(crate) dice: Dice,
    pub(crate) disks: Vec<BTreeSet<Part>>,
    guards: Vec<Guard>,
    /// The copy that each host makes: its number, from where, and the part.
    copies: Vec<Option<(u64, usize, Part)>>,
    copy: u64,
    /// The time that a copy takes.
    copying: Nanos,
    /// All ranks save at once, so often; else one after the other, at any time.
    pub(crate) period: Option<Nanos>,
    pub(crate) host_of_rank: Vec<usize>,
    /// The generation that each rank saved last.
    pub(crate) saved: Vec<u64>,
    /// Ranks save no more than the one that has saved most.
    is_settling: bool,
    /// A host whose disk is lost and whose ranks save no more.
    lost: Option<usize>,
    /// How often in a hundred times a question or a copy fails.
    pub(crate) faults: u64,
    /// Every so manieth generation is to be copied.
    pub(crate) full_period: u64,
    pub(crate) full_offset: u64,
    /// The generation that the job started from, and the number that it went on with.
    pub(crate) base: Option<u64>,
    pub(crate) next: u64,
    /// The newest that was whole then without each host.
    pub(crate) left_without: Vec<Option<u64>>,
    /// The newest that was protected at any time, if that is of interest.
    pub(crate) protected: Option<Option<u64>>,
    is_paused: bool,
}

impl World for Job {
    type What = What;

    fn simulation(&mut self) -> &mut Simulation<What> {
        &mut self.simulation
    }

    fn handle(&mut self, event: Event<What>) {
        let host = event.process.0 as usize;
        match event.what {
            What::Save => {
                self.save();
                let span = self.drawn(2 * MOMENT.0);
                self.after(span, host, What::Save);
            }
            What::SaveAll => {
                (0..self.saved.len()).for_each(|rank| self.save_next(rank));
                (0..self.disks.len()).for_each(|host| self.after(Nanos::ZERO, host, What::Look));
                self.after(self.period.unwrap(), host, What::SaveAll);
            }
            What::Look => {
                self.look(host);
                self.look_again(host);
            }
            What::Told(other, parts) => {
                let now = self.now();
                match parts {
                    Some(parts) => self.guards[host].handle_parts(now, other, parts),
                    None => self.guards[host].handle_silence(now, other),
                }
            }
            What::Arrived(copy) => self.arrive(host, copy),
            What::Heard(copy) => {
                if let Some((_, _, part)) = self.copies[host].take_if(|(number, ..)| *number == copy) {
                    self.guards[host].handle_copied(part);
                }
            }
            What::Pause => self.is_paused = true,
        }
        if let Some(protected) = self.protected {
            let now = self.newest_protected();
            assert!(now >= protected, "{now:?} is older than {protected:?}");
            self.protected = Some(now);
        }
    }

    fn is_over(&self) -> bool {
        self.is_paused
    }
}

impl Job {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let hosts = dice.within(2..6);
        let ranks = dice.within(1..2 * hosts + 1);
        let faults = *dice.pick(&[0, 10, 60]).unwrap();
        let full_period = *dice.pick(&[1, 1, 2, 7]).unwrap();
        let slowness = *dice.pick(&[0, 1, 2, 10]).unwrap();
        let mut job = Self {
            simulation: Simulation::new(Network::uniform(0, 1.0, Nanos::ZERO), Vec::new()),
            disks: vec![BTreeSet::new(); hosts as usize],
            guards: Vec::new(),
            copies: Vec::new(),
            copy: 0,
            copying: Nanos(slowness * hosts * MOMENT.0 / 2),
            period: None,
            host_of_rank: Vec::new(),
            saved: vec![0; ranks as usize],
            is_settling: false,
            lost: None,
            faults,
            full_period,
            full_offset: dice.below(full_period),
            base: None,
            next: 1,
            left_without: Vec::new(),
            protected: None,
            is_paused: false,
            dice,
        };
        job.place();
        job.start(None, BTreeSet::new(), 1);
        job
    }

    /// Each rank gets a host: they are dealt out, or it is any.
    fn place(&mut self) {
        let (hosts, ranks) = (self.disks.len(), self.saved.len());
        self.host_of_rank = match self.dice.once_in(2) {
            true => (0..ranks).map(|rank| rank % hosts).collect(),
            false => (0..ranks).map(|_| self.below(hosts)).collect(),
        };
    }

    fn start(&mut self, base: Option<u64>, fallbacks: BTreeSet<u64>, next: u64) {
        self.lost = None;
        (self.base, self.next) = (base, next);
        let hosts = self.disks.len();
        self.guards = (0..hosts)
            .map(|host| {
                Guard::new(GuardOptions {
                    host,
                    hosts,
                    host_of_rank: self.host_of_rank.clone(),
                    base,
                    fallbacks: fallbacks.clone(),
                    next,
                })
            })
            .collect();
        self.copies = vec![None; hosts];
        self.left_without = (0..hosts).map(|host| self.newest_without(host)).collect();
        self.saved.fill(next - 1);
        let rate = match self.copying {
            Nanos::ZERO => f64::INFINITY,
            copying => PART_BYTES as f64 / copying.as_seconds(),
        };
        let mut network = Network::uniform(hosts as u32 + 1, rate, Nanos::ZERO);
        network.set_jitter(MOMENT, self.dice.word());
        // One more is for what concerns all.
        let processes = (0..=hosts as u32).map(Host).collect();
        self.simulation = Simulation::new(network, processes);
        self.after(Nanos::ZERO, hosts, What::Save);
        (0..hosts).for_each(|host| self.look_again(host));
    }

    /// From now on all ranks save at the same time, so often, and then each host looks. Copies to the hosts that are
    /// said take so long; others take no time.
    pub(crate) fn begin_rounds(&mut self, period: Nanos, slow: impl Fn(usize) -> bool, copying: Nanos) {
        let hosts = self.disks.len();
        let mut network = Network::uniform(hosts as u32 + 1, f64::INFINITY, Nanos::ZERO);
        let rate = PART_BYTES as f64 / copying.as_seconds();
        for host in (0..hosts).filter(|host| slow(*host)) {
            network.set_rate_in(Host(host as u32), rate);
        }
        self.period = Some(period);
        self.simulation = Simulation::new(network, (0..=hosts as u32).map(Host).collect());
        self.after(period, hosts, What::SaveAll);
    }

    /// Nothing fails any more, and all ranks save up to the same generation.
    pub(crate) fn settle(&mut self) {
        self.faults = 0;
        self.is_settling = true;
    }

    /// Lets things happen for so long.
    pub(crate) fn go_on(&mut self, span: Nanos) {
        let nobody = self.disks.len();
        self.after(span, nobody, What::Pause);
        self.is_paused = false;
        assert!(self.play(Nanos::NEVER));
    }

    /// Lets things happen for any time up to that in which so many saves and looks come.
    pub(crate) fn go_on_for(&mut self, moves: u64) {
        let span = self.drawn(moves * MOMENT.0 / 3);
        self.go_on(span);
    }

    fn now(&self) -> Duration {
        self.simulation.now().into()
    }

    fn after(&mut self, span: Nanos, host: usize, what: What) {
        self.simulation.after(span, Process(host as u32), what);
    }

    fn drawn(&mut self, limit: u64) -> Nanos {
        Nanos(self.dice.below(limit))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.dice.below(end as u64) as usize
    }

    fn fails(&mut self) -> bool {
        self.dice.below(100) < self.faults
    }

    pub(crate) fn is_full(&self, generation: u64) -> bool {
        generation % self.full_period == self.full_offset
    }

    fn part(&self, generation: u64, rank: usize) -> Part {
        Part {
            generation,
            rank: rank as u32,
            step: generation,
            ranks: self.host_of_rank.len() as u32,
            level: match self.is_full(generation) {
                true => Level::Full,
                false => Level::Fast,
            },
        }
    }

    fn save_next(&mut self, rank: usize) {
        self.saved[rank] += 1;
        let part = self.part(self.saved[rank], rank);
        self.disks[self.host_of_rank[rank]].insert(part);
    }

    /// A rank commits the next generation, at most one before the others. Until the loss of a host is seen, the ranks
    /// of the others go on.
    fn save(&mut self) {
        let rank = self.below(self.saved.len());
        let slowest = self.saved.iter().min().copied().unwrap_or(0);
        let newest = self.saved.iter().max().copied().unwrap_or(0);
        let may_save = match self.lost {
            Some(lost) => self.host_of_rank[rank] != lost,
            None if self.is_settling => self.saved[rank] < newest,
            None => self.saved[rank] == slowest,
        };
        if may_save {
            self.save_next(rank);
        }
    }

    fn look_again(&mut self, host: usize) {
        if self.period.is_none() {
            let slower = if self.is_settling { 5 } else { 1 };
            let span = self.drawn(slower * MOMENT.0 * self.disks.len() as u64);
            self.after(span, host, What::Look);
        }
    }

    /// A host does some of what its guard wants, with what is on its disk now.
    fn look(&mut self, host: usize) {
        self.guards[host].handle_own(self.disks[host].clone());
        // Something else may come before it has done all.
        let actions = match self.period.is_some() || self.is_settling {
            true => usize::MAX,
            false => self.below(8),
        };
        for _ in 0..actions {
            let now = self.now();
            let action = self.guards[host].poll(now);
            if matches!(action, None | Some(Action::Copy { .. })) {
                let kept: BTreeSet<u64> = self.disks[host].iter().map(|part| part.generation).collect();
                assert!(kept.len() <= KEPT_MAX, "{kept:?}");
            }
            match action {
                None => return,
                Some(Action::Ask { host: other }) => self.ask(host, other),
                Some(Action::Copy { from, part }) => self.copy(host, from, part),
                Some(Action::Retire { generations }) => {
                    self.disks[host].retain(|part| !generations.contains(&part.generation));
                }
                Some(Action::Lost { .. } | Action::Found { .. } | Action::Behind { .. }) => {}
            }
        }
    }

    fn ask(&mut self, host: usize, other: usize) {
        let process = Process(other as u32);
        if !self.simulation.runs(process) || self.fails() {
            let span = self.drawn(2 * MOMENT.0);
            return self.after(span, host, What::Told(other, None));
        }
        let told = What::Told(other, Some(self.disks[other].clone()));
        self.simulation.send(process, Process(host as u32), 0, told);
    }

    fn copy(&mut self, host: usize, from: usize, part: Part) {
        assert_ne!(from, host, "nobody is its own partner");
        assert_eq!(self.host_of_rank[part.rank as usize], from);
        let is_base = Some(part.generation) == self.base;
        assert!(
            part.level == Level::Full || is_base,
            "a fast save stays where it is"
        );
        assert_eq!(self.copies[host], None, "one copy at a time");
        self.copy += 1;
        self.copies[host] = Some((self.copy, from, part));
        let what = What::Arrived(self.copy);
        self.simulation
            .send(Process(from as u32), Process(host as u32), PART_BYTES, what);
    }

    /// A copy comes to its end, of which the guard may hear later.
    fn arrive(&mut self, host: usize, copy: u64) {
        let Some((_, from, part)) = self.copies[host].filter(|(number, ..)| *number == copy) else {
            return;
        };
        if self.disks[from].contains(&part) && !self.fails() {
            self.disks[host].insert(part);
            let span = match self.period.is_none() && self.dice.once_in(2) {
                true => self.drawn(4 * MOMENT.0),
                false => Nanos::ZERO,
            };
            self.after(span, host, What::Heard(copy));
        } else {
            self.copies[host] = None;
            let now = self.now();
            self.guards[host].handle_not_copied(now, part);
        }
    }

    /// A host loses its disk, and what is being copied there fails; its guard may still answer.
    pub(crate) fn lose(&mut self, lost: usize) {
        self.disks[lost].clear();
        self.lost = Some(lost);
        if self.dice.once_in(2) {
            self.simulation.kill(Process(lost as u32));
        } else if let Some((_, _, part)) = self.copies[lost].take() {
            let now = self.now();
            self.guards[lost].handle_not_copied(now, part);
        }
    }

    /// The newest generation that is whole if a host is lost.
    pub(crate) fn newest_without(&self, lost: usize) -> Option<u64> {
        let others = self.disks.iter().enumerate().filter(|&(host, _)| host != lost);
        let left: BTreeSet<Part> = others.flat_map(|(_, disk)| disk).copied().collect();
        let generations: BTreeSet<u64> = left.iter().map(|part| part.generation).collect();
        let is_whole = |&generation: &u64| {
            (0..self.host_of_rank.len()).all(|rank| left.contains(&self.part(generation, rank)))
        };
        generations.into_iter().rev().find(is_whole)
    }

    /// The newest generation of which each rank's part is on its own host and on that host's partner.
    pub(crate) fn newest_protected(&self) -> Option<u64> {
        let hosts = self.disks.len();
        let with_ranks: BTreeSet<usize> = self.host_of_rank.iter().copied().collect();
        let partner = |host: usize| {
            let mut next = (1..hosts).map(|distance| (host + distance) % hosts);
            let first = next.clone().next();
            next.find(|next| with_ranks.contains(next)).or(first)
        };
        let generations: BTreeSet<u64> = self.disks.iter().flatten().map(|part| part.generation).collect();
        generations.into_iter().rev().find(|&generation| {
            let is_copied = self.is_full(generation) || generation < self.next;
            is_copied
                && self.host_of_rank.iter().enumerate().all(|(rank, &host)| {
                    let part = self.part(generation, rank);
                    let is_on = |host: usize| self.disks[host].contains(&part);
                    is_on(host) && partner(host).is_none_or(is_on)
                })
        })
    }

    /// If one host has all ranks it goes on with newer generations that are whole there, whatever its partner has.
    pub(crate) fn is_on_one_host(&self) -> bool {
        self.host_of_rank.iter().all(|&host| host == self.host_of_rank[0])
    }

    /// Starts the job again after the loss of a host and says from what. With `without` that host is out of it, else
    /// it is a new one.
    pub(crate) fn recover(&mut self, lost: usize, without: bool) -> Option<u64> {
        self.disks[lost].clear();
        if without {
            self.disks.remove(lost);
        }
        if without || self.dice.once_in(2) {
            self.place();
        }
        self.start_again()
    }

    /// Starts the job again from what there is, and says from what.
    pub(crate) fn start_again(&mut self) -> Option<u64> {
        let of = |disk: &BTreeSet<Part>| Inventory {
            parts: disk.iter().copied().collect(),
            highest: disk.iter().map(|part| part.generation).max().unwrap_or(0),
            restarts: Vec::new(),
        };
        let inventories: Vec<Inventory> = self.disks.iter().map(of).collect();
        let recovery = plan_recovery(&inventories, &self.host_of_rank, 5);
        for fetch in recovery.fetches {
            assert!(
                self.disks[fetch.from].contains(&fetch.part),
                "it is fetched from who has it"
            );
            self.disks[fetch.to].insert(fetch.part);
        }
        let base = recovery.choice.restore.map(|held| held.generation);
        for (rank, &host) in self.host_of_rank.iter().enumerate() {
            if let Some(base) = base {
                assert!(
                    self.disks[host].contains(&self.part(base, rank)),
                    "each rank finds its part"
                );
            }
        }
        let highest = self.disks.iter().flatten().map(|part| part.generation).max();
        assert!(
            recovery.choice.next > highest.unwrap_or(0),
            "no number is used twice"
        );
        for disk in &mut self.disks {
            disk.retain(|part| Some(part.generation) <= base);
        }
        self.start(base, recovery.fallbacks, recovery.choice.next);
        base
    }
}
