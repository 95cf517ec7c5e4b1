//! Whole jobs whose hosts copy from each other and are lost, drawn from seeds.

use core::time::Duration;
use std::collections::BTreeSet;

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Action, Guard, GuardOptions, Inventory, Part, plan_recovery};
use crate::advisor::Level;

/// A job: what is on the disk of each host, and who guards it.
struct Job {
    disks: Vec<BTreeSet<Part>>,
    guards: Vec<Guard>,
    /// What each host copies, from where, and whether it is here already though the guard has not heard of it.
    copies: Vec<Option<(usize, Part, bool)>>,
    /// What others have told each host, or not told, that its guard has not heard of.
    answers: Vec<Vec<(usize, Option<BTreeSet<Part>>)>>,
    /// Every so manieth time that a host looks, a copy has come to its end.
    slowness: usize,
    host_of_rank: Vec<usize>,
    /// What each rank saved last.
    saved: Vec<u64>,
    /// A host whose disk is lost and whose ranks save no more, and whether its guard still answers.
    lost: Option<(usize, bool)>,
    now: Duration,
    random: Pcg64Mcg,
    /// How often in a hundred times a question or a copy fails.
    faults: u64,
    /// Every so manieth generation is to be copied.
    full_period: u64,
    full_offset: u64,
    /// What the job started from, and the number that it went on with.
    base: Option<u64>,
    next: u64,
    /// The newest that was whole then without each host.
    left_without: Vec<Option<u64>>,
}

