//! Several calls in one message, and their replies.

use std::{fmt, time::Instant};

use ropewalk_fabric::{OperationId, PeerId, SubmitError, ToPeer};

use super::{Waiting, calls::WaitingCall};
use crate::{
    Call, CallError, CallOptions, Engine, Procedure,
    call::Answer,
    procedure::procedure_id,
    promise::Promise,
    reply::{BatchedReplies, Reply},
    responder::ReplyTo,
    wire::{BatchedCall, Body, Flags, RequestHeader, Slot, encode_behind},
};

/// Calls to one engine that go in as few messages as hold them, and whose replies come so too: those that
/// the target has at once. Each is otherwise a call like others, with its own output or error.
#[must_use = "nothing is called before `send`"]
pub struct Batch<'engine> {
    engine: &'engine mut Engine,
    peer: PeerId,
    calls: Vec<BatchCall>,
}

struct BatchCall {
    promise: Promise<Result<Answer, CallError>>,
    procedure: &'static str,
    id: u64,
    input: Body,
}

/// Replies to the calls of one batch, collected while it is served.
pub(super) struct BatchReplies {
    peer: PeerId,
    /// The first of those that wait here: its tag goes on the message.
    first: Option<ReplyTo>,
    bytes: Vec<u8>,
}

impl Engine {
    /// Begins a batch of calls to the engine at `target`.
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn batch(&mut self, target: impl ToPeer) -> Result<Batch<'_>, SubmitError> {
        let peer = target.to_peer(&mut self.endpoint)?;
        Ok(Batch {
            engine: self,
            peer,
            calls: Vec::new(),
        })
    }

    /// Runs the calls of a batch, and sends together what they answer at once.
    pub(super) fn serve_batch(&mut self, reply: ReplyTo, mut calls: &[u8]) {
        let from = reply.peer;
        self.batch_replies = Some(BatchReplies {
            peer: from,
            first: None,
            bytes: Vec::new(),
        });
        while let Some(call) = BatchedCall::decode_next(&mut calls) {
            let reply = ReplyTo {
                tag: call.slot.tag,
                index: Some(call.slot.index),
                // Each is handled after the ones before it.
                since: reply.since.map(|_| Instant::now()),
                ..reply.clone()
            };
            self.run(from, reply.deadline, call.procedure, Some(reply), call.input);
        }
        if let Some(mut batch) = self.batch_replies.take()
            && let Some((first, body)) = batch.take()
        {
            self.send_or_keep(from, first.tag, first.deadline, &mut { body });
        }
    }

    /// Gives the same answer to all calls of a batch.
    pub(super) fn refuse_batch(&mut self, to: ReplyTo, mut calls: &[u8], reply: &Reply<'_>) {
        while let Some(call) = BatchedCall::decode_next(&mut calls) {
            self.send_or_keep(to.peer, call.slot.tag, to.deadline, &mut reply.encode(None));
        }
    }

    /// Takes replies that came together in the place of the one that `operation` was for.
    pub(super) fn handle_batch_replies(
        &mut self,
        operation: OperationId,
        call: WaitingCall,
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
                    self.handle_reply(operation, call, reply);
                }
                continue;
            }
            let Some((other, Waiting::Call(call))) = self.operations.at(slot.index as usize) else {
                continue;
            };
            if other.tag() == slot.tag && call.peer == peer {
                self.endpoint.cancel(other);
                if let Some(Waiting::Call(call)) = self.operations.remove(other) {
                    self.handle_reply(other, call, reply);
                }
            }
        }
        if let Some(call) = first {
            self.fail_call(call, |procedure, peer| CallError::OutputMalformed {
                procedure,
                peer,
            });
        }
    }
}

