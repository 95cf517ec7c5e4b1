//! The way of events from the launcher's thread to whoever takes them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use ropewalk_fabric::TraceEvent;
use ropewalk_launch_core::{JobEvent, JobSpec, OutputStream, group_plan::GroupPlan, protocol::Plan};
use ropewalk_names::Rank;

use super::launch_error::LaunchError;

/// One thing that whoever takes events gets.
#[derive(Debug)]
pub(super) enum Delivery {
    /// All that follows is about this attempt.
    Began {
        attempt: u32,
        plan: Arc<Plan>,
    },
    Event(JobEvent),
    Failed(LaunchError),
    /// There are ranks of a further process group from now on.
    Group(Arc<GroupPlan>),
    Output {
        rank: Rank,
        stream: OutputStream,
        lines: Vec<u8>,
    },
}

/// The launcher's thread's end. It never waits: agents want to be answered. The credit of the agents limits output, and
/// [`Backlog`] limits all else.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    deliveries: mpsc::Sender<Vec<Delivery>>,
    backlog: Arc<Backlog>,
}

/// The taker's end.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) deliveries: mpsc::Receiver<Vec<Delivery>>,
    backlog: Arc<Backlog>,
}

/// The events that wait to be taken.
#[derive(Debug, Default)]
struct Backlog {
    events: AtomicUsize,
    trace_bytes: AtomicUsize,
}

impl Backlog {
    /// How many events may wait; a job of which more do is ended. Every rank may start, end, and do so once more.
    const EVENTS_MAX: usize = 4 * JobSpec::RANKS_MAX as usize;
    /// How many may wait before those are dropped of which a program makes any number.
    const NEWS_MAX: usize = 1 << 16;
    /// How many bytes of trace events may wait, about; more are dropped.
    const TRACE_BYTES_MAX: usize = 16 << 20;

    /// Counts an event in, if there is room for it.
    fn admit(&self, event: &JobEvent) -> bool {
        let is_news = matches!(
            event,
            JobEvent::Bound { .. }
                | JobEvent::Continued { .. }
                | JobEvent::FenceBegan { .. }
                | JobEvent::FenceEnded { .. }
                | JobEvent::NameServerFailed { .. }
                | JobEvent::Notice { .. }
                | JobEvent::Overwritten { .. }
                | JobEvent::Stopped { .. }
        );
        if is_news && self.events.load(Ordering::Relaxed) >= Self::NEWS_MAX {
            return false;
        }
        if let JobEvent::Trace { event, .. } = event {
            let size = trace_size(event);
            if self.trace_bytes.load(Ordering::Relaxed) + size > Self::TRACE_BYTES_MAX {
                return false;
            }
            self.trace_bytes.fetch_add(size, Ordering::Relaxed);
        }
        self.events.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self, event: &JobEvent) {
        self.events.fetch_sub(1, Ordering::Relaxed);
        if let JobEvent::Trace { event, .. } = event {
            self.trace_bytes.fetch_sub(trace_size(event), Ordering::Relaxed);
        }
    }
}

/// Both ends.
pub(super) fn deliveries() -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::channel();
    let backlog = Arc::<Backlog>::default();
    let sender = Sender {
        deliveries: sender,
        backlog: backlog.clone(),
    };
    let receiver = Receiver {
        deliveries: receiver,
        backlog,
    };
    (sender, receiver)
}

impl Sender {
    /// The event as something to be delivered, unless it is to be dropped.
    pub(super) fn admit(&self, event: JobEvent) -> Option<Delivery> {
        self.backlog.admit(&event).then_some(Delivery::Event(event))
    }

    /// Nobody takes events, and there are too many.
    pub(super) fn is_overrun(&self) -> bool {
        self.backlog.events.load(Ordering::Relaxed) > Backlog::EVENTS_MAX
    }

    pub(super) fn send(&self, deliveries: Vec<Delivery>) {
        // Nobody may be there to take them.
        let _ = self.deliveries.send(deliveries);
    }
}

impl Receiver {
    /// Makes room: the event is taken.
    pub(super) fn release(&self, event: &JobEvent) {
        self.backlog.release(event);
    }
}

/// The memory that an event takes while it waits, about.
fn trace_size(event: &TraceEvent) -> usize {
    let label = match event {
        TraceEvent::Counters(_) => "",
        TraceEvent::Progress(progress) => &progress.label,
        TraceEvent::Span { label, .. } | TraceEvent::Mark { label, .. } => label,
    };
    size_of::<Delivery>() + label.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence() -> JobEvent {
        JobEvent::FenceBegan {
            group: 0,
            fence: "WORLD".to_owned(),
        }
    }

    /// Fences that nobody takes notice of are dropped from some number on, and told again once there is room. A start
    /// is told in any case.
    #[test]
    fn news_that_nobody_takes_are_dropped() {
        let (sender, receiver) = deliveries();
        for _ in 0..Backlog::NEWS_MAX {
            assert!(sender.admit(fence()).is_some());
        }
        assert!(sender.admit(fence()).is_none());
        let rank = Rank(0);
        assert!(sender.admit(JobEvent::Started { rank, pid: 1 }).is_some());
        for _ in 0..2 {
            receiver.release(&fence());
        }
        assert!(sender.admit(fence()).is_some());
        assert!(sender.admit(fence()).is_none());
    }

    /// A job is ended whose events are never taken, and not one whose ranks all started and ended.
    #[test]
    fn too_many_events_overrun() {
        let (sender, receiver) = deliveries();
        let start = JobEvent::Started {
            rank: Rank(0),
            pid: 1,
        };
        for _ in 0..Backlog::EVENTS_MAX {
            assert!(sender.backlog.admit(&start));
        }
        assert!(Backlog::EVENTS_MAX > 2 * JobSpec::RANKS_MAX as usize && !sender.is_overrun());
        assert!(sender.backlog.admit(&start) && sender.is_overrun());
        receiver.release(&start);
        assert!(!sender.is_overrun());
    }
}
