//! The report of a demo: one static page.

use std::{fmt::Write, io, path::Path, time::Duration};

use super::{
    seconds,
    timeline::{Window, draw, escaped},
    watched_run::WatchedRun,
};

/// What the report tells.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) seed: u64,
    pub(super) workers: u32,
    pub(super) calm: &'a WatchedRun,
    pub(super) killed: &'a WatchedRun,
    pub(super) serial_digest: &'a str,
    pub(super) serial_time: Duration,
    /// The picture's name in the folder of the page.
    pub(super) picture: &'a str,
}

/// Writes the page.
pub(super) fn write_report(report: &Report<'_>, path: &Path) -> io::Result<()> {
    let Report {
        seed,
        workers,
        calm,
        killed,
        serial_digest,
        serial_time,
        picture,
    } = report;
    let mut rows = String::new();
    let mut row = |name: &str, calm: &str, killed: &str, serial: &str| {
        let cells = [calm, killed, serial].map(|cell| format!("<td>{}</td>", escaped(cell)));
        let _ = writeln!(rows, "<tr><th>{name}</th>{}</tr>", cells.concat());
    };
    let deaths: Vec<String> = killed
        .deaths
        .iter()
        .map(|death| death.to_string().replace('\n', " "))
        .collect();
    let deaths = if deaths.is_empty() {
        "nobody".to_owned()
    } else {
        deaths.join("; ")
    };
    let reduction = |run: &WatchedRun| run.reduction().map_or("?".to_owned(), seconds);
    row("killed", "nobody", &deaths, "");
    row("done again", &calm.redone(), &killed.redone(), "");
    row(
        "reduction, from the last call",
        &reduction(calm),
        &reduction(killed),
        "",
    );
    row(
        "whole job",
        &seconds(calm.elapsed),
        &seconds(killed.elapsed),
        &seconds(*serial_time),
    );
    row(
        "blake3 of the image",
        &calm.summary.digest,
        &killed.summary.digest,
        serial_digest,
    );
    let equal = killed.summary.digest == *serial_digest && calm.summary.digest == *serial_digest;
    let verdict = if equal {
        "All three images are equal, bit for bit."
    } else {
        "The images differ. This is a defect of ropewalk."
    };

    let figure = |title: &str, run: &WatchedRun, window: Option<Window>| match window {
        Some(window) => format!(
            "<figure><figcaption>{title}</figcaption>{}</figure>",
            draw(run, *workers, window)
        ),
        None => String::new(),
    };
    let figures = [
        figure("The reduction, with the kill", killed, Window::reduction(killed)),
        figure("The reduction, nobody killed", calm, Window::reduction(calm)),
        figure("The whole job, with the kill", killed, Window::whole(killed)),
    ];
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>ropewalk demo</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>A seismic image, although a worker was killed</h1>\n\
         <p>{workers} workers migrated a synthetic survey (seed {seed}) and reduced their images. {verdict}</p>\n\
         <table>\n<tr><th></th><th>nobody killed</th><th>with the kill</th><th>serial</th></tr>\n{rows}</table>\n\
         <p class=\"legend\"><span class=\"compute\"></span> migrate a shot <span class=\"file\"></span> read a file \
         <span class=\"pull\"></span> pull a part <span class=\"merge\"></span> combine two parts \
         <span class=\"gone\"></span> dead</p>\n\
         {}\n<figure><figcaption>The image, stacked over the offset classes</figcaption>\
         <img src=\"{picture}\" alt=\"seismic section\"></figure>\n</body>\n</html>\n",
        figures.concat()
    );
    std::fs::write(path, page)
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: light-dark(#1c2430, #e8eaed); --faint: light-dark(#d5dae1, #3a424e); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1140px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th, td { border: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; overflow-wrap: anywhere; vertical-align: top; }
tr > th:first-child { width: 13rem; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg, img { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); }
svg text.tick { font-size: 10px; text-anchor: middle; }
svg .lane, svg .tick { stroke: var(--faint); }
svg text.tick { stroke: none; }
.compute { fill: #6a9fd8; background: #6a9fd8; }
.file { fill: #9a9a9a; background: #9a9a9a; }
.pull { fill: #e2a93b; background: #e2a93b; }
.merge { fill: #3f9d6b; background: #3f9d6b; }
.gone { fill: #c8323233; background: #c8323233; }
svg line.death { stroke: #c83232; stroke-width: 2; }
svg text.death { fill: #c83232; font-weight: 600; }
.legend span { display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -.15em; }
";
