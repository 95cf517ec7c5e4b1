//! The answers to calls: replies, batches of them, and outputs that are pulled.

use std::time::Duration;

use bytes::Bytes;
use ropewalk_fabric::{Address, Buffer, OperationError, OperationId, RegionHandle};

use super::{Awaited, AwaitedCall, Calls};
use crate::{
    CallError, TransferError,
    call::Answer,
    engine::ground::Ground,
    reply::{BatchedReplies, Reply},
    wire::{Body, Remote},
};

/// A call whose output is being pulled.
pub(super) struct AwaitedOutput {
    pub(super) call: AwaitedCall,
    /// Where the output is: the peer may have a new name by the time it is pulled.
    address: Address,
    /// Of the call.
    pub(super) tag: u64,
}

impl Calls {
    /// Takes a reply that is an output, for a call with which there is nothing special, as most: it goes straight to
    /// where it is taken. Returns whether it was that.
    #[inline]
    pub(in crate::engine) fn handle_plain_reply(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        message: &mut Body,
    ) -> bool {
        if !Reply::is_plain_output(message) {
            return false;
        }
        let is_plain = |waiting: &Awaited| matches!(waiting, Awaited::Call(call) if call.is_plain());
        let Some(Awaited::Call(AwaitedCall { promise, .. })) = self.operations.remove_if(operation, is_plain)
        else {
            return false;
        };
        ground.metrics.message_bytes.received += message.len() as u64;
        self.ended += 1;
        self.places.fulfil(promise, || {
            Ok(Answer {
                message: message.take(),
                start: Reply::PLAIN_OUTPUT_AT,
                handling: None,
                times: None,
            })
        });
        true
    }

    /// Takes a reply to the call that `operation` was for.
    pub(super) fn handle_reply(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        call: AwaitedCall,
        message: Body,
    ) {
        ground.metrics.message_bytes.received += message.len() as u64;
        let Some((reply, handling)) = Reply::decode(&message) else {
            return self.fail_call(ground, call, |procedure, peer| CallError::OutputMalformed {
                procedure,
                peer,
            });
        };
        match reply {
            Reply::Output(output) => {
                let start = message.len() - output.len();
                let answer = Answer {
                    message,
                    start,
                    handling,
                    times: None,
                };
                self.end_call(ground, call, Some(Ok(answer)));
            }
            Reply::RemoteOutput(remote) => self.pull_output(ground, operation, call, remote),
            Reply::Batch(replies) => self.handle_batch_replies(ground, operation, call, replies),
            Reply::Busy(reason) => self.fail_call(ground, call, |procedure, peer| CallError::Busy {
                procedure,
                peer,
                reason,
            }),
            Reply::Fault(source) => self.fail_call(ground, call, |procedure, peer| CallError::Fault {
                procedure,
                peer,
                source,
            }),
            Reply::UnknownProcedure => {
                self.fail_call(ground, call, |procedure, peer| CallError::UnknownProcedure {
                    procedure,
                    peer,
                });
            }
            Reply::InputMalformed => {
                self.fail_call(ground, call, |procedure, peer| CallError::InputMalformed {
                    procedure,
                    peer,
                });
            }
            Reply::InputTooLarge { size_max } => {
                self.fail_call(ground, call, |procedure, peer| CallError::InputTooLarge {
                    procedure,
                    peer,
                    size_max,
                });
            }
            Reply::OtherInstance => {
                self.fail_call(ground, call, |procedure, peer| CallError::Replaced {
                    procedure,
                    peer,
                });
            }
            Reply::OutputForgotten => {
                self.fail_call(ground, call, |procedure, peer| CallError::OutputForgotten {
                    procedure,
                    peer,
                });
            }
        }
    }

