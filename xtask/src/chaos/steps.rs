//! The disturbance of one run, drawn from a seed.

use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_names::Rank;

/// The hosts of a run, and their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Layout {
    /// One is this machine as it is; more are namespaces.
    pub(super) hosts: u8,
    pub(super) ranks: u32,
}

impl Layout {
    pub(super) const fn new(hosts: u8, ranks: u32) -> Self {
        Self { hosts, ranks }
    }

    /// Ranks of a host, but for the last one.
    pub(super) fn slots(self) -> u32 {
        self.ranks.div_ceil(u32::from(self.hosts))
    }

    /// The host of a rank, from 1.
    pub(super) fn host_of(self, rank: Rank) -> u8 {
        (rank.0 / self.slots()) as u8 + 1
    }

    /// The ranks of a host.
    pub(super) fn ranks_of(self, host: u8) -> Vec<Rank> {
        let ranks = (0..self.ranks).map(Rank);
        ranks.filter(|rank| self.host_of(*rank) == host).collect()
    }
}

/// Something that is done to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: Moment,
    /// So long after that.
    pub(super) delay: Duration,
    pub(super) act: Act,
}

/// The moment from which on the delay of a step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The rank is about to call.
    Calls(Rank),
    /// The rank's call has returned.
    Returned(Rank),
}

/// Hosts are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    ContinueAgent(u8),
    Continue(Rank),
    Cut(u8),
    CutOneWay(u8, u8),
    Kill(Rank),
    KillAgent(u8),
    KillHost(u8),
    Mend(u8),
    SetRate(u8, u32),
    Stop(Rank),
    StopAgent(u8),
}

impl Act {
    /// The ranks that may be lost by it.
    pub(super) fn victims(self, layout: Layout) -> Vec<Rank> {
        match self {
            Self::Kill(rank) | Self::Stop(rank) => vec![rank],
            Self::Cut(host) | Self::KillAgent(host) | Self::KillHost(host) | Self::StopAgent(host) => {
                layout.ranks_of(host)
            }
            Self::Continue(_)
            | Self::ContinueAgent(_)
            | Self::CutOneWay(..)
            | Self::Mend(_)
            | Self::SetRate(..) => Vec::new(),
        }
    }
}

/// Random choices for one run.
pub(super) struct Draw {
    random: Pcg64,
    pub(super) layout: Layout,
    /// The time from the call to the result of an undisturbed reduction.
    pub(super) usual: Duration,
    /// The root, and who is root if it is lost.
    pub(super) root: Rank,
    pub(super) next: Rank,
}

impl Draw {
    /// The choices of a seed; the root is any rank.
    pub(super) fn new(seed: u64, layout: Layout, usual: Duration) -> Self {
        let mut draw = Self {
            random: Pcg64::seed_from_u64(seed),
            layout,
            usual,
            root: Rank(0),
            next: Rank(0),
        };
        draw.root = draw.any_rank();
        draw.next = draw.rank_but(&[draw.root]);
        draw
    }

    /// A number below this one.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        self.random.next_u32() % limit
    }

    pub(super) fn any_rank(&mut self) -> Rank {
        let ranks = self.layout.ranks;
        Rank(self.below(ranks))
    }

    pub(super) fn any_host(&mut self) -> u8 {
        let hosts = u32::from(self.layout.hosts);
        self.below(hosts) as u8 + 1
    }

    pub(super) fn rank_but(&mut self, others: &[Rank]) -> Rank {
        loop {
            let rank = self.any_rank();
            if !others.contains(&rank) {
                return rank;
            }
        }
    }

    /// A time within this one.
    pub(super) fn within(&mut self, most: Duration) -> Duration {
        most.mul_f64(f64::from(self.random.next_u32()) / f64::from(u32::MAX))
    }

    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + self.within(most - least)
    }

    /// A kill between the return of the victim's call and the expected end.
    pub(super) fn kill(&mut self, victim: Rank) -> Step {
        self.step(victim, Act::Kill(victim))
    }

    /// A step between the return of a rank's call and the expected end.
    pub(super) fn step(&mut self, rank: Rank, act: Act) -> Step {
        let usual = self.usual;
        Step {
            from: Moment::Returned(rank),
            delay: self.within(usual),
            act,
        }
    }

    /// The same, at a host.
    pub(super) fn step_at(&mut self, host: u8, act: Act) -> Step {
        let rank = self.layout.ranks_of(host)[0];
        self.step(rank, act)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed gives the same victim at the same moment every time. Each rank is the victim and the root as often. No
    /// root follows itself.
    #[test]
    fn a_seed_replays_its_disturbance() {
        let (layout, usual) = (Layout::new(2, 3), Duration::from_millis(50));
        let (mut roots, mut killed) = ([0; 3], [0; 3]);
        for seed in 0..1000 {
            let draw = || {
                let mut draw = Draw::new(seed, layout, usual);
                let victim = draw.any_rank();
                (draw.root, draw.next, draw.kill(victim))
            };
            let (root, next, kill) = draw();
            assert_eq!((root, next, kill), draw());
            assert!(kill.delay <= usual && root != next);
            roots[root.index()] += 1;
            killed[kill.act.victims(layout)[0].index()] += 1;
        }
        assert!(
            roots.iter().chain(&killed).min() > Some(&250),
            "{roots:?} {killed:?}"
        );
    }

    /// Ranks are dealt to hosts in blocks, as the launcher does it.
    #[test]
    fn ranks_are_on_their_hosts() {
        let layout = Layout::new(4, 8);
        assert_eq!(layout.ranks_of(2), [Rank(2), Rank(3)]);
        assert_eq!(Act::Cut(4).victims(layout), [Rank(6), Rank(7)]);
        assert_eq!(Layout::new(5, 5).host_of(Rank(4)), 5);
    }
}
