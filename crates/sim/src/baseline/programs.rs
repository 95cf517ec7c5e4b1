//! The algorithms of MPI libraries as programs, one for each rank.
//!
//! Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), for
//! the trees, halving, doubling and rings; Bruck et al. (1997) for the allgather; Open MPI's `pipeline` for chains.

use std::collections::VecDeque;

use super::Baseline;
use crate::reduction::Collective;

/// A step of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send { to: u32, bytes: u64 },
    Receive { from: u32 },
    Fold { bytes: u64 },
}

type Program = VecDeque<Step>;

/// A job of MPI: so many ranks, counted from the root, and the bytes of a contribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranks {
    pub(super) hosts: u32,
    pub(super) bytes: u64,
}

/// The program of a rank, if the algorithm is one for the collective.
pub(super) fn program(
    collective: Collective,
    baseline: Baseline,
    ranks: Ranks,
    rank: u32,
) -> Option<Program> {
    Some(match (collective, baseline) {
        (Collective::Reduce, Baseline::Binomial) => ranks.reduce_by_tree(rank),
        (Collective::Reduce, Baseline::Rabenseifner) => ranks.halving(rank, false, gather_by_doubling),
        (Collective::Reduce, Baseline::Pipeline(segment)) => ranks.reduce_by_chain(rank, segment),
        (Collective::Allreduce, Baseline::RecursiveDoubling) => ranks.allreduce_by_doubling(rank),
        (Collective::Allreduce, Baseline::Rabenseifner) => ranks.halving(rank, true, allgather_by_doubling),
        (Collective::Allreduce, Baseline::Ring) => ranks.allreduce_by_ring(rank),
        (Collective::Broadcast, Baseline::Binomial) => ranks.broadcast_by_tree(rank),
        (Collective::Broadcast, Baseline::Ring) => ranks.broadcast_by_ring(rank),
        (Collective::Broadcast, Baseline::Pipeline(segment)) => ranks.broadcast_by_chain(rank, segment),
        (Collective::Gather, Baseline::Binomial) => ranks.gather_by_tree(rank),
        (Collective::Gather, Baseline::Linear) => ranks.gather_to_root(rank),
        (Collective::Allgather, Baseline::Ring) => ranks.ring(rank, rank, |_| ranks.bytes, false),
        (Collective::Allgather, Baseline::RecursiveDoubling) => ranks.allgather_of_bruck(rank),
        _ => return None,
    })
}

/// The part of a power of two that each rank of it has in an algorithm that halves and doubles.
struct Halved {
    own: u32,
    power: u32,
    part: u64,
}

/// The gather goes the other way than the halving.
fn gather_by_doubling(halved: &Halved, rank_of: &dyn Fn(u32) -> u32, steps: &mut Program) {
    let mut bytes = halved.part;
    let mut bit = 1;
    while bit < halved.power {
        let other = rank_of(halved.own ^ bit);
        if halved.own & bit != 0 {
            steps.push_back(Step::Send { to: other, bytes });
            break;
        }
        steps.push_back(Step::Receive { from: other });
        bytes *= 2;
        bit <<= 1;
    }
}

fn allgather_by_doubling(halved: &Halved, rank_of: &dyn Fn(u32) -> u32, steps: &mut Program) {
    let mut bytes = halved.part;
    let mut bit = 1;
    while bit < halved.power {
        let other = rank_of(halved.own ^ bit);
        steps.extend([Step::Send { to: other, bytes }, Step::Receive { from: other }]);
        bytes *= 2;
        bit <<= 1;
    }
}

impl Ranks {
    fn reduce_by_tree(self, rank: u32) -> Program {
        let Self { hosts, bytes } = self;
        let mut steps = Program::new();
        let mut bit = 1;
        while bit < hosts {
            if rank & bit != 0 {
                let to = rank & !bit;
                steps.push_back(Step::Send { to, bytes });
                break;
            }
            if rank | bit < hosts {
                steps.extend([Step::Receive { from: rank | bit }, Step::Fold { bytes }]);
            }
            bit <<= 1;
        }
        steps
    }

