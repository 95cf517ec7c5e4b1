//! The numbers of groups of processes: each host proposes one, and all take that of the first host.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The groups that processes of this host construct. Their fences carry the proposals of all hosts.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// The number of this host in the job.
    pub(super) host: u32,
    /// How many numbers this host has proposed.
    proposed: u32,
    /// The fences whose members construct a group.
    waiting: BTreeSet<u64>,
}

/// A host's part in the construction of a group.
#[derive(Serialize, Deserialize)]
struct Part {
    /// The number that the host proposes. No other host proposes it, nor this one again.
    context: u64,
    /// The data of the processes there.
    data: Vec<u8>,
}

impl Contexts {
    /// Processes here come to the fence with this token, with data for all. Returns what the fence carries.
    pub(super) fn propose(&mut self, token: u64, data: Vec<u8>) -> Vec<u8> {
        self.waiting.insert(token);
        self.proposed += 1;
        // 0 means no group to Open MPI.
        let context = (u64::from(self.host) + 1) << 32 | u64::from(self.proposed);
        postcard::to_allocvec(&Part { context, data })
            .expect("a part in memory has a length, and memory grows")
    }

    /// A fence is over. Returns the data of its members, and the number of their group if they construct one; `None` if
    /// the data is not what hosts send.
    pub(super) fn decide(&mut self, token: u64, data: Vec<u8>) -> Option<(Vec<u8>, Option<u64>)> {
        if !self.waiting.remove(&token) {
            return Some((data, None));
        }
        let (first, mut rest): (Part, _) = postcard::take_from_bytes(&data).ok()?;
        let mut all = first.data;
        while !rest.is_empty() {
            let (part, behind): (Part, _) = postcard::take_from_bytes(rest).ok()?;
            all.extend(part.data);
            rest = behind;
        }
        Some((all, Some(first.context)))
    }

    /// A fence has failed.
    pub(super) fn forget(&mut self, token: u64) {
        self.waiting.remove(&token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(host: u32) -> Contexts {
        Contexts {
            host,
            ..Contexts::default()
        }
    }

    /// All hosts of a group take the same number, that of the first of them, and get the data of all; the next group
    /// gets another number, and so does a group of other hosts.
    #[test]
    fn hosts_agree_on_numbers_that_are_unique() {
        let mut hosts = [contexts(0), contexts(1), contexts(2)];
        let mut numbers = BTreeSet::new();
        let groups: [(u64, &[usize]); 4] = [(1, &[0, 1, 2]), (2, &[0, 1, 2]), (3, &[1, 2]), (4, &[2, 1])];
        for (token, members) in groups {
            let parts = members
                .iter()
                .map(|&host| hosts[host].propose(token, vec![host as u8; 3]));
            let fence = parts.collect::<Vec<_>>().concat();
            let data: Vec<_> = members.iter().flat_map(|&host| [host as u8; 3]).collect();
            let decided = members
                .iter()
                .map(|&host| hosts[host].decide(token, fence.clone()));
            let decided: Vec<_> = decided.collect();
            let (_, number) = decided[0].clone().unwrap();
            assert!(number.is_some_and(|number| number != 0 && numbers.insert(number)));
            assert!(decided.iter().all(|found| *found == Some((data.clone(), number))));
        }
    }

    /// A fence whose members construct no group has their data as it is; a part that is cut off is no data.
    #[test]
    fn other_fences_keep_their_data() {
        let mut contexts = contexts(0);
        assert_eq!(contexts.decide(1, vec![1, 2]), Some((vec![1, 2], None)));
        let part = contexts.propose(2, vec![0; 9]);
        assert_eq!(contexts.decide(2, part[..part.len() - 1].to_vec()), None);
        let part = contexts.propose(3, vec![0; 9]);
        contexts.forget(3);
        assert_eq!(contexts.decide(3, part.clone()), Some((part, None)));
    }
}
