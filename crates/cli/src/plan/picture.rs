//! The picture of a plan: the overhead over the time between two saves, with the policies on it.

use ropewalk_plot::{Anchor, Axis, BADGE_RADIUS, Frame, Picture, Point, TimeUnit, WIDTH, label};

use super::{
    super::times::{part, shown, with_seconds},
    Answer, Row, whole,
};

/// Draws the curve, a badge for each row, and a legend.
pub(super) fn draw(answer: &Answer, curve: &[(f64, f64)]) -> String {
    let legend = LINE * (answer.rows.len() + 2) as f64;
    let mut picture = Picture::new(
        FRAME.bottom + 56.0 + legend,
        "overhead over time between two saves",
    );
    let best = curve
        .iter()
        .copied()
        .filter(|(_, overhead)| overhead.is_finite())
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let (x, y) = axes(answer, curve, best);
    let unit = TimeUnit::of(best.map_or(answer.interval_s, |(interval, _)| interval));
    let ticks = |axis: Axis, name: &dyn Fn(f64) -> String| -> Vec<(f64, String)> {
        axis.ticks()
            .into_iter()
            .map(|value| (value, name(value)))
            .collect()
    };
    // Ticks are round in the unit that is shown, so the axis is in this unit.
    let x_ticks = ticks(x.in_unit(unit), &label)
        .into_iter()
        .map(|(value, name)| (value * unit.seconds, name));
    let x_ticks: Vec<_> = x_ticks.collect();
    picture.left_axis(
        FRAME,
        y.axis,
        &ticks(y.axis, &|percent| format!("{} %", label(percent))),
        "overhead: time beyond the computing",
    );
    let name = format!("computing between two saves ({})", unit.name);
    picture.bottom_axis(FRAME, x.axis, &x_ticks, &name);
    draw_curve(&mut picture, x, y, curve);
    if let Some((interval, overhead)) = best {
        let at = x.axis.place(interval);
        picture.line("best-line", (at, FRAME.top), (at, FRAME.bottom));
        let (side, anchor) = match at > FRAME.right - 330.0 {
            true => (-8.0, Anchor::End),
            false => (8.0, Anchor::Start),
        };
        let text = format!("best equal intervals: {}, +{}", shown(interval), part(overhead));
        picture.text((at + side, FRAME.bottom - 10.0), anchor, &text);
    }
    draw_badges(&mut picture, answer, x, y);
    draw_legend(&mut picture, answer, x, y);
    picture.finish()
}

/// An axis that knows its ends, in seconds or percent.
#[derive(Clone, Copy, Debug)]
struct Range {
    axis: Axis,
    ends: (f64, f64),
}

impl Range {
    fn in_unit(self, unit: TimeUnit) -> Axis {
        let (from, to) = self.ends;
        Axis::logarithmic(
            (from / unit.seconds, to / unit.seconds),
            (FRAME.left, FRAME.right),
        )
    }

    fn contains(self, value: f64) -> bool {
        self.axis.contains(value)
    }
}

/// The axes show the best, and each policy that is not very much worse or elsewhere.
fn axes(answer: &Answer, curve: &[(f64, f64)], best: Option<(f64, f64)>) -> (Range, Range) {
    let (interval, overhead) = best.unwrap_or((answer.interval_s, 1.0));
    let least = answer
        .rows
        .iter()
        .map(|row| row.overhead)
        .fold(overhead, f64::min);
    let near = answer.rows.iter().filter(|row| {
        let (factor, part) = (row.interval_s / interval, row.overhead);
        part <= least * CUT_OFF && (1.0 / FAR..=FAR).contains(&factor)
    });
    let shown = || curve.iter().map(|point| point.0).chain([interval]);
    let (mut from, mut to) = (
        shown().fold(interval, f64::min).max(interval / WIDE),
        shown().fold(interval, f64::max).min(interval * WIDE),
    );
    let mut most = overhead * 3.0;
    for row in near {
        from = from.min(row.interval_s * 0.9);
        to = to.max(row.interval_s * 1.1);
        most = most.max(row.overhead * 1.1);
    }
    let x = Axis::logarithmic((from, to), (FRAME.left, FRAME.right));
    let percent = (0.0, (most * 100.0).clamp(1e-9, 1e12));
    let y = Axis::linear(percent, (FRAME.bottom, FRAME.top));
    let range = |axis, ends| Range { axis, ends };
    (range(x, (from, to)), range(y, percent))
}

