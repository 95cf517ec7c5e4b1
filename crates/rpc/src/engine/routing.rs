//! The routes of an engine: which part takes what has come.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use ropewalk_fabric::{Completion, Event, OperationError, OperationId, PeerId, Received};
use tracing::Span;

use super::LostPeer;
use crate::{
    Engine,
    arrivals::Arrived,
    input::Input,
    reply::Reply,
    responder::ReplyTo,
    wire::{BatchedCall, Body, Flags, Payload, Request},
};

impl Engine {
    /// How much that has come is handled in one round of progress, about.
    const ARRIVALS_PER_PROGRESS: usize = 256;

    /// Handles what has come, up to a limit. Returns how much that was.
    pub(super) fn receive(&mut self) -> usize {
        let mut count = 0;
        let mut body = Body::new();
        loop {
            while let Some(received) = self.messages.pop(&mut body) {
                count += 1;
                match received {
                    Received::Unexpected { from, tag } => self.handle_request(from, tag, &body),
                    Received::Reply { operation } => {
                        if !self
                            .calls
                            .handle_plain_reply(&mut self.ground, operation, &mut body)
                        {
                            self.handle_ended(operation, Ok(Completion::Received(body.take())));
                        }
                    }
                }
            }
            while let Some(event) = self.ground.endpoint.poll_event() {
                count += 1;
                self.handle_event(event);
            }
            if count >= Self::ARRIVALS_PER_PROGRESS || !self.ground.endpoint.receive(&mut self.messages) {
                return count;
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Completed { operation, result } => self.handle_ended(operation, result),
            Event::PeerDied { peer, address, cause } => {
                self.handle_peer_death(peer, LostPeer { address, cause });
            }
            Event::Unexpected { from, tag, body } => self.handle_request(from, tag, &body),
        }
    }

    fn handle_peer_death(&mut self, peer: PeerId, lost: LostPeer) {
        self.serving.handle_peer_death(&mut self.ground, peer);
        if self.lost_peers.len() == Self::LOST_PEERS_MAX {
            self.lost_peers.pop_front();
        }
        self.ground.metrics.peers_lost += 1;
        self.lost_peers.push_back(lost);
    }

    /// An operation has ended. Nothing knows it any longer if it was abandoned meanwhile.
    fn handle_ended(&mut self, operation: OperationId, result: Result<Completion, OperationError>) {
        let Some(result) = self.calls.handle_ended(&mut self.ground, operation, result) else {
            return;
        };
        let Some(result) = self.bulk.handle_ended(&mut self.ground, operation, result) else {
            return;
        };
        if let Some(from) = self.serving.handle_ended(operation, result) {
            self.handle_arrivals(from);
        }
    }

    /// Ends what nobody waits for any longer. A call may have followed another operation, or wait for its next attempt,
    /// and ends there.
    pub(super) fn handle_abandoned(&mut self, operation: OperationId) {
        if !self.calls.handle_abandoned(&mut self.ground, operation) {
            self.bulk.handle_abandoned(&mut self.ground, operation);
        }
    }

    fn handle_request(&mut self, from: PeerId, tag: u64, message: &Body) {
        self.ground.metrics.message_bytes.received += message.len() as u64;
        if let Some((procedure, timeout, input)) = Request::decode_plain(message)
            && !self.serving.holds(from)
        {
            let deadline = self.ground.now().checked_add(timeout);
            let serving = &mut self.serving;
            if !serving.run_plain(&mut self.ground, from, tag, deadline, procedure, input) {
                let reply = ReplyTo {
                    deadline,
                    ..ReplyTo::plain(from, tag)
                };
                let input = Input::new(input, message.shared());
                self.run(from, deadline, procedure, Some(reply), input);
            }
            return;
        }
        // A member of the job that sends something else speaks another protocol; there is nobody to tell.
        let Some(request) = Request::decode(message) else {
            return;
        };
        let arrived = || Arrived {
            tag,
            message: message.clone(),
            at: self.ground.now(),
            input: None,
        };
        match request.payload {
            Payload::Cancel => {
                self.serving
                    .handle_cancel(&mut self.ground, from, tag, request.once);
                self.handle_arrivals(from);
            }
            Payload::Refused => self.ground.metrics.notifications.failures.busy += 1,
            Payload::RemoteInput(place) => {
                let (arrived, timeout) = (arrived(), request.header.timeout);
                self.serving
                    .pull_input(&mut self.ground, from, arrived, place, timeout);
            }
            Payload::Batch(_) | Payload::Input(_) if self.serving.holds(from) => {
                let arrived = arrived();
                self.serving
                    .wait_behind(&mut self.ground, from, arrived, &request);
            }
            Payload::Batch(_) | Payload::Input(_) => {
                let at = self.ground.now();
                self.serve_request(from, (tag, at), &request, message, None);
            }
        }
    }

    /// Handles the requests of this peer that wait for no input any longer.
    fn handle_arrivals(&mut self, from: PeerId) {
        while let Some(arrived) = self.serving.pop_ready(from) {
            let request = Request::decode(&arrived.message);
            let request = request.expect("what is no request is not kept");
            if arrived.input.is_some() && request.header.flags.has(Flags::ONE_WAY) {
                // So that the caller can have its memory back.
                let reply = ReplyTo::plain(from, arrived.tag);
                let taken = Reply::Output(&[]).encode(None);
                self.serving.send_reply(&mut self.ground, reply, taken);
            }
            let overdue = arrived.at.checked_add(request.header.timeout);
            let overdue = overdue.is_some_and(|deadline| deadline <= self.ground.now());
            if !overdue || request.header.flags.has(Flags::ONE_WAY) {
                let Arrived { message, input, .. } = &arrived;
                self.serve_request(
                    from,
                    (arrived.tag, arrived.at),
                    &request,
                    message,
                    input.as_deref(),
                );
            }
        }
    }

    /// Runs what was asked for, with the input if that did not come in the request.
    fn serve_request(
        &mut self,
        from: PeerId,
        (tag, at): (u64, Instant),
        request: &Request<'_>,
        message: &Body,
        input: Option<&[u8]>,
    ) {
        let flags = request.header.flags;
        let deadline = at.checked_add(request.header.timeout);
        let mut reply = ReplyTo {
            deadline,
            since: flags.has(Flags::TIMING).then(Instant::now),
            ..ReplyTo::plain(from, tag)
        };
        let input = match (input, request.payload) {
            (Some(input), _) => Input::new(input, None),
            (None, Payload::Input(input)) => Input::new(input, message.shared()),
            (None, Payload::Batch(calls)) => return self.serve_batch(reply, calls),
            (None, Payload::Cancel | Payload::Refused | Payload::RemoteInput(_)) => return,
        };
        if flags.has(Flags::ONE_WAY) {
            return self.run(from, None, request.header.procedure, None, input);
        }
        if let Some(once) = request.once {
            let timeout = request.header.timeout;
            let admitted = self
                .serving
                .check_once(&mut self.ground, reply, at, timeout, once);
            let Some(admitted) = admitted else {
                return;
            };
            reply = admitted;
        }
        self.run(from, deadline, request.header.procedure, Some(reply), input);
    }

    /// Runs the calls of a batch, and sends together what they answer at once.
    fn serve_batch(&mut self, reply: ReplyTo, mut calls: &[u8]) {
        let from = reply.peer;
        self.serving.begin_batch(from);
        while let Some(call) = BatchedCall::decode_next(&mut calls) {
            let reply = ReplyTo {
                tag: call.slot.tag,
                index: Some(call.slot.index),
                // Each is handled after the ones before it.
                since: reply.since.map(|_| Instant::now()),
                ..reply.clone()
            };
            let input = Input::new(call.input, None);
            self.run(from, reply.deadline, call.procedure, Some(reply), input);
        }
        self.serving.end_batch(&mut self.ground);
    }

    /// Runs a procedure, and sends the reply if it gives one at once.
    fn run(
        &mut self,
        from: PeerId,
        deadline: Option<Instant>,
        procedure: u64,
        reply: Option<ReplyTo>,
        input: Input<'_>,
    ) {
        let due = self
            .serving
            .run(&mut self.ground, from, deadline, procedure, reply, input.bytes());
        let Some(mut due) = due else {
            return;
        };
        let entered = due.span.as_ref().map(Span::enter);
        let run = || (due.handler)(self, due.caller, due.reply, input);
        let result = catch_unwind(AssertUnwindSafe(run));
        drop(entered);
        self.serving.handle_ran(procedure, due.handler);
        if let Err(panic) = result {
            self.serving.go_on_panicking(&mut self.ground, panic);
        }
    }
}
