//! The calls of peers that an engine serves.

mod batch_replies;
mod replies;
mod requests;

use std::{
    any::Any,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Instant,
};

use ropewalk_fabric::{Endpoint, OperationId, PeerId, Waker};
use serde::Serialize;
use tracing::Span;

use self::batch_replies::BatchReplies;
use super::ground::Ground;
use crate::{
    Caller, Cancellation, EngineOptions, Fault, InProgress, Procedure, Responder,
    arrivals::Arrivals,
    deferred::Deferred,
    executed::Executed,
    observed::ObservedRequest,
    operations::Operations,
    outputs::Outputs,
    procedure::procedure_id,
    reply::{self, Reply, encode_result},
    responder::{Replies, ReplyTo},
    unsent::Unsent,
    wire::Body,
};

/// The procedures of an engine, and the requests that came for them. A handler of type `L` uses the engine, which runs
/// it.
pub(super) struct Serving<L> {
    procedures: Procedures<L>,
    /// The last caller, who often calls again.
    caller: Option<Caller>,
    arrivals: Arrivals<PeerId, OperationId>,
    /// The peers whose requests wait for the inputs that are pulled.
    inputs: Operations<PeerId>,
    executed: Executed<ReplyTo>,
    deferred: Deferred<PeerId>,
    replies: Replies,
    batch_replies: Option<BatchReplies>,
    outputs: Outputs<PeerId>,
    unsent: Unsent<PeerId>,
}

/// A request whose handler is to be run by the engine.
pub(super) struct Due<L> {
    pub(super) handler: L,
    pub(super) caller: Caller,
    pub(super) reply: Option<ReplyTo>,
    /// The span in which the handler runs, if somebody looks.
    pub(super) span: Option<Span>,
}

/// The procedures that are served, by the hashes of their names.
type Procedures<L> = HashMap<u64, Served<L>, BuildHasherDefault<Hashed>>;

struct Served<L> {
    name: &'static str,
    handler: Handler<L>,
    /// Its callers go on without the replies, which may wait for other messages to them.
    delays_replies: bool,
}

/// The code of a procedure, which takes the encoded input.
enum Handler<L> {
    /// Gives the reply at once, if one is wanted.
    Now(HandleNow),
    /// Gives it when it likes. Not here while it runs.
    Later(Option<L>),
}

/// The reply is put into the body, if one is wanted.
type HandleNow = Box<dyn FnMut(&Caller, Wanted, &[u8], &mut Body) + Send>;

/// The reply that the caller wants.
#[derive(Clone, Copy)]
enum Wanted {
    Nothing,
    Reply,
    /// One that says for how long the call was handled, which began then.
    TimedReply(Instant),
}

/// Takes a hash for what it is.
#[derive(Default)]
struct Hashed(u64);

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

impl<L> Serving<L> {
    pub(super) fn new(options: &EngineOptions, waker: Waker) -> Self {
        Self {
            procedures: HashMap::default(),
            caller: None,
            arrivals: Arrivals::new(options.arrivals_max, options.overflow_bytes_max),
            inputs: Operations::new(),
            executed: Executed::new(options.executed_max, options.executed_bytes_max),
            deferred: Deferred::new(options.calls_max, options.calls_per_peer_max),
            replies: Replies::new(waker),
            batch_replies: None,
            outputs: Outputs::new(options.overflow_bytes_max),
            unsent: Unsent::new(),
        }
    }

    /// Serves a procedure by a handler that answers at once.
    pub(super) fn serve<P: Procedure>(
        &mut self,
        delays_replies: bool,
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
        self.insert(P::NAME, Handler::Now(Box::new(handle)), delays_replies);
    }

    /// Serves a procedure by a handler that the engine runs.
    pub(super) fn serve_later<P: Procedure>(&mut self, handler: L) {
        self.insert(P::NAME, Handler::Later(Some(handler)), false);
    }

    /// Serves the procedure no longer. Returns whether it was served.
    pub(super) fn stop_serving<P: Procedure>(&mut self) -> bool {
        self.procedures.remove(&procedure_id(P::NAME)).is_some()
    }

    fn insert(&mut self, name: &'static str, handler: Handler<L>, delays_replies: bool) {
        let served = Served {
            name,
            handler,
            delays_replies,
        };
        if let Some(replaced) = self.procedures.insert(procedure_id(name), served) {
            assert!(
                replaced.name == name,
                "the names {:?} and {name:?} have the same hash: rename one",
                replaced.name
            );
        }
    }

