//! A drawing of times over lengths, both on logarithmic scales.

use ropewalk_plot::{Anchor, Axis, Frame, Picture, WIDTH, colour};

use super::{beside::Latencies, rows::Row};

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
    let (x_from, x_to) = whole_around(points().map(|(bytes, _)| bytes.log2()));
    let (y_from, y_to) = whole_around(points().map(|(_, seconds)| seconds.log10()));
    let x = Axis::linear((x_from.into(), x_to.into()), (FRAME.left, FRAME.right));
    let y = Axis::linear((y_from.into(), y_to.into()), (FRAME.bottom, FRAME.top));
    let mut picture = Picture::new(HEIGHT, "times of calls over their lengths");
    let decades: Vec<_> = (y_from..=y_to)
        .map(|decade| (decade.into(), time(decade)))
        .collect();
    picture.left_axis(FRAME, y, &decades, "time of a call (median)");
    let step = ((x_to - x_from) / TICKS_MAX + 1) as usize;
    let powers: Vec<_> = (x_from..=x_to)
        .step_by(step)
        .map(|power| (power.into(), length(power)))
        .collect();
    picture.bottom_axis(FRAME, x, &powers, "length of a contribution");
    for (index, line) in lines.iter().enumerate() {
        let class = colour(index);
        let places: Vec<_> = line
            .points
            .iter()
            .map(|&(bytes, seconds)| (x.place(bytes.log2()), y.place(seconds.log10())))
            .collect();
        picture.curve(&class, &places);
        for &place in &places {
            picture.disc(&class, place, 3.5);
        }
        let at = FRAME.top + 18.0 + 20.0 * index as f64;
        picture.rectangle(&class, (FRAME.left + 12.0, at - 6.0), (18.0, 3.0));
        picture.text((FRAME.left + 38.0, at), Anchor::Start, &shortened(&line.name));
    }
    picture.text((FRAME.left, HEIGHT - 10.0), Anchor::Start, below);
    picture.finish()
}

/// The whole number below all values, and the one above.
fn whole_around(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (value.min(least), value.max(most))
    });
    match least <= most {
        true => (
            least.floor() as i32,
            (most.ceil() as i32).max(least.floor() as i32 + 1),
        ),
        false => (0, 1),
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

const HEIGHT: f64 = 620.0;
const FRAME: Frame = Frame {
    left: 80.0,
    right: WIDTH - 40.0,
    top: 40.0,
    bottom: 540.0,
};
/// The most lengths that are named below.
const TICKS_MAX: i32 = 14;
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
            drawn.contains("<polyline points=\"80.0,540.0 1060.0,40.0\""),
            "{drawn}"
        );
        assert!(
            drawn.contains("<polyline points=\"80.0,290.0\"")
                && drawn.contains("<polyline points=\"406.7,290.0\""),
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
        assert!(one.contains("<polyline points=\"80.0,540.0\""), "{one}");
        assert!(!draw(&[], "").contains("NaN"));
    }

    /// Long commands are cut.
    #[test]
    fn names_are_short() {
        assert_eq!(shortened("osu_reduce"), "osu_reduce");
        assert_eq!(shortened(&"ä".repeat(61)), format!("{}..", "ä".repeat(60)));
    }
}
