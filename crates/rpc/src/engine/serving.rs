//! What an engine does as the target of calls.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use ropewalk_fabric::{Peer, SubmitError};

use crate::{
    Caller, Engine, Fault, Procedure, Responder,
    engine::Served,
    procedure::procedure_id,
    responder::ReplyTo,
    wire::{Reply, RequestHeader},
};

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
        self.insert(P::NAME, move |engine, caller, reply, input| {
            let result = match postcard::from_bytes(&input) {
                Ok(input) => handler(&caller, input).map_or_else(Reply::Fault, Reply::Output),
                Err(_) => Reply::InputMalformed,
            };
            if let Some(reply) = reply {
                engine.reply(reply, result.encode());
            }
        });
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
        self.insert(
            P::NAME,
            move |engine, caller, reply, input| match postcard::from_bytes(&input) {
                Ok(input) => {
                    let responder = Responder::new(reply, &engine.replies);
                    handler(engine, caller, input, responder);
                }
                Err(_) => {
                    if let Some(reply) = reply {
                        engine.reply(reply, Reply::<()>::InputMalformed.encode());
                    }
                }
            },
        );
    }

    /// Serves the procedure no longer. Returns whether it was served.
    pub fn stop_serving<P: Procedure>(&mut self) -> bool {
        self.procedures.remove(&procedure_id(P::NAME)).is_some()
    }

    fn insert(
        &mut self,
        name: &'static str,
        handler: impl FnMut(&mut Engine, Caller, Option<ReplyTo>, Bytes) + Send + 'static,
    ) {
        let served = Served {
            name,
            handler: Some(Box::new(handler)),
        };
        if let Some(replaced) = self.procedures.insert(procedure_id(name), served) {
            assert!(
                replaced.name == name,
                "the names {:?} and {name:?} have the same hash: rename one",
                replaced.name
            );
        }
    }

    pub(super) fn handle_request(&mut self, from: Arc<Peer>, tag: u64, message: Bytes) {
        // A member of the job that sends something else speaks another protocol; there is nobody to tell.
        let Some((header, input)) = RequestHeader::decode(message) else {
            return;
        };
        let deadline = header
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let reply = header.timeout.map(|_| ReplyTo {
            peer: from.address.clone(),
            tag,
            deadline,
        });
        let served = self.procedures.get_mut(&header.procedure);
        let Some(mut handler) = served.and_then(|served| served.handler.take()) else {
            if let Some(reply) = reply {
                self.reply(reply, Reply::<()>::UnknownProcedure.encode());
            }
            return;
        };
        let caller = Caller { peer: from, deadline };
        let handled = catch_unwind(AssertUnwindSafe(|| handler(self, caller, reply, input)));
        // Unless the handler stopped or replaced its own procedure.
        if let Some(served) = self.procedures.get_mut(&header.procedure)
            && served.handler.is_none()
        {
            served.handler = Some(handler);
        }
        // The engine is whole; whether its owner goes on is for the owner to decide.
        if let Err(panic) = handled {
            self.driving = false;
            resume_unwind(panic);
        }
    }

    /// Sends a reply, or keeps it until there is room for it. A caller that cannot be reached is gone.
    pub(super) fn reply(&mut self, to: ReplyTo, mut body: Bytes) {
        let (size, size_max) = (body.len(), self.endpoint.limits().message_size_max);
        if size > size_max {
            let fault = Fault::new(format_args!(
                "the output of {size} bytes is larger than a message may be, {size_max}; pass a region handle"
            ));
            body = Reply::<()>::Fault(fault).encode();
        }
        if !self.unsent.holds(&to.peer) {
            let sent = self.endpoint.answer_expected(&to.peer, to.tag, body.clone());
            if !matches!(sent, Err(SubmitError::Busy { .. })) {
                return;
            }
        }
        self.unsent.push(to, body);
    }
}
