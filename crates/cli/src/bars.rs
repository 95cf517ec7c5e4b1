//! A picture of how much longer than its computing a run takes under each of some policies.

use ropewalk_plot::{Anchor, Axis, Frame, Picture, TimeUnit, WIDTH, label};

use super::times::{part, shown};

/// The duration of a run under one policy, in seconds: the mean of several runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) mean: f64,
    /// Half the width of the interval in which the true mean lies in 95 of 100 cases.
    pub(super) confidence: f64,
    /// Eight of ten runs take a time between these.
    pub(super) spread: (f64, f64),
}

/// A bar for each policy, of the time beyond the `computing`, with its error bars, an axis, and a line of text below.
///
/// A bar that is very much longer than the best is cut off with a mark. Its text says how long it is.
pub(super) fn draw_bars(bars: &[Bar<'_>], computing: f64, below: &str) -> String {
    let over = |total: f64| (total - computing).max(0.0);
    let least = bars
        .iter()
        .map(|bar| over(bar.mean))
        .fold(f64::INFINITY, f64::min);
    let is_cut = |bar: &Bar<'_>| over(bar.mean) > CUT_OFF * least;
    let ends = bars.iter().filter(|bar| !is_cut(bar));
    let most = ends
        .map(|bar| over((bar.mean + bar.confidence).max(bar.spread.1)))
        .fold(1e-9, f64::max);
    let frame = Frame {
        left: 230.0,
        right: WIDTH - 210.0,
        top: 12.0,
        bottom: 12.0 + LANE * bars.len() as f64,
    };
    let unit = TimeUnit::of(most);
    let axis = Axis::linear((0.0, most / unit.seconds), (frame.left, frame.right));
    let x = |total: f64| axis.place((over(total) / unit.seconds).min(most / unit.seconds));
    let mut picture = Picture::new(frame.bottom + 84.0, "time beyond the computing");
    let ticks: Vec<_> = axis
        .ticks()
        .into_iter()
        .map(|value| (value, label(value)))
        .collect();
    picture.bottom_axis(
        frame,
        axis,
        &ticks,
        &format!("time beyond the computing ({})", unit.name),
    );
    for (index, bar) in bars.iter().enumerate() {
        let top = frame.top + LANE * index as f64;
        let (middle, text) = (top + LANE / 2.0, top + LANE / 2.0 + 5.0);
        picture.text((frame.left - 10.0, text), Anchor::End, bar.name);
        let end = x(bar.mean);
        picture.rectangle("bar", (frame.left, top + 5.0), (end - frame.left, LANE - 10.0));
        let mut right = end;
        if is_cut(bar) {
            picture.break_mark((end - 30.0, middle), LANE - 4.0);
        } else {
            let (low, high) = (x(bar.spread.0), x(bar.spread.1));
            picture.line("ink", (low, middle), (high, middle));
            for cap in [low, high] {
                picture.line("ink", (cap, middle - 6.0), (cap, middle + 6.0));
            }
            let (low, high) = (x(bar.mean - bar.confidence), x(bar.mean + bar.confidence));
            picture.line("error", (low, middle), (high, middle));
            right = right.max(x(bar.spread.1)).max(high);
        }
        let part = part(bar.mean / computing - 1.0);
        picture.text(
            (right + 10.0, text),
            Anchor::Start,
            &format!("{}, +{part}", number(bar.mean)),
        );
    }
    picture.line("ink", (frame.left, frame.top), (frame.left, frame.bottom));
    picture.text((14.0, frame.bottom + 72.0), Anchor::Start, below);
    picture.finish()
}

/// Short also if it is beyond all measure.
fn number(seconds: f64) -> String {
    match seconds < 1e12 {
        true => shown(seconds),
        false => format!("{seconds:.1e} s"),
    }
}

const LANE: f64 = 34.0;

/// A bar that is longer than the shortest by this factor is cut off.
const CUT_OFF: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy has its bar and error bars, what is beyond all measure is cut off at the others' longest, and names
    /// are escaped.
    #[test]
    fn every_policy_has_a_bar() {
        let bar = |name, mean: f64| Bar {
            name,
            mean,
            confidence: 1.0,
            spread: (mean - 5.0, mean + 10.0),
        };
        let bars = [bar("a<b", 120.0), bar("c", 140.0), bar("never", 1e30)];
        let drawn = draw_bars(&bars, 100.0, "below");
        assert!(
            drawn.contains("a&lt;b") && drawn.contains("120.00 s, +20.00 %"),
            "{drawn}"
        );
        assert!(drawn.contains("1.0e30 s"), "{drawn}");
        assert_eq!(drawn.matches("class=\"cut\"").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("class=\"error\"").count(), 2, "{drawn}");
        let widths: Vec<&str> = drawn
            .lines()
            .filter(|line| line.contains("class=\"bar\""))
            .filter_map(|line| line.split("\" width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["264.0", "528.0", "660.0"], "{drawn}");
    }
}
