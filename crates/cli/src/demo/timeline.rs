//! The time line of a run as SVG.

use std::{fmt::Write, time::Duration};

use ropewalk_fabric::{SpanKind, TraceEvent};
use ropewalk_names::Rank;
use ropewalk_plot::escaped;

use super::{
    super::page::{TimeAxis, begin_drawing},
    watched_run::WatchedRun,
};

/// A part of a run: from when to when, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

impl Window {
    /// The whole of a run.
    pub(super) fn whole(run: &WatchedRun) -> Option<Self> {
        let spans = || run.traces.iter().filter_map(|(_, event)| span_of(event));
        Some(Self {
            start_ns: spans().map(|span| span.0).min()?,
            end_ns: spans().map(|span| span.1).max()?,
        })
    }

    /// The reduction with a little around it.
    pub(super) fn reduction(run: &WatchedRun) -> Option<Self> {
        let (start, end) = run.reduction_span()?;
        let margin = end.saturating_sub(start) / 20;
        Some(Self {
            start_ns: start.saturating_sub(margin),
            end_ns: end + margin,
        })
    }

    fn x(self, at_ns: u64) -> f64 {
        self.axis().x(self.since_start(at_ns))
    }

    fn bar(self, start_ns: u64, end_ns: u64) -> (f64, f64) {
        self.axis()
            .bar(self.since_start(start_ns), self.since_start(end_ns))
    }

    fn since_start(self, at_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.clamp(self.start_ns, self.end_ns) - self.start_ns)
    }

    fn axis(self) -> TimeAxis {
        TimeAxis {
            length: Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns)),
        }
    }
}

/// One lane per rank, a box per span, a mark per death.
pub(super) fn draw(run: &WatchedRun, workers: u32, window: Window) -> String {
    let height = AXIS + LANE * f64::from(workers);
    let mut svg = begin_drawing(height);
    for rank in (0..workers).map(Rank) {
        let (name, end) = (lane(rank) + 13.0, lane(rank) + LANE - 1.0);
        let deaths = run.deaths.iter().filter(|death| death.rank == rank);
        let deaths: Vec<_> = deaths
            .map(|death| {
                let cause = escaped(&death.cause.to_string());
                format!(" <tspan class=\"death\">✝ {cause}</tspan>")
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{name}\">rank {rank}{}</text>\
             <line class=\"lane\" x1=\"0\" x2=\"100%\" y1=\"{end}\" y2=\"{end}\"/>",
            deaths.concat()
        );
    }
    for (rank, event) in &run.traces {
        let Some((start, end, kind, label)) = span_of(event) else {
            continue;
        };
        if end < window.start_ns || start > window.end_ns {
            continue;
        }
        let (x, width) = window.bar(start, end);
        // A pull goes on beside merges, and a call beside both, so these stand below them, half as high.
        let (offset, height) = match kind {
            SpanKind::Call | SpanKind::Pull => (NAME + 16.0, 10.0),
            _ => (NAME, 15.0),
        };
        let (y, class) = (lane(*rank) + offset, class_of(kind));
        let milliseconds = (end - start) as f64 / 1e6;
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.3}%\" y=\"{y:.1}\" width=\"{width:.3}%\" height=\"{height:.1}\">\
             <title>rank {rank}: {class}, {}, {milliseconds:.3} ms</title></rect>",
            escaped(label)
        );
    }
    for death in &run.deaths {
        let (x, top, bottom) = (window.x(death.at_ns), lane(death.rank), lane(death.rank) + LANE);
        let _ = writeln!(
            svg,
            "<rect class=\"gone\" x=\"{x:.3}%\" y=\"{top}\" width=\"{:.3}%\" height=\"{LANE}\"/>\
             <line class=\"death\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"{top}\" y2=\"{bottom}\"/>",
            100.0 - x
        );
    }
    window.axis().draw(&mut svg, lane(Rank(workers)));
    svg.push_str("</svg>\n");
    svg
}

fn span_of(event: &TraceEvent) -> Option<(u64, u64, SpanKind, &str)> {
    match event {
        TraceEvent::Span {
            kind,
            label,
            start_ns,
            end_ns,
        } => Some((*start_ns, *end_ns, *kind, label)),
        _ => None,
    }
}

fn class_of(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Call => "call",
        SpanKind::Compute => "compute",
        SpanKind::File => "file",
        SpanKind::Merge => "merge",
        SpanKind::Pull => "pull",
    }
}

fn lane(rank: Rank) -> f64 {
    f64::from(rank.0) * LANE
}

const LANE: f64 = 46.0;
/// The part of a lane in which the name of the rank stands.
const NAME: f64 = 18.0;
const AXIS: f64 = 24.0;
