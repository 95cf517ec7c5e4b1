//! The job of a seed that makes the same short call again and again: most of its calls are planned before they are
//! made.

use ropewalk_reduce_core::{Call, Member, OnLoss, OnRootLoss, Order, Relays};

use super::{Fault, Setting};
use crate::{Dice, Nanos};

impl Setting {
    /// A small job of a few calls in turn, mostly alike, with faults from the third call on. Nothing is planned ahead
    /// of the first two.
    pub fn repeated(seed: u64) -> Self {
        const ANOTHER: u64 = 0x7265_7065;
        const BYTES_MAX: u64 = 256 << 10;
        let mut dice = Dice::new(seed ^ ANOTHER);
        let hosts = dice.within(2..20) as u32;
        let bytes = dice.within(Call::ENCLOSED_BYTES_MAX + 1..BYTES_MAX);
        let mut setting = Self::new(hosts, bytes);
        let rank = |dice: &mut Dice| dice.below(hosts.into()) as u32;
        setting.seed = seed;
        setting.loses_sent = dice.once_in(2);
        if dice.once_in(2) {
            setting.relays = Relays::in_groups(hosts as usize, dice.within(2..8) as usize);
        }
        let calls = &mut setting.calls;
        calls.count = dice.within(3..7) as u32;
        calls.are_in_turn = true;
        calls.root = rank(&mut dice);
        calls.is_spread = dice.once_in(2);
        if dice.once_in(3) {
            calls.order = Order::Ordered;
        }
        if dice.once_in(2) {
            calls.on_loss = OnLoss::Exclude;
        }
        calls.on_root_loss = match dice.below(3) {
            0 => OnRootLoss::Fail,
            1 => OnRootLoss::MoveTo(Member(rank(&mut dice))),
            _ => OnRootLoss::MoveToLowest,
        };
        if dice.once_in(4) {
            calls.halved_from = dice.within(2..calls.count.into());
        }
        if dice.once_in(4) {
            // Some of these are later than the scheduler waits for.
            let delay = dice.below(2 * setting.timeouts.late_rank.0);
            setting.late.push((rank(&mut dice), Nanos(delay)));
        }
        setting.strike_later_calls(&mut dice);
        setting
    }

    /// Adds faults at any time of the calls that are planned ahead, and close to each other.
    fn strike_later_calls(&mut self, dice: &mut Dice) {
        let hosts = u64::from(self.hosts);
        let call = self.a_call().0;
        let mut at = 2 * call + dice.below(u64::from(self.calls.count) * call);
        for _ in 0..dice.below(4) {
            let rank = match dice.below(3) {
                // Rank 0 is the first scheduler.
                0 => 0,
                1 => self.calls.root,
                _ => dice.below(hosts) as u32,
            };
            let fault = match dice.below(8) {
                0 => Fault::KillHost(rank),
                1 => Fault::Freeze(rank, Nanos(dice.below(4 * call))),
                2 => Fault::Cut(rank, dice.below(hosts) as u32, Nanos(dice.below(4 * call))),
                3 => Fault::Cancel(rank),
                _ => Fault::KillRank(rank),
            };
            self.faults.push((Nanos(at), fault));
            at += match dice.once_in(2) {
                true => dice.below(call),
                false => self.timeouts.detection.0 + dice.below(20 * self.cluster.latency.0),
            };
        }
    }

    /// The time that a call takes, roughly.
    fn a_call(&self) -> Nanos {
        const MESSAGES: u64 = 8;
        let halves = if self.calls.is_spread { 2 } else { 1 };
        let delay = self
            .late
            .iter()
            .map(|(_, delay)| delay.0)
            .max()
            .unwrap_or_default();
        Nanos(halves * (self.reduction_floor().0 + MESSAGES * self.cluster.latency.0) + delay)
    }
}
