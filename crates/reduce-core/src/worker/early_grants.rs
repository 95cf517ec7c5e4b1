//! Grants that come before the row that they are for.

use std::collections::BTreeMap;

use super::Worker;
use crate::{
    canary::{Canary, is_put_back},
    ids::{PlanId, Session, StreamId},
    message::Grant,
};

#[derive(Debug, Default)]
pub(super) struct EarlyGrants(BTreeMap<(Session, StreamId), Grant>);

impl EarlyGrants {
    pub(super) fn keep(&mut self, grant: Grant) {
        if self.0.len() < Worker::EARLY_MAX && !is_put_back(Canary::EarlyGrantForgotten) {
            let known = self.0.entry((grant.session, grant.to)).or_insert(grant);
            known.taken = known.taken.max(grant.taken);
            known.until = known.until.max(grant.until);
        }
    }

    pub(super) fn take(&mut self, session: Session, stream: StreamId) -> Option<Grant> {
        self.0.remove(&(session, stream))
    }

    /// Forgets those of a session that are of this plan, or of older ones.
    pub(super) fn forget_until(&mut self, session: Session, plan: PlanId) {
        self.0
            .retain(|(known, stream), _| *known != session || stream.plan > plan);
    }

    pub(super) fn forget(&mut self, session: Session) {
        self.0.retain(|(known, _), _| *known != session);
    }
}