    /// The call has no reply.
    pub(super) fn handle_call_failed(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        call: AwaitedCall,
        error: OperationError,
    ) {
        let call = match matches!(error, OperationError::PeerDied { .. }) {
            true => match self.retry_later(ground, operation, call) {
                Ok(()) => return,
                Err(call) => call,
            },
            false => call,
        };
        let error = CallError::from_operation(call.procedure, error);
        self.end_call(ground, call, Some(Err(error)));
    }

    /// Takes replies that came together in the place of the one that `operation` was for.
    pub(super) fn handle_batch_replies(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        call: AwaitedCall,
        replies: BatchedReplies<'_>,
    ) {
        let peer = call.peer;
        let mut first = Some(call);
        for (slot, reply) in replies {
            // A batch in a batch is none.
            if matches!(Reply::decode(reply), Some((Reply::Batch(_), _))) {
                continue;
            }
            let reply = Body::from(reply);
            if slot.tag == operation.tag() {
                if let Some(call) = first.take() {
                    self.handle_reply(ground, operation, call, reply);
                }
                continue;
            }
            let Some((other, Awaited::Call(call))) = self.operations.at(slot.index as usize) else {
                continue;
            };
            if other.tag() == slot.tag && call.peer == peer {
                ground.endpoint.cancel(other);
                if let Some(Awaited::Call(call)) = self.operations.remove(other) {
                    self.handle_reply(ground, other, call, reply);
                }
            }
        }
        if let Some(call) = first {
            self.fail_call(ground, call, |procedure, peer| CallError::OutputMalformed {
                procedure,
                peer,
            });
        }
    }

    /// The output of a call is in the target's memory.
    pub(super) fn pull_output(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        mut call: AwaitedCall,
        place: Remote,
    ) {
        let (size, size_max) = (place.length, ground.options.overflow_size_max);
        let tag = operation.tag();
        if size > size_max {
            ground.tell_cancelled(call.peer, tag);
            return self.fail_call(ground, call, |procedure, peer| CallError::OutputTooLarge {
                procedure,
                peer,
                size,
                size_max,
            });
        }
        let region = RegionHandle {
            address: ground.address_of(call.peer),
            region: place.region,
            token: place.token,
            length: size,
            writable: false,
        };
        let now = ground.now();
        if call.attempt.is_none() {
            call.deadline = ground.endpoint.deadline(operation);
        }
        let left = call
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        // It is at most `overflow_size_max`.
        let into = Buffer::zeroed(size as usize);
        let transfer = match ground
            .endpoint
            .get(&region, 0, into, left.unwrap_or(Duration::MAX))
        {
            Ok(transfer) => transfer,
            Err(error) => {
                ground.tell_cancelled(call.peer, tag);
                let source = Box::new(TransferError::Submit(error));
                return self.fail_call(ground, call, |procedure, peer| CallError::OutputUnreachable {
                    procedure,
                    peer,
                    source,
                });
            }
        };
        let wanted = call.promise.follow(transfer);
        if let Some(input) = call.region.take() {
            ground.withdraw_overflow(&input);
        }
        // If the output is lost, the next attempt gets it from the same.
        self.learn_instance(ground, &mut call);
        let address = region.address;
        let output = Box::new(AwaitedOutput { call, address, tag });
        self.operations.insert(transfer, Awaited::Output(output));
        if !wanted {
            self.handle_abandoned(ground, transfer);
        }
    }

    /// The output of a call is here, or cannot be had.
    pub(super) fn handle_output_pulled(
        &mut self,
        ground: &mut Ground,
        transfer: OperationId,
        output: AwaitedOutput,
        result: Result<Buffer, OperationError>,
    ) {
        let (mut call, peer) = (output.call, output.address);
        let procedure = call.procedure;
        if result.is_ok() || matches!(result, Err(OperationError::Access { .. })) {
            ground.tell_cancelled(call.peer, output.tag);
        }
        let lost = matches!(
            result,
            Err(OperationError::PeerDied { .. } | OperationError::Access { .. })
        );
        if lost {
            call = match self.retry_later(ground, transfer, call) {
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
        self.end_call(ground, call, Some(result));
    }
}
