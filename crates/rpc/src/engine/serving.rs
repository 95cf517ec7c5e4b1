//! What an engine does as the target of calls.

use std::{
    any::Any,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Endpoint, PeerId, SubmitError};

use crate::{
    Caller, Cancellation, Engine, Fault, Procedure, Responder,
    arrivals::Arrived,
    executed::Arrival,
    observed::ObservedRequest,
    procedure::procedure_id,
    reply::{self, Reply, encode_result},
    responder::ReplyTo,
    wire::{Body, Flags, Once, Payload, Request},
};

/// What is served, by the hash of its name.
pub(super) type Procedures = HashMap<u64, Served, BuildHasherDefault<Hashed>>;

pub(super) struct Served {
    name: &'static str,
    handler: Handler,
}

/// What runs when a procedure is called: with the encoded input.
enum Handler {
    /// Gives the reply at once, if one is wanted.
    Now(HandleNow),
    /// Gives it when it likes. Not here while it runs.
    Later(Option<HandleLater>),
}

/// The reply is put into the body, if one is wanted.
type HandleNow = Box<dyn FnMut(&Caller, Wanted, &[u8], &mut Body) + Send>;
type HandleLater = Box<dyn FnMut(&mut Engine, Caller, Option<ReplyTo>, &[u8]) + Send>;

/// Whether the caller wants a reply.
#[derive(Clone, Copy)]
enum Wanted {
    Nothing,
    Reply,
    /// One that says for how long the call was handled, which began then.
    TimedReply(Instant),
}

