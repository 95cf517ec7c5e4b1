//! The parts that the static pages of the commands have in common.

use std::{fmt::Write, time::Duration};

use ropewalk_plot::{Axis, WIDTH, escaped, label};

/// Where times stand in a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis {
    /// The time at the right end; the left end is the beginning.
    pub(super) length: Duration,
    /// How much room is left of the beginning.
    pub(super) left: f64,
}

impl TimeAxis {
    /// Where a time stands.
    pub(super) fn x(self, at: Duration) -> f64 {
        let part = at.as_secs_f64() / self.length.as_secs_f64().max(1e-9);
        self.left + part.min(1.0) * (WIDTH - self.left)
    }

    /// Draws ticks and their times at this height.
    pub(super) fn draw(self, svg: &mut String, y: f64) {
        let length = self.length.as_secs_f64().max(1e-9);
        for at in Axis::linear((0.0, length), (self.left, WIDTH)).ticks() {
            let x = self.x(Duration::from_secs_f64(at));
            let (tick, text) = (y + 5.0, y + 17.0);
            let label = match length < 1.0 {
                true => format!("{} ms", label(at * 1e3)),
                false => format!("{} s", label(at)),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{tick}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{text}\">{label}</text>"
            );
        }
    }
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
:root { color-scheme: light dark; --ink: light-dark(#1c2430, #e8eaed); --faint: light-dark(#d5dae1, #3a424e); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1140px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th, td { border: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th, td { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg, img { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); }
svg text.tick { font-size: 10px; text-anchor: middle; }
svg .lane, svg .tick { stroke: var(--faint); }
svg text.tick { stroke: none; }
.gone { fill: #c8323233; background: #c8323233; }
svg line.death { stroke: #c83232; stroke-width: 2; }
svg text.death { fill: #c83232; font-weight: 600; }
.legend span { display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -.15em; }
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks stand at round times, the last one inside.
    #[test]
    fn ticks_are_round() {
        let axis = |milliseconds| TimeAxis {
            length: Duration::from_millis(milliseconds),
            left: 60.0,
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
        assert_eq!(
            axis(500).x(Duration::from_millis(250)),
            60.0 + (WIDTH - 60.0) / 2.0
        );
    }
}
