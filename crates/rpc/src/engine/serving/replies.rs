//! The replies to requests: sent, kept until there is room, or exposed.

use ropewalk_fabric::{PeerId, SubmitError};

use super::{BatchReplies, Serving};
use crate::{
    engine::ground::{Ground, remote},
    observed::ObservedRequest,
    reply::{self, Reply},
    responder::ReplyTo,
    wire::{BatchedCall, Body, Payload, Request},
};

impl<L> Serving<L> {
    /// Sends the replies that responders have given, and those that there is room for now. Returns how many.
    pub(in crate::engine) fn progress(&mut self, ground: &mut Ground) -> usize {
        let mut happened = 0;
        for (to, body) in self.replies.take() {
            happened += 1;
            self.answer(ground, to, body);
        }
        if !self.unsent.is_empty() {
            let now = ground.now();
            let endpoint = &mut ground.endpoint;
            happened += self.unsent.send(now, |caller, tag, body| {
                let sent = endpoint.send_reply(caller, tag, body);
                !matches!(sent, Err(SubmitError::Busy { .. }))
            });
        }
        happened
    }

    /// Answers a call that its handler has taken.
    pub(in crate::engine) fn answer(&mut self, ground: &mut Ground, to: ReplyTo, body: Body) {
        if self.deferred.end(to.peer, to.tag) {
            ground.metrics.requests.failures.cancelled += 1;
            // Nobody waits for it, unless it may be asked for again.
            if to.once.is_none() {
                return;
            }
        }
        self.reply(ground, to, body);
    }

    /// Begins to collect the replies to the calls of a batch.
    pub(in crate::engine) fn begin_batch(&mut self, from: PeerId) {
        self.batch_replies = Some(BatchReplies::new(from));
    }

    /// Sends together what the calls of a batch were answered at once.
    pub(in crate::engine) fn end_batch(&mut self, ground: &mut Ground) {
        if let Some(mut batch) = self.batch_replies.take()
            && let Some((first, body)) = batch.take()
        {
            self.send_or_keep(ground, first, &mut { body });
        }
    }

    /// Gives the same answer to all calls of a batch.
    pub(super) fn refuse_batch(
        &mut self,
        ground: &mut Ground,
        to: ReplyTo,
        mut calls: &[u8],
        reply: &Reply<'_>,
    ) {
        while let Some(call) = BatchedCall::decode_next(&mut calls) {
            let to = ReplyTo {
                deadline: to.deadline,
                ..ReplyTo::plain(to.peer, call.slot.tag)
            };
            self.send_or_keep(ground, to, &mut reply.encode(None));
        }
    }

    /// Answers a request, or all of a batch, without running it.
    pub(super) fn refuse(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        tag: u64,
        request: &Request<'_>,
        reply: &Reply<'_>,
    ) {
        let to = ReplyTo::plain(from, tag);
        match request.payload {
            Payload::Batch(calls) => self.refuse_batch(ground, to, calls, reply),
            _ => self.send_reply(ground, to, reply.encode(None)),
        }
    }

    pub(super) fn reply_unknown(&mut self, ground: &mut Ground, reply: Option<ReplyTo>) {
        match reply {
            Some(reply) => {
                let body = Reply::UnknownProcedure.encode(reply.handling());
                self.reply(ground, reply, body);
            }
            None => ground.metrics.requests.failures.unknown_procedure += 1,
        }
    }

    /// Answers a call that was handled.
    pub(in crate::engine) fn reply(&mut self, ground: &mut Ground, mut to: ReplyTo, body: Body) {
        if let Some(observed) = to.observed.take() {
            self.handle_request_answered(ground, *observed);
        }
        let may_wait = to.may_wait;
        let to = match to.once {
            None => to,
            // By now it may be asked for elsewhere, or no longer.
            Some((origin, sequence)) => match self.executed.handle_reply(origin, sequence, &body) {
                Some(to) => to,
                None => return,
            },
        };
        self.send_reply(ground, ReplyTo { may_wait, ..to }, body);
    }

    /// Sends a reply, or keeps it until there is room for it. A caller that cannot be reached is gone.
    pub(in crate::engine) fn send_reply(&mut self, ground: &mut Ground, to: ReplyTo, mut body: Body) {
        reply::count(&body, &mut ground.metrics.requests.failures);
        if body.len() > ground.eager_size_max() {
            body = self.expose_output(ground, &to, body);
        }
        if let Some(index) = to.index
            && let Some(batch) = &mut self.batch_replies
            && batch.is_for(to.peer)
        {
            let full = batch.push(&to, index, &body, ground.options.eager_size_max);
            if let Some((tag, full)) = full {
                self.send_or_keep(ground, ReplyTo { tag, ..to }, &mut { full });
            }
            return;
        }
        self.send_or_keep(ground, to, &mut body);
    }

    pub(super) fn send_or_keep(&mut self, ground: &mut Ground, to: ReplyTo, body: &mut Body) {
        let ReplyTo {
            peer,
            tag,
            deadline,
            may_wait,
            ..
        } = to;
        ground.metrics.message_bytes.sent += body.len() as u64;
        if self.unsent.is_empty() || !self.unsent.holds(peer) {
            let endpoint = &mut ground.endpoint;
            let sent = match may_wait {
                true => endpoint.send_delayed_reply(peer, tag, body),
                false => endpoint.send_reply(peer, tag, body),
            };
            match sent {
                Ok(()) => return,
                Err(SubmitError::Busy { .. }) => {}
                Err(_) => {
                    if let Some(region) = self.outputs.remove(peer, tag) {
                        ground.withdraw_overflow(&region);
                    }
                    return;
                }
            }
        }
        self.unsent.push(peer, tag, deadline, std::mem::take(body));
    }

    /// Exposes a reply that is too large for a message. Returns what to send instead.
    pub(super) fn expose_output(&mut self, ground: &mut Ground, to: &ReplyTo, reply: Body) -> Body {
        let size = reply.len() as u64;
        if let Err(reason) = self.outputs.check_room(size) {
            return Reply::Busy(reason).encode(to.handling());
        }
        let region = ground.expose_overflow(reply.into_bytes());
        let instead = Reply::RemoteOutput(remote(&region)).encode(None);
        let deadline = to.deadline;
        if let Some(replaced) = self.outputs.insert(to.peer, to.tag, region, deadline) {
            ground.withdraw_overflow(&replaced);
        }
        instead
    }

    /// A request is answered that is looked at.
    pub(super) fn handle_request_answered(&mut self, ground: &mut Ground, observed: ObservedRequest) {
        let (procedure, took) = observed.handle_answered();
        if ground.counts_procedures {
            ground.metrics.record_request(procedure, took);
        }
    }
}
