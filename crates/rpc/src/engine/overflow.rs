//! Inputs and outputs that are too large for a message: their receiver pulls them.

use std::time::Duration;

use bytes::Bytes;
use ropewalk_fabric::{Address, Buffer, OperationError, OperationId, PeerId, RegionHandle};

use super::{Waiting, calls::WaitingCall};
use crate::{
    BusyReason, CallError, Engine, TransferError,
    arrivals::Arrived,
    call::Answer,
    reply::Reply,
    responder::ReplyTo,
    wire::{Body, Flags, Remote, Request},
};

/// A call whose output is being pulled.
pub(super) struct WaitingOutput {
    pub(super) call: WaitingCall,
    /// Where the output is: the peer may have a new name by the time it is pulled.
    address: Address,
    /// Of the call.
    pub(super) tag: u64,
}

impl Engine {
    /// Exposes the input of a request, which begins at `head`. Returns the request to send instead.
    pub(super) fn expose_input(&mut self, request: Body, head: usize) -> (Body, RegionHandle) {
        let request = request.into_bytes();
        let region = self.expose_overflow(request.slice(head..));
        let remote = Request::with_remote_input(&request, head, remote(&region));
        (remote, region)
    }

    fn expose_overflow(&mut self, bytes: Bytes) -> RegionHandle {
        self.overflow_regions += 1;
        self.endpoint.expose(bytes)
    }

    /// Ends the exposure of an input or output.
    pub(super) fn withdraw_overflow(&mut self, region: &RegionHandle) {
        let withdrawn = self.endpoint.withdraw(region);
        assert!(
            withdrawn.is_some(),
            "an input or output is withdrawn once: {region:?}"
        );
        self.overflow_regions -= 1;
    }

    /// Pulls the input of a request; behind it the later ones of this peer wait.
    pub(super) fn pull_input(&mut self, from: PeerId, request: Arrived, place: Remote, timeout: Duration) {
        let size_max = self.options.overflow_size_max;
        let refused = if place.length > size_max {
            Some(Reply::InputTooLarge { size_max })
        } else {
            let room = self.arrivals.check_room(place.length);
            room.err().map(Reply::Busy)
        };
        let reply_to = ReplyTo::plain(from, request.tag);
        if let Some(refused) = refused {
            return self.send_reply(reply_to, refused.encode(None));
        }
        let region = RegionHandle {
            address: self.address_of(from),
            region: place.region,
            token: place.token,
            length: place.length,
            writable: false,
        };
        // It is at most `overflow_size_max`.
        let into = Buffer::zeroed(place.length as usize);
        match self.endpoint.get(&region, 0, into, timeout) {
            Ok(transfer) => {
                self.arrivals.push(from, request, Some(transfer), place.length);
                self.operations.insert(transfer, Waiting::Input(from));
            }
            Err(_) => self.send_reply(reply_to, Reply::Busy(BusyReason::Inputs).encode(None)),
        }
    }

    /// The input of a request is here, or cannot be had.
    pub(super) fn handle_input_pulled(&mut self, from: PeerId, transfer: OperationId, input: Option<Buffer>) {
        match input {
            Some(input) => self.arrivals.handle_pulled(from, transfer, input),
            None => {
                // Only a caller that waits no longer takes its memory away.
                drop(self.arrivals.handle_failed(from, transfer));
            }
        }
        self.handle_arrivals(from);
    }

    /// Handles the requests of this peer that wait for no input any longer.
    pub(super) fn handle_arrivals(&mut self, from: PeerId) {
        while let Some(arrived) = self.arrivals.pop_ready(from) {
            let request = Request::decode(&arrived.message);
            let request = request.expect("what is no request is not kept");
            if arrived.input.is_some() && request.header.flags.has(Flags::ONE_WAY) {
                // So that the caller can have its memory back.
                self.send_reply(ReplyTo::plain(from, arrived.tag), Reply::Output(&[]).encode(None));
            }
            let overdue = arrived.at.checked_add(request.header.timeout);
            let overdue = overdue.is_some_and(|deadline| deadline <= self.now());
            if !overdue || request.header.flags.has(Flags::ONE_WAY) {
                self.serve_request(from, arrived.tag, arrived.at, &request, arrived.input.as_deref());
            }
        }
    }

