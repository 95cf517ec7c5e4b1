//! The disturbance of one worker of a run.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_names::Rank;

use super::SIGKILL;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Who is killed or stopped, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disturbance {
    pub(super) victim: Rank,
    pub(super) from: Moment,
    delay: Duration,
    action: Action,
}

/// From when on the delay counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The victim was started.
    Start,
    /// Its contribution is safe.
    Contribution,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    StopFor(Duration),
}

impl Disturbance {
    /// Kills any worker, the root and the scheduler's too, between its contribution and the end of a reduction that
    /// takes as long as usual.
    pub(super) fn draw_kill(seed: u64, workers: u32, usual: Duration) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        Self {
            victim: Rank(random.next_u32() % workers),
            from: Moment::Contribution,
            delay: usual.mul_f64(share(&mut random)),
            action: Action::Kill,
        }
    }

    /// Stops any worker within the time that a job usually takes.
    pub(super) fn draw_stop(seed: u64, workers: u32, usual: Duration) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        Self {
            victim: Rank(random.next_u32() % workers),
            from: Moment::Start,
            delay: usual.mul_f64(share(&mut random)),
            action: Action::StopFor(match seed % LONG_EACH {
                0 => LONG,
                _ => SHORT_MIN + (SHORT_MAX - SHORT_MIN).mul_f64(share(&mut random)),
            }),
        }
    }

    /// For how long the victim stands still.
    pub(super) fn stopped(&self) -> Duration {
        match self.action {
            Action::Kill => Duration::ZERO,
            Action::StopFor(duration) => duration,
        }
    }

    /// The signals that the victim gets, if its moment is `now`.
    pub(super) fn signals(&self, now: Instant) -> VecDeque<(Instant, i32)> {
        let at = now + self.delay;
        match self.action {
            Action::Kill => VecDeque::from([(at, SIGKILL)]),
            Action::StopFor(duration) => VecDeque::from([(at, SIGSTOP), (at + duration, SIGCONT)]),
        }
    }
}

fn share(random: &mut Pcg64) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

/// Of so many stops one is long.
const LONG_EACH: u64 = 15;
const LONG: Duration = Duration::from_secs(10);
const SHORT_MIN: Duration = Duration::from_millis(100);
const SHORT_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed gives the same victim at the same moment every time. Each worker is the victim as often.
    #[test]
    fn a_seed_replays_its_disturbance() {
        let usual = Duration::from_millis(50);
        let (mut stopped, mut killed) = ([0; 3], [0; 3]);
        for seed in 0..1000 {
            let kill = Disturbance::draw_kill(seed, 3, usual);
            assert_eq!(kill, Disturbance::draw_kill(seed, 3, usual));
            assert!(kill.delay <= usual);
            killed[kill.victim.index()] += 1;
            let stop = Disturbance::draw_stop(seed, 3, usual);
            assert_eq!(stop, Disturbance::draw_stop(seed, 3, usual));
            let expected = if seed % LONG_EACH == 0 {
                LONG..=LONG
            } else {
                SHORT_MIN..=SHORT_MAX
            };
            assert!(expected.contains(&stop.stopped()) && stop.delay <= usual);
            stopped[stop.victim.index()] += 1;
        }
        let counts = stopped.iter().chain(&killed);
        assert!(
            counts.min() > Some(&200),
            "{stopped:?} stopped, {killed:?} killed"
        );
    }
}
