//! The keys by which the members of a job prove who they are.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Identity, JobKey, Role};

/// The key by which one incarnation of one member proves that it belongs to the job. [`JobKey::key_of`] makes it; the
/// job's key cannot be found from it. It is wiped from memory when dropped, and never printed.
///
/// Launcher and agents have the job's key itself. A rank has two keys that are made of it. By the first, which is made
/// for its incarnation alone, it proves to launcher and agents which rank it is: no rank can pose there as another
/// rank, as another incarnation, as an agent or as the launcher. The second is the same for all ranks: it keeps
/// strangers out, and ranks, which run as one user, trust each other to say which rank they are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberKey {
    identity: Identity,
    secret: Secret,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Secret {
    /// Of an agent or the launcher.
    Job(JobKey),
    Rank(RankSecret),
}

#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
struct RankSecret {
    /// Shared with launcher and agents.
    own: [u8; 32],
    /// Shared with all ranks.
    ranks: [u8; 32],
}

/// The key that two members share.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct SharedKey([u8; 32]);

/// A hash under a key, to which more can be added.
pub(crate) type KeyedHash = Hmac<Sha256>;

/// A hash under this key of what begins with this label.
pub(crate) fn keyed(key: &[u8], label: &[u8]) -> KeyedHash {
    let mut hash = KeyedHash::new_from_slice(key).expect("HMAC takes a key of any length");
    hash.update(label);
    hash
}

impl JobKey {
    /// The key of this member.
    pub fn key_of(&self, identity: Identity) -> MemberKey {
        let secret = match identity.role {
            Role::Agent | Role::Launcher => Secret::Job(self.clone()),
            Role::Rank => Secret::Rank(RankSecret {
                own: own_key(self, identity),
                ranks: finish(keyed(self.as_bytes(), b"ropewalk key of all ranks")),
            }),
        };
        MemberKey { identity, secret }
    }
}

impl MemberKey {
    /// The member whose key it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The key that its owner shares with another member.
    pub(crate) fn shared_with(&self, other: Identity) -> SharedKey {
        SharedKey(match (&self.secret, other.role) {
            (Secret::Rank(secret), Role::Rank) => secret.ranks,
            (Secret::Rank(secret), Role::Agent | Role::Launcher) => secret.own,
            (Secret::Job(job), Role::Rank) => own_key(job, other),
            (Secret::Job(job), Role::Agent | Role::Launcher) => {
                finish(keyed(job.as_bytes(), b"ropewalk key of agents"))
            }
        })
    }
}

impl SharedKey {
    /// A hash that only those who share the key can make, of what begins with this label.
    pub(crate) fn hash(&self, label: &[u8]) -> KeyedHash {
        keyed(&self.0, label)
    }
}

/// The key that a rank shares with those who hold the job's key.
fn own_key(job: &JobKey, rank: Identity) -> [u8; 32] {
    let mut hash = keyed(job.as_bytes(), b"ropewalk key of a rank");
    hash.update(&rank.encode());
    finish(hash)
}

fn finish(hash: KeyedHash) -> [u8; 32] {
    hash.finalize().into_bytes().into()
}

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberKey({}, ..)", self.identity)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use ropewalk_names::{Incarnation, Rank};

    use super::*;

    fn identities() -> Vec<Identity> {
        let mut all = Vec::new();
        for role in [Role::Agent, Role::Launcher, Role::Rank] {
            for (rank, incarnation) in [(0, 0), (0, 1), (1, 0), (7, 3)] {
                all.push(Identity {
                    role,
                    rank: Rank(rank),
                    incarnation: Incarnation(incarnation),
                });
            }
        }
        all
    }

    /// Any two members share a key, each by its own: all ranks one, all who hold the job's key another, and each
    /// incarnation of each rank one of its own with the latter.
    #[test]
    fn any_two_members_share_a_key() {
        let job = JobKey::from_bytes([4; 32]);
        let mut kinds = BTreeMap::new();
        for a in identities() {
            for b in identities() {
                let shared = job.key_of(a).shared_with(b).0;
                assert_eq!(shared, job.key_of(b).shared_with(a).0, "{a} and {b}");
                let mut ranks = vec![a, b];
                ranks.retain(|member| member.role == Role::Rank);
                let kind = match ranks[..] {
                    [] => "agents".to_owned(),
                    [rank] => rank.to_string(),
                    _ => "ranks".to_owned(),
                };
                assert_eq!(*kinds.entry(kind).or_insert(shared), shared, "{a} and {b}");
            }
        }
        // Four incarnations of ranks.
        let different: BTreeSet<_> = kinds.values().collect();
        assert_eq!((kinds.len(), different.len()), (6, 6));
    }

    /// A rank's key does not contain the job's, and survives being handed over; those who make keys have it.
    #[test]
    fn a_rank_is_not_given_the_jobs_key() {
        let job = JobKey::from_bytes(std::array::from_fn(|index| index as u8 + 100));
        for identity in identities() {
            let key = job.key_of(identity);
            let bytes = postcard::to_allocvec(&key).unwrap();
            let has_job_key = bytes.windows(32).any(|window| window == job.as_bytes());
            assert_eq!(has_job_key, identity.role != Role::Rank, "{identity}");
            let handed: MemberKey = postcard::from_bytes(&bytes).unwrap();
            assert!(handed == key && handed.identity() == identity);
        }
    }

    /// The printed form of a key tells whose it is, and no more.
    #[test]
    fn keys_are_not_printed() {
        let key = JobKey::from_bytes([255; 32]).key_of(identities()[9]);
        assert_eq!(format!("{key:?}"), "MemberKey(rank 0 (incarnation 1), ..)");
    }
}
