//! Who called, and how it is answered later.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, Identity, Peer, Waker};
use serde::Serialize;

use crate::{Fault, call::lock, wire::Reply};

/// Who called, as it has proven, and how long it waits.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) peer: Arc<Peer>,
    pub(crate) deadline: Option<Instant>,
}

impl Caller {
    /// Where the caller is reached.
    pub fn address(&self) -> &Address {
        &self.peer.address
    }

    /// Who the caller is in the job.
    pub fn identity(&self) -> Identity {
        self.peer.identity
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
    output: PhantomData<fn(O)>,
}

/// Where a reply goes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) peer: Address,
    pub(crate) tag: u64,
    /// When the caller stops waiting, if a clock can show that.
    pub(crate) deadline: Option<Instant>,
}

/// Replies on their way from responders to the engine, at most one for each responder.
#[derive(Clone)]
pub(crate) struct Replies {
    queue: Arc<Mutex<Vec<(ReplyTo, Bytes)>>>,
    waker: Waker,
}

impl<O: Serialize> Responder<O> {
    /// `reply` is `None` if the caller does not wait for an answer.
    pub(crate) fn new(reply: Option<ReplyTo>, replies: &Replies) -> Self {
        Self {
            reply,
            replies: replies.clone(),
            output: PhantomData,
        }
    }

    /// Answers the call. It is sent when the engine is driven next, which is woken for it.
    pub fn answer(mut self, result: Result<O, Fault>) {
        if let Some(reply) = self.reply.take() {
            let result = result.map_or_else(Reply::Fault, Reply::Output);
            self.replies.push(reply, result.encode());
        }
    }
}

impl<O> Drop for Responder<O> {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let fault = Fault::new("the target gave the call up without an answer");
            self.replies.push(reply, Reply::<()>::Fault(fault).encode());
        }
    }
}

impl Replies {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            queue: Arc::default(),
            waker,
        }
    }

    pub(crate) fn take(&self) -> Vec<(ReplyTo, Bytes)> {
        std::mem::take(&mut *lock(&self.queue))
    }

    fn push(&self, to: ReplyTo, body: Bytes) {
        lock(&self.queue).push((to, body));
        self.waker.wake();
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}
