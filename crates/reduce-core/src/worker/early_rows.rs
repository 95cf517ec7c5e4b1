//! Rows that come before the call that they are for.

use std::collections::BTreeMap;

use super::Worker;
use crate::{
    ids::{PlanId, Session},
    message::Row,
};

/// The newest rows of sessions to which a site has not contributed yet, and the older ones that they keep something of.
#[derive(Debug, Default)]
pub(super) struct EarlyRows(BTreeMap<(Session, PlanId), Row>);

impl EarlyRows {
    pub(super) fn keep(&mut self, row: Row) {
        let session = row.session;
        let is_older = |known: &Row| known.share == row.share && known.plan >= row.plan;
        if self.of(session).any(is_older) {
            return;
        }
        if row.kept.is_empty() {
            self.0
                .retain(|(known, _), older| *known != session || older.share != row.share);
        }
        if self.0.len() < Worker::EARLY_ROWS_MAX {
            self.0.insert((session, row.plan), row);
        }
    }

    /// The rows of a session as they were made: each takes the place of older ones.
    pub(super) fn take(&mut self, session: Session) -> Vec<Row> {
        let keys: Vec<PlanId> = self.of(session).map(|row| row.plan).collect();
        let rows = keys
            .into_iter()
            .filter_map(|plan| self.0.remove(&(session, plan)));
        rows.collect()
    }

    pub(super) fn forget(&mut self, session: Session) {
        self.0.retain(|(known, _), _| *known != session);
    }

    fn of(&self, session: Session) -> impl Iterator<Item = &Row> {
        let rows = self.0.range((session, PlanId::default())..);
        rows.take_while(move |((known, _), _)| *known == session)
            .map(|(_, row)| row)
    }
}
