//! A drawing of times over lengths, both on logarithmic scales.

use std::fmt::Write;

use super::{beside::Latencies, rows::Row};
use crate::page::{WIDTH, escaped};

/// The points of one call or program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    name: String,
    /// Bytes and seconds.
    points: Vec<(f64, f64)>,
}

/// A line for each call, in the order of the rows, and one for the other program of this name.
pub(super) fn lines(rows: &[Row], beside: Option<(&str, &Latencies)>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let point = (row.bytes as f64, row.median_s);
        match lines.last_mut().filter(|line| line.name == row.call.name()) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: row.call.name().to_owned(),
                points: vec![point],
            }),
        }
    }
    lines.extend(beside.map(|(name, latencies)| {
        Line {
            name: name.to_owned(),
            points: latencies
                .iter()
                .map(|(&bytes, &seconds)| (bytes as f64, seconds))
                .collect(),
        }
    }));
    for line in &mut lines {
        // A logarithmic scale has no place for zero.
        line.points
            .retain(|&(bytes, seconds)| bytes > 0.0 && seconds > 0.0);
        line.points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Draws the lines, and a line of text below them.
pub(super) fn draw(lines: &[Line], below: &str) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x = Scale::of(points().map(|(bytes, _)| bytes.log2()), LEFT, WIDTH - RIGHT);
    let y = Scale::of(points().map(|(_, seconds)| seconds.log10()), BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    // Writing to a string cannot fail.
    for decade in y.whole() {
        let (at, name) = (y.place(decade), time(decade as i32));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#d5dae1\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
    }
    let step = ((x.to - x.from) / TICKS_MAX).ceil().max(1.0) as usize;
    for power in x.whole().step_by(step) {
        let (at, name) = (x.place(power), length(power as i32));
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#d5dae1\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            BOTTOM + 18.0
        );
    }
    for ((line, colour), row) in lines.iter().zip(COLOURS.iter().cycle()).zip(0u32..) {
        let mut path = String::new();
        for &(bytes, seconds) in &line.points {
            let (x, y) = (x.place(bytes.log2()), y.place(seconds.log10()));
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
            );
        }
        let at = TOP + 16.0 + 20.0 * f64::from(row);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"18\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{at:.1}\">{}</text>",
            path.trim_end(),
            LEFT + 12.0,
            at - 6.0,
            LEFT + 38.0,
            escaped(&shortened(&line.name))
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text></svg>",
        HEIGHT - 12.0,
        escaped(below)
    );
    svg
}

/// Places of logarithms along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
}

impl Scale {
    /// From the whole number below all values to the one above.
    fn of(values: impl Iterator<Item = f64>, begin: f64, end: f64) -> Self {
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (value.min(least), value.max(most))
        });
        let (from, to) = match least <= most {
            true => (least.floor(), most.ceil()),
            false => (0.0, 1.0),
        };
        Self {
            from,
            to: to.max(from + 1.0),
            begin,
            end,
        }
    }

    fn place(self, value: f64) -> f64 {
        self.begin + (value - self.from) / (self.to - self.from) * (self.end - self.begin)
    }

    fn whole(self) -> impl Iterator<Item = f64> {
        (self.from as i32..=self.to as i32).map(f64::from)
    }
}

/// A power of ten of seconds.
fn time(decade: i32) -> String {
    let (unit, below) = match decade {
        0.. => ("s", 0),
        -3..=-1 => ("ms", -3),
        -6..=-4 => ("us", -6),
        _ => ("ns", -9),
    };
    format!("{} {unit}", 10f64.powi(decade - below))
}

/// A power of two of bytes.
fn length(power: i32) -> String {
    let (unit, below) = match power {
        30.. => ("GiB", 30),
        20..=29 => ("MiB", 20),
        10..=19 => ("KiB", 10),
        _ => ("B", 0),
    };
    format!("{} {unit}", 2f64.powi(power - below))
}

fn shortened(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX).chain("..".chars()).collect(),
        false => name.to_owned(),
    }
}

const COLOURS: [&str; 7] = [
    "#2f6fb3", "#c8553d", "#3c8d5a", "#8a5aa8", "#b5892e", "#4aa3a8", "#555555",
];
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 530.0;
/// The most lengths that are named below.
const TICKS_MAX: f64 = 14.0;
/// The most of a command that is shown.
const NAME_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{call::Call, task::Order};

    fn row(call: Call, bytes: u64, median_s: f64) -> Row {
        Row {
            call,
            ranks: 4,
            bytes,
            order: Order::Any,
            median_s,
            least_s: median_s,
            most_s: median_s,
            beside_s: None,
        }
    }

    /// Every call has its line, from corner to corner if its points are there, and so has the other program.
    #[test]
    fn every_call_has_a_line() {
        let rows = [
            row(Call::Reduce, 1024, 1e-3),
            row(Call::Reduce, 16, 1e-5),
            row(Call::Allreduce, 16, 1e-4),
        ];
        let latencies = [(0, 1e-4), (64, 1e-4)].into();
        let lines = lines(&rows, Some(("a<b", &latencies)));
        let points: Vec<_> = lines.iter().map(|line| line.points.clone()).collect();
        let expected = [
            vec![(16.0, 1e-5), (1024.0, 1e-3)],
            vec![(16.0, 1e-4)],
            vec![(64.0, 1e-4)],
        ];
        assert_eq!(points, expected);
        let drawn = draw(&lines, "below");
        assert!(
            drawn.contains("<polyline points=\"80.0,530.0 1070.0,20.0\""),
            "{drawn}"
        );
        assert!(
            drawn.contains("<polyline points=\"80.0,275.0\"")
                && drawn.contains("<polyline points=\"410.0,275.0\""),
            "{drawn}"
        );
        for text in [
            "reduce",
            "allreduce",
            "a&lt;b",
            "below",
            "10 us",
            "1 ms",
            "16 B",
            "1 KiB",
        ] {
            assert!(drawn.contains(&format!(">{text}</text>")), "{text}: {drawn}");
        }
    }

    /// A single point, and none, are drawn too.
    #[test]
    fn one_point_has_room() {
        let one = draw(&lines(&[row(Call::Gather, 8, 1e-6)], None), "");
        assert!(one.contains("<polyline points=\"80.0,530.0\""), "{one}");
        assert!(!draw(&[], "").contains("NaN"));
    }

    /// Long commands are cut.
    #[test]
    fn names_are_short() {
        assert_eq!(shortened("osu_reduce"), "osu_reduce");
        assert_eq!(shortened(&"ä".repeat(61)), format!("{}..", "ä".repeat(60)));
    }
}
