use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Member;

/// The data-reliability store: original data O_i is kept by process i and by process j = (i + 1) mod p (formula
/// (4)), and copies that a failure takes are made again.
///
/// The order of calls: [`called`](Self::called) when a process calls reduce, [`stored`](Self::stored) when a copy is
/// complete, [`failed`](Self::failed) when a process has failed. The first and the last return copies to make.
#[derive(Debug)]
pub struct Replicas {
    processes: u32,
    /// The processes that hold each original.
    holders: BTreeMap<Member, BTreeSet<Member>>,
    failed: BTreeSet<Member>,
}

/// A copy to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The process whose original it is.
    pub of: Member,
    /// A process that holds it.
    pub from: Member,
    /// The process that is to hold it.
    pub to: Member,
}

impl Replicas {
    /// "In two copies, on two different nodes."
    const COPIES: usize = 2;

    /// The store of so many processes.
    pub fn new(processes: u32) -> Self {
        Self {
            processes,
            holders: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// A process has called reduce: its original is on its own node.
    pub fn called(&mut self, process: Member) -> Option<Copy> {
        self.holders.insert(process, BTreeSet::from([process]));
        self.copy_of(process)
    }

    /// A copy is complete.
    pub fn stored(&mut self, copy: Copy) {
        if !self.failed.contains(&copy.to)
            && let Some(holders) = self.holders.get_mut(&copy.of)
        {
            holders.insert(copy.to);
        }
    }

    /// "The copies of the failed node are made again on other nodes."
    pub fn failed(&mut self, process: Member) -> Vec<Copy> {
        self.failed.insert(process);
        let mut concerned = Vec::new();
        for (&of, holders) in &mut self.holders {
            if holders.remove(&process) {
                concerned.push(of);
            }
        }
        concerned.into_iter().filter_map(|of| self.copy_of(of)).collect()
    }

    /// The process that serves an original to `reader`: "always from the reader's own disk first". `None` if it is
    /// lost.
    pub fn holder(&self, of: Member, reader: Member) -> Option<Member> {
        let holders = self.holders.get(&of)?;
        match holders.contains(&reader) {
            true => Some(reader),
            false => holders.first().copied(),
        }
    }

    /// The copy that an original needs, on the next process that lives and does not hold it.
    fn copy_of(&self, of: Member) -> Option<Copy> {
        let holders = &self.holders[&of];
        let from = *holders.first().filter(|_| holders.len() < Self::COPIES)?;
        let mut others = (1..self.processes).map(|step| Member((of.0 + step) % self.processes));
        let to = others.find(|other| !self.failed.contains(other) && !holders.contains(other))?;
        Some(Copy { of, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(of: u32, from: u32, to: u32) -> Copy {
        Copy {
            of: Member(of),
            from: Member(from),
            to: Member(to),
        }
    }

    /// Formula (4): the second copy of O_i is on process (i + 1) mod p.
    #[test]
    fn the_next_process_holds_a_copy() {
        let mut replicas = Replicas::new(3);
        assert_eq!(replicas.called(Member(0)), Some(copy(0, 0, 1)));
        assert_eq!(replicas.called(Member(2)), Some(copy(2, 2, 0)));
        assert_eq!(Replicas::new(1).called(Member(0)), None);
    }

    /// A failure takes two copies; both originals get another one, from where they still are.
    #[test]
    fn copies_are_made_again() {
        let mut replicas = Replicas::new(4);
        for process in 0..4 {
            let copy = replicas.called(Member(process)).unwrap();
            replicas.stored(copy);
        }
        assert_eq!(replicas.failed(Member(1)), [copy(0, 0, 2), copy(1, 2, 3)]);
        assert_eq!(replicas.holder(Member(1), Member(0)), Some(Member(2)));
        assert_eq!(replicas.holder(Member(3), Member(0)), Some(Member(0)));
    }

    /// "If W_i fails before its data is stored on the remote node, the failure cannot be recovered."
    #[test]
    fn a_failure_before_the_copy_loses_the_original() {
        let mut replicas = Replicas::new(3);
        replicas.called(Member(0));
        assert_eq!(replicas.failed(Member(0)), []);
        assert_eq!(replicas.holder(Member(0), Member(1)), None);
    }
}
