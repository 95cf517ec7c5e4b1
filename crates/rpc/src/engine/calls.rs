//! The calls that an engine makes.

mod answers;
mod retries;

use std::time::Instant;

use bytes::Bytes;
use ropewalk_fabric::{
    Address, Completion, OperationError, OperationId, PeerId, RegionHandle, SubmitError, ToPeer,
};

use self::{
    answers::AwaitedOutput,
    retries::{Attempt, Retries},
};
use super::ground::Ground;
use crate::{
    Call, CallError, CallOptions, Procedure,
    call::Answer,
    input::DATA_ALIGNMENT,
    observed::ObservedCall,
    once::Sequences,
    operations::Operations,
    procedure::procedure_id,
    promise::{Pending, Places, Promise, Work},
    reply,
    wire::{Body, Flags, RequestHeader},
};

type CallPromise = Promise<Result<Answer, CallError>>;
type PendingCall = Pending<Result<Answer, CallError>>;

/// The calls and notifications that an engine has made and that have not ended.
pub(super) struct Calls {
    operations: Operations<Awaited>,
    retries: Retries,
    sequences: Sequences<Address>,
    places: Places<Result<Answer, CallError>>,
    /// How many notifications are among the operations.
    notified: usize,
    /// How many calls have ended.
    ended: u64,
}

/// The purpose of an operation.
enum Awaited {
    Call(AwaitedCall),
    /// The target pulls the input of a notification.
    Notified(RegionHandle),
    Output(Box<AwaitedOutput>),
}

/// A call that was sent.
pub(super) struct AwaitedCall {
    pub(super) promise: CallPromise,
    pub(super) procedure: &'static str,
    peer: PeerId,
    /// Of a call that may be made again: `None` is never. Another has that of its operation.
    deadline: Option<Instant>,
    /// The input, if the target pulls it.
    pub(super) region: Option<Box<RegionHandle>>,
    /// How to make the call again, if it may be.
    attempt: Option<Box<Attempt>>,
    /// The record of a call that somebody looks at.
    observed: Option<Box<ObservedCall>>,
}

impl Calls {
    pub(super) const fn new() -> Self {
        Self {
            operations: Operations::new(),
            retries: Retries::new(),
            sequences: Sequences::new(),
            places: Places::new(),
            notified: 0,
            ended: 0,
        }
    }