    /// Runs a call with which there is nothing special, as most: only for such is it worth to spare each step. Returns
    /// false if it has to be run by [`run`](Self::run).
    pub(super) fn run_plain(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        tag: u64,
        deadline: Option<Instant>,
        procedure: u64,
        input: &[u8],
    ) -> bool {
        let to = || ReplyTo {
            deadline,
            ..ReplyTo::plain(from, tag)
        };
        let observing = ground.is_observing();
        let (
            Some(Served {
                handler: Handler::Now(handle),
                delays_replies,
                ..
            }),
            Some(caller),
            false,
        ) = (
            self.procedures.get_mut(&procedure),
            caller(&mut self.caller, &ground.endpoint, from, deadline),
            observing,
        )
        else {
            return false;
        };
        ground.metrics.requests.started += 1;
        let mut body = Body::new();
        let run = || handle(caller, Wanted::Reply, input, &mut body);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.reply(ground, to(), panicked());
            self.go_on_panicking(ground, panic);
        }
        if body.len() > ground.eager_size_max() {
            self.send_reply(ground, to(), body);
            return true;
        }
        reply::count(&body, &mut ground.metrics.requests.failures);
        let to = ReplyTo {
            may_wait: *delays_replies,
            ..to()
        };
        self.send_or_keep(ground, to, &mut body);
        true
    }

    /// Runs a procedure, and sends the reply if its handler gives one at once. A handler that uses the engine is given
    /// back for the engine to run.
    pub(super) fn run(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        deadline: Option<Instant>,
        procedure: u64,
        mut reply: Option<ReplyTo>,
        input: &[u8],
    ) -> Option<Due<L>> {
        let observing = ground.is_observing();
        let Some(served) = self.procedures.get_mut(&procedure) else {
            self.reply_unknown(ground, reply);
            return None;
        };
        ground.metrics.requests.started += 1;
        let caller = caller(&mut self.caller, &ground.endpoint, from, deadline)?;
        let span = observing.then(|| ObservedRequest::begin(served.name, caller.address(), reply.as_mut()));
        match &mut served.handler {
            Handler::Now(handle) => {
                let entered = span.as_ref().map(Span::enter);
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
                if let Some(mut reply) = reply {
                    reply.may_wait = served.delays_replies;
                    if result.is_err() {
                        body = panicked();
                    }
                    self.reply(ground, reply, body);
                }
                drop(entered);
                if let Err(panic) = result {
                    self.go_on_panicking(ground, panic);
                }
                None
            }
            Handler::Later(handler) => {
                let Some(handler) = handler.take() else {
                    self.reply_unknown(ground, reply);
                    return None;
                };
                Some(Due {
                    handler,
                    caller: caller.clone(),
                    reply,
                    span,
                })
            }
        }
    }

    /// Takes back a handler that has run, unless it has stopped or replaced its own procedure.
    pub(super) fn handle_ran(&mut self, procedure: u64, handler: L) {
        if let Some(served) = self.procedures.get_mut(&procedure)
            && let Handler::Later(none @ None) = &mut served.handler
        {
            *none = Some(handler);
        }
    }

    /// The duty to answer a call that its handler has taken; `None` if there are too many, of which the caller is told.
    pub(super) fn responder<O: Serialize>(
        &mut self,
        ground: &mut Ground,
        reply: Option<ReplyTo>,
    ) -> Option<Responder<O>> {
        let cancellation = self.defer(ground, reply.as_ref())?;
        Some(Responder::new(reply, &self.replies, cancellation))
    }

    /// Counts a call that its handler has taken; `None` if there are too many, of which the caller is told.
    fn defer(&mut self, ground: &mut Ground, reply: Option<&ReplyTo>) -> Option<Cancellation> {
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
                self.send_reply(ground, reply.clone(), body);
                None
            }
        }
    }

    /// The engine is whole; whether its owner goes on is for the owner to decide.
    pub(super) fn go_on_panicking(&mut self, ground: &mut Ground, panic: Box<dyn Any + Send>) -> ! {
        ground.driving = false;
        self.batch_replies = None;
        resume_unwind(panic);
    }

    /// Ends what a peer that is gone has asked for.
    pub(super) fn handle_peer_death(&mut self, ground: &mut Ground, peer: PeerId) {
        self.unsent.forget(peer);
        for transfer in self.arrivals.forget(peer) {
            self.inputs.remove(transfer);
            ground.endpoint.cancel(transfer);
        }
        for region in self.outputs.handle_peer_death(peer) {
            ground.withdraw_overflow(&region);
        }
        for cancellation in self.deferred.handle_peer_death(peer) {
            cancellation.cancel();
        }
        self.caller.take_if(|caller| caller.peer == peer);
    }

    /// When calls or outputs are given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.deferred.next_deadline(), self.outputs.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Gives up calls and outputs that nobody waits for any longer.
    pub(super) fn handle_deadlines(&mut self, ground: &mut Ground, now: Instant) {
        for cancellation in self.deferred.handle_deadlines(now) {
            cancellation.cancel();
        }
        for region in self.outputs.handle_deadlines(now) {
            ground.withdraw_overflow(&region);
        }
    }

    /// How much is in progress here.
    pub(super) fn in_progress(&self) -> InProgress {
        InProgress {
            operations: self.inputs.len(),
            deferred: self.deferred.len(),
            arrivals: self.arrivals.len(),
            unsent: self.unsent.len(),
            ..InProgress::default()
        }
    }

    /// True if outputs that are too large for a message are to be pulled still.
    pub(super) fn has_outputs(&self) -> bool {
        self.outputs.len() > 0
    }

    /// How many procedures are served.
    pub(super) fn procedures(&self) -> usize {
        self.procedures.len()
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
