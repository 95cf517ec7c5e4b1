//! Connections with processes that are stopped: their systems take them, and they answer when they go on.

use std::time::Duration;

use super::{Connection, State};
use crate::provider::stream::{
    send_queue,
    socket::{self, Family},
};

impl Connection {
    /// Whether the system at the other end has taken it.
    pub(in crate::provider::stream) fn is_reached(&self) -> bool {
        match self.state {
            State::Greeting { unsent: None, .. } | State::Open(_) => true,
            State::Greeting { unsent: Some(_), .. } | State::Paused => false,
        }
    }

    /// Whether it need not be given up though its time to open is over: all that was said has arrived, and the other end is
    /// stopped.
    pub(in crate::provider::stream) fn is_excused(&self, family: Family) -> bool {
        // Of a UNIX socket only what was read would count.
        let has_arrived = family == Family::Unix || send_queue::unacknowledged(&self.socket) == 0;
        self.is_patient && !self.is_open() && self.is_reached() && has_arrived
    }

    /// Leaves it to the system to tell of the other end's from now on, which is asked each time that `interval` has passed.
    pub(in crate::provider::stream) fn await_answer(&self, family: Family, interval: Duration) {
        if family == Family::Tcp {
            // Otherwise it is asked more rarely.
            let _ = socket::probe_each(&self.socket, interval);
        }
    }
}
