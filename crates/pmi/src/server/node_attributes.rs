//! Attributes that the processes of one node share.

use std::collections::BTreeMap;

use bstr::BString;

use super::{
    GroupId, Process, Server,
    requests::Outcome::{self, Answered, Parked},
    waiter::Waiter,
};
use crate::Response;

impl Server {
    pub(super) fn node_attribute(
        &mut self,
        process: Process,
        waiter: &Waiter,
        key: BString,
        wait: bool,
    ) -> Outcome {
        let value = self
            .group_of(process)
            .and_then(|group| group.node_attributes.value(&key).cloned());
        if value.is_none() && wait {
            self.park(waiter);
            if let Some(group) = self.groups.get_mut(&process.group) {
                group
                    .node_waiters
                    .entry(key)
                    .or_default()
                    .push_back(waiter.clone());
            }
            self.fail_stuck_node_waiters(process.group);
            return Parked;
        }
        Answered(node_response(value))
    }

    /// Answers with an error those who wait for a node attribute that nobody is left to put: all other
    /// processes of the group here are gone, or wait themselves.
    pub(super) fn fail_stuck_node_waiters(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        if group.node_waiters.is_empty() || !group.has_lost_locals() {
            return;
        }
        // A process may go on in another thread while one waits.
        let waiters = group.node_waiters.values().flatten();
        let blocked: Vec<_> = waiters
            .filter(|waiter| waiter.thread.is_none())
            .filter_map(|waiter| self.connections.get(&waiter.connection)?.process)
            .map(|process| process.rank)
            .collect();
        if !group.present_locals().all(|rank| blocked.contains(&rank)) {
            return;
        }
        let waiters = self
            .groups
            .get_mut(&id)
            .map(|group| std::mem::take(&mut group.node_waiters));
        for waiter in waiters.into_iter().flat_map(BTreeMap::into_values).flatten() {
            let refused = Response::NodeAttribute {
                found: Some(false),
                value: None,
                rc: Some(-1),
                message: Some("nobody_is_left_to_put_it".into()),
            };
            self.respond(waiter, &refused);
        }
    }

    pub(super) fn put_node_attribute(&mut self, process: Process, key: BString, value: BString) -> Response {
        let Some(group) = self.groups.get_mut(&process.group) else {
            return Response::PutNodeAttribute {
                rc: Some(-1),
                message: Some("no_group".into()),
            };
        };
        let put = group.node_attributes.put(key.clone(), value.clone());
        let waiters = match put {
            Ok(()) => group.node_waiters.remove(&key).unwrap_or_default(),
            Err(_) => Default::default(),
        };
        for waiter in waiters {
            self.respond(waiter, &node_response(Some(value.clone())));
        }
        Response::PutNodeAttribute {
            rc: Some(if put.is_ok() { 0 } else { -1 }),
            message: put.err().map(|error| error.to_string().into()),
        }
    }
}

fn node_response(value: Option<BString>) -> Response {
    Response::NodeAttribute {
        found: Some(value.is_some()),
        value,
        rc: Some(0),
        message: None,
    }
}