    /// Calls a procedure of the engine at `target`: once, if there is data.
    pub(super) fn call<P: Procedure>(
        &mut self,
        ground: &mut Ground,
        target: impl ToPeer,
        input: &P::Input,
        data: Option<&Bytes>,
        options: &CallOptions,
    ) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let peer = target.to_peer(&mut ground.endpoint).map_err(failed)?;
        let mut observed = ground.observe_call(procedure, peer, options);
        let pending = if options.retries == 0 || data.is_some() {
            let header = Self::header::<P>(options);
            let mut request = Body::new();
            let encoded = header.encode_with(input, &mut request);
            encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
            if data.is_some() {
                let mut padded = Vec::from(&request[..]);
                padded.resize(padded.len().next_multiple_of(DATA_ALIGNMENT), 0);
                request = padded.into();
            }
            let sent = self.send_request(ground, peer, &mut request, data, RequestHeader::SIZE, options);
            let (operation, region) = sent.map_err(failed)?;
            observed.iter_mut().for_each(|observed| observed.handle_sent());
            let work = Some(Work::Operation(operation));
            let (promise, pending) = self.promise_from(ground, peer, procedure, work);
            self.operations.insert_with(operation, || {
                Awaited::Call(AwaitedCall {
                    region,
                    ..AwaitedCall::new(promise, procedure, peer, observed)
                })
            });
            pending
        } else {
            self.call_with_retries::<P>(ground, peer, input, observed, options)?
        };
        ground.metrics.calls.sent += 1;
        Ok(Call::new(pending))
    }

    /// Calls a procedure of the engine at `target` without waiting for an answer.
    pub(super) fn notify<P: Procedure>(
        &mut self,
        ground: &mut Ground,
        target: impl ToPeer,
        input: &P::Input,
    ) -> Result<(), CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let peer = target.to_peer(&mut ground.endpoint).map_err(failed)?;
        let options = CallOptions::new(ground.options.overflow_timeout);
        let mut header = Self::header::<P>(&options);
        header.flags = Flags::ONE_WAY;
        let mut request = Body::new();
        let encoded = header.encode_with(input, &mut request);
        encoded.map_err(|source| CallError::InputUnencodable { procedure, source })?;
        ground.metrics.notifications.sent += 1;
        if request.len() <= RequestHeader::SIZE + ground.eager_size_max() {
            ground.metrics.message_bytes.sent += request.len() as u64;
            return ground.endpoint.send_unexpected(peer, 0, request).map_err(failed);
        }
        let sent = self.send_request(ground, peer, &mut request, None, RequestHeader::SIZE, &options);
        if let (operation, Some(region)) = sent.map_err(failed)? {
            self.notified += 1;
            self.operations.insert(operation, Awaited::Notified(*region));
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

    /// Sends a request whose input begins at `head`, with the data behind it, or lets the target pull both from the
    /// region that is returned then, and waits for the reply.
    pub(super) fn send_request(
        &mut self,
        ground: &mut Ground,
        peer: PeerId,
        request: &mut Body,
        mut data: Option<&Bytes>,
        head: usize,
        options: &CallOptions,
    ) -> Result<(OperationId, Option<Box<RegionHandle>>), SubmitError> {
        // The answer cannot be early: it is waited for before the request is sent.
        let operation = ground.endpoint.receive_reply(peer, options.timeout)?;
        let mut region = None;
        let size = request.len() + data.map_or(0, Bytes::len);
        if size > head + ground.eager_size_max() {
            if let Some(data) = data.take() {
                *request = Body::from([&request[..], data].concat());
            }
            let (remote, exposed) = ground.expose_input(std::mem::take(request), head);
            (*request, region) = (remote, Some(Box::new(exposed)));
        }
        ground.metrics.message_bytes.sent += (request.len() + data.map_or(0, Bytes::len)) as u64;
        let (endpoint, tag) = (&mut ground.endpoint, operation.tag());
        let sent = match data {
            None => endpoint.send_unexpected_body(peer, tag, request),
            Some(data) => endpoint.send_unexpected_with(peer, tag, request, data),
        };
        if let Err(error) = sent {
            ground.endpoint.cancel(operation);
            if let Some(region) = region {
                ground.withdraw_overflow(&region);
            }
            return Err(error);
        }
        Ok((operation, region))
    }

    /// Waits for the answer to a call that was sent, which may have been abandoned before.
    pub(super) fn await_answer(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        mut call: AwaitedCall,
    ) {
        call.observed
            .iter_mut()
            .for_each(|observed| observed.handle_sent());
        let wanted = call.promise.follow(operation);
        self.operations.insert(operation, Awaited::Call(call));
        if !wanted {
            self.handle_abandoned(ground, operation);
        }
    }

    /// Both ends of what a call to the peer brings.
    pub(super) fn promise_from(
        &mut self,
        ground: &mut Ground,
        peer: PeerId,
        procedure: &'static str,
        work: Option<Work>,
    ) -> (CallPromise, PendingCall) {
        let endpoint = &ground.endpoint;
        let address = || endpoint.peer_address(peer);
        let places = &mut self.places;
        places.promise(work, &ground.abandoned, procedure, peer, address)
    }

    /// An operation has ended. Gives the result back if the operation is of no call.
    pub(super) fn handle_ended(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        result: Result<Completion, OperationError>,
    ) -> Option<Result<Completion, OperationError>> {
        match (self.operations.remove(operation), result) {
            (None, result) => return Some(result),
            (Some(Awaited::Call(call)), Ok(Completion::Received(reply))) => {
                self.handle_reply(ground, operation, call, reply);
            }
            (Some(Awaited::Call(call)), Err(error)) => {
                self.handle_call_failed(ground, operation, call, error)
            }
            (Some(Awaited::Output(output)), Ok(Completion::Got(buffer))) => {
                self.handle_output_pulled(ground, operation, *output, Ok(buffer));
            }
            (Some(Awaited::Output(output)), Err(error)) => {
                self.handle_output_pulled(ground, operation, *output, Err(error));
            }
            (Some(Awaited::Notified(region)), result) => {
                self.notified -= 1;
                ground.withdraw_overflow(&region);
                count_notification(&result, ground);
            }
            (Some(_), Ok(completion)) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
        None
    }

    /// Ends what nobody waits for any longer. Returns whether the operation is of a call.
    pub(super) fn handle_abandoned(&mut self, ground: &mut Ground, operation: OperationId) -> bool {
        let Some(awaited) = self.operations.remove(operation) else {
            return false;
        };
        ground.endpoint.cancel(operation);
        match awaited {
            Awaited::Call(call) => {
                let once = call.attempt.as_ref().and_then(|attempt| attempt.once());
                ground.tell_cancelled_once(call.peer, operation.tag(), once);
                self.end_call(ground, call, None);
            }
            Awaited::Output(output) => {
                ground.tell_cancelled(output.call.peer, output.tag);
                self.end_call(ground, output.call, None);
            }
            Awaited::Notified(_) => {}
        }
        true
    }

    /// When the next attempt of a call is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.retries.next_deadline()
    }

    /// Makes the attempts that are due.
    pub(super) fn handle_deadlines(&mut self, ground: &mut Ground, now: Instant) {
        while let Some(call) = self.retries.pop_due(now) {
            self.retry(ground, now, call);
        }
    }

    /// How many operations are in progress.
    pub(super) fn operations(&self) -> usize {
        self.operations.len()
    }

    /// How many calls wait for their next attempt.
    pub(super) fn retries(&self) -> usize {
        self.retries.len()
    }

    /// How many inputs of notifications are to be pulled.
    pub(super) fn notified(&self) -> usize {
        self.notified
    }

    /// How many calls have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// The engine is gone: whoever waits is told.
    pub(super) fn stop(&mut self) {
        for awaited in self.operations.drain() {
            match awaited {
                Awaited::Call(call) => call.stop(),
                Awaited::Output(output) => output.call.stop(),
                Awaited::Notified(_) => {}
            }
        }
        self.retries.drain().for_each(AwaitedCall::stop);
    }

    pub(super) fn fail_call(
        &mut self,
        ground: &mut Ground,
        call: AwaitedCall,
        error: impl FnOnce(&'static str, Address) -> CallError,
    ) {
        let error = error(call.procedure, ground.address_of(call.peer));
        self.end_call(ground, call, Some(Err(error)));
    }

    /// Frees what the call holds, and gives its result if somebody wants that.
    pub(super) fn end_call(
        &mut self,
        ground: &mut Ground,
        mut call: AwaitedCall,
        mut result: Option<Result<Answer, CallError>>,
    ) {
        self.free_call(ground, &mut call);
        self.handle_call_ended(ground, call.procedure, call.observed.take(), result.as_mut());
        if let Some(result) = result {
            self.places.fulfil(call.promise, || result);
        }
    }

    /// Frees what the call holds: nothing of it will be sent again.
    pub(super) fn free_call(&mut self, ground: &mut Ground, call: &mut AwaitedCall) {
        if let Some(region) = call.region.take() {
            ground.withdraw_overflow(&region);
        }
        if let Some(attempt) = call.attempt.take() {
            self.end_attempts(&attempt);
        }
    }

    /// A call has ended: with this result, or because nobody waits for it any longer.
    fn handle_call_ended(
        &mut self,
        ground: &mut Ground,
        procedure: &'static str,
        observed: Option<Box<ObservedCall>>,
        result: Option<&mut Result<Answer, CallError>>,
    ) {
        self.ended += 1;
        let counted = match (result, observed) {
            (Some(Ok(_)), None) => return,
            (Some(Ok(answer)), Some(observed)) => {
                let took;
                (took, answer.times) = observed.handle_answered(answer.handling);
                Ok(took)
            }
            (Some(Err(error)), observed) => {
                ground.metrics.calls.failures.record(error);
                if let Some(observed) = observed {
                    observed.handle_failed(error);
                }
                Err(())
            }
            (None, _) => {
                ground.metrics.calls.failures.cancelled += 1;
                Err(())
            }
        };
        if ground.counts_procedures {
            ground.metrics.record_call(procedure, counted);
        }
    }
}

impl AwaitedCall {
    /// A call that waits for nothing but its answer.
    #[inline]
    pub(super) const fn new(
        promise: CallPromise,
        procedure: &'static str,
        peer: PeerId,
        observed: Option<Box<ObservedCall>>,
    ) -> Self {
        Self {
            promise,
            procedure,
            peer,
            deadline: None,
            region: None,
            attempt: None,
            observed,
        }
    }

    /// True if the call holds nothing that is to be freed, and nobody looks at it.
    fn is_plain(&self) -> bool {
        self.region.is_none() && self.attempt.is_none() && self.observed.is_none()
    }

    /// The engine is gone.
    pub(super) fn stop(self) {
        let procedure = self.procedure;
        self.promise.fulfil(Err(CallError::Stopped { procedure }));
    }
}

/// The target of a notification has pulled its input, or has not.
fn count_notification(result: &Result<Completion, OperationError>, ground: &mut Ground) {
    let failures = &mut ground.metrics.notifications.failures;
    match result {
        Ok(Completion::Received(reply)) => reply::count(reply, failures),
        Ok(_) => {}
        Err(OperationError::PeerDied { .. }) => failures.peer_died += 1,
        Err(OperationError::TimedOut { .. }) => failures.timed_out += 1,
        Err(_) => failures.other += 1,
    }
}
