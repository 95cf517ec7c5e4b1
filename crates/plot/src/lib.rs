//! The pictures that commands write: one writer of axes, lines, marks and text.
//!
//! # Examples
//! ```
//! use ropewalk_plot::{Axis, Frame, Picture, label};
//!
//! let frame = Frame { left: 80.0, right: 1060.0, top: 40.0, bottom: 340.0 };
//! let ranks = Axis::linear((0.0, 64.0), (frame.left, frame.right));
//! let times = Axis::logarithmic((1e-3, 10.0), (frame.bottom, frame.top));
//! let measured = [(8.0, 0.02), (16.0, 0.05), (64.0, 0.4)];
//!
//! let mut picture = Picture::new(400.0, "Time over ranks");
//! let ticks: Vec<_> = ranks.ticks().into_iter().map(|tick| (tick, label(tick))).collect();
//! picture.bottom_axis(frame, ranks, &ticks, "ranks");
//! picture.curve("ink", &measured.map(|(rank, time)| (ranks.place(rank), times.place(time))));
//! let svg = picture.finish();
//! assert!(svg.starts_with("<svg") && svg.contains("Time over ranks"));
//! ```

#![forbid(unsafe_code)]

mod axis;

use std::fmt::Write;

pub use self::axis::{Axis, TimeUnit, label};

/// The width of pictures, in their own units.
pub const WIDTH: f64 = 1100.0;

/// An SVG picture under construction. It follows the reader's dark or light mode.
#[derive(Debug)]
pub struct Picture {
    svg: String,
}

/// The side of its place on which a text lies.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The middle of the text is there.
    Middle,
    /// The text ends there.
    End,
}

/// A place in a picture, or two lengths.
pub type Point = (f64, f64);

/// The rectangle between the axes.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The place of its left side.
    pub left: f64,
    /// The place of its right side.
    pub right: f64,
    /// The place of its upper side.
    pub top: f64,
    /// The place of its lower side.
    pub bottom: f64,
}

impl Picture {
    /// An empty picture of the usual width. Screen readers read the title.
    pub fn new(height: f64, title: &str) -> Self {
        Self {
            svg: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
                 font-family=\"sans-serif\" font-size=\"14\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
                 <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
                escaped(title)
            ),
        }
    }

    /// The text of the picture.
    pub fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    /// A text, whose base line is at `y`.
    pub fn text(&mut self, (x, y): Point, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escaped(text)
        ));
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): Point, (x2, y2): Point) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A rectangle with its upper left corner, its width and its height.
    pub fn rectangle(&mut self, class: &str, (x, y): Point, (width, height): Point) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    /// A filled circle.
    pub fn disc(&mut self, class: &str, (x, y): Point, radius: f64) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
        ));
    }

    /// A line through all points.
    pub fn curve(&mut self, class: &str, points: &[Point]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(
            "<polyline points=\"{}\" class=\"{class}\"/>",
            points.join(" ")
        ));
    }

    /// A number or letter in a disc, as it stands in the legend too.
    pub fn badge(&mut self, class: &str, (x, y): Point, text: &str) {
        self.disc(class, (x, y), BADGE_RADIUS);
        self.push(format_args!(
            "<text class=\"badge\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            y + 4.0
        ));
    }

    /// Two slanted strokes over a gap: the bar or line goes on beyond the picture. `high` is the height of the gap.
    pub fn break_mark(&mut self, (x, y): Point, high: f64) {
        let (half, top) = (high / 2.0, y - high / 2.0);
        self.push(format_args!(
            "<g class=\"cut\"><path class=\"paper\" d=\"M{:.1} {:.1}h6l5 {high:.1}h-6z\"/>",
            x - 5.5,
            top
        ));
        for start in [x - 5.5, x + 0.5] {
            self.line("ink", (start, top), (start + 5.0, y + half));
        }
        self.push(format_args!("</g>"));
    }

    /// A tick with its label for each value, lines across the frame, and the quantity with its unit below.
    pub fn bottom_axis(&mut self, frame: Frame, axis: Axis, ticks: &[(f64, String)], name: &str) {
        for (value, text) in ticks {
            let x = axis.place(*value);
            self.line("grid", (x, frame.top), (x, frame.bottom));
            self.line("ink", (x, frame.bottom), (x, frame.bottom + 5.0));
            // About half the width of the text: the last one would leave the picture.
            let half = 4.2 * text.chars().count() as f64;
            self.text((x.min(WIDTH - half), frame.bottom + 20.0), Anchor::Middle, text);
        }
        self.line("ink", (frame.left, frame.bottom), (frame.right, frame.bottom));
        let middle = (frame.left + frame.right) / 2.0;
        self.text((middle, frame.bottom + 42.0), Anchor::Middle, name);
    }

    /// The same at the left; the quantity stands above.
    pub fn left_axis(&mut self, frame: Frame, axis: Axis, ticks: &[(f64, String)], name: &str) {
        for (value, text) in ticks {
            let y = axis.place(*value);
            self.line("grid", (frame.left, y), (frame.right, y));
            self.line("ink", (frame.left - 5.0, y), (frame.left, y));
            self.text((frame.left - 9.0, y + 5.0), Anchor::End, text);
        }
        self.line("ink", (frame.left, frame.top), (frame.left, frame.bottom));
        self.text((8.0, frame.top - 14.0), Anchor::Start, name);
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "{element}");
    }
}