    fn broadcast_by_tree(self, rank: u32) -> Program {
        self.down_the_tree(rank, |_| self.bytes)
    }

    /// To a rank of a binomial tree goes down so much as `bytes` says of the number of ranks from it on downwards.
    fn down_the_tree(self, rank: u32, bytes: impl Fn(u32) -> u64) -> Program {
        let hosts = self.hosts;
        let mut steps = Program::new();
        let lowest = match rank {
            0 => hosts.next_power_of_two(),
            _ => 1 << rank.trailing_zeros(),
        };
        if rank > 0 {
            let from = rank & !lowest;
            steps.push_back(Step::Receive { from });
        }
        let mut bit = lowest / 2;
        while bit > 0 {
            let to = rank | bit;
            if to < hosts {
                let bytes = bytes(bit.min(hosts - to));
                steps.push_back(Step::Send { to, bytes });
            }
            bit /= 2;
        }
        steps
    }

    fn gather_by_tree(self, rank: u32) -> Program {
        let Self { hosts, bytes } = self;
        let mut steps = Program::new();
        let mut bit = 1;
        while bit < hosts {
            if rank & bit != 0 {
                let bytes = bytes * u64::from(bit.min(hosts - rank));
                let to = rank & !bit;
                steps.push_back(Step::Send { to, bytes });
                break;
            }
            if rank | bit < hosts {
                steps.push_back(Step::Receive { from: rank | bit });
            }
            bit <<= 1;
        }
        steps
    }

    fn gather_to_root(self, rank: u32) -> Program {
        let Self { hosts, bytes } = self;
        match rank {
            0 => (1..hosts).map(|from| Step::Receive { from }).collect(),
            _ => [Step::Send { to: 0, bytes }].into(),
        }
    }

    fn reduce_by_chain(self, rank: u32, segment: u64) -> Program {
        let mut steps = Program::new();
        for bytes in self.segments(segment) {
            if rank + 1 < self.hosts {
                steps.extend([Step::Receive { from: rank + 1 }, Step::Fold { bytes }]);
            }
            if rank > 0 {
                let to = rank - 1;
                steps.push_back(Step::Send { to, bytes });
            }
        }
        steps
    }

    fn broadcast_by_chain(self, rank: u32, segment: u64) -> Program {
        let mut steps = Program::new();
        for bytes in self.segments(segment) {
            if rank > 0 {
                steps.push_back(Step::Receive { from: rank - 1 });
            }
            if rank + 1 < self.hosts {
                let to = rank + 1;
                steps.push_back(Step::Send { to, bytes });
            }
        }
        steps
    }

    fn segments(self, segment: u64) -> impl Iterator<Item = u64> {
        let starts = (0..self.bytes).step_by(segment.max(1) as usize);
        starts.map(move |begin| segment.min(self.bytes - begin))
    }

    /// Halves the vector among a power of two of the ranks, then does the rest. Of the first ranks, as many as are too
    /// many for a power of two send their vectors to their neighbours first.
    fn halving(
        self,
        rank: u32,
        is_spread: bool,
        rest: impl Fn(&Halved, &dyn Fn(u32) -> u32, &mut Program),
    ) -> Program {
        self.in_power_of_two(rank, is_spread, |own, power, steps| {
            let mut part = self.bytes;
            let mut bit = power / 2;
            while bit > 0 {
                let other = self.rank_of(own ^ bit);
                part /= 2;
                steps.push_back(Step::Send {
                    to: other,
                    bytes: part,
                });
                steps.extend([Step::Receive { from: other }, Step::Fold { bytes: part }]);
                bit /= 2;
            }
            rest(
                &Halved { own, power, part },
                &|number| self.rank_of(number),
                steps,
            );
        })
    }

