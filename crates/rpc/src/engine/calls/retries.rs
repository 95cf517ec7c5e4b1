//! Calls that are made again after their connection was lost.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, OperationId, PeerId, SubmitError};

use super::{AwaitedCall, Calls, PendingCall};
use crate::{
    CallError, CallOptions, Procedure,
    engine::ground::Ground,
    observed::ObservedCall,
    wire::{Body, Flags, Once, RequestHeader, encode_behind},
};

/// All that is needed to make a call again.
pub(super) struct Attempt {
    address: Address,
    header: RequestHeader,
    /// Its number, unless it may as well run twice.
    once: Option<Once>,
    /// The request without what changes with each attempt: that is room for it.
    request: Body,
    /// How many more there may be.
    left: u32,
    /// How long to wait before the next.
    pause: Duration,
}

/// The calls that wait for their next attempt.
pub(super) struct Retries {
    waiting: BTreeMap<(Instant, u64), AwaitedCall>,
    next: u64,
}

impl Retries {
    pub(super) const fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(&(due, _), _)| due)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<AwaitedCall> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = AwaitedCall> {
        std::mem::take(&mut self.waiting).into_values()
    }

    fn push(&mut self, due: Instant, call: AwaitedCall) {
        self.waiting.insert((due, self.next), call);
        self.next += 1;
    }
}

impl Attempt {
    /// A server that is started again is back within milliseconds, or much later.
    const PAUSE_MIN: Duration = Duration::from_millis(1);
    const PAUSE_MAX: Duration = Duration::from_millis(250);

    /// By what the target knows the call, if it may run but once.
    pub(super) fn once(&self) -> Option<&Once> {
        self.once.as_ref()
    }

    /// The part of the request before the input.
    fn head(&self) -> Vec<u8> {
        let once = self.once.as_ref().map(Once::encode);
        [
            &self.header.encode()[..],
            once.as_ref().map_or(&[], |once| &once[..]),
        ]
        .concat()
    }
}

impl Calls {
    /// Calls a procedure that may be called again after its connection was lost.
    pub(super) fn call_with_retries<P: Procedure>(
        &mut self,
        ground: &mut Ground,
        peer: PeerId,
        input: &P::Input,
        observed: Option<Box<ObservedCall>>,
        options: &CallOptions,
    ) -> Result<PendingCall, CallError> {
        let procedure = P::NAME;
        let mut header = Self::header::<P>(options);
        let Some(address) = ground.endpoint.peer_address(peer).cloned() else {
            let source = SubmitError::NotConnected;
            return Err(CallError::Submit { procedure, source });
        };
        let mut once = None;
        if !options.idempotent {
            header.flags = header.flags.with(Flags::AT_MOST_ONCE);
            once = Some(Once {
                origin: ground.endpoint.instance(),
                sequence: self.sequences.begin(&address),
                lowest: 0,
                target: 0,
            });
        }
        let mut attempt = Box::new(Attempt {
            address,
            header,
            once,
            request: Body::from(Vec::new()),
            left: options.retries,
            pause: Attempt::PAUSE_MIN,
        });
        match encode_behind(&attempt.head(), input) {
            Ok(request) => attempt.request = request,
            Err(source) => {
                self.end_attempts(&attempt);
                return Err(CallError::InputUnencodable { procedure, source });
            }
        }
        let (promise, pending) = self.promise_from(ground, peer, procedure, None);
        let call = AwaitedCall {
            deadline: Instant::now().checked_add(options.timeout),
            ..AwaitedCall::new(promise, procedure, peer, observed)
        };
        match self.send_attempt(ground, call, attempt, options.timeout) {
            Ok(()) => Ok(pending),
            Err((_, attempt, source)) => {
                self.end_attempts(&attempt);
                Err(CallError::Submit { procedure, source })
            }
        }
    }

