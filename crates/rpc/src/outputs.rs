//! Outputs that are too large for a message, exposed until their callers have pulled them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use ropewalk_fabric::RegionHandle;

use crate::BusyReason;

/// Knows the region of each such output by its call. `K` names a peer.
#[derive(Debug)]
pub(crate) struct Outputs<K> {
    bytes_max: u64,
    regions: BTreeMap<(K, u64), (RegionHandle, Option<Instant>)>,
    deadlines: BTreeSet<(Instant, K, u64)>,
    bytes: u64,
}

impl<K: Copy + Ord> Outputs<K> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            regions: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    /// Checks that one more output of this size may be exposed.
    pub(crate) fn check_room(&self, size: u64) -> Result<(), BusyReason> {
        match self.bytes.saturating_add(size) <= self.bytes_max {
            true => Ok(()),
            false => Err(BusyReason::Outputs),
        }
    }

    /// Keeps the region with the output of a call. Returns one to withdraw, if the peer used the same tag twice.
    pub(crate) fn insert(
        &mut self,
        peer: K,
        tag: u64,
        region: RegionHandle,
        deadline: Option<Instant>,
    ) -> Option<RegionHandle> {
        let replaced = self.remove(peer, tag);
        self.bytes += region.length;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, peer, tag));
        }
        self.regions.insert((peer, tag), (region, deadline));
        replaced
    }

    /// The caller has the output, or waits for it no longer. Returns the region to withdraw.
    pub(crate) fn remove(&mut self, peer: K, tag: u64) -> Option<RegionHandle> {
        let (region, deadline) = self.regions.remove(&(peer, tag))?;
        self.bytes -= region.length;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, peer, tag));
        }
        Some(region)
    }

    /// The caller is gone. Returns the regions to withdraw.
    pub(crate) fn handle_peer_death(&mut self, peer: K) -> Vec<RegionHandle> {
        let of_peer = self.regions.range((peer, 0)..=(peer, u64::MAX));
        let tags: Vec<_> = of_peer.map(|(&(_, tag), _)| tag).collect();
        tags.into_iter()
            .filter_map(|tag| self.remove(peer, tag))
            .collect()
    }

    /// Returns the regions to withdraw because their callers wait no longer by now.
    pub(crate) fn handle_deadlines(&mut self, now: Instant) -> Vec<RegionHandle> {
        let mut withdrawn = Vec::new();
        while let Some(&(deadline, peer, tag)) = self.deadlines.first()
            && deadline <= now
        {
            withdrawn.extend(self.remove(peer, tag));
        }
        withdrawn
    }

    /// When [`handle_deadlines`](Self::handle_deadlines) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, ..)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn region(number: u64) -> RegionHandle {
        RegionHandle {
            address: "tcp://127.0.0.1:1".parse().unwrap(),
            region: number,
            token: 0,
            length: 10,
            writable: false,
        }
    }

    /// Every region is given back once: taken, replaced, overdue, or with its caller gone.
    #[test]
    fn nothing_stays() {
        let now = Instant::now();
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let mut outputs = Outputs::new(45);
        for (number, (peer, tag)) in [(1, 1), (1, 2), (1, 2), (2, 1), (2, 2)].into_iter().enumerate() {
            let replaced = outputs.insert(peer, tag, region(number as u64), at(number as u64));
            assert_eq!(replaced.map(|region| region.region), (number == 2).then_some(1));
        }
        assert!(outputs.check_room(5).is_ok());
        assert_eq!(outputs.check_room(6), Err(BusyReason::Outputs));
        assert_eq!(outputs.next_deadline(), at(0));
        let numbers =
            |regions: Vec<RegionHandle>| regions.iter().map(|region| region.region).collect::<Vec<_>>();
        assert_eq!(numbers(outputs.handle_deadlines(now)), [0]);
        assert_eq!(numbers(outputs.handle_peer_death(1)), [2]);
        assert_eq!(outputs.remove(2, 1).unwrap().region, 3);
        assert_eq!(outputs.remove(2, 1), None);
        assert_eq!(
            numbers(outputs.handle_deadlines(now + Duration::from_secs(9))),
            [4]
        );
        assert_eq!(
            (outputs.bytes, outputs.deadlines.len(), outputs.next_deadline()),
            (0, 0, None)
        );
    }
}
