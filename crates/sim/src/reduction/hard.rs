//! The harder job of a seed: more hosts, fewer windows than chunks, and faults close to each other.

use ropewalk_reduce_core::Relays;

use super::{Fault, Made, Setting, Slow};
use crate::{Dice, Nanos};

impl Setting {
    /// The jobs of a seed: a [small](Self::random) one, a [harder](Self::hard) one, and one of [several
    /// calls](Self::repeated).
    pub fn of_seed(seed: u64) -> [Self; 3] {
        [Self::random(seed), Self::hard(seed), Self::repeated(seed)]
    }

    /// The small job of a seed with more hosts, longer elements, and more faults: at its start and its end, and shortly
    /// after other faults.
    pub fn hard(seed: u64) -> Self {
        const ANOTHER: u64 = 0x6861_7264;
        const LONG_ELEMENTS_MAX: u64 = 24;
        let mut setting = Self::random(seed);
        let mut dice = Dice::new(seed ^ ANOTHER);
        if dice.once_in(16) {
            // Small jobs have fewer than these.
            setting.hosts = dice.within(20..65) as u32;
            setting.calls.bytes /= 8;
        }
        if dice.once_in(2) {
            setting.relays = Relays::in_groups(setting.hosts as usize, dice.within(2..8) as usize);
        }
        if dice.once_in(2) && setting.calls.made != Made::SideBySide {
            let element = dice.within(1 << 17..1 << 20);
            setting.calls.element_bytes = element as u32;
            setting.calls.bytes = element * dice.below(LONG_ELEMENTS_MAX);
        }
        if dice.once_in(4) {
            setting.calls.is_spread = true;
        }
        if dice.once_in(4) && setting.hosts > 2 {
            // The first scheduler is lost without the result.
            setting.calls.root = dice.within(1..setting.hosts.into()) as u32;
        }
        for number in 0..setting.faults.len() {
            if dice.once_in(2) {
                setting.faults[number].0 = setting.moment(&mut dice);
            }
            if dice.once_in(4) {
                setting.faults[number].1 = Fault::KillRank(0);
            }
        }
        for _ in 0..dice.below(4) {
            let rank = match dice.below(3) {
                0 => dice.below(setting.hosts.min(3).into()) as u32,
                1 => setting.calls.root,
                _ => dice.below(setting.hosts.into()) as u32,
            };
            let fault = match dice.below(4) {
                0 => Fault::KillHost(rank),
                _ => Fault::KillRank(rank),
            };
            // An agent tells of a loss after the detection time, and a new scheduler asks all others within a few
            // latencies from then on.
            let after = setting.timeouts.detection.0 + dice.below(20 * setting.cluster.latency.0);
            let before: Vec<Nanos> = setting.faults.iter().map(|(at, _)| *at).collect();
            let at = match dice.pick(&before) {
                Some(at) if dice.once_in(2) => *at + Nanos(after),
                _ => setting.moment(&mut dice),
            };
            setting.faults.push((at, fault));
        }
        if dice.once_in(8) {
            let rank = dice.below(setting.hosts.into()) as u32;
            let at = Nanos(dice.below(2 * setting.reduction_floor().0 + 1));
            setting.faults.push((at, Fault::Cancel(rank)));
        }
        if dice.once_in(8) && setting.hosts < 20 && setting.calls.made != Made::SideBySide {
            setting.go_around_a_slow_host(&mut dice);
        }
        setting
    }

    /// Makes the vector long enough for a plan around a slow host, beside which older plans go on, and lets something
    /// happen meanwhile.
    fn go_around_a_slow_host(&mut self, dice: &mut Dice) {
        const MIB: u64 = 1 << 20;
        const SOON: u64 = Nanos::from_millis(100).0;
        self.calls.bytes = dice.within(4 * MIB..12 * MIB);
        self.calls.element_bytes = 1;
        let hosts = u64::from(self.hosts);
        let host = |dice: &mut Dice| dice.below(hosts) as u32;
        self.cluster.slow = vec![Slow {
            host: host(dice),
            outwards: 1.0,
            inwards: 0.1,
            folding: 1.0,
            is_known: false,
        }];
        for _ in 0..dice.below(3) {
            let fault = match dice.below(3) {
                0 => Fault::KillRank(host(dice)),
                1 => Fault::KillHost(host(dice)),
                _ => Fault::Cut(host(dice), host(dice), Nanos(10 * SOON)),
            };
            self.faults.push((Nanos(dice.below(SOON)), fault));
        }
    }

    /// A time near the start of the job or near its end.
    fn moment(&self, dice: &mut Dice) -> Nanos {
        const NEAR: u64 = Nanos::from_millis(6).0;
        let halves = if self.calls.is_spread { 2 } else { 1 };
        let end = halves * self.reduction_floor().0;
        match dice.below(3) {
            0 => Nanos(dice.below(NEAR)),
            1 => Nanos(end + dice.below(NEAR)),
            // The last chunks of a long pipeline come later than the floor says.
            _ => Nanos(end + dice.below(end / 4 + NEAR)),
        }
    }
}