impl Job {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let hosts = 2 + random.next_u64() as usize % 4;
        let ranks = 1 + random.next_u64() as usize % (2 * hosts);
        let faults = [0, 10, 60][random.next_u64() as usize % 3];
        let full_period = [1, 1, 2, 7][random.next_u64() as usize % 4];
        let full_offset = random.next_u64() % full_period;
        let slowness = [1, 2, 10][random.next_u64() as usize % 3];
        let mut job = Self {
            disks: vec![BTreeSet::new(); hosts],
            guards: Vec::new(),
            copies: Vec::new(),
            answers: Vec::new(),
            slowness,
            saved: vec![0; ranks],
            lost: None,
            host_of_rank: Vec::new(),
            now: Duration::ZERO,
            random,
            faults,
            full_period,
            full_offset,
            base: None,
            next: 1,
            left_without: Vec::new(),
        };
        job.place();
        job.start(None, BTreeSet::new(), 1);
        job
    }

    /// Each rank gets a host: they are dealt out, or it is any.
    fn place(&mut self) {
        let (hosts, ranks) = (self.disks.len(), self.saved.len());
        self.host_of_rank = match self.below(2) {
            0 => (0..ranks).map(|rank| rank % hosts).collect(),
            _ => (0..ranks).map(|_| self.below(hosts)).collect(),
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
        self.answers = vec![Vec::new(); hosts];
        self.left_without = (0..hosts).map(|host| self.newest_without(host)).collect();
        self.saved.fill(next - 1);
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.next_u64() as usize % end
    }

    fn fails(&mut self) -> bool {
        self.random.next_u64() % 100 < self.faults
    }

    fn is_full(&self, generation: u64) -> bool {
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

    /// A rank commits the next generation, at most one before the others.
    fn save(&mut self) {
        let rank = self.below(self.saved.len());
        let slowest = self.saved.iter().min().copied().unwrap_or(0);
        if self.saved[rank] == slowest {
            self.saved[rank] += 1;
            let part = self.part(self.saved[rank], rank);
            self.disks[self.host_of_rank[rank]].insert(part);
        }
    }

    /// Until the loss of a host is seen, the ranks of the others go on.
    fn save_without(&mut self, lost: usize) {
        let rank = self.below(self.saved.len());
        if self.host_of_rank[rank] != lost {
            self.saved[rank] += 1;
            let part = self.part(self.saved[rank], rank);
            self.disks[self.host_of_rank[rank]].insert(part);
        }
    }

    /// A host does some of what its guard wants, with what it sees now.
    fn guard(&mut self) {
        let host = self.below(self.disks.len());
        if self.lost != Some((host, false)) {
            self.guard_of(host);
        }
    }

    fn guard_of(&mut self, host: usize) {
        self.now += Duration::from_millis(self.random.next_u64() % 300);
        self.go_on_copying(host);
        self.guards[host].handle_own(self.disks[host].clone());
        for _ in 0..self.below(8) {
            if self.below(2) == 0 {
                self.hear(host);
            }
            let action = self.guards[host].poll(self.now);
            if matches!(action, None | Some(Action::Copy { .. })) {
                let kept: BTreeSet<u64> = self.disks[host].iter().map(|part| part.generation).collect();
                assert!(kept.len() <= KEPT_MAX, "{kept:?}");
            }
            let Some(action) = action else {
                return;
            };
            match action {
                Action::Ask { host: other } => {
                    let is_silent = self.lost == Some((other, false)) || self.fails();
                    let parts = (!is_silent).then(|| self.disks[other].clone());
                    self.answers[host].push((other, parts));
                }
                Action::Copy { from, part } => {
                    assert_ne!(from, host, "nobody is its own partner");
                    assert_eq!(self.host_of_rank[part.rank as usize], from);
                    let is_base = Some(part.generation) == self.base;
                    assert!(
                        part.level == Level::Full || is_base,
                        "a fast save stays where it is"
                    );
                    assert_eq!(self.copies[host], None, "one copy at a time");
                    self.copies[host] = Some((from, part, false));
                }
                Action::Retire { generations } => {
                    self.disks[host].retain(|part| !generations.contains(&part.generation));
                }
                Action::Lost { .. } | Action::Found { .. } | Action::Behind { .. } => {}
            }
        }
    }

    /// What another host has told comes to a host's guard, in any order.
    fn hear(&mut self, host: usize) {
        if self.answers[host].is_empty() {
            return;
        }
        let answer = self.below(self.answers[host].len());
        match self.answers[host].swap_remove(answer) {
            (other, Some(parts)) => self.guards[host].handle_parts(self.now, other, parts),
            (other, None) => self.guards[host].handle_silence(self.now, other),
        }
    }

    /// A copy may come to its end, of which the guard may hear later.
    fn go_on_copying(&mut self, host: usize) {
        let Some((from, part, is_here)) = self.copies[host] else {
            return;
        };
        if is_here {
            self.copies[host] = None;
            self.guards[host].handle_copied(part);
        } else if !self.disks[from].contains(&part) {
            self.copies[host] = None;
            self.guards[host].handle_not_copied(self.now, part);
        } else if self.below(self.slowness) == 0 {
            if self.fails() {
                self.copies[host] = None;
                self.guards[host].handle_not_copied(self.now, part);
                return;
            }
            self.disks[host].insert(part);
            self.copies[host] = Some((from, part, true));
            if self.below(2) == 0 {
                self.go_on_copying(host);
            }
        }
    }

    /// A host loses its disk, and what is being copied there fails; its guard may still answer.
    fn lose(&mut self, lost: usize) {
        self.disks[lost].clear();
        self.lost = Some((lost, self.below(2) == 0));
        if let Some((_, part, _)) = self.copies[lost].take() {
            self.guards[lost].handle_not_copied(self.now, part);
        }
    }

    /// The newest generation that is whole if a host is lost.
    fn newest_without(&self, lost: usize) -> Option<u64> {
        let others = self.disks.iter().enumerate().filter(|&(host, _)| host != lost);
        let left: BTreeSet<Part> = others.flat_map(|(_, disk)| disk).copied().collect();
        let generations: BTreeSet<u64> = left.iter().map(|part| part.generation).collect();
        let is_whole = |&generation: &u64| {
            (0..self.host_of_rank.len()).all(|rank| left.contains(&self.part(generation, rank)))
        };
        generations.into_iter().rev().find(is_whole)
    }

    /// The newest generation of which each rank's part is on its own host and on that host's partner.
    fn newest_protected(&self) -> Option<u64> {
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

    /// A host goes on with the copy that is under way, which comes to its end after so many more saves, and does all that its
    /// guard wants meanwhile.
    fn copy_slowly(&mut self, host: usize, under_way: &mut Option<(usize, Part, usize)>, saves: usize) {
        if let Some((from, part, left)) = under_way {
            let is_there = self.disks[*from].contains(part);
            if is_there && *left > 0 {
                *left -= 1;
            } else {
                if is_there {
                    self.disks[host].insert(*part);
                    self.guards[host].handle_copied(*part);
                } else {
                    self.guards[host].handle_not_copied(self.now, *part);
                }
                *under_way = None;
            }
        }
        self.guards[host].handle_own(self.disks[host].clone());
        while let Some(action) = self.guards[host].poll(self.now) {
            match action {
                Action::Ask { host: other } => {
                    let parts = self.disks[other].clone();
                    self.guards[host].handle_parts(self.now, other, parts);
                }
                Action::Copy { from, part } if saves > 0 => *under_way = Some((from, part, saves)),
                Action::Copy { part, .. } => {
                    self.disks[host].insert(part);
                    self.guards[host].handle_copied(part);
                }
                Action::Retire { generations } => {
                    self.disks[host].retain(|part| !generations.contains(&part.generation));
                }
                Action::Lost { .. } | Action::Found { .. } | Action::Behind { .. } => {}
            }
        }
        let kept: BTreeSet<u64> = self.disks[host].iter().map(|part| part.generation).collect();
        assert!(kept.len() <= KEPT_MAX, "{kept:?}");
    }

    /// Ranks save and guards do what they want, for a while.
    fn go_on(&mut self, moves: usize) {
        for _ in 0..self.below(moves) {
            match self.below(3) {
                0 => self.save(),
                _ => self.guard(),
            }
        }
    }

    /// If one host has all ranks it goes on with newer generations that are whole there, whatever its partner has.
    fn is_on_one_host(&self) -> bool {
        self.host_of_rank.iter().all(|&host| host == self.host_of_rank[0])
    }

    fn inventories(&self) -> Vec<Inventory> {
        let of = |disk: &BTreeSet<Part>| Inventory {
            parts: disk.iter().copied().collect(),
            highest: disk.iter().map(|part| part.generation).max().unwrap_or(0),
            restarts: Vec::new(),
        };
        self.disks.iter().map(of).collect()
    }

    /// Starts the job again after the loss of a host and says from what. With `without` that host is out of it, else it is
    /// a new one.
    fn recover(&mut self, lost: usize, without: bool) -> Option<u64> {
        self.disks[lost].clear();
        if without {
            self.disks.remove(lost);
        }
        if without || self.below(2) == 0 {
            self.place();
        }
        self.start_again()
    }

    /// Starts the job again from what there is, and says from what.
    fn start_again(&mut self) -> Option<u64> {
        let recovery = plan_recovery(&self.inventories(), &self.host_of_rank, 5);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Again and again a host loses its disk and the ranks of the others go on saving, for long, whether that host answers that
    /// it has nothing or not at all; a new one takes its place or none, and ranks may come to other hosts. What was protected is
    /// found, also if nobody had heard that it was, and what was there at the start without that host. If all stop at once it is
    /// the newest that is whole without it.
    #[test]
    fn what_is_protected_outlives_a_disk(seed: u64) {
        let mut job = Job::new(seed);
        while job.disks.len() > 1 {
            job.go_on(400);
            if job.below(2) == 0 {
                job.start_again();
                job.go_on(400);
            }
            let lost = job.below(job.disks.len());
            let mut expected = job.newest_protected().max(job.left_without[lost]);
            let newest = job.newest_without(lost);
            prop_assert!(newest >= expected, "before: {newest:?} is older than {expected:?}");
            job.lose(lost);
            let moves = job.below(400);
            for _ in 0..moves {
                match job.below(3) {
                    0 => job.save_without(lost),
                    _ => job.guard(),
                }
            }
            if moves == 0 {
                expected = newest;
            }
            let without = job.below(2) == 0;
            let found = job.recover(lost, without);
            prop_assert!(found >= expected, "{found:?} is older than {expected:?}");
        }
    }

    /// Where no host is lost, the newest that is protected stays so until something newer is.
    #[test]
    fn what_is_protected_stays_so(seed: u64) {
        let mut job = Job::new(seed);
        if job.is_on_one_host() {
            return Ok(());
        }
        let mut protected = None;
        for _ in 0..job.below(1000) {
            match job.below(300) {
                0 => drop(job.start_again()),
                1..100 => job.save(),
                _ => job.guard(),
            }
            let now = job.newest_protected();
            prop_assert!(now >= protected, "{now:?} is older than {protected:?}");
            protected = now;
        }
    }

    /// Whichever process fails, nothing newer is lost than what not all ranks had saved, whether it was copied or not.
    #[test]
    fn a_failed_process_costs_no_more_than_since_the_last_save(seed: u64) {
        let mut job = Job::new(seed);
        for _ in 0..3 {
            let moves = job.below(400);
            for _ in 0..moves {
                match job.below(3) {
                    0 => job.save(),
                    _ => job.guard(),
                }
            }
            let slowest = job.saved.iter().min().copied();
            let expected = slowest.filter(|&saved| saved >= job.next).or(job.base);
            let found = job.start_again();
            prop_assert!(found >= expected, "{found:?} is older than {expected:?}");
        }
    }

    /// Where nothing fails, copies come to their end: the newest generation is soon on two hosts, and old ones are gone.
    #[test]
    fn copies_come_to_an_end(seed: u64) {
        let mut job = Job::new(seed);
        job.go_on(300);
        if job.below(2) == 0 {
            job.start_again();
            job.go_on(300);
        }
        job.faults = 0;
        for host in 0..job.disks.len() {
            while job.copies[host].is_some() {
                job.go_on_copying(host);
            }
            while !job.answers[host].is_empty() {
                job.hear(host);
            }
        }
        while job.saved.iter().any(|&saved| saved != job.saved[0]) {
            job.save();
        }
        for _ in 0..20 {
            job.now += Duration::from_secs(10);
            for host in 0..job.disks.len() {
                job.copy_slowly(host, &mut None, 0);
            }
        }
        let newest = (job.next..=job.saved[0]).rev().find(|&generation| job.is_full(generation));
        let newest = newest.or(job.base);
        prop_assert_eq!(job.newest_protected(), newest);
        for disk in &job.disks {
            let generations: BTreeSet<u64> = disk.iter().map(|part| part.generation).collect();
            prop_assert!(generations.len() <= 12, "{generations:?}");
        }
    }
}

/// Copies that take longer than it takes to save many generations, on one host or on all, do not stop for ever: something newer
/// is protected again and again.
#[test]
fn slow_copies_get_on() {
    for seed in 0..12 {
        let mut job = Job::new(seed);
        job.faults = 0;
        job.full_period = 1 << job.below(4);
        job.full_offset = job.random.next_u64() % job.full_period;
        if job.is_on_one_host() {
            continue;
        }
        let hosts = job.disks.len();
        let slow = (job.below(2) == 0).then(|| job.below(hosts));
        let saves = [3, 9, 20, 50][job.below(4)];
        let period = Duration::from_millis([50, 5000][job.below(2)]);
        let mut under_way: Vec<Option<(usize, Part, usize)>> = vec![None; hosts];
        let mut protected = None;
        for quarter in 0..4 {
            for _ in 0..40 * saves * job.full_period as usize {
                for rank in 0..job.saved.len() {
                    job.saved[rank] += 1;
                    let part = job.part(job.saved[rank], rank);
                    job.disks[job.host_of_rank[rank]].insert(part);
                }
                job.now += period;
                for (host, under_way) in under_way.iter_mut().enumerate() {
                    let is_slow = slow.is_none_or(|slow| slow == host);
                    let saves = saves * job.full_period as usize;
                    job.copy_slowly(host, under_way, if is_slow { saves } else { 0 });
                }
            }
            let newest = job.newest_protected();
            assert!(newest > protected, "seed {seed}, quarter {quarter}: {newest:?}");
            protected = newest;
        }
    }
}

/// So many generations a host keeps at most: two that are protected, eight that may be, of the others the newest four and one
/// of each precedence, three fast ones, two that are whole, the one that was started from, what was left without each host, and
/// the one that is being copied.
const KEPT_MAX: usize = 2 + 8 + 4 + 9 + 3 + 2 + 1 + 5 + 1;
