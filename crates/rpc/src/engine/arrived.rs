//! What an engine does with what has come.

use ropewalk_fabric::{Completion, Event, OperationError, OperationId, PeerId, Received};

use super::{LostPeer, Waiting};
use crate::{Engine, wire::Body};

impl Engine {
    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Completed { operation, result } => {
                let waiting = self.operations.remove(operation);
                self.handle_ended(operation, waiting, result);
            }
            Event::PeerDied { peer, address, cause } => {
                self.handle_peer_death(peer, LostPeer { address, cause })
            }
            Event::Unexpected { from, tag, body } => self.handle_request(from, tag, &body),
        }
    }

    fn handle_peer_death(&mut self, peer: PeerId, lost: LostPeer) {
        self.unsent.forget(peer);
        for transfer in self.arrivals.forget(peer) {
            self.operations.remove(transfer);
            self.endpoint.cancel(transfer);
        }
        for region in self.outputs.handle_peer_death(peer) {
            self.withdraw_overflow(&region);
        }
        for cancellation in self.deferred.handle_peer_death(peer) {
            cancellation.cancel();
        }
        self.caller.take_if(|caller| caller.peer == peer);
        if self.lost_peers.len() == Self::LOST_PEERS_MAX {
            self.lost_peers.pop_front();
        }
        self.metrics.peers_lost += 1;
        self.lost_peers.push_back(lost);
    }

    /// Handles what has come, up to a limit. Returns how much that was.
    pub(super) fn receive(&mut self) -> usize {
        let mut count = 0;
        let mut body = Body::new();
        loop {
            while let Some(received) = self.messages.pop(&mut body) {
                count += 1;
                match received {
                    Received::Unexpected { from, tag } => self.handle_request(from, tag, &body),
                    Received::Reply { operation } if self.handle_plain_reply(operation, &mut body) => {}
                    Received::Reply { operation } => match self.operations.remove(operation) {
                        Some(Waiting::Call(call)) => self.handle_reply(operation, call, body.take()),
                        waiting => {
                            self.handle_ended(operation, waiting, Ok(Completion::Received(body.take())))
                        }
                    },
                }
            }
            while let Some(event) = self.endpoint.poll_event() {
                count += 1;
                self.handle_event(event);
            }
            if count >= Self::ARRIVALS_PER_PROGRESS || !self.endpoint.receive(&mut self.messages) {
                return count;
            }
        }
    }

    /// An operation has ended for which this waits, or waited until it was abandoned.
    fn handle_ended(
        &mut self,
        operation: OperationId,
        waiting: Option<Waiting>,
        result: Result<Completion, OperationError>,
    ) {
        match (waiting, result) {
            (Some(Waiting::Call(call)), Ok(Completion::Received(reply))) => {
                self.handle_reply(operation, call, reply);
            }
            (Some(Waiting::Call(call)), Err(error)) => self.handle_call_failed(operation, call, error),
            (Some(Waiting::Output(output)), Ok(Completion::Got(buffer))) => {
                self.handle_output_pulled(operation, *output, Ok(buffer));
            }
            (Some(Waiting::Output(output)), Err(error)) => {
                self.handle_output_pulled(operation, *output, Err(error));
            }
            (Some(Waiting::Input(peer)), Ok(Completion::Got(buffer))) => {
                self.handle_input_pulled(peer, operation, Some(buffer));
            }
            (Some(Waiting::Input(peer)), Err(_)) => self.handle_input_pulled(peer, operation, None),
            (Some(Waiting::Notified(region)), result) => {
                self.notified -= 1;
                self.withdraw_overflow(&region);
                self.handle_notification_ended(&result);
            }
            (Some(Waiting::Pull(promise)), Ok(Completion::Got(buffer))) => {
                self.metrics.pulls.bytes += buffer.len() as u64;
                promise.fulfil(Ok(buffer));
            }
            (Some(Waiting::Pull(promise)), Err(error)) => {
                self.metrics.pulls.failed += 1;
                promise.fulfil(Err(error.into()));
            }
            (Some(Waiting::Push(promise, length)), Ok(Completion::Put)) => {
                self.metrics.pushes.bytes += length;
                promise.fulfil(Ok(()));
            }
            (Some(Waiting::Push(promise, _)), Err(error)) => {
                self.metrics.pushes.failed += 1;
                promise.fulfil(Err(error.into()));
            }
            (Some(Waiting::Piece(bulk, piece)), result) => self.handle_piece(operation, bulk, piece, result),
            // It was abandoned meanwhile.
            (None, _) => {}
            (Some(_), Ok(completion)) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
    }

    /// Ends what nobody waits for any longer.
    pub(super) fn handle_abandoned(&mut self, operation: OperationId) {
        let Some(waiting) = self.operations.remove(operation) else {
            // The call may have followed another operation, or wait for its next attempt, and ends there.
            return;
        };
        self.endpoint.cancel(operation);
        match waiting {
            Waiting::Call(call) => {
                let once = call.attempt.as_ref().and_then(|attempt| attempt.once());
                self.tell_cancelled_once(call.peer, operation.tag(), once);
                self.end_call(call, None);
            }
            Waiting::Output(output) => {
                self.tell_cancelled(output.call.peer, output.tag);
                self.end_call(output.call, None);
            }
            Waiting::Pull(_) => self.metrics.pulls.failed += 1,
            Waiting::Push(..) => self.metrics.pushes.failed += 1,
            Waiting::Input(_) | Waiting::Notified(_) | Waiting::Piece(..) => {}
        }
    }
}
