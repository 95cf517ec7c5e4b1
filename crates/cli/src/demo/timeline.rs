//! The time line of a run as SVG.

use std::{fmt::Write, time::Duration};

use ropewalk_fabric::{SpanKind, TraceEvent};
use ropewalk_names::Rank;
use ropewalk_plot::{WIDTH, escaped};

use super::{super::page::TimeAxis, watched_run::WatchedRun};

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
        let position = at_ns.clamp(self.start_ns, self.end_ns) - self.start_ns;
        self.axis().x(Duration::from_nanos(position))
    }

    fn axis(self) -> TimeAxis {
        TimeAxis {
            length: Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns)),
            left: LABELS,
        }
    }
}

/// One lane per rank, a box per span, a mark per death.
pub(super) fn draw(run: &WatchedRun, workers: u32, window: Window) -> String {
    let height = AXIS + LANE * f64::from(workers);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n");
    for rank in 0..workers {
        let (top, middle) = (lane(Rank(rank)), lane(Rank(rank)) + LANE / 2.0 + 4.0);
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<text x=\"0\" y=\"{middle}\">rank {rank}</text>");
        let (y, width) = (top + LANE - 1.0, WIDTH);
        let _ = writeln!(
            svg,
            "<line class=\"lane\" x1=\"{LABELS}\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>"
        );
    }
    for (rank, event) in &run.traces {
        let Some((start, end, kind, label)) = span_of(event) else {
            continue;
        };
        if end < window.start_ns || start > window.end_ns {
            continue;
        }
        let (x, width) = (window.x(start), (window.x(end) - window.x(start)).max(0.5));
        // A pull goes on beside merges, so it stands below them, half as high.
        let (offset, height) = if kind == SpanKind::Pull {
            (LANE * 0.55, LANE * 0.35)
        } else {
            (2.0, LANE * 0.5)
        };
        let (y, class) = (lane(*rank) + offset, class_of(kind));
        let milliseconds = (end - start) as f64 / 1e6;
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\">\
             <title>rank {rank}: {class}, {}, {milliseconds:.3} ms</title></rect>",
            escaped(label)
        );
    }
    for death in &run.deaths {
        let (x, top) = (window.x(death.at_ns), lane(death.rank));
        let (bottom, middle) = (top + LANE, top + LANE / 2.0);
        let _ = writeln!(
            svg,
            "<rect class=\"gone\" x=\"{x:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{LANE}\"/>\
             <line class=\"death\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"death\" x=\"{:.2}\" y=\"{:.1}\">✝ {}</text>",
            WIDTH - x,
            (x + 5.0).min(WIDTH - 150.0),
            middle + 4.0,
            escaped(&death.cause.to_string())
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
        SpanKind::Compute => "compute",
        SpanKind::File => "file",
        SpanKind::Merge => "merge",
        SpanKind::Pull => "pull",
    }
}

fn lane(rank: Rank) -> f64 {
    f64::from(rank.0) * LANE
}

const LABELS: f64 = 60.0;
const LANE: f64 = 30.0;
const AXIS: f64 = 24.0;
