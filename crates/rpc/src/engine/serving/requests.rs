//! The requests of peers until their procedures run: inputs that are pulled, the order of arrival, calls that run at
//! most once.

use std::time::{Duration, Instant};

use ropewalk_fabric::{Buffer, Completion, OperationError, OperationId, PeerId, RegionHandle};

use super::Serving;
use crate::{
    BusyReason,
    arrivals::Arrived,
    engine::ground::Ground,
    executed::Arrival,
    reply::Reply,
    responder::ReplyTo,
    wire::{Flags, Once, Remote, Request},
};

impl<L> Serving<L> {
    /// True if requests of this peer wait for inputs, so that later ones wait behind them.
    pub(in crate::engine) fn holds(&self, from: PeerId) -> bool {
        self.arrivals.holds(from)
    }

    /// The next request of this peer that waits for no input any longer.
    pub(in crate::engine) fn pop_ready(&mut self, from: PeerId) -> Option<Arrived> {
        self.arrivals.pop_ready(from)
    }

    /// Keeps a request behind those of its peer that wait.
    pub(in crate::engine) fn wait_behind(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        arrived: Arrived,
        request: &Request<'_>,
    ) {
        match self.arrivals.check_room(0) {
            Ok(()) => self.arrivals.push(from, arrived, None, 0),
            Err(_) if request.header.flags.has(Flags::ONE_WAY) => {
                self.refuse_notification(ground, from, request.header.procedure);
            }
            Err(reason) => self.refuse(ground, from, arrived.tag, request, &Reply::Busy(reason)),
        }
    }

    /// A transfer has ended. Returns the peer whose request the input was for.
    pub(in crate::engine) fn handle_ended(
        &mut self,
        transfer: OperationId,
        result: Result<Completion, OperationError>,
    ) -> Option<PeerId> {
        let from = self.inputs.remove(transfer)?;
        match result {
            Ok(Completion::Got(input)) => self.arrivals.handle_pulled(from, transfer, input),
            // Only a caller that waits no longer takes its memory away.
            Err(_) => drop(self.arrivals.handle_failed(from, transfer)),
            Ok(completion) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
        Some(from)
    }

    /// Looks up a call that runs at most once. Returns where the reply goes if the call is to be run.
    pub(in crate::engine) fn check_once(
        &mut self,
        ground: &mut Ground,
        mut reply: ReplyTo,
        at: Instant,
        timeout: Duration,
        once: Once,
    ) -> Option<ReplyTo> {
        reply.once = Some((once.origin, once.sequence));
        if once.target != 0 && once.target != ground.endpoint.instance() {
            self.send_reply(ground, reply, Reply::OtherInstance.encode(None));
            return None;
        }
        let answer = match self.executed.handle_request(at, timeout, once, reply.clone()) {
            Arrival::New => return Some(reply),
            Arrival::InProgress | Arrival::Obsolete => return None,
            Arrival::Answered(body) => body,
            Arrival::Forgotten => Reply::OutputForgotten.encode(None),
            Arrival::Full => Reply::Busy(BusyReason::Executed).encode(None),
        };
        self.send_reply(ground, reply, answer);
        None
    }

    /// Pulls the input of a request; behind it the later ones of this peer wait.
    pub(in crate::engine) fn pull_input(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        request: Arrived,
        place: Remote,
        timeout: Duration,
    ) {
        let size_max = ground.options.overflow_size_max;
        let refused = if place.length > size_max {
            Some(Reply::InputTooLarge { size_max })
        } else {
            let room = self.arrivals.check_room(place.length);
            room.err().map(Reply::Busy)
        };
        let reply_to = ReplyTo::plain(from, request.tag);
        if let Some(refused) = refused {
            return self.send_reply(ground, reply_to, refused.encode(None));
        }
        let region = RegionHandle {
            address: ground.address_of(from),
            region: place.region,
            token: place.token,
            length: place.length,
            writable: false,
        };
        // It is at most `overflow_size_max`.
        let into = Buffer::zeroed(place.length as usize);
        match ground.endpoint.get(&region, 0, into, timeout) {
            Ok(transfer) => {
                self.arrivals.push(from, request, Some(transfer), place.length);
                self.inputs.insert(transfer, from);
            }
            Err(_) => self.send_reply(ground, reply_to, Reply::Busy(BusyReason::Inputs).encode(None)),
        }
    }

    /// The origin waits no longer for a call, or has its output.
    pub(in crate::engine) fn handle_cancel(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        tag: u64,
        once: Option<Once>,
    ) {
        if let Some(region) = self.outputs.remove(from, tag) {
            ground.withdraw_overflow(&region);
        }
        let begun_by = once.and_then(|once| self.executed.begun_by(once.origin, once.sequence));
        let (began, first) = begun_by.map_or((from, tag), |first| (first.peer, first.tag));
        if let Some(cancellation) = self.deferred.cancel(began, first) {
            cancellation.cancel();
        }
        if let Some(transfer) = self.arrivals.cancel(from, tag) {
            self.inputs.remove(transfer);
            ground.endpoint.cancel(transfer);
        }
    }

    /// Tells the caller that its notification is not handled. There is nobody who waits for that, so both sides
    /// count it.
    pub(in crate::engine) fn refuse_notification(
        &mut self,
        ground: &mut Ground,
        from: PeerId,
        procedure: u64,
    ) {
        ground.metrics.requests.failures.busy += 1;
        let refusal = Request::refusal(procedure);
        ground.metrics.message_bytes.sent += refusal.len() as u64;
        // Without room for it the caller reads nothing, and will not know.
        let _ = ground.endpoint.send_unexpected(from, 0, refusal);
        ground.told = true;
    }
}