/// Text as it may stand in HTML or SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The class of the n-th of several lines; colours repeat.
pub fn colour(index: usize) -> String {
    format!("c{}", index % COLOUR_COUNT)
}

/// The radius of a badge.
pub const BADGE_RADIUS: f64 = 10.0;

const COLOUR_COUNT: usize = 7;

/// Colours are written out because few programs other than browsers read variables in SVG.
const STYLE: &str = "
text { fill: #1c2430; } .paper { fill: #ffffff; }
.grid { stroke: #dde2e8; } .ink { stroke: #1c2430; stroke-width: 1.5; } .error { stroke: #1c2430; stroke-width: 4; }
.lead { stroke: #8a93a0; } .best-line { stroke: #c8553d; stroke-width: 1.5; stroke-dasharray: 5 4; }
.expected { stroke: #c8553d; stroke-width: 3; }
.bar { fill: #8db5e2; } polyline[points] { fill: none; stroke-width: 2.5; } .curve { stroke: #2f6fb3; }
.policy { fill: #2f6fb3; } .best { fill: #c8553d; } text.badge { fill: #ffffff; font-weight: bold; font-size: 13px; }
.c0 { fill: #2f6fb3; stroke: #2f6fb3; } .c1 { fill: #c8553d; stroke: #c8553d; } .c2 { fill: #3c8d5a; stroke: #3c8d5a; }
.c3 { fill: #8a5aa8; stroke: #8a5aa8; } .c4 { fill: #b5892e; stroke: #b5892e; } .c5 { fill: #4aa3a8; stroke: #4aa3a8; }
.c6 { fill: #555555; stroke: #555555; }
@media (prefers-color-scheme: dark) {
text { fill: #e8eaed; } .paper { fill: #14181f; }
.grid { stroke: #2c333d; } .ink, .error { stroke: #e8eaed; } .lead { stroke: #7d8794; }
.bar { fill: #3f6fa6; } .curve { stroke: #6a9fd8; }
.c0 { fill: #6a9fd8; stroke: #6a9fd8; } .c3 { fill: #b48ad0; stroke: #b48ad0; } .c6 { fill: #aaaaaa; stroke: #aaaaaa; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Text is escaped, and both modes have their colours.
    #[test]
    fn pictures_are_complete() {
        let mut picture = Picture::new(100.0, "a & b");
        picture.text((1.0, 2.0), Anchor::End, "a<b");
        picture.break_mark((50.0, 50.0), 10.0);
        let drawn = picture.finish();
        assert!(
            drawn.contains("<title>a &amp; b</title>") && drawn.contains(">a&lt;b</text>"),
            "{drawn}"
        );
        assert!(drawn.contains("prefers-color-scheme: dark") && drawn.ends_with("</g>\n</svg>\n"));
    }
}
