//! Whom an endpoint lets in no more.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use ropewalk_names::{Incarnation, Rank};

use crate::{Identity, Role};

/// The members that the owner of an endpoint knows to be gone, as the endpoint and all handshakes at it see
/// them. Each member has one entry, whatever its incarnations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences(Arc<RwLock<BTreeMap<(Role, Rank), Incarnation>>>);

impl Fences {
    /// Keeps a member out, in this and all earlier incarnations.
    pub(crate) fn raise(&self, identity: Identity) {
        let mut fences = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let last = fences
            .entry((identity.role, identity.rank))
            .or_insert(identity.incarnation);
        *last = identity.incarnation.max(*last);
    }

    /// Returns true if a member is kept out.
    pub(crate) fn has(&self, identity: Identity) -> bool {
        let fences = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let last = fences.get(&(identity.role, identity.rank));
        last.is_some_and(|&last| identity.incarnation <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(role: Role, rank: u32, incarnation: u32) -> Identity {
        Identity {
            role,
            rank: Rank(rank),
            incarnation: Incarnation(incarnation),
        }
    }

    /// A fence holds for all incarnations up to its own, of this member only, and is never lowered.
    #[test]
    fn fences_hold_for_the_past() {
        let fences = Fences::default();
        let seen_by_handshakes = fences.clone();
        fences.raise(identity(Role::Rank, 3, 2));
        fences.raise(identity(Role::Rank, 3, 1));
        for incarnation in 0..5 {
            assert_eq!(
                seen_by_handshakes.has(identity(Role::Rank, 3, incarnation)),
                incarnation <= 2
            );
            assert!(!fences.has(identity(Role::Rank, 4, incarnation)));
            assert!(!fences.has(identity(Role::Agent, 3, incarnation)));
        }
    }
}