/// Takes a hash for what it is.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes of names are looked up");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Engine {
    /// Serves a procedure; a handler that it had before is replaced. The handler runs inside
    /// [`progress`](Self::progress), so it should be short; see [`serve_later`](Self::serve_later) for
    /// others. What comes by [`notify`](Self::notify) is handled the same, and its output dropped.
    ///
    /// # Panics
    /// If another procedure's name has the same hash: one of the two needs another name.
    pub fn serve<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&Caller, P::Input) -> Result<P::Output, Fault> + Send + 'static,
    ) {
        let handle = move |caller: &Caller, wanted: Wanted, input: &[u8], body: &mut Body| {
            let result = match postcard::from_bytes(input) {
                Ok(input) => Some(handler(caller, input)),
                Err(_) => None,
            };
            let handling = match wanted {
                Wanted::Nothing => return,
                Wanted::Reply => None,
                Wanted::TimedReply(since) => Some(since.elapsed()),
            };
            match result {
                Some(result) => encode_result(&result, handling, body),
                None => *body = Reply::InputMalformed.encode(handling),
            }
        };
        self.insert(P::NAME, Handler::Now(Box::new(handle)));
    }

    /// Serves a procedure whose answer may be given after the handler has returned, by the [`Responder`]. The
    /// handler may start calls and transfers on the engine, but must not drive it.
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_later<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&mut Engine, Caller, P::Input, Responder<P::Output>) + Send + 'static,
    ) {
        let handle = move |engine: &mut Engine, caller: Caller, reply: Option<ReplyTo>, input: &[u8]| {
            let Ok(input) = postcard::from_bytes(input) else {
                if let Some(reply) = reply {
                    let body = Reply::InputMalformed.encode(reply.handling());
                    engine.reply(reply, body);
                }
                return;
            };
            if let Some(cancellation) = engine.defer(reply.as_ref()) {
                let responder = Responder::new(reply, &engine.replies, cancellation);
                handler(engine, caller, input, responder);
            }
        };
        self.insert(P::NAME, Handler::Later(Some(Box::new(handle))));
    }

    /// Serves the procedure no longer. Returns whether it was served.
    pub fn stop_serving<P: Procedure>(&mut self) -> bool {
        self.procedures.remove(&procedure_id(P::NAME)).is_some()
    }

    fn insert(&mut self, name: &'static str, handler: Handler) {
        let served = Served { name, handler };
        if let Some(replaced) = self.procedures.insert(procedure_id(name), served) {
            assert!(
                replaced.name == name,
                "the names {:?} and {name:?} have the same hash: rename one",
                replaced.name
            );
        }
    }

    pub(super) fn handle_request(&mut self, from: PeerId, tag: u64, message: &Body) {
        self.metrics.message_bytes_received += message.len() as u64;
        if let Some((procedure, timeout, input)) = Request::decode_plain(message)
            && !self.arrivals.holds(from)
        {
            return self.serve_plain(from, tag, procedure, timeout, input);
        }
        // A member of the job that sends something else speaks another protocol; there is nobody to tell.
        let Some(request) = Request::decode(message) else {
            return;
        };
        let at = self.now();
        match request.payload {
            Payload::Cancel => self.handle_cancel(from, tag, request.once),
            Payload::Refused => self.metrics.notification_failures.busy += 1,
            Payload::RemoteInput(place) => {
                let timeout = request.header.timeout;
                let message = message.clone();
                let input = None;
                let arrived = Arrived {
                    tag,
                    message,
                    at,
                    input,
                };
                self.pull_input(from, arrived, place, timeout);
            }
            Payload::Batch(_) | Payload::Input(_) if self.arrivals.holds(from) => {
                let one_way = request.header.flags.has(Flags::ONE_WAY);
                match self.arrivals.check_room(0) {
                    Ok(()) => {
                        let message = message.clone();
                        let input = None;
                        self.arrivals.push(
                            from,
                            Arrived {
                                tag,
                                message,
                                at,
                                input,
                            },
                            None,
                            0,
                        );
                    }
                    Err(reason) if !one_way => {
                        self.refuse(from, tag, &request, &Reply::Busy(reason));
                    }
                    Err(_) => self.refuse_notification(from, request.header.procedure),
                }
            }
            Payload::Batch(_) | Payload::Input(_) => self.serve_request(from, tag, at, &request, None),
        }
    }

    /// Runs a call with which there is nothing special, as most: only for such is it worth to spare each step.
    fn serve_plain(&mut self, from: PeerId, tag: u64, procedure: u64, timeout: Duration, input: &[u8]) {
        let deadline = self.now().checked_add(timeout);
        let to = || ReplyTo {
            deadline,
            ..ReplyTo::plain(from, tag)
        };
        let observing = self.is_observing();
        let (
            Some(Served {
                handler: Handler::Now(handle),
                ..
            }),
            Some(caller),
            false,
        ) = (
            self.procedures.get_mut(&procedure),
            caller(&mut self.caller, &self.endpoint, from, deadline),
            observing,
        )
        else {
            return self.run(from, deadline, procedure, Some(to()), input);
        };
        self.metrics.requests += 1;
        let mut body = Body::new();
        let run = || handle(caller, Wanted::Reply, input, &mut body);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.reply(to(), panicked());
            self.go_on_panicking(panic);
        }
        if body.len() > self.eager_size_max() {
            return self.send_reply(to(), body);
        }
        reply::count(&body, &mut self.metrics.request_failures);
        self.send_or_keep(from, tag, deadline, &mut body);
    }

    /// Runs what was asked for, with the input if that did not come in the request.
    pub(super) fn serve_request(
        &mut self,
        from: PeerId,
        tag: u64,
        at: Instant,
        request: &Request<'_>,
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
            (Some(input), _) | (None, Payload::Input(input)) => input,
            (None, Payload::Batch(calls)) => return self.serve_batch(reply, calls),
            (None, Payload::Cancel | Payload::Refused | Payload::RemoteInput(_)) => return,
        };
        if flags.has(Flags::ONE_WAY) {
            return self.run(from, None, request.header.procedure, None, input);
        }
        if let Some(once) = request.once {
            reply.once = Some((once.origin, once.sequence));
            let known = match once.target == 0 || once.target == self.endpoint.instance() {
                true => {
                    let timeout = request.header.timeout;
                    self.executed.handle_request(at, timeout, once, reply.clone())
                }
                false => return self.send_reply(reply, Reply::OtherInstance.encode(None)),
            };
            match known {
                Arrival::New => {}
                Arrival::Answered(body) => return self.send_reply(reply, body),
                Arrival::Forgotten => {
                    return self.send_reply(reply, Reply::OutputForgotten.encode(None));
                }
                Arrival::Full => {
                    let busy = Reply::Busy(crate::BusyReason::Executed);
                    return self.send_reply(reply, busy.encode(None));
                }
                Arrival::InProgress | Arrival::Obsolete => return,
            }
        }
        self.run(from, deadline, request.header.procedure, Some(reply), input);
    }

    /// Runs a procedure, and sends the reply if it gives one at once.
    pub(super) fn run(
        &mut self,
        from: PeerId,
        deadline: Option<Instant>,
        procedure: u64,
        mut reply: Option<ReplyTo>,
        input: &[u8],
    ) {
        let observing = self.is_observing();
        let Some(served) = self.procedures.get_mut(&procedure) else {
            return self.reply_unknown(reply);
        };
        self.metrics.requests += 1;
        let Some(caller) = caller(&mut self.caller, &self.endpoint, from, deadline) else {
            return;
        };
        let observed =
            observing.then(|| ObservedRequest::begin(served.name, caller.address(), reply.as_mut()));
        let entered = observed.as_ref().map(tracing::Span::enter);
        let result = match &mut served.handler {
            Handler::Now(handle) => {
                let wanted = match &reply {
                    None => Wanted::Nothing,
                    Some(ReplyTo { since: None, .. }) => Wanted::Reply,
                    Some(ReplyTo {
                        since: Some(since), ..
                    }) => Wanted::TimedReply(*since),
                };
                let mut body = Body::new();
                let run = || handle(caller, wanted, input, &mut body);
                let result = catch_unwind(AssertUnwindSafe(run));
                if let Some(reply) = reply {
                    if result.is_err() {
                        body = panicked();
                    }
                    self.reply(reply, body);
                }
                result
            }
            Handler::Later(handler) => {
                let Some(mut handle) = handler.take() else {
                    return self.reply_unknown(reply);
                };
                let caller = caller.clone();
                let result = catch_unwind(AssertUnwindSafe(|| handle(self, caller, reply, input)));
                // Unless the handler stopped or replaced its own procedure.
                if let Some(served) = self.procedures.get_mut(&procedure)
                    && let Handler::Later(none @ None) = &mut served.handler
                {
                    *none = Some(handle);
                }
                result
            }
        };
        drop(entered);
        if let Err(panic) = result {
            self.go_on_panicking(panic);
        }
    }

    /// The engine is whole; whether its owner goes on is for the owner to decide.
    fn go_on_panicking(&mut self, panic: Box<dyn Any + Send>) -> ! {
        self.driving = false;
        self.batch_replies = None;
        resume_unwind(panic);
    }

    fn reply_unknown(&mut self, reply: Option<ReplyTo>) {
        match reply {
            Some(reply) => {
                let body = Reply::UnknownProcedure.encode(reply.handling());
                self.reply(reply, body);
            }
            None => self.metrics.request_failures.unknown_procedure += 1,
        }
    }

    /// Counts a call that its handler has taken; `None` if there are too many, of which the caller is told.
    fn defer(&mut self, reply: Option<&ReplyTo>) -> Option<Cancellation> {
        let Some(reply) = reply else {
            return Some(Cancellation::default());
        };
        let once = reply.once.is_some();
        match self.deferred.begin(reply.peer, reply.tag, reply.deadline, once) {
            Ok(cancellation) => Some(cancellation),
            Err(reason) => {
                if let Some((origin, sequence)) = reply.once {
                    self.executed.forget(origin, sequence);
                }
                let body = Reply::Busy(reason).encode(reply.handling());
                self.send_reply(reply.clone(), body);
                None
            }
        }
    }

    /// The origin waits no longer for a call, or has its output.
    fn handle_cancel(&mut self, from: PeerId, tag: u64, once: Option<Once>) {
        if let Some(region) = self.outputs.remove(from, tag) {
            self.withdraw_overflow(&region);
        }
        let begun_by = once.and_then(|once| self.executed.begun_by(once.origin, once.sequence));
        let (began, first) = begun_by.map_or((from, tag), |first| (first.peer, first.tag));
        if let Some(cancellation) = self.deferred.cancel(began, first) {
            cancellation.cancel();
        }
        if self.arrivals.holds(from) {
            if let Some(transfer) = self.arrivals.cancel(from, tag) {
                self.operations.remove(transfer);
                self.endpoint.cancel(transfer);
            }
            self.handle_arrivals(from);
        }
    }

    /// Tells the caller that its notification is not handled. There is nobody who waits for that, so both sides
    /// count it.
    fn refuse_notification(&mut self, from: PeerId, procedure: u64) {
        self.metrics.request_failures.busy += 1;
        let refusal = Request::refusal(procedure);
        self.metrics.message_bytes_sent += refusal.len() as u64;
        // Without room for it the caller reads nothing, and will not know.
        let _ = self.endpoint.send_unexpected(from, 0, refusal);
        self.told = true;
    }

    /// Answers a request, or all of a batch, without running it.
    fn refuse(&mut self, from: PeerId, tag: u64, request: &Request<'_>, reply: &Reply<'_>) {
        let to = ReplyTo::plain(from, tag);
        match request.payload {
            Payload::Batch(calls) => self.refuse_batch(to, calls, reply),
            _ => self.send_reply(to, reply.encode(None)),
        }
    }

    /// Answers a call that was handled.
    pub(super) fn reply(&mut self, mut to: ReplyTo, body: Body) {
        if let Some(observed) = to.observed.take() {
            self.handle_request_answered(*observed);
        }
        let to = match to.once {
            None => to,
            // By now it may be asked for elsewhere, or no longer.
            Some((origin, sequence)) => match self.executed.handle_reply(origin, sequence, &body) {
                Some(to) => to,
                None => return,
            },
        };
        self.send_reply(to, body);
    }

    /// Sends a reply, or keeps it until there is room for it. A caller that cannot be reached is gone.
    pub(super) fn send_reply(&mut self, to: ReplyTo, mut body: Body) {
        reply::count(&body, &mut self.metrics.request_failures);
        if body.len() > self.eager_size_max() {
            body = self.expose_output(&to, body);
        }
        if let Some(index) = to.index
            && let Some(batch) = &mut self.batch_replies
            && batch.is_for(to.peer)
        {
            let full = batch.push(&to, index, &body, self.options.eager_size_max);
            if let Some((tag, full)) = full {
                self.send_or_keep(to.peer, tag, to.deadline, &mut { full });
            }
            return;
        }
        self.send_or_keep(to.peer, to.tag, to.deadline, &mut body);
    }

    pub(super) fn send_or_keep(
        &mut self,
        peer: PeerId,
        tag: u64,
        deadline: Option<Instant>,
        body: &mut Body,
    ) {
        self.metrics.message_bytes_sent += body.len() as u64;
        if self.unsent.is_empty() || !self.unsent.holds(peer) {
            match self.endpoint.send_reply(peer, tag, body) {
                Ok(()) => return,
                Err(SubmitError::Busy { .. }) => {}
                Err(_) => {
                    if let Some(region) = self.outputs.remove(peer, tag) {
                        self.withdraw_overflow(&region);
                    }
                    return;
                }
            }
        }
        self.unsent.push(peer, tag, deadline, std::mem::take(body));
    }
}

/// Who called, kept from the last time if it is the same; `None` if it is gone.
fn caller<'a>(
    last: &'a mut Option<Caller>,
    endpoint: &Endpoint,
    peer: PeerId,
    deadline: Option<Instant>,
) -> Option<&'a mut Caller> {
    if last.as_ref().is_none_or(|caller| caller.peer != peer) {
        let info = endpoint.peer_info(peer)?.clone();
        *last = Some(Caller { peer, info, deadline });
    }
    let caller = last.as_mut()?;
    caller.deadline = deadline;
    Some(caller)
}

fn panicked() -> Body {
    Reply::Fault(Fault::new("the handler panicked")).encode(None)
}