    fn allreduce_by_doubling(self, rank: u32) -> Program {
        let bytes = self.bytes;
        self.in_power_of_two(rank, true, |own, power, steps| {
            let mut bit = 1;
            while bit < power {
                let to = self.rank_of(own ^ bit);
                steps.push_back(Step::Send { to, bytes });
                steps.extend([Step::Receive { from: to }, Step::Fold { bytes }]);
                bit <<= 1;
            }
        })
    }

    /// The number of ranks that are too many for a power of two.
    fn extra(self) -> u32 {
        self.hosts - (1 << self.hosts.ilog2())
    }

    /// The rank that has this number in the power of two.
    fn rank_of(self, number: u32) -> u32 {
        match number < self.extra() {
            true => 2 * number,
            false => number + self.extra(),
        }
    }

    /// The ranks that are too many give their vectors to their neighbours, which give them the result if all get it.
    /// The others go on with their numbers in a power of two.
    fn in_power_of_two(
        self,
        rank: u32,
        is_spread: bool,
        go_on: impl FnOnce(u32, u32, &mut Program),
    ) -> Program {
        let Self { hosts, bytes } = self;
        let extra = self.extra();
        let mut steps = Program::new();
        let has_neighbour = rank < 2 * extra;
        if has_neighbour && rank % 2 == 1 {
            let neighbour = rank - 1;
            let to = neighbour;
            steps.push_back(Step::Send { to, bytes });
            steps.extend(is_spread.then_some(Step::Receive { from: neighbour }));
            return steps;
        }
        if has_neighbour {
            steps.extend([Step::Receive { from: rank + 1 }, Step::Fold { bytes }]);
        }
        let own = if has_neighbour { rank / 2 } else { rank - extra };
        go_on(own, hosts - extra, &mut steps);
        if has_neighbour && is_spread {
            let to = rank + 1;
            steps.push_back(Step::Send { to, bytes });
        }
        steps
    }

    /// Blocks go from each rank to the next, all around; a rank sends the block `first` first. They are folded on
    /// arrival or kept.
    fn ring(self, rank: u32, first: u32, bytes: impl Fn(u32) -> u64, are_folded: bool) -> Program {
        let hosts = self.hosts;
        let mut steps = Program::new();
        for step in 1..hosts {
            let sent = (first + hosts + 1 - step) % hosts;
            let came = (first + hosts - step) % hosts;
            let (to, from) = ((rank + 1) % hosts, (rank + hosts - 1) % hosts);
            let send = Step::Send {
                to,
                bytes: bytes(sent),
            };
            steps.extend([send, Step::Receive { from }]);
            if are_folded {
                steps.push_back(Step::Fold { bytes: bytes(came) });
            }
        }
        steps
    }

    fn block(self, number: u32) -> u64 {
        let hosts = u64::from(self.hosts);
        self.bytes / hosts + u64::from(u64::from(number) < self.bytes % hosts)
    }

    fn allreduce_by_ring(self, rank: u32) -> Program {
        let mut steps = self.ring(rank, rank, |number| self.block(number), true);
        steps.append(&mut self.ring(rank, rank + 1, |number| self.block(number), false));
        steps
    }

    /// Blocks go down a binomial tree, and around (van de Geijn).
    fn broadcast_by_ring(self, rank: u32) -> Program {
        let block = self.bytes.div_ceil(self.hosts.into());
        let mut steps = self.down_the_tree(rank, |ranks| block * u64::from(ranks));
        steps.append(&mut self.ring(rank, rank, |_| block, false));
        steps
    }

    fn allgather_of_bruck(self, rank: u32) -> Program {
        let Self { hosts, bytes } = self;
        let mut steps = Program::new();
        let mut distance = 1;
        while distance < hosts {
            let blocks = distance.min(hosts - distance);
            steps.push_back(Step::Send {
                to: (rank + hosts - distance) % hosts,
                bytes: bytes * u64::from(blocks),
            });
            let from = (rank + distance) % hosts;
            steps.push_back(Step::Receive { from });
            distance *= 2;
        }
        steps
    }
}
