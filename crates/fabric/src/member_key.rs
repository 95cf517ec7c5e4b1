//! What a member of a job proves by who it is, and nobody else.

use std::{fmt, sync::OnceLock};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{
    Identity, JobKey, Role,
    pair_polynomial::{PairPolynomial, PairShare, Point},
};

/// The secret of one incarnation of one member of a job, by which it proves to any other that it is this one. It is made
/// of the job's key, which cannot be found from it; it is wiped from memory when dropped, and never printed.
///
/// Ranks have such a key in place of the job's, and so none of them can be taken for another rank, for another
/// incarnation of itself, for an agent or for the launcher. Agents and the launcher make the keys of ranks, and so hold
/// the job's key itself: each of them could be taken for anybody.
///
/// At most 31 ranks that tell each other their keys learn nothing by which they could be taken for another rank; however
/// many do, none can be taken for an agent or the launcher.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberKey {
    identity: Identity,
    secret: Secret,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Secret {
    /// Of an agent or the launcher.
    Job(JobKey),
    Rank(Box<RankSecret>),
}

#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
struct RankSecret {
    /// What those who hold the job's key can derive too.
    own: [u8; 32],
    /// What other ranks have the counterparts of.
    share: PairShare,
}

/// What two members share, and no other rank.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct PairKey([u8; 32]);

/// Makes the keys of a job's members.
pub struct KeyMaker {
    job: JobKey,
    /// Once the key of a rank was made; it takes about 0.1 ms.
    polynomial: OnceLock<PairPolynomial>,
}

/// A hash under a key, to which more can be added.
pub(crate) type KeyedHash = Hmac<Sha256>;

/// A hash under this key of what begins with this label.
pub(crate) fn keyed(key: &[u8], label: &[u8]) -> KeyedHash {
    let mut hash = KeyedHash::new_from_slice(key).expect("HMAC takes a key of any length");
    hash.update(label);
    hash
}

impl KeyMaker {
    /// That of the job with this key.
    pub fn new(job: JobKey) -> Self {
        Self {
            job,
            polynomial: OnceLock::new(),
        }
    }

    /// The key of this member, which is to be given to nobody else.
    pub fn key_of(&self, identity: Identity) -> MemberKey {
        let secret = match identity.role {
            Role::Agent | Role::Launcher => Secret::Job(self.job.clone()),
            Role::Rank => {
                let polynomial = self.polynomial.get_or_init(|| PairPolynomial::of(&self.job));
                Secret::Rank(Box::new(RankSecret {
                    own: own_secret(&self.job, identity),
                    share: polynomial.share(point(identity)),
                }))
            }
        };
        MemberKey { identity, secret }
    }
}

impl MemberKey {
    /// Whose key it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What its owner shares with another member.
    pub(crate) fn shared_with(&self, other: Identity) -> PairKey {
        let itself = self.identity;
        PairKey(match (&self.secret, other.role) {
            (Secret::Rank(secret), Role::Rank) => {
                let mut key = [0; 32];
                key[..16].copy_from_slice(&secret.share.with(point(other)));
                key
            }
            (Secret::Rank(secret), Role::Agent | Role::Launcher) => shared_with_maker(&secret.own, other),
            (Secret::Job(job), Role::Rank) => {
                let mut own = own_secret(job, other);
                let shared = shared_with_maker(&own, itself);
                own.zeroize();
                shared
            }
            (Secret::Job(job), Role::Agent | Role::Launcher) => {
                let mut both = [itself.encode(), other.encode()];
                both.sort_unstable();
                let mut hash = keyed(job.as_bytes(), b"ropewalk pair of agents");
                hash.update(both.as_flattened());
                hash.finalize().into_bytes().into()
            }
        })
    }
}

impl PairKey {
    /// A hash that only the two can make, of what begins with this label.
    pub(crate) fn hash(&self, label: &[u8]) -> KeyedHash {
        keyed(&self.0, label)
    }
}

/// What a rank shares with all who hold the job's key.
fn own_secret(job: &JobKey, rank: Identity) -> [u8; 32] {
    let mut hash = keyed(job.as_bytes(), b"ropewalk secret of a rank");
    hash.update(&rank.encode());
    hash.finalize().into_bytes().into()
}

/// What a rank with this secret shares with one of those.
fn shared_with_maker(own: &[u8; 32], maker: Identity) -> [u8; 32] {
    let mut hash = keyed(own, b"ropewalk pair of rank and agent");
    hash.update(&maker.encode());
    hash.finalize().into_bytes().into()
}

fn point(rank: Identity) -> Point {
    Point(u64::from(rank.rank.0) << 32 | u64::from(rank.incarnation.0))
}

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberKey({}, ..)", self.identity)
    }
}

impl fmt::Debug for KeyMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyMaker(..)")
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_group::{Incarnation, Rank};

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

    /// Any two members share a secret, each by its own key, and no two pairs share the same.
    #[test]
    fn each_pair_shares_a_secret_of_its_own() {
        let job = JobKey::from_bytes([4; 32]);
        let maker = KeyMaker::new(job.clone());
        let mut seen = Vec::new();
        for (index, &a) in identities().iter().enumerate() {
            for &b in &identities()[index..] {
                let secret = maker.key_of(a).shared_with(b).0;
                assert_eq!(secret, maker.key_of(b).shared_with(a).0, "{a} and {b}");
                assert!(!seen.contains(&secret), "{a} and {b}");
                seen.push(secret);
            }
        }
    }

    /// A rank's key does not contain the job's, and survives being handed over; those who make keys have it.
    #[test]
    fn a_rank_is_not_given_the_jobs_key() {
        let job = JobKey::from_bytes(std::array::from_fn(|index| index as u8 + 100));
        for identity in identities() {
            let key = KeyMaker::new(job.clone()).key_of(identity);
            let bytes = postcard::to_allocvec(&key).unwrap();
            let has_job_key = bytes.windows(32).any(|window| window == job.as_bytes());
            assert_eq!(has_job_key, identity.role != Role::Rank, "{identity}");
            let handed: MemberKey = postcard::from_bytes(&bytes).unwrap();
            assert!(handed == key && handed.identity() == identity);
            assert!(bytes.len() < 1024, "{} bytes", bytes.len());
        }
    }

    /// What is printed of a key tells whose it is, and no more.
    #[test]
    fn keys_are_not_printed() {
        let key = KeyMaker::new(JobKey::from_bytes([255; 32])).key_of(identities()[9]);
        assert_eq!(format!("{key:?}"), "MemberKey(rank 0 (incarnation 1), ..)");
    }
}
