//! The context of a call, for its asynchronous handler.

use std::time::{Duration, Instant};

use ropewalk_fabric::Address;

use crate::{CallOptions, Caller, Handle, HandleCall, Procedure};

/// The call that an asynchronous handler handles: who made it, how long it may take, and the engine.
#[derive(Clone, Debug)]
pub struct CallContext {
    caller: Caller,
    handle: Handle,
}

impl CallContext {
    pub(crate) fn new(caller: Caller, handle: Handle) -> Self {
        Self { caller, handle }
    }

    /// Who called, as it has proven.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// When the caller stops waiting, by this process's clock: the handler is dropped then. `None` if it
    /// does not wait for an answer.
    pub fn deadline(&self) -> Option<Instant> {
        self.caller.deadline()
    }

    /// How long the caller goes on waiting.
    pub fn remaining(&self) -> Option<Duration> {
        self.caller.remaining()
    }

    /// The engine that handles the call. What is called by it knows nothing of the deadline; see
    /// [`call`](Self::call).
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A nested call, which takes no longer than the caller waits, nor than its own time-out, and is cancelled when
    /// the handler is dropped.
    pub fn call<P>(
        &self,
        target: &Address,
        input: P::Input,
        options: impl Into<CallOptions>,
    ) -> HandleCall<P::Output>
    where
        P: Procedure<Input: Send + 'static, Output: Send + 'static> + 'static,
    {
        let mut options = options.into();
        if let Some(left) = self.remaining() {
            options.timeout = options.timeout.min(left);
        }
        self.handle.call::<P>(target, input, options)
    }
}
