//! Who called, and how it is answered later.

use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, Identity, Peer, PeerId, Waker};
use serde::Serialize;

use crate::{
    Cancellation, Fault,
    lock::lock,
    observed::ObservedRequest,
    reply::{Handling, Reply, encode_result},
    wire::Body,
};

/// Who called, as it has proven, and how long it waits.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) peer: PeerId,
    pub(crate) info: Arc<Peer>,
    pub(crate) deadline: Option<Instant>,
}

impl Caller {
    /// Where the caller is reached.
    pub fn address(&self) -> &Address {
        &self.info.address
    }

    /// Who the caller is in the job.
    pub fn identity(&self) -> Identity {
        self.info.identity
    }

    /// The name of the caller at this engine, for calls back.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// When the caller stops waiting, by this process's clock; `None` if it does not wait for an answer.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long the caller goes on waiting: the longest time-out that a nested call can use.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// The duty to answer a call, from any thread. Dropped without an answer it answers with a [`Fault`].
#[derive(Debug)]
pub struct Responder<O> {
    reply: Option<ReplyTo>,
    replies: Replies,
    cancellation: Cancellation,
    output: PhantomData<fn(O)>,
}

/// Where a reply goes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) peer: PeerId,
    pub(crate) tag: u64,
    /// Where the caller finds the call, if it came in a batch.
    pub(crate) index: Option<u32>,
    /// When the caller stops waiting, if a clock can show that.
    pub(crate) deadline: Option<Instant>,
    /// When handling began, if the caller wants to know how long it took.
    pub(crate) since: Option<Instant>,
    /// Origin and sequence of a call that runs at most once.
    pub(crate) once: Option<(u64, u64)>,
    /// The record of the call, if somebody looks at it.
    pub(crate) observed: Option<Box<ObservedRequest>>,
    /// The caller goes on without the reply, which may wait for other messages to it.
    pub(crate) may_wait: bool,
}

/// Replies on their way from responders to the engine, at most one for each responder.
#[derive(Clone)]
pub(crate) struct Replies(Arc<RepliesQueue>);

struct RepliesQueue {
    any: AtomicBool,
    replies: Mutex<Vec<(ReplyTo, Body)>>,
    waker: Waker,
}

impl<O: Serialize> Responder<O> {
    /// `reply` is `None` if the caller does not wait for an answer.
    pub(crate) fn new(reply: Option<ReplyTo>, replies: &Replies, cancellation: Cancellation) -> Self {
        Self {
            reply,
            replies: replies.clone(),
            cancellation,
            output: PhantomData,
        }
    }

    /// Answers the call. It is sent when the engine is driven next, which is woken for it.
    pub fn answer(mut self, result: Result<O, Fault>) {
        if let Some((reply, body)) = self.encode(&result) {
            self.replies.push(reply, body);
        }
    }

    /// Where the answer goes, and what it is.
    pub(crate) fn encode(&mut self, result: &Result<O, Fault>) -> Option<(ReplyTo, Body)> {
        let reply = self.reply.take()?;
        let mut body = Body::new();
        encode_result(result, reply.handling(), &mut body);
        Some((reply, body))
    }
}

impl<O> Responder<O> {
    /// Returns true if nobody waits for the answer any longer: the caller has cancelled the call, it is gone,
    /// or its deadline has passed. The engine has to be driven meanwhile to see that. A one-way request is
    /// never cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// A way to be told that nobody waits for the answer any longer.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }
}

impl<O> Drop for Responder<O> {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let fault = Fault::new("the target gave the call up without an answer");
            let body = Reply::Fault(fault).encode(reply.handling());
            self.replies.push(reply, body);
        }
    }
}

impl ReplyTo {
    /// To the call with this tag, without anything known of it.
    pub(crate) const fn plain(peer: PeerId, tag: u64) -> Self {
        Self {
            peer,
            tag,
            index: None,
            deadline: None,
            since: None,
            once: None,
            observed: None,
            may_wait: false,
        }
    }

    /// How long the call was handled by now, if the caller wants to know.
    pub(crate) fn handling(&self) -> Handling {
        self.since.map(|since| since.elapsed())
    }
}

impl Replies {
    pub(crate) fn new(waker: Waker) -> Self {
        Self(Arc::new(RepliesQueue {
            any: AtomicBool::new(false),
            replies: Mutex::default(),
            waker,
        }))
    }

    pub(crate) fn take(&self) -> Vec<(ReplyTo, Body)> {
        // What is pushed after this look wakes the engine, which looks again.
        if !self.0.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut replies = lock(&self.0.replies);
        self.0.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *replies)
    }

    fn push(&self, to: ReplyTo, body: Body) {
        let mut replies = lock(&self.0.replies);
        replies.push((to, body));
        self.0.any.store(true, Ordering::Release);
        drop(replies);
        self.0.waker.wake();
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}