    /// The first that the call may have reached stays the only one that may run it. One that has proven nothing was
    /// not reached.
    pub(super) fn learn_instance(&self, ground: &mut Ground, call: &mut AwaitedCall) {
        if let Some(attempt) = &mut call.attempt
            && let Some(once) = &mut attempt.once
            && once.target == 0
            && let Some(target) = ground.endpoint.peer_info(call.peer)
        {
            once.target = target.instance;
        }
    }

    /// Makes the call again after a pause, if it may be.
    pub(super) fn retry_later(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        mut call: AwaitedCall,
    ) -> Result<(), AwaitedCall> {
        let now = ground.now();
        self.learn_instance(ground, &mut call);
        let Some(attempt) = &mut call.attempt else {
            return Err(call);
        };
        let due = now + attempt.pause;
        if attempt.left == 0 || call.deadline.is_some_and(|deadline| deadline <= due) {
            return Err(call);
        }
        attempt.left -= 1;
        attempt.pause = (attempt.pause * 2).min(Attempt::PAUSE_MAX);
        if let Some(region) = call.region.take() {
            ground.withdraw_overflow(&region);
        }
        debug_assert!(self.operations.get(operation).is_none(), "it has ended");
        self.retries.push(due, call);
        Ok(())
    }

    /// Makes the next attempt of a call.
    pub(super) fn retry(&mut self, ground: &mut Ground, now: Instant, mut call: AwaitedCall) {
        let attempt = call.attempt.take();
        let mut attempt = attempt.expect("only calls that may be made again are kept to be");
        if call.promise.is_abandoned() {
            self.cancel_earlier_attempt(ground, &attempt);
            self.end_attempts(&attempt);
            return self.end_call(ground, call, None);
        }
        ground.metrics.calls.retries += 1;
        let left = call
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        let timeout = left.unwrap_or(attempt.header.timeout);
        attempt.header.timeout = timeout;
        let failed = match ground.endpoint.peer(&attempt.address) {
            Ok(peer) => {
                call.peer = peer;
                match self.send_attempt(ground, call, attempt, timeout) {
                    Ok(()) => return,
                    Err(failed) => failed,
                }
            }
            Err(error) => (call, attempt, error),
        };
        let (mut call, attempt, source) = failed;
        let procedure = call.procedure;
        call.attempt = Some(attempt);
        self.end_call(ground, call, Some(Err(CallError::Submit { procedure, source })));
    }

    /// Tells the target of an attempt whose connection was lost that nobody comes back for the answer.
    fn cancel_earlier_attempt(&mut self, ground: &mut Ground, attempt: &Attempt) {
        if let Some(once) = &attempt.once
            && once.target != 0
            && let Ok(peer) = ground.endpoint.peer(&attempt.address)
        {
            // No call has this tag, whose lower half is more operations than there can be.
            ground.tell_cancelled_once(peer, u64::MAX, Some(once));
        }
    }

    fn send_attempt(
        &mut self,
        ground: &mut Ground,
        mut call: AwaitedCall,
        mut attempt: Box<Attempt>,
        timeout: Duration,
    ) -> Result<(), (AwaitedCall, Box<Attempt>, SubmitError)> {
        if let Some(once) = &mut attempt.once {
            once.lowest = self.sequences.lowest(&attempt.address);
        }
        let head = attempt.head();
        let mut request = Vec::with_capacity(attempt.request.len());
        request.extend_from_slice(&head);
        request.extend_from_slice(&attempt.request[head.len()..]);
        let options = CallOptions::new(timeout);
        match self.send_request(
            ground,
            call.peer,
            &mut Body::from(request),
            None,
            head.len(),
            &options,
        ) {
            Ok((operation, region)) => {
                call.region = region;
                call.attempt = Some(attempt);
                self.await_answer(ground, operation, call);
                Ok(())
            }
            Err(error) => Err((call, attempt, error)),
        }
    }

    /// No more attempts will be made.
    pub(super) fn end_attempts(&mut self, attempt: &Attempt) {
        if let Some(once) = &attempt.once {
            self.sequences.end(&attempt.address, once.sequence);
        }
    }
}