/// Draws the parts of the curve inside the frame, with a break mark where it leaves through the top.
fn draw_curve(picture: &mut Picture, x: Range, y: Range, curve: &[(f64, f64)]) {
    let top = y.ends.1;
    let mut drawn: Vec<Point> = Vec::new();
    let mut breaks = Vec::new();
    let inside = curve.iter().filter(|(interval, _)| x.contains(*interval));
    let mut last: Option<Point> = None;
    for &(interval, overhead) in inside {
        // So far above, that a crossing is still found, but all places are numbers.
        let place = (
            x.axis.place(interval),
            y.axis.place((overhead * 100.0).min(top * 1e3)),
        );
        let above = |point: Point| point.1 < FRAME.top;
        if let Some(last) = last.filter(|last| above(*last) != above(place)) {
            let part = (FRAME.top - last.1) / (place.1 - last.1);
            let crossing = (last.0 + part * (place.0 - last.0), FRAME.top);
            drawn.push(crossing);
            breaks.push(crossing);
        }
        if above(place) {
            flush(picture, &mut drawn);
        } else {
            drawn.push(place);
        }
        last = Some(place);
    }
    flush(picture, &mut drawn);
    for (x, y) in breaks {
        picture.break_mark((x, y + 8.0), 10.0);
    }
}

/// Draws the points of a line that has ended.
fn flush(picture: &mut Picture, drawn: &mut Vec<Point>) {
    if drawn.len() > 1 {
        picture.curve("curve", drawn);
        drawn.clear();
    }
}

/// A badge above the frame for each row, and a line to its place.
fn draw_badges(picture: &mut Picture, answer: &Answer, x: Range, y: Range) {
    let (from, to) = x.ends;
    let place = |row: &Row| {
        let percent = (row.overhead * 100.0).min(y.ends.1);
        (
            x.axis.place(row.interval_s.clamp(from, to)),
            y.axis.place(percent.max(0.0)),
        )
    };
    let mut rows: Vec<(usize, &Row)> = answer.rows.iter().enumerate().collect();
    rows.sort_by(|a, b| place(a.1).0.total_cmp(&place(b.1).0));
    let wanted: Vec<f64> = rows.iter().map(|(_, row)| place(row).0).collect();
    let above = FRAME.top - BADGE_RADIUS - 30.0;
    for (&(index, row), badge) in rows.iter().zip(spread(&wanted)) {
        let (class, place) = (class(answer, row), place(row));
        picture.line("lead", (badge, above), place);
        match is_cut(row, x, y) {
            true => picture.break_mark(
                ((badge + place.0) / 2.0, (above + BADGE_RADIUS + place.1) / 2.0),
                10.0,
            ),
            false => picture.disc(class, place, 4.5),
        }
        picture.badge(class, (badge, above), &(index + 1).to_string());
    }
}

/// Places so near to the wanted ones, which are in order, as leaves room between them.
fn spread(wanted: &[f64]) -> Vec<f64> {
    // Without the distances that they have at least, places may be equal, and those that are too near get their mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (index, place) in wanted.iter().enumerate() {
        let mut group = (place - GAP * index as f64, 1);
        while let Some(&(mean, count)) = groups.last().filter(|(mean, _)| *mean > group.0) {
            let all = count + group.1;
            group = ((mean * count as f64 + group.0 * group.1 as f64) / all as f64, all);
            groups.pop();
        }
        groups.push(group);
    }
    let last = FRAME.right - GAP * wanted.len().saturating_sub(1) as f64;
    let means = groups
        .into_iter()
        .flat_map(|(mean, count)| std::iter::repeat_n(mean, count));
    let means = means.map(|mean| mean.clamp(FRAME.left, last.max(FRAME.left)));
    means
        .enumerate()
        .map(|(index, mean)| mean + GAP * index as f64)
        .collect()
}

