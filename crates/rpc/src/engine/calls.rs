//! What an engine does as the origin of calls.

use std::time::{Duration, Instant};

use ropewalk_fabric::{Address, OperationError, OperationId, PeerId, RegionHandle, SubmitError, ToPeer};

use super::{Waiting, retries::Attempt};
use crate::{
    Call, CallError, CallOptions, Engine, Procedure,
    call::Answer,
    observed::ObservedCall,
    procedure::procedure_id,
    promise::{Pending, Promise, Work},
    reply::Reply,
    wire::{Body, Flags, Once, Request, RequestHeader},
};

type CallPromise = Promise<Result<Answer, CallError>>;
type PendingCall = Pending<Result<Answer, CallError>>;

/// A call that was sent.
pub(super) struct WaitingCall {
    pub(super) promise: Promise<Result<Answer, CallError>>,
    pub(super) procedure: &'static str,
    pub(super) peer: PeerId,
    /// Of a call that may be made again: `None` is never. Another has that of its operation.
    pub(super) deadline: Option<Instant>,
    /// The input, if the target pulls it.
    pub(super) region: Option<Box<RegionHandle>>,
    /// How to make the call again, if it may be.
    pub(super) attempt: Option<Box<Attempt>>,
    /// What somebody looks at.
    pub(super) observed: Option<Box<ObservedCall>>,
}

