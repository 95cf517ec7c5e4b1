//! Attributes that the processes of one node share.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use bstr::BString;

use super::{connections::Connections, waiter::Waiter};
use crate::{KEY_SIZE_MAX, KeyValueSpace, PutError, Response};

/// The attributes of one group, and those who wait for more.
#[derive(Debug)]
pub(super) struct NodeAttributes {
    space: KeyValueSpace,
    waiters: BTreeMap<BString, VecDeque<Waiter>>,
}

impl NodeAttributes {
    pub(super) fn new() -> Self {
        Self {
            space: KeyValueSpace::new(KEY_SIZE_MAX),
            waiters: BTreeMap::new(),
        }
    }

    pub(super) fn value(&self, key: &BString) -> Option<&BString> {
        self.space.value(key)
    }

    /// Puts an attribute. Returns those who waited for it.
    pub(super) fn put(&mut self, key: BString, value: BString) -> Result<VecDeque<Waiter>, PutError> {
        self.space.put(key.clone(), value)?;
        Ok(self.waiters.remove(&key).unwrap_or_default())
    }

    /// A request waits for an attribute from now on.
    pub(super) fn wait(&mut self, key: BString, waiter: Waiter) {
        self.waiters.entry(key).or_default().push_back(waiter);
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// The ranks that wait and do nothing else meanwhile: a process may go on in another thread while one waits.
    pub(super) fn blocked(&self, connections: &Connections) -> Vec<u32> {
        let waiters = self.waiters.values().flatten();
        waiters
            .filter(|waiter| waiter.thread.is_none())
            .filter_map(|waiter| connections.get(waiter.connection)?.process)
            .map(|process| process.rank)
            .collect()
    }

    pub(super) fn take_waiters(&mut self) -> Vec<Waiter> {
        let waiters = mem::take(&mut self.waiters);
        waiters.into_values().flatten().collect()
    }
}

/// The response to a process that gets an attribute.
pub(super) fn node_response(value: Option<BString>) -> Response {
    Response::NodeAttribute {
        found: Some(value.is_some()),
        value,
        rc: Some(0),
        message: None,
    }
}

/// The response to a process that waits for an attribute in vain.
pub(super) fn nobody_is_left() -> Response {
    Response::NodeAttribute {
        found: Some(false),
        value: None,
        rc: Some(-1),
        message: Some("nobody_is_left_to_put_it".into()),
    }
}
