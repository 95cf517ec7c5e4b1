//! A drawing that says how much longer than its computing a run takes under each of some policies.

use std::fmt::Write;

use super::{
    page::{WIDTH, escaped},
    times::{part, shown},
};

/// How long a run takes under one policy, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) total: f64,
    /// How far from the truth that may be, if it was found by chance.
    pub(super) confidence: Option<f64>,
}

/// A bar for each policy, of the time beyond the `computing`, and a line of text below them. What takes very much longer than
/// the best is cut off with a mark, and its text says how long it is.
pub(super) fn draw_bars(bars: &[Bar<'_>], computing: f64, below: &str) -> String {
    const LANE: f64 = 30.0;
    const LABELS: f64 = 190.0;
    const TEXTS: f64 = 210.0;
    let over = |total: f64| (total - computing).max(0.0);
    let ends = || {
        bars.iter()
            .map(|bar| over(bar.total + bar.confidence.unwrap_or(0.0)))
    };
    let least = ends().fold(f64::INFINITY, f64::min);
    let most = ends().filter(|&end| end <= CUT_OFF * least).fold(1e-9, f64::max);
    let x = |total: f64| LABELS + (over(total) / most).min(1.0) * (WIDTH - LABELS - TEXTS);
    let height = LANE * (bars.len() + 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (bar, lane) in bars.iter().zip(0u32..) {
        let top = LANE * f64::from(lane);
        let (middle, text) = (top + LANE / 2.0, top + LANE / 2.0 + 4.0);
        let confidence = bar.confidence.unwrap_or(0.0);
        let (low, high) = (x(bar.total - confidence), x(bar.total + confidence));
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<text x=\"4\" y=\"{text}\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#6a9fd8\"/>",
            escaped(bar.name),
            top + 5.0,
            x(bar.total) - LABELS,
            LANE - 10.0
        );
        if over(bar.total) > most {
            // Two slanted gaps: this bar goes on beyond the drawing.
            for x in [high - 22.0, high - 12.0] {
                let _ = write!(
                    svg,
                    "<path class=\"cut\" d=\"M{x:.1} {:.1}l4 0l6 {h:.1}l-4 0z\" fill=\"#ffffff\"/>",
                    top + 3.0,
                    h = LANE - 6.0
                );
            }
        }
        if bar.confidence.is_some() {
            let _ = write!(
                svg,
                "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#1c2430\" \
                 stroke-width=\"3\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{text}\">{}, +{}</text>",
            high + 8.0,
            number(bar.total),
            part(bar.total / computing - 1.0)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LABELS}\" y=\"{:.1}\">{}</text></svg>",
        height - LANE / 2.0 + 4.0,
        escaped(below)
    );
    svg
}

/// Short also if it is beyond all measure.
fn number(seconds: f64) -> String {
    match seconds < 1e12 {
        true => shown(seconds),
        false => format!("{seconds:.1e} s"),
    }
}

/// What costs more than the best by this factor is cut off.
const CUT_OFF: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy has its bar, what is beyond all measure is cut off at the others' longest, and names are escaped.
    #[test]
    fn every_policy_has_a_bar() {
        let bar = |name, total| Bar {
            name,
            total,
            confidence: None,
        };
        let drawn = draw_bars(
            &[bar("a<b", 120.0), bar("c", 140.0), bar("never", 1e30)],
            100.0,
            "below",
        );
        assert_eq!(drawn.matches("#6a9fd8").count(), 3);
        assert!(
            drawn.contains("a&lt;b") && drawn.contains("120.00 s, +20.00 %"),
            "{drawn}"
        );
        assert!(drawn.contains("1.0e30 s"), "{drawn}");
        let cut: Vec<bool> = drawn
            .lines()
            .skip(2)
            .map(|line| line.contains("class=\"cut\""))
            .collect();
        assert_eq!(cut, [false, false, true, false], "only the last bar has a mark");
        let widths: Vec<&str> = drawn
            .lines()
            .filter_map(|line| line.split("\" width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["350.0", "700.0", "700.0"], "{drawn}");
    }
}