impl Batch<'_> {
    /// Adds a call. It is made by [`send`](Self::send); if the batch is dropped before, it ends with
    /// [`CallError::Unsent`].
    ///
    /// # Errors
    /// If the input cannot be encoded.
    pub fn push<P: Procedure>(&mut self, input: &P::Input) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let encoded = encode_behind(&[], input);
        let input = encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
        let (promise, pending) = self.engine.promise_from(self.peer, procedure, None);
        self.calls.push(BatchCall {
            promise,
            procedure,
            id: const { procedure_id(P::NAME) },
            input,
        });
        Ok(Call::new(pending))
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the calls, each with this time-out, or with these options, of which retries have no effect on a batch.
    /// What cannot be sent ends with [`CallError::Submit`].
    pub fn send(mut self, options: impl Into<CallOptions>) {
        let options = CallOptions {
            retries: 0,
            ..options.into()
        };
        let size_max = self.engine.eager_size_max();
        let mut message = Message::default();
        for call in std::mem::take(&mut self.calls) {
            if call.promise.is_abandoned() {
                continue;
            }
            let size = BatchedCall::HEADER_SIZE + call.input.len();
            if message.bytes.len() + size > size_max {
                self.send_message(&mut message, &options);
            }
            if size > size_max {
                self.send_alone(call, &options);
                continue;
            }
            match self.engine.endpoint.receive_reply(self.peer, options.timeout) {
                Ok(operation) => {
                    let slot = Slot {
                        tag: operation.tag(),
                        // There are fewer operations, by far.
                        index: operation.index() as u32,
                    };
                    BatchedCall::encode_into(&mut message.bytes, call.id, slot, &call.input);
                    message.calls.push((operation, self.waiting(call, &options)));
                }
                Err(source) => self.fail(call, source),
            }
        }
        self.send_message(&mut message, &options);
    }

    fn send_message(&mut self, message: &mut Message, options: &CallOptions) {
        let calls = std::mem::take(&mut message.calls);
        if calls.is_empty() {
            return;
        }
        let header = RequestHeader {
            procedure: calls.len() as u64,
            timeout: options.timeout,
            flags: Flags::BATCH.with(Flags::of(options)),
        };
        let body = [&header.encode()[..], &message.bytes].concat();
        message.bytes.clear();
        self.engine.metrics.message_bytes_sent += body.len() as u64;
        let sent = self
            .engine
            .endpoint
            .send_unexpected(self.peer, 0, Body::from(body));
        for (operation, call) in calls {
            match &sent {
                Ok(()) => self.engine.await_answer(operation, call),
                Err(source) => {
                    self.engine.endpoint.cancel(operation);
                    let (procedure, source) = (call.procedure, source.clone());
                    let error = CallError::Submit { procedure, source };
                    self.engine.end_call(call, Some(Err(error)));
                }
            }
        }
    }

    /// Makes a call that is too large for any batch.
    fn send_alone(&mut self, call: BatchCall, options: &CallOptions) {
        let header = RequestHeader {
            procedure: call.id,
            timeout: options.timeout,
            flags: Flags::of(options),
        };
        let mut request = Body::from([&header.encode()[..], &call.input].concat());
        let sent = self
            .engine
            .send_request(self.peer, &mut request, RequestHeader::SIZE, options);
        match sent {
            Ok((operation, region)) => {
                let mut call = self.waiting(call, options);
                call.region = region;
                self.engine.await_answer(operation, call);
            }
            Err(source) => self.fail(call, source),
        }
    }

    fn fail(&mut self, call: BatchCall, source: SubmitError) {
        let procedure = call.procedure;
        let error = CallError::Submit { procedure, source };
        self.engine.metrics.call_failures.record(&error);
        call.promise.fulfil(Err(error));
    }

    fn waiting(&mut self, call: BatchCall, options: &CallOptions) -> WaitingCall {
        self.engine.metrics.calls += 1;
        WaitingCall {
            promise: call.promise,
            procedure: call.procedure,
            peer: self.peer,
            deadline: None,
            region: None,
            attempt: None,
            observed: self.engine.observe_call(call.procedure, self.peer, options),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for BatchCall {
            promise, procedure, ..
        } in self.calls.drain(..)
        {
            promise.fulfil(Err(CallError::Unsent { procedure }));
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("calls", &self.calls.len())
            .finish_non_exhaustive()
    }
}

/// Calls that go in one message.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    calls: Vec<(OperationId, WaitingCall)>,
}

impl BatchReplies {
    pub(super) fn is_for(&self, peer: PeerId) -> bool {
        self.peer == peer
    }

    /// Adds a reply. Returns the message of those before it, and its tag, if there is no room for both.
    pub(super) fn push(
        &mut self,
        to: &ReplyTo,
        index: u32,
        reply: &[u8],
        size_max: usize,
    ) -> Option<(u64, Body)> {
        let full = match self.bytes.len() + BatchedReplies::OVERHEAD + reply.len() > size_max {
            true => self.take().map(|(first, body)| (first.tag, body)),
            false => None,
        };
        let slot = Slot { tag: to.tag, index };
        BatchedReplies::encode_into(&mut self.bytes, slot, reply);
        self.first.get_or_insert_with(|| to.clone());
        full
    }

    fn take(&mut self) -> Option<(ReplyTo, Body)> {
        let first = self.first.take()?;
        let bytes = std::mem::take(&mut self.bytes);
        Some((first, Reply::Batch(BatchedReplies::new(&bytes)).encode(None)))
    }
}
