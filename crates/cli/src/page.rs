//! The parts that the static pages of the commands have in common.

use std::{fmt::Write, time::Duration};

use ropewalk_plot::{Axis, escaped, label};

/// The places of times in a drawing, in percent of its width: the drawing is as wide as the page, and its text has the
/// same size on every screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis {
    /// The time at the right end; the left end is the beginning.
    pub(super) length: Duration,
}

impl TimeAxis {
    /// The place of a time.
    pub(super) fn x(self, at: Duration) -> f64 {
        let part = at.as_secs_f64() / self.length.as_secs_f64().max(1e-9);
        part.min(1.0) * 100.0
    }

    /// The place of the begin of a bar, and its width: it can be seen however short it is.
    pub(super) fn bar(self, from: Duration, to: Duration) -> (f64, f64) {
        let x = self.x(from);
        (x, (self.x(to) - x).max(0.05))
    }

    /// Draws ticks and their times at this height.
    pub(super) fn draw(self, svg: &mut String, y: f64) {
        let length = self.length.as_secs_f64().max(1e-9);
        let ticks = Axis::linear((0.0, length), (0.0, 100.0)).ticks();
        for (index, at) in ticks.into_iter().enumerate() {
            let x = self.x(Duration::from_secs_f64(at));
            let (tick, text) = (y + 5.0, y + 17.0);
            let label = match length < 1.0 {
                true => format!("{} ms", label(at * 1e3)),
                false => format!("{} s", label(at)),
            };
            // Text beyond the ends would be cut off.
            let anchor = match x {
                _ if x < 2.0 => "start",
                _ if x > 96.0 => "end",
                _ => "middle",
            };
            let class = if index % 2 == 0 { "tick" } else { "tick between" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<line class=\"tick\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{y}\" y2=\"{tick}\"/>\
                 <text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.2}%\" y=\"{text}\">{label}</text>"
            );
        }
    }
}

/// The begin of a drawing as wide as the page, whose places along its width are in percent.
pub(super) fn begin_drawing(height: f64) -> String {
    format!("<svg width=\"100%\" height=\"{height:.0}\" role=\"img\">\n")
}

/// A page; `style` comes behind what all pages have.
pub(super) fn page(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: light-dark(#1c2430, #e8eaed); --faint: light-dark(#d5dae1, #3a424e);
    --quiet: light-dark(#5c6673, #a3adba); --bad: light-dark(#b3261e, #ff8a80); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1140px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th, td { border: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th, td { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; }
svg[viewBox] { width: 100%; height: auto; }
img { max-width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); }
svg text.tick { font-size: 10px; }
svg .lane, svg .tick { stroke: var(--faint); }
svg text.tick { stroke: none; }
.gone { fill: #c8323233; background: #c8323233; }
svg line.death { stroke: var(--bad); stroke-width: 2; }
svg .death { fill: var(--bad); font-weight: 600; }
.legend span { display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -.15em; }
@media (max-width: 700px) {
    body { margin: 1rem auto; }
    h1 { font-size: 1.2rem; overflow-wrap: anywhere; }
    table { table-layout: auto; display: block; overflow-x: auto; }
    body table tr > :first-child { width: auto; }
    th, td { padding: .25rem .35rem; }
    th, td { overflow-wrap: break-word; }
    figure { overflow-x: auto; }
    svg[viewBox] { width: 900px; }
    svg .between { display: none; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks stand at round times, the last one inside.
    #[test]
    fn ticks_are_round() {
        let axis = |milliseconds| TimeAxis {
            length: Duration::from_millis(milliseconds),
        };
        let labels = |axis: TimeAxis| {
            let mut svg = String::new();
            axis.draw(&mut svg, 0.0);
            let texts = svg.split("</text>").filter_map(|part| part.rsplit('>').next());
            let texts: Vec<_> = texts.map(|text| text.trim().to_owned()).collect();
            texts[..texts.len() - 1].join(" ")
        };
        assert_eq!(
            labels(axis(430)),
            "0 ms 50 ms 100 ms 150 ms 200 ms 250 ms 300 ms 350 ms 400 ms"
        );
        assert_eq!(labels(axis(3_100)), "0 s 0.5 s 1 s 1.5 s 2 s 2.5 s 3 s");
        assert_eq!(axis(500).x(Duration::from_millis(250)), 50.0);
    }
}
