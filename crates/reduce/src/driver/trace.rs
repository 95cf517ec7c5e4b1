//! The trace events of a rank, for those who watch the job.

use std::sync::Arc;

use ropewalk_fabric::{AgentLink, Progress, SpanKind, ToAgent, TraceEvent};

/// Sends trace events to the agent. Watching must not disturb: what the agent does not take is dropped.
#[derive(Clone, Debug)]
pub(super) struct Tracer {
    link: Option<Arc<AgentLink>>,
    is_detailed: bool,
}

impl Tracer {
    /// The environment variable that asks, if it is `1`, for what the library does by itself: a mark of each call, the
    /// progress of each result, and a span of every merge. Each is a message to the agent, and on to the launcher.
    const VARIABLE: &str = "ROPEWALK_TRACE";

    pub(super) fn new(link: Option<Arc<AgentLink>>) -> Self {
        let is_detailed = std::env::var_os(Self::VARIABLE).is_some_and(|value| value == "1");
        Self { link, is_detailed }
    }

    pub(super) fn send(&self, event: TraceEvent) {
        if let Some(link) = &self.link {
            let _ = link.send(&ToAgent::Trace(event), None);
        }
    }

    pub(super) fn mark(&self, label: &str) {
        self.send(TraceEvent::Mark {
            label: label.to_owned(),
            at_ns: now_ns(),
        });
    }

    /// A call that has contributed, if such marks are wanted.
    pub(super) fn mark_contribution(&self) {
        if self.is_detailed {
            self.mark("contributed");
        }
    }

    pub(super) fn progress(&self, label: &str, done: u64, total: u64) {
        self.send(TraceEvent::Progress(Progress {
            label: label.to_owned(),
            done,
            total,
        }));
    }

    /// Says if what the library does by itself is wanted.
    pub(super) fn is_detailed(&self) -> bool {
        self.is_detailed
    }

    /// A span of the reduction itself, if these are wanted.
    pub(super) fn detail(&self, kind: SpanKind, start_ns: u64, label: impl FnOnce() -> String) {
        if self.is_detailed {
            self.send(TraceEvent::Span {
                kind,
                label: label(),
                start_ns,
                end_ns: now_ns(),
            });
        }
    }
}

/// Nanoseconds of this host's `CLOCK_MONOTONIC`.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
