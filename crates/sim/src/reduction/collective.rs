//! The collective of a setting, and the time that its links need.

use super::{Made, Setting, Slow};
use crate::Nanos;

/// A collective, by its name in the MPI standard 4.0, chapter 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// The root gets all contributions, folded.
    Reduce,
    /// All ranks get all contributions, folded.
    Allreduce,
    /// All ranks get the root's contribution.
    Broadcast,
    /// The root gets all contributions, side by side.
    Gather,
    /// All ranks get all contributions, side by side.
    Allgather,
}

impl Collective {
    /// All ranks get the result.
    pub fn is_spread(self) -> bool {
        match self {
            Self::Reduce | Self::Gather => false,
            Self::Allreduce | Self::Broadcast | Self::Allgather => true,
        }
    }
}

impl Setting {
    /// The collective that the ranks call. A broadcast to a root alone is one to all of them too.
    pub fn collective(&self) -> Collective {
        match (self.calls.made, self.calls.is_spread) {
            (Made::ByEach, false) => Collective::Reduce,
            (Made::ByEach, true) => Collective::Allreduce,
            (Made::ByOne(_), _) => Collective::Broadcast,
            (Made::SideBySide, false) => Collective::Gather,
            (Made::SideBySide, true) => Collective::Allgather,
        }
    }

    /// Has the ranks call this collective, with the root that is set.
    pub fn set_collective(&mut self, collective: Collective) {
        self.calls.is_spread = collective.is_spread();
        self.calls.made = match collective {
            Collective::Reduce | Collective::Allreduce => Made::ByEach,
            Collective::Broadcast => Made::ByOne(self.calls.root),
            Collective::Gather | Collective::Allgather => Made::SideBySide,
        };
    }

    /// The time below which no algorithm for the collective can be: each rank sends what it makes and receives what it
    /// gets, and all together receive what has to be received. It leaves changes out.
    pub fn floor(&self) -> Nanos {
        let Some(links) = self.links() else {
            return Nanos::ZERO;
        };
        let (bytes, others) = (self.calls.bytes as f64, f64::from(self.hosts - 1));
        let seconds = match self.collective() {
            Collective::Reduce => return self.reduction_floor(),
            Collective::Allreduce => {
                let all = links.others_in + links.root_in;
                let each = links
                    .least_out
                    .min(links.root_out)
                    .min(links.least_in)
                    .min(links.root_in);
                (bytes / each).max(2.0 * others * bytes / all)
            }
            Collective::Broadcast => bytes / links.root_out.min(links.least_in),
            Collective::Gather => (bytes / links.least_out).max(others * bytes / links.root_in),
            Collective::Allgather => {
                let each = links.least_in.min(links.root_in);
                (bytes / links.least_out.min(links.root_out)).max(others * bytes / each)
            }
        };
        Nanos::from_seconds(seconds) + self.cluster.latency
    }

    /// The time below which no reduction can be: each link has to carry the vector once, and a tree's links in carry it
    /// once for each host but the root.
    pub(super) fn reduction_floor(&self) -> Nanos {
        let Some(links) = self.links() else {
            return Nanos::ZERO;
        };
        let bytes = self.calls.bytes as f64;
        let rest = f64::from(self.hosts - 2) * bytes / links.others_in;
        let seconds = (bytes / links.least_out).max(bytes / links.root_in).max(rest);
        Nanos::from_seconds(seconds) + self.cluster.latency
    }

    /// The rates of the links, unless there is one host.
    fn links(&self) -> Option<Links> {
        let rate_of = |host: u32, part: fn(&Slow) -> f64| {
            let factor = self.slow_host(host).map_or(1.0, part);
            self.cluster.rate * factor
        };
        let others = || (0..self.hosts).filter(|host| *host != self.calls.root);
        let outwards = |host| rate_of(host, |slow| slow.outwards);
        let inwards = |host| rate_of(host, |slow| slow.inwards);
        (self.hosts > 1).then(|| Links {
            root_out: outwards(self.calls.root),
            root_in: inwards(self.calls.root),
            least_out: others().map(outwards).fold(f64::INFINITY, f64::min),
            least_in: others().map(inwards).fold(f64::INFINITY, f64::min),
            others_in: others().map(inwards).sum(),
        })
    }
}

/// Bytes per second of the root's links, of the slowest ones of the others, and of all their links in together.
struct Links {
    root_out: f64,
    root_in: f64,
    least_out: f64,
    least_in: f64,
    others_in: f64,
}
