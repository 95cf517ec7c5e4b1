//! Full saves that are fast ones, copied to another host while the program goes on.

use super::save_times::SaveTimes;

/// The cost of copies, and the copy that is being made.
///
/// The program does not wait for a copy, but shares the disk, the network and the processors with it. The
/// cost is measured by its effect: by how much steps are longer while a copy is made than they were before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    host_mtbf: f64,
    times: SaveTimes,
    /// Which part of a copy's time steps are longer by.
    share: f64,
    count: u32,
    under_way: Option<UnderWay>,
}

/// A copy that is being made.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    since: f64,
    /// How long a step took before it, in seconds.
    usual: f64,
    /// By how much steps were longer since, in seconds.
    slowdown: f64,
}

impl Copies {
    /// Hosts are lost every `host_mtbf` seconds on average. A copy is expected to take `seconds` until one is
    /// measured. `known` has earlier copies: the seconds that each took, and by how many seconds steps were
    /// longer.
    pub(super) fn new(host_mtbf: f64, seconds: f64, known: &[(f64, f64)]) -> Self {
        let mut copies = Self {
            host_mtbf,
            times: SaveTimes::expected(seconds),
            share: SHARE_AT_FIRST,
            count: 0,
            under_way: None,
        };
        for &(seconds, slowdown) in known {
            copies.add(seconds, slowdown);
        }
        copies
    }

    /// The mean time between losses of a host, in seconds.
    pub(super) fn host_mtbf(&self) -> f64 {
        self.host_mtbf
    }

    /// A copy begins; steps took `usual` seconds before it.
    pub(super) fn begin(&mut self, now: f64, usual: f64) {
        self.under_way = Some(UnderWay {
            since: now,
            usual,
            slowdown: 0.0,
        });
    }

    /// A step is over.
    pub(super) fn step(&mut self, seconds: f64) {
        if let Some(copy) = &mut self.under_way {
            copy.slowdown += seconds - copy.usual;
        }
    }

    /// The copy is made. Says how long it took, and by how much steps were longer; nothing if there was none.
    pub(super) fn end(&mut self, now: f64) -> Option<(f64, f64)> {
        let copy = self.under_way.take()?;
        let took = (now - copy.since).max(0.0);
        let slowdown = copy.slowdown.clamp(0.0, took);
        self.add(took, slowdown);
        Some((took, slowdown))
    }

    fn add(&mut self, took: f64, slowdown: f64) {
        self.times.add(took);
        self.count = (self.count + 1).min(REMEMBERED);
        let share = if took > 0.0 { slowdown / took } else { 0.0 };
        // What was believed at first counts as one copy.
        self.share += (share - self.share) / f64::from(self.count + 1);
    }

    /// Returns true if a copy is being made.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The same, unless it takes so long that it may never come to an end: a partner was lost, say.
    pub(super) fn is_awaited(&self, now: f64) -> bool {
        let patience = (LATE * self.times.p99()).max(PATIENCE_LEAST);
        self.under_way.is_some_and(|copy| now - copy.since < patience)
    }

    /// The time that a copy costs the program, in seconds.
    pub(super) fn cost(&self) -> f64 {
        self.times.mean() * self.share.clamp(SHARE_LEAST, 1.0)
    }

    /// How long a copy takes, in seconds: after that a full save protects.
    pub(super) fn mean(&self) -> f64 {
        self.times.mean()
    }

    /// How long 95 of 100 copies take at most, in seconds.
    pub(super) fn p99(&self) -> f64 {
        self.times.p99()
    }
}

/// Until a copy was measured: it sends and writes, and computes nothing.
const SHARE_AT_FIRST: f64 = 0.1;

/// The least share of a copy's time that steps are longer by. A smaller share cannot be told from chance, and
/// is not nothing for those who share the network.
const SHARE_LEAST: f64 = 0.01;

/// As many copies count in what is believed.
const REMEMBERED: u32 = 63;

/// A copy that takes longer than nearly all before by this factor is not waited for.
const LATE: f64 = 10.0;

/// And not less than this, in seconds: hosts ask each other every second or so what there is.
const PATIENCE_LEAST: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of a copy is by how much it makes steps longer, whatever was believed at first.
    #[test]
    fn the_cost_of_copies_is_learned() {
        let mut copies = Copies::new(1e6, 5.0, &[]);
        assert!((copies.cost() - 0.5).abs() < 1e-12);
        let mut now = 0.0;
        for (step, cost) in [(1.25, 2.0), (1.0, 0.1)] {
            for _ in 0..400 {
                copies.begin(now, 1.0);
                assert!(copies.is_under_way() && copies.is_awaited(now + 59.0));
                (0..8).for_each(|_| copies.step(step));
                now += 10.0;
                assert_eq!(copies.end(now), Some((10.0, 8.0 * (step - 1.0))));
            }
            assert!((copies.cost() / cost - 1.0).abs() < 0.02, "{}", copies.cost());
        }
        assert_eq!(copies.end(now), None);
        copies.begin(now, 1.0);
        assert!(
            !copies.is_awaited(now + 101.0),
            "it is not waited for without end"
        );
    }

    /// Copies in a journal are known from the start.
    #[test]
    fn earlier_copies_count() {
        let copies = Copies::new(1e6, 5.0, &[(10.0, 3.0); 99]);
        assert_eq!((copies.mean(), copies.count), (10.0, REMEMBERED));
        assert!((copies.cost() - 3.0).abs() < 0.1, "{}", copies.cost());
    }
}