    /// Exposes a reply that is too large for a message. Returns what to send instead.
    pub(super) fn expose_output(&mut self, to: &ReplyTo, reply: Body) -> Body {
        let size = reply.len() as u64;
        if let Err(reason) = self.outputs.check_room(size) {
            return Reply::Busy(reason).encode(to.handling());
        }
        let region = self.expose_overflow(reply.into_bytes());
        let instead = Reply::RemoteOutput(remote(&region)).encode(None);
        let deadline = to.deadline;
        if let Some(replaced) = self.outputs.insert(to.peer, to.tag, region, deadline) {
            self.withdraw_overflow(&replaced);
        }
        instead
    }

    /// The output of a call is in the target's memory.
    pub(super) fn pull_output(&mut self, operation: OperationId, mut call: WaitingCall, place: Remote) {
        let (size, size_max) = (place.length, self.options.overflow_size_max);
        let tag = operation.tag();
        if size > size_max {
            self.tell_cancelled(call.peer, tag);
            return self.fail_call(call, |procedure, peer| CallError::OutputTooLarge {
                procedure,
                peer,
                size,
                size_max,
            });
        }
        let region = RegionHandle {
            address: self.address_of(call.peer),
            region: place.region,
            token: place.token,
            length: size,
            writable: false,
        };
        let now = self.now();
        if call.attempt.is_none() {
            call.deadline = self.endpoint.deadline(operation);
        }
        let left = call
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        // It is at most `overflow_size_max`.
        let into = Buffer::zeroed(size as usize);
        let transfer = match self.endpoint.get(&region, 0, into, left.unwrap_or(Duration::MAX)) {
            Ok(transfer) => transfer,
            Err(error) => {
                self.tell_cancelled(call.peer, tag);
                let source = Box::new(TransferError::Submit(error));
                return self.fail_call(call, |procedure, peer| CallError::OutputUnreachable {
                    procedure,
                    peer,
                    source,
                });
            }
        };
        let wanted = call.promise.follow(transfer);
        if let Some(input) = call.region.take() {
            self.withdraw_overflow(&input);
        }
        // If the output is lost, the next attempt gets it from the same.
        self.learn_instance(&mut call);
        let address = region.address;
        let output = Box::new(WaitingOutput { call, address, tag });
        self.operations.insert(transfer, Waiting::Output(output));
        if !wanted {
            self.handle_abandoned(transfer);
        }
    }

    /// The output of a call is here, or cannot be had.
    pub(super) fn handle_output_pulled(
        &mut self,
        transfer: OperationId,
        output: WaitingOutput,
        result: Result<Buffer, OperationError>,
    ) {
        let (mut call, peer) = (output.call, output.address);
        let procedure = call.procedure;
        if result.is_ok() || matches!(result, Err(OperationError::Access { .. })) {
            self.tell_cancelled(call.peer, output.tag);
        }
        let lost = matches!(
            result,
            Err(OperationError::PeerDied { .. } | OperationError::Access { .. })
        );
        if lost {
            call = match self.retry_later(transfer, call) {
                Ok(()) => return,
                Err(call) => call,
            };
        }
        let result = match result {
            Ok(buffer) => {
                let message = Body::from(Bytes::from_owner(buffer));
                match Reply::decode(&message) {
                    Some((Reply::Output(found), handling)) => {
                        let start = message.len() - found.len();
                        Ok(Answer {
                            message,
                            start,
                            handling,
                            times: None,
                        })
                    }
                    _ => Err(CallError::OutputMalformed { procedure, peer }),
                }
            }
            Err(OperationError::PeerDied { peer, source }) => Err(CallError::PeerDied {
                procedure,
                peer,
                source,
            }),
            Err(OperationError::TimedOut { peer }) => Err(CallError::TimedOut { procedure, peer }),
            Err(error) => {
                let source = Box::new(TransferError::from(error));
                Err(CallError::OutputUnreachable {
                    procedure,
                    peer,
                    source,
                })
            }
        };
        self.end_call(call, Some(result));
    }
}

/// Where the region is, for the one that has it from us.
fn remote(region: &RegionHandle) -> Remote {
    Remote {
        region: region.region,
        token: region.token,
        length: region.length,
    }
}
