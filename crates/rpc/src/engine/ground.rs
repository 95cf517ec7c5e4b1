//! The ground on which calls, serving and bulk transfers of an engine stand: its endpoint, limits and counters.

use std::time::Instant;

use bytes::Bytes;
use ropewalk_fabric::{Address, Endpoint, PeerId, RegionHandle};

use crate::{
    CallOptions, EngineOptions, Metrics,
    observed::{ObservedCall, is_traced},
    promise::Abandoned,
    wire::{Body, Once, Remote, Request},
};

/// The state that all parts of an engine use.
pub(super) struct Ground {
    pub(super) endpoint: Endpoint,
    pub(super) options: EngineOptions,
    pub(super) abandoned: Abandoned,
    pub(super) metrics: Metrics,
    pub(super) counts_procedures: bool,
    /// True while the engine makes progress.
    pub(super) driving: bool,
    /// True if a target was told something that it waits for, and that the owner may not wait for.
    pub(super) told: bool,
    /// Regions with inputs and outputs that others are to pull.
    pub(super) overflow_regions: usize,
}

impl Ground {
    pub(super) fn new(endpoint: Endpoint, options: EngineOptions) -> Self {
        Self {
            abandoned: Abandoned::new(endpoint.waker()),
            endpoint,
            options,
            metrics: Metrics::default(),
            counts_procedures: false,
            driving: false,
            told: false,
            overflow_regions: 0,
        }
    }

    /// The time, looked at once in each round of progress.
    pub(super) fn now(&self) -> Instant {
        match self.driving {
            true => self.endpoint.now(),
            false => Instant::now(),
        }
    }

    /// The largest input or output that travels in a message.
    pub(super) fn eager_size_max(&self) -> usize {
        let room = self.endpoint.message_size_max().saturating_sub(HEADERS_SIZE_MAX);
        self.options.eager_size_max.min(room)
    }

    /// The address of a peer that has answered, or was called.
    pub(super) fn address_of(&self, peer: PeerId) -> Address {
        let address = self.endpoint.peer_address(peer);
        address
            .expect("the peer is connected while its messages are handled")
            .clone()
    }

    /// Exposes the input of a request, which begins at `head`. Returns the request to send instead.
    pub(super) fn expose_input(&mut self, request: Body, head: usize) -> (Body, RegionHandle) {
        let request = request.into_bytes();
        let region = self.expose_overflow(request.slice(head..));
        let remote = Request::with_remote_input(&request, head, remote(&region));
        (remote, region)
    }

    pub(super) fn expose_overflow(&mut self, bytes: Bytes) -> RegionHandle {
        self.overflow_regions += 1;
        self.endpoint.expose(bytes)
    }

    /// Ends the exposure of an input or output.
    pub(super) fn withdraw_overflow(&mut self, region: &RegionHandle) {
        let withdrawn = self.endpoint.withdraw(region);
        assert!(
            withdrawn.is_some(),
            "an input or output is withdrawn once: {region:?}"
        );
        self.overflow_regions -= 1;
    }

    /// Tells the target that nobody waits for the call any longer, or that its output was pulled.
    pub(super) fn tell_cancelled(&mut self, peer: PeerId, tag: u64) {
        self.tell_cancelled_once(peer, tag, None);
    }

    /// As [`tell_cancelled`](Self::tell_cancelled), of a call that an earlier attempt may have begun.
    pub(super) fn tell_cancelled_once(&mut self, peer: PeerId, tag: u64, once: Option<&Once>) {
        // A target that has no room for this, or is gone, has the deadline of the call.
        let cancellation = Request::cancellation(once);
        self.metrics.message_bytes.sent += cancellation.len() as u64;
        let _ = self.endpoint.send_unexpected(peer, tag, cancellation);
        self.told = true;
    }

    /// True if somebody looks at single calls and requests.
    pub(super) fn is_observing(&self) -> bool {
        self.counts_procedures || is_traced()
    }

    /// The record of a call that is made now, if somebody looks at it.
    pub(super) fn observe_call(
        &self,
        procedure: &'static str,
        target: PeerId,
        options: &CallOptions,
    ) -> Option<Box<ObservedCall>> {
        let wanted = options.timing || self.is_observing();
        wanted.then(|| ObservedCall::new(procedure, self.endpoint.peer_address(target)))
    }
}

/// Where the region is, for the one that has it from us.
pub(super) fn remote(region: &RegionHandle) -> Remote {
    Remote {
        region: region.region,
        token: region.token,
        length: region.length,
    }
}

/// The headers of a message take fewer bytes than this.
const HEADERS_SIZE_MAX: usize = 64;