fn draw_legend(picture: &mut Picture, answer: &Answer, x: Range, y: Range) {
    let mut line = FRAME.bottom + 72.0;
    for (at, text) in COLUMNS
        .into_iter()
        .zip(["policy", "interval", "expected time", "overhead"])
    {
        picture.text((at, line), Anchor::Start, text);
    }
    for (index, row) in answer.rows.iter().enumerate() {
        line += LINE;
        picture.badge(class(answer, row), (24.0, line - 5.0), &(index + 1).to_string());
        let name = match row.policy == answer.recommended {
            true => format!("{} (recommended)", row.policy),
            false => row.policy.to_owned(),
        };
        let cut = if is_cut(row, x, y) {
            ", beyond the picture"
        } else {
            ""
        };
        let cells = [
            name,
            super::interval(row.interval_s),
            shown(row.expected_total_s),
            format!("+{}{cut}", part(row.overhead)),
        ];
        for (at, cell) in COLUMNS.into_iter().zip(cells) {
            picture.text((at, line), Anchor::Start, &cell);
        }
    }
    let below = format!(
        "{} of computing; saves of {}, failures every {}. The line: equal intervals.",
        whole(answer.total_s),
        with_seconds(answer.save_s),
        with_seconds(answer.mtbf_s)
    );
    picture.text((14.0, line + LINE + 4.0), Anchor::Start, &below);
}

fn is_cut(row: &Row, x: Range, y: Range) -> bool {
    !x.contains(row.interval_s) || !y.contains(row.overhead.max(0.0) * 100.0)
}

fn class(answer: &Answer, row: &Row) -> &'static str {
    match row.policy == answer.recommended {
        true => "best",
        false => "policy",
    }
}

const FRAME: Frame = Frame {
    left: 86.0,
    right: WIDTH - 30.0,
    top: 84.0,
    bottom: 470.0,
};
const LINE: f64 = 26.0;
const COLUMNS: [f64; 4] = [42.0, 330.0, 500.0, 700.0];
/// The least distance of two badges.
const GAP: f64 = 2.0 * BADGE_RADIUS + 4.0;
/// The axis of overheads shows policies up to so many times the best.
const CUT_OFF: f64 = 8.0;
/// The axis of intervals shows the curve between the best divided and multiplied by this.
const WIDE: f64 = 10.0;
/// It shows policies that are so far away.
const FAR: f64 = 30.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Badges keep their order and their distance, also at the edges.
    #[test]
    fn badges_do_not_overlap() {
        let right = FRAME.right;
        for wanted in [
            vec![],
            vec![300.0],
            vec![300.0; 8],
            vec![FRAME.left; 8],
            vec![100.0, 110.0, 900.0, right, right, right],
        ] {
            let places = spread(&wanted);
            assert_eq!(places.len(), wanted.len());
            assert!(
                places.windows(2).all(|pair| pair[1] - pair[0] > GAP - 1.0),
                "{wanted:?}: {places:?}"
            );
            let inside = FRAME.left - 1.0..right + 1.0;
            assert!(places.iter().all(|place| inside.contains(place)), "{places:?}");
        }
    }

    /// A curve that leaves the frame has a mark at each place where it does, and ends there.
    #[test]
    fn a_cut_curve_has_marks() {
        let x = Axis::logarithmic((1.0, 100.0), (FRAME.left, FRAME.right));
        let y = Axis::linear((0.0, 10.0), (FRAME.bottom, FRAME.top));
        let range = |axis, ends| Range { axis, ends };
        let mut picture = Picture::new(500.0, "");
        let curve = [(1.0, f64::INFINITY), (5.0, 0.02), (20.0, 0.05), (100.0, 0.5)];
        draw_curve(
            &mut picture,
            range(x, (1.0, 100.0)),
            range(y, (0.0, 10.0)),
            &curve,
        );
        let drawn = picture.finish();
        assert_eq!(drawn.matches("class=\"cut\"").count(), 2, "{drawn}");
        assert_eq!(drawn.matches("<polyline").count(), 1, "{drawn}");
        assert!(!drawn.contains("inf") && !drawn.contains("NaN"), "{drawn}");
    }
}