impl Engine {
    /// Calls a procedure of the engine at `target`, which may be this one. The call ends by its time-out at
    /// the latest, and at once if the target dies, but for retries that its options allow.
    ///
    /// # Errors
    /// If it cannot even be sent; see [`CallError::Submit`].
    pub fn call<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        options: impl Into<CallOptions>,
    ) -> Result<Call<P::Output>, CallError> {
        let result = self.send_call::<P>(target, input, &options.into());
        result.inspect_err(|error| self.metrics.call_failures.record(error))
    }

    fn send_call<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        options: &CallOptions,
    ) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let peer = target.to_peer(&mut self.endpoint).map_err(failed)?;
        let mut observed = self.observe_call(procedure, peer, options);
        let header = Self::header::<P>(options);
        let pending = if options.retries == 0 {
            let mut request = Body::new();
            let encoded = header.encode_with(input, &mut request);
            encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
            let sent = self.send_request(peer, &mut request, RequestHeader::SIZE, options);
            let (operation, region) = sent.map_err(failed)?;
            observed.iter_mut().for_each(|observed| observed.handle_sent());
            let work = Some(Work::Operation(operation));
            let (promise, pending) = self.promise_from(peer, procedure, work);
            self.operations.insert_with(operation, || {
                Waiting::Call(WaitingCall {
                    promise,
                    procedure,
                    peer,
                    deadline: None,
                    region,
                    attempt: None,
                    observed,
                })
            });
            pending
        } else {
            self.call_with_retries(peer, procedure, header, input, observed, options)?
        };
        self.metrics.calls += 1;
        Ok(Call::new(pending))
    }

    /// As [`call`](Self::call), and drives the engine until it has ended.
    ///
    /// # Errors
    /// As the call.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn call_blocking<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        options: impl Into<CallOptions>,
    ) -> Result<P::Output, CallError> {
        let mut call = self.call::<P>(target, input, options)?;
        loop {
            self.wait(Duration::from_secs(1));
            if let Some(result) = call.try_take() {
                return result;
            }
        }
    }

    /// Calls a procedure of the engine at `target` without waiting for an answer. Calls and notifications
    /// from one engine to another are handled in the order they were made.
    ///
    /// # Errors
    /// If it cannot be sent; see [`CallError::Submit`]. That it was lost with the target is seen in
    /// [`poll_lost_peer`](Self::poll_lost_peer) only.
    pub fn notify<P: Procedure>(&mut self, target: impl ToPeer, input: &P::Input) -> Result<(), CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let peer = target.to_peer(&mut self.endpoint).map_err(failed)?;
        let options = CallOptions::new(self.options.overflow_timeout);
        let mut header = Self::header::<P>(&options);
        header.flags = Flags::ONE_WAY;
        let mut request = Body::new();
        let encoded = header.encode_with(input, &mut request);
        encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
        self.metrics.notifications += 1;
        if request.len() <= RequestHeader::SIZE + self.eager_size_max() {
            self.metrics.message_bytes_sent += request.len() as u64;
            return self.endpoint.send_unexpected(peer, 0, request).map_err(failed);
        }
        let sent = self.send_request(peer, &mut request, RequestHeader::SIZE, &options);
        if let (operation, Some(region)) = sent.map_err(failed)? {
            self.notified += 1;
            self.operations.insert(operation, Waiting::Notified(*region));
        }
        Ok(())
    }

    fn header<P: Procedure>(options: &CallOptions) -> RequestHeader {
        RequestHeader {
            procedure: const { procedure_id(P::NAME) },
            timeout: options.timeout,
            flags: Flags::of(options),
        }
    }

    /// The largest input or output that travels in a message.
    pub(super) fn eager_size_max(&self) -> usize {
        self.options.eager_size_max.min(self.endpoint.eager_size_max())
    }

    /// Sends a request whose input begins at `head`, or lets the target pull that from the region that is
    /// returned then, and waits for the reply.
    pub(super) fn send_request(
        &mut self,
        peer: PeerId,
        request: &mut Body,
        head: usize,
        options: &CallOptions,
    ) -> Result<(OperationId, Option<Box<RegionHandle>>), SubmitError> {
        // The answer cannot be early: it is waited for before the request is sent.
        let operation = self.endpoint.receive_reply(peer, options.timeout)?;
        let mut region = None;
        if request.len() > head + self.eager_size_max() {
            let (remote, exposed) = self.expose_input(std::mem::take(request), head);
            (*request, region) = (remote, Some(Box::new(exposed)));
        }
        self.metrics.message_bytes_sent += request.len() as u64;
        if let Err(error) = self.endpoint.send_unexpected_body(peer, operation.tag(), request) {
            self.endpoint.cancel(operation);
            if let Some(region) = region {
                self.withdraw_overflow(&region);
            }
            return Err(error);
        }
        Ok((operation, region))
    }

    /// Waits for the answer to a call that was sent, which may have been abandoned before.
    pub(super) fn await_answer(&mut self, operation: OperationId, mut call: WaitingCall) {
        call.observed
            .iter_mut()
            .for_each(|observed| observed.handle_sent());
        let wanted = call.promise.follow(operation);
        self.operations.insert(operation, Waiting::Call(call));
        if !wanted {
            self.handle_abandoned(operation);
        }
    }

    /// Tells the target that nobody waits for the call any longer, or that its output was pulled.
    pub(super) fn tell_cancelled(&mut self, peer: PeerId, tag: u64) {
        self.tell_cancelled_once(peer, tag, None);
    }

    /// As [`tell_cancelled`](Self::tell_cancelled), of a call that an earlier attempt may have begun.
    pub(super) fn tell_cancelled_once(&mut self, peer: PeerId, tag: u64, once: Option<&Once>) {
        // A target that has no room for this, or is gone, has the deadline of the call.
        let cancellation = Request::cancellation(once);
        self.metrics.message_bytes_sent += cancellation.len() as u64;
        let _ = self.endpoint.send_unexpected(peer, tag, cancellation);
        self.told = true;
    }

    /// Takes a reply that is an output, for a call with which there is nothing special, as most: it goes straight to
    /// where it is taken. Returns whether it was that.
    #[inline]
    pub(super) fn handle_plain_reply(&mut self, operation: OperationId, message: &mut Body) -> bool {
        if !Reply::is_plain_output(message) {
            return false;
        }
        let is_plain = |waiting: &Waiting| matches!(waiting, Waiting::Call(call) if call.is_plain());
        let Some(Waiting::Call(WaitingCall { promise, .. })) = self.operations.remove_if(operation, is_plain)
        else {
            return false;
        };
        self.metrics.message_bytes_received += message.len() as u64;
        self.calls_ended += 1;
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
    pub(super) fn handle_reply(&mut self, operation: OperationId, call: WaitingCall, message: Body) {
        self.metrics.message_bytes_received += message.len() as u64;
        let Some((reply, handling)) = Reply::decode(&message) else {
            return self.fail_call(call, |procedure, peer| CallError::OutputMalformed {
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
                self.end_call(call, Some(Ok(answer)));
            }
            Reply::RemoteOutput(remote) => self.pull_output(operation, call, remote),
            Reply::Batch(replies) => self.handle_batch_replies(operation, call, replies),
            Reply::Busy(reason) => self.fail_call(call, |procedure, peer| CallError::Busy {
                procedure,
                peer,
                reason,
            }),
            Reply::Fault(source) => self.fail_call(call, |procedure, peer| CallError::Fault {
                procedure,
                peer,
                source,
            }),
            Reply::UnknownProcedure => {
                self.fail_call(call, |procedure, peer| CallError::UnknownProcedure {
                    procedure,
                    peer,
                });
            }
            Reply::InputMalformed => {
                self.fail_call(call, |procedure, peer| CallError::InputMalformed {
                    procedure,
                    peer,
                });
            }
            Reply::InputTooLarge { size_max } => {
                self.fail_call(call, |procedure, peer| CallError::InputTooLarge {
                    procedure,
                    peer,
                    size_max,
                });
            }
            Reply::OtherInstance => {
                self.fail_call(call, |procedure, peer| CallError::Replaced { procedure, peer });
            }
            Reply::OutputForgotten => {
                self.fail_call(call, |procedure, peer| CallError::OutputForgotten {
                    procedure,
                    peer,
                });
            }
        }
    }

    /// The call has no reply.
    pub(super) fn handle_call_failed(
        &mut self,
        operation: OperationId,
        call: WaitingCall,
        error: OperationError,
    ) {
        let call = match matches!(error, OperationError::PeerDied { .. }) {
            true => match self.retry_later(operation, call) {
                Ok(()) => return,
                Err(call) => call,
            },
            false => call,
        };
        let error = CallError::from_operation(call.procedure, error);
        self.end_call(call, Some(Err(error)));
    }

    pub(super) fn fail_call(
        &mut self,
        call: WaitingCall,
        error: impl FnOnce(&'static str, Address) -> CallError,
    ) {
        let error = error(call.procedure, self.address_of(call.peer));
        self.end_call(call, Some(Err(error)));
    }

    /// Frees what the call holds, and gives its result if somebody wants that.
    pub(super) fn end_call(&mut self, mut call: WaitingCall, mut result: Option<Result<Answer, CallError>>) {
        self.free_call(&mut call);
        self.handle_call_ended(call.procedure, call.observed.take(), result.as_mut());
        if let Some(result) = result {
            self.places.fulfil(call.promise, || result);
        }
    }

    /// Both ends of what a call to the peer brings.
    pub(super) fn promise_from(
        &mut self,
        peer: PeerId,
        procedure: &'static str,
        work: Option<Work>,
    ) -> (CallPromise, PendingCall) {
        let endpoint = &self.endpoint;
        let address = || endpoint.peer_address(peer);
        let places = &mut self.places;
        places.promise(work, &self.abandoned, procedure, peer, address)
    }

    /// Frees what the call holds: nothing of it will be sent again.
    pub(super) fn free_call(&mut self, call: &mut WaitingCall) {
        if let Some(region) = call.region.take() {
            self.withdraw_overflow(&region);
        }
        if let Some(attempt) = call.attempt.take() {
            self.end_attempts(&attempt);
        }
    }

    /// The address of a peer that has answered, or was called.
    pub(super) fn address_of(&self, peer: PeerId) -> Address {
        let address = self.endpoint.peer_address(peer);
        address
            .expect("the peer is connected while its messages are handled")
            .clone()
    }
}

impl WaitingCall {
    /// Whether it holds nothing that is to be freed, and nobody looks at it.
    fn is_plain(&self) -> bool {
        self.region.is_none() && self.attempt.is_none() && self.observed.is_none()
    }

    /// The engine is gone.
    pub(super) fn stop(self) {
        let procedure = self.procedure;
        self.promise.fulfil(Err(CallError::Stopped { procedure }));
    }
}
