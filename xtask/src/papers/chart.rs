//! Pictures of several panels, two side by side, each with lines over an axis.

use std::collections::BTreeMap;

use ropewalk_plot::{Anchor, Axis, Frame, Picture, WIDTH, colour, escaped, label};

/// Lines over the same axes.
pub(super) struct Panel {
    pub(super) title: String,
    /// The quantity below, with its unit.
    pub(super) below: &'static str,
    /// Equal lengths below are equal factors.
    pub(super) is_logarithmic: bool,
    /// The quantity at the left.
    pub(super) left: Left,
    pub(super) lines: Vec<Line>,
}

/// The quantity at the left of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Values are seconds.
    Time,
    Count,
    /// Values are gigabytes a second.
    Rate,
    /// Values are times of what a computation takes alone.
    Ratio,
}

impl Left {
    fn shown(self, value: f64) -> f64 {
        match self {
            Self::Time => value * 1e3,
            Self::Count | Self::Rate | Self::Ratio => value,
        }
    }

    fn heading(self, title: &str) -> String {
        match self {
            Self::Time => format!("{title} (ms)"),
            Self::Count => title.to_owned(),
            Self::Rate => format!("{title} (GB/s)"),
            Self::Ratio => format!("{title} (times the computing)"),
        }
    }
}

/// A line of times or counts over a quantity.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Draws panels. Those of the same quantity have the same axis: equal lengths are equal factors, and if all values are
/// about the same, equal differences.
pub(super) fn draw(title: &str, panels: &[Panel], text_of: fn(f64) -> String) -> String {
    let rows = panels.len().div_ceil(2) as f64;
    let height = LEGEND + rows * PANEL_HEIGHT;
    let mut picture = Picture::new(height, title);
    legend(&mut picture, panels);
    for (index, panel) in panels.iter().enumerate() {
        let left = (index % 2) as f64 * WIDTH / 2.0;
        let top = LEGEND + (index / 2) as f64 * PANEL_HEIGHT;
        let frame = Frame {
            left: left + 70.0,
            right: left + WIDTH / 2.0 - 20.0,
            top: top + 34.0,
            bottom: top + PANEL_HEIGHT - 60.0,
        };
        let y = left_axis(panels, panel.left, frame);
        let ticks: Vec<_> = y.ticks().into_iter().map(|value| (value, label(value))).collect();
        picture.left_axis(frame, y, &ticks, "");
        let heading = panel.left.heading(&panel.title);
        picture.text((frame.left, frame.top - 12.0), Anchor::Start, &heading);
        draw_panel(&mut picture, panel, frame, y, text_of);
    }
    picture.finish()
}

fn left_axis(panels: &[Panel], left: Left, frame: Frame) -> Axis {
    let alike = panels.iter().filter(|panel| panel.left == left);
    let lines = alike.flat_map(|panel| &panel.lines);
    let values = lines.flat_map(|line| line.points.iter().map(|(_, value)| left.shown(*value)));
    let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let places = (frame.bottom, frame.top);
    match most > RATIO_LINEAR * least {
        true => Axis::logarithmic((least / 1.2, most * 1.2), places),
        false => Axis::linear((0.0, most * 1.1), places),
    }
}

fn draw_panel(picture: &mut Picture, panel: &Panel, frame: Frame, y: Axis, text_of: fn(f64) -> String) {
    let mut values: Vec<f64> = panel
        .lines
        .iter()
        .flat_map(|line| line.points.iter().map(|(x, _)| *x))
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
        return;
    };
    let places = (frame.left, frame.right);
    let x = match panel.is_logarithmic {
        true => Axis::logarithmic((first, last), places),
        false => Axis::linear((first, last), places),
    };
    let step = values.len().div_ceil(TICKS_MAX);
    let ticks: Vec<_> = values
        .iter()
        .step_by(step)
        .map(|value| (*value, text_of(*value)))
        .collect();
    picture.bottom_axis(frame, x, &ticks, panel.below);
    for (index, line) in panel.lines.iter().enumerate() {
        let class = colour(index);
        let places: Vec<_> = line
            .points
            .iter()
            .map(|(at, value)| (x.place(*at), y.place(panel.left.shown(*value))))
            .collect();
        picture.curve(&class, &places);
        // Of many points the line is enough.
        for place in places.iter().copied().filter(|_| places.len() <= DISCS_MAX) {
            picture.disc(&class, place, 3.0);
        }
    }
}

/// The names of lines, each once, in the colour of its line.
fn legend(picture: &mut Picture, panels: &[Panel]) {
    let lines = panels.iter().flat_map(|panel| panel.lines.iter().enumerate());
    let names: BTreeMap<usize, &str> = lines.map(|(index, line)| (index, &*line.name)).collect();
    let mut left = 16.0;
    for (index, name) in names {
        picture.rectangle(&colour(index), (left, 16.0), (18.0, 3.0));
        picture.text((left + 24.0, 22.0), Anchor::Start, name);
        left += 60.0 + 7.2 * escaped(name).len() as f64;
    }
}

/// Up to here a logarithmic axis would have few marks.
const RATIO_LINEAR: f64 = 4.0;
const LEGEND: f64 = 40.0;
const PANEL_HEIGHT: f64 = 340.0;
/// The most points of a line that are drawn as discs.
const DISCS_MAX: usize = 60;
/// The most values that are named below a panel.
const TICKS_MAX: usize = 7;
