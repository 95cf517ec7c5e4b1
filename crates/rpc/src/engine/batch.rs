//! Several calls in one message, and their replies.

use std::fmt;

use ropewalk_fabric::{OperationId, PeerId, SubmitError};

use super::{
    calls::{AwaitedCall, Calls},
    ground::Ground,
};
use crate::{
    Call, CallError, CallOptions, Procedure,
    call::Answer,
    procedure::procedure_id,
    promise::Promise,
    wire::{BatchedCall, Body, Flags, RequestHeader, Slot, encode_behind},
};

/// Calls to one engine that go in as few messages as hold them, and whose replies come so too: those that
/// the target has at once. Each is otherwise a call like others, with its own output or error.
#[must_use = "nothing is called before `send`"]
pub struct Batch<'engine> {
    of: &'engine mut Calls,
    ground: &'engine mut Ground,
    peer: PeerId,
    calls: Vec<BatchCall>,
}

struct BatchCall {
    promise: Promise<Result<Answer, CallError>>,
    procedure: &'static str,
    id: u64,
    input: Body,
}

impl<'engine> Batch<'engine> {
    pub(super) const fn new(of: &'engine mut Calls, ground: &'engine mut Ground, peer: PeerId) -> Self {
        let calls = Vec::new();
        Self {
            of,
            ground,
            peer,
            calls,
        }
    }

    /// Adds a call. It is made by [`send`](Self::send); if the batch is dropped before, it ends with
    /// [`CallError::Unsent`].
    ///
    /// # Errors
    /// If the input cannot be encoded.
    pub fn push<P: Procedure>(&mut self, input: &P::Input) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let encoded = encode_behind(&[], input);
        let input = encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
        let (promise, pending) = self.of.promise_from(self.ground, self.peer, procedure, None);
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

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the calls, each with this time-out, or with these options, of which retries have no effect on a batch.
    /// A call that cannot be sent ends with [`CallError::Submit`].
    pub fn send(mut self, options: impl Into<CallOptions>) {
        let options = CallOptions {
            retries: 0,
            ..options.into()
        };
        let size_max = self.ground.eager_size_max();
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
            match self.ground.endpoint.receive_reply(self.peer, options.timeout) {
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
        self.ground.metrics.message_bytes.sent += body.len() as u64;
        let sent = self
            .ground
            .endpoint
            .send_unexpected(self.peer, 0, Body::from(body));
        for (operation, call) in calls {
            match &sent {
                Ok(()) => self.of.await_answer(self.ground, operation, call),
                Err(source) => {
                    self.ground.endpoint.cancel(operation);
                    let (procedure, source) = (call.procedure, source.clone());
                    let error = CallError::Submit { procedure, source };
                    self.of.end_call(self.ground, call, Some(Err(error)));
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
        let sent = self.of.send_request(
            self.ground,
            self.peer,
            &mut request,
            None,
            RequestHeader::SIZE,
            options,
        );
        match sent {
            Ok((operation, region)) => {
                let mut call = self.waiting(call, options);
                call.region = region;
                self.of.await_answer(self.ground, operation, call);
            }
            Err(source) => self.fail(call, source),
        }
    }

    fn fail(&mut self, call: BatchCall, source: SubmitError) {
        let procedure = call.procedure;
        let error = CallError::Submit { procedure, source };
        self.ground.metrics.calls.failures.record(&error);
        call.promise.fulfil(Err(error));
    }

    fn waiting(&mut self, call: BatchCall, options: &CallOptions) -> AwaitedCall {
        self.ground.metrics.calls.sent += 1;
        let observed = self.ground.observe_call(call.procedure, self.peer, options);
        AwaitedCall::new(call.promise, call.procedure, self.peer, observed)
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
    calls: Vec<(OperationId, AwaitedCall)>,
}
