//! Records of single calls, kept while somebody looks at them: by traces, by procedure, or at the time of
//! one.

use std::time::{Duration, Instant};

use ropewalk_fabric::Address;
use tracing::{Span, debug_span, field, level_filters::LevelFilter};

use crate::{CallError, responder::ReplyTo, timing::CallTimes};

/// Returns true if somebody takes the traces of single calls: one relaxed load.
pub(crate) fn is_traced() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// A call that this engine made.
#[derive(Debug)]
pub(crate) struct ObservedCall {
    made: Instant,
    /// When it was handed to the fabric the last time.
    sent: Instant,
    span: Span,
}

/// A call that this engine handles.
#[derive(Clone, Debug)]
pub(crate) struct ObservedRequest {
    procedure: &'static str,
    since: Instant,
    /// Ends with the answer.
    _span: Span,
}

impl ObservedCall {
    pub(crate) fn new(procedure: &'static str, target: Option<&Address>) -> Box<Self> {
        let span = debug_span!(
            "call",
            procedure,
            target = target.map(field::display),
            handled_us = field::Empty,
            error = field::Empty
        );
        let now = Instant::now();
        Box::new(Self {
            made: now,
            sent: now,
            span,
        })
    }

    pub(crate) fn handle_sent(&mut self) {
        self.sent = Instant::now();
    }

    /// The call has failed, which ends its span.
    pub(crate) fn handle_failed(self, error: &CallError) {
        self.span.record("error", field::display(error));
    }

    /// The answer is here, after `handling` at the target if that was asked for. Returns how long the call took,
    /// and when what happened.
    pub(crate) fn handle_answered(self, handling: Option<Duration>) -> (Duration, Option<Box<CallTimes>>) {
        let answered = Instant::now();
        let times = handling.map(|handling| {
            let micros = u64::try_from(handling.as_micros()).unwrap_or(u64::MAX);
            self.span.record("handled_us", micros);
            Box::new(CallTimes {
                made: self.made,
                sent: self.sent,
                answered,
                handling,
            })
        });
        (answered - self.made, times)
    }
}

impl ObservedRequest {
    /// Returns the span in which the handler runs; if there is a reply to be given it ends with that.
    pub(crate) fn begin(procedure: &'static str, caller: &Address, reply: Option<&mut ReplyTo>) -> Span {
        let span = debug_span!("handle", procedure, caller = field::display(caller));
        if let Some(reply) = reply {
            reply.observed = Some(Box::new(Self {
                procedure,
                since: Instant::now(),
                _span: span.clone(),
            }));
        }
        span
    }

    /// The request is answered. Returns what it called, and how long that was handled.
    pub(crate) fn handle_answered(self) -> (&'static str, Duration) {
        (self.procedure, self.since.elapsed())
    }
}
