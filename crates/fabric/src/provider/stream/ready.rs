//! What the system found ready.

use rustix::event::epoll::EventFlags;

use super::{ConnectionId, StreamProvider, connection::Handled, socket::Family};
use crate::{
    inbox::Around,
    poller::{Ready, Source},
};

impl StreamProvider {
    /// Sees to the connections that are ready, and to all whose time has come.
    pub(super) fn look(&mut self, ready: &Ready, around: &mut Around<'_>) {
        let source = self.family.source();
        let count = ready.of(source).count();
        let first = self.look_turn.checked_rem(count).unwrap_or(0);
        self.look_turn = first + 1;
        if self.family == Family::Unix {
            // Whoever finds no room stays one that is looked into.
            for (key, _) in ready.of(Source::Bell) {
                self.is_roused(ConnectionId(key), around);
            }
        }
        let mut crowded = false;
        let in_turn = ready.of(source).skip(first).chain(ready.of(source).take(first));
        for (index, (key, flags)) in in_turn.enumerate() {
            // Who finds no room is first the next time: so none can use it up for ever.
            if index > 0 && !crowded && !around.has_room() {
                crowded = true;
                self.look_turn = first + index;
            }
            match key {
                Self::LISTENER => self.accept(around),
                id => self.handle_ready(ConnectionId(id), flags, around),
            }
        }
        if self.family == Family::Unix {
            self.cool(around.now);
            self.look_for_deaths(around);
            self.sweep();
        }
        self.handle_deadlines(around);
    }

    /// Does what the poller said is possible on one connection.
    fn handle_ready(&mut self, id: ConnectionId, flags: EventFlags, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let mut result = Ok(Handled::Frames);
        if flags.contains(EventFlags::OUT) {
            result = connection.handle_writable();
            around.inbox.moved |= connection.is_open();
            self.sendable.insert(id);
            let mut wanted = EventFlags::IN;
            wanted.set(EventFlags::OUT, connection.is_connecting());
            // If it fails the socket stays watched for more than is needed, and costs a look each time.
            let _ = self.poller.modify(id.0, &connection.socket, wanted);
        }
        let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if readable && matches!(result, Ok(Handled::Frames)) {
            // Somebody waits for the answer to what the doorbell was rung for. The poller tells of the doorbell again,
            // and then it is read.
            if flags == EventFlags::IN && self.is_roused(id, around) {
                return;
            }
            self.receive(id, around);
        } else {
            self.handle_handled(id, result, around);
        }
    }
}
