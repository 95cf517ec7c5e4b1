//! The counters of reductions that the ranks of a job tell.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_fabric::ReductionCounters;
use ropewalk_names::{Rank, SchedulerLoad};

/// The counters of all ranks, of their earlier processes too.
#[derive(Clone, Debug, Default)]
pub(super) struct Reductions {
    /// Those of the processes that run, or ran last, and the names of their hosts.
    ranks: BTreeMap<Rank, (String, ReductionCounters)>,
    /// Those of the processes before these, by host.
    before: BTreeMap<String, HostCounters>,
}

/// The counters of the ranks of a host, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostCounters {
    /// Ends of reductions, each on each rank that took part.
    pub(super) ends: u64,
    pub(super) chunks: u64,
    pub(super) chunk_bytes: u64,
    pub(super) send_time: Duration,
    pub(super) wait_time: Duration,
    /// The longest on any of the ranks.
    pub(super) last_send_time: Duration,
    /// The largest on any of the ranks.
    pub(super) queue_max: u32,
    /// Bytes per second.
    pub(super) send_rate: u64,
    /// Bytes per second.
    pub(super) receive_rate: u64,
    pub(super) scheduler: SchedulerLoad,
}

impl Reductions {
    /// A rank tells its counters. They replace those that its process told before.
    pub(super) fn take(&mut self, rank: Rank, host: &str, counters: &ReductionCounters) {
        self.ranks.insert(rank, (host.to_owned(), *counters));
    }

    /// A rank has another process, which counts from 0.
    pub(super) fn begin(&mut self, rank: Rank) {
        if let Some((host, counters)) = self.ranks.remove(&rank) {
            // The rates of a process that is gone say nothing.
            let (send_rate, receive_rate) = (0, 0);
            let counters = ReductionCounters {
                send_rate,
                receive_rate,
                ..counters
            };
            self.before.entry(host).or_default().add(&counters);
        }
    }

    /// The counters of each host that has any.
    pub(super) fn by_host(&self) -> BTreeMap<&str, HostCounters> {
        let before = self.before.iter().map(|(host, counters)| (&**host, *counters));
        let mut hosts: BTreeMap<&str, HostCounters> = before.collect();
        for (host, counters) in self.ranks.values() {
            hosts.entry(host).or_default().add(counters);
        }
        hosts
    }

    /// The counters of all hosts together, if any rank has told its counters.
    pub(super) fn total(&self) -> Option<HostCounters> {
        let hosts = self.by_host();
        let mut total = HostCounters::default();
        hosts.values().for_each(|host| total.add_host(host));
        (!hosts.is_empty()).then_some(total)
    }
}

impl HostCounters {
    fn add(&mut self, rank: &ReductionCounters) {
        self.add_host(&Self {
            ends: rank.reductions,
            chunks: rank.chunks,
            chunk_bytes: rank.chunk_bytes,
            send_time: rank.send_time,
            wait_time: rank.wait_time,
            last_send_time: rank.last_send_time,
            queue_max: rank.queue_max,
            send_rate: rank.send_rate,
            receive_rate: rank.receive_rate,
            scheduler: rank.scheduler,
        });
    }

    fn add_host(&mut self, other: &Self) {
        self.ends += other.ends;
        self.chunks += other.chunks;
        self.chunk_bytes += other.chunk_bytes;
        self.send_time += other.send_time;
        self.wait_time += other.wait_time;
        self.last_send_time = self.last_send_time.max(other.last_send_time);
        self.queue_max = self.queue_max.max(other.queue_max);
        self.send_rate += other.send_rate;
        self.receive_rate += other.receive_rate;
        self.scheduler = self.scheduler + other.scheduler;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that a rank tells replace those that it told before. Those of its earlier process stay, but for rates.
    #[test]
    fn counters_of_processes_add_up() {
        let mut reductions = Reductions::default();
        assert_eq!(reductions.total(), None);
        let counters = |chunks, queue_max| ReductionCounters {
            chunks,
            queue_max,
            send_rate: 100,
            ..ReductionCounters::default()
        };
        reductions.take(Rank(0), "a", &counters(3, 2));
        reductions.take(Rank(0), "a", &counters(5, 7));
        reductions.take(Rank(1), "a", &counters(1, 1));
        reductions.begin(Rank(0));
        reductions.take(Rank(0), "b", &counters(10, 1));
        let hosts = reductions.by_host();
        let told = |host: &str| (hosts[host].chunks, hosts[host].queue_max, hosts[host].send_rate);
        assert_eq!((told("a"), told("b")), ((6, 7, 100), (10, 1, 100)));
        assert_eq!(reductions.total().map(|total| total.chunks), Some(16));
    }
}
