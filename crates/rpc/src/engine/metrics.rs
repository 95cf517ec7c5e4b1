//! What an engine counts, and how single calls are looked at.

use ropewalk_fabric::{Completion, OperationError, PeerId};

use crate::{
    CallError, CallOptions, Engine, Metrics,
    call::Answer,
    observed::{ObservedCall, ObservedRequest, is_traced},
    reply,
};

impl Engine {
    /// What the engine has done so far, and is doing.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            calls_in_progress: self.metrics.calls - self.calls_ended,
            requests_in_progress: self.deferred.len() as u64,
            replies_waiting: self.unsent.len() as u64,
            heartbeats: self.endpoint.heartbeat_counts(),
            tasks: self.guests.tasks() as u64,
            ..self.metrics.clone()
        }
    }

    /// Whether to count for each procedure, too, and how long its calls take: two looks at the clock for each
    /// call and each request. Without that, as at first, counting costs next to nothing.
    pub fn count_procedures(&mut self, count: bool) {
        self.counts_procedures = count;
    }

    /// Whether somebody looks at single calls and requests.
    pub(super) fn is_observing(&self) -> bool {
        self.counts_procedures || is_traced()
    }

    /// What to keep of a call that is made now.
    pub(super) fn observe_call(
        &self,
        procedure: &'static str,
        target: PeerId,
        options: &CallOptions,
    ) -> Option<Box<ObservedCall>> {
        let wanted = options.timing || self.is_observing();
        wanted.then(|| ObservedCall::new(procedure, self.endpoint.peer_address(target)))
    }

    /// A call has ended: with this result, or because nobody waits for it any longer.
    pub(super) fn handle_call_ended(
        &mut self,
        procedure: &'static str,
        observed: Option<Box<ObservedCall>>,
        result: Option<&mut Result<Answer, CallError>>,
    ) {
        self.calls_ended += 1;
        let counted = match (result, observed) {
            (Some(Ok(_)), None) => return,
            (Some(Ok(answer)), Some(observed)) => {
                let took;
                (took, answer.times) = observed.handle_answered(answer.handling);
                Ok(took)
            }
            (Some(Err(error)), observed) => {
                self.metrics.call_failures.record(error);
                if let Some(observed) = observed {
                    observed.handle_failed(error);
                }
                Err(())
            }
            (None, _) => {
                self.metrics.call_failures.cancelled += 1;
                Err(())
            }
        };
        if self.counts_procedures {
            self.metrics.record_call(procedure, counted);
        }
    }

    /// The target of a notification has pulled its input, or has not.
    pub(super) fn handle_notification_ended(&mut self, result: &Result<Completion, OperationError>) {
        let failures = &mut self.metrics.notification_failures;
        match result {
            Ok(Completion::Received(reply)) => reply::count(reply, failures),
            Ok(_) => {}
            Err(OperationError::PeerDied { .. }) => failures.peer_died += 1,
            Err(OperationError::TimedOut { .. }) => failures.timed_out += 1,
            Err(_) => failures.other += 1,
        }
    }

    /// A request is answered that is looked at.
    pub(super) fn handle_request_answered(&mut self, observed: ObservedRequest) {
        let (procedure, took) = observed.handle_answered();
        if self.counts_procedures {
            self.metrics.record_request(procedure, took);
        }
    }
}
