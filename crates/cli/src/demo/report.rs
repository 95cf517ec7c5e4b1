//! The report of a demo: one static page.

use std::{fmt::Write, time::Duration};

use ropewalk_plot::escaped;

use super::{
    super::page::page,
    seconds, shortened,
    timeline::{Window, draw},
    watched_run::WatchedRun,
};

/// The contents of the report.
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

/// The page.
pub(super) fn to_page(report: &Report<'_>) -> String {
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
    row("plans made", &calm.plans(), &killed.plans(), "");
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
        shortened(&calm.summary.digest),
        shortened(&killed.summary.digest),
        shortened(serial_digest),
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
    let deaths_in_time = killed.deaths.iter().filter(|death| !death.is_late);
    let although = match deaths_in_time.count() {
        // A reduction on a small survey may be over before the kill.
        0 => "",
        1 => ", although a worker was killed",
        _ => ", although workers were killed",
    };
    let body = format!(
        "<h1>A seismic image{although}</h1>\n\
         <p>{workers} workers migrated a synthetic survey (seed {seed}) and reduced their images. {verdict}</p>\n\
         <table>\n<tr><th></th><th>nobody killed</th><th>with the kill</th><th>serial</th></tr>\n{rows}</table>\n\
         <p class=\"legend\"><span class=\"compute\"></span> migrate a shot <span class=\"file\"></span> read a file \
         <span class=\"pull\"></span> pull a part <span class=\"merge\"></span> combine two parts \
         <span class=\"call\"></span> wait for the result \
         <span class=\"gone\"></span> dead</p>\n\
         {}\n<figure><figcaption>The image, stacked over the offset classes</figcaption>\
         <img src=\"{picture}\" alt=\"seismic section\"></figure>\n",
        figures.concat()
    );
    page("ropewalk demo", STYLE, &body)
}

const STYLE: &str = "
tr > th:first-child { width: 13rem; }
@media (max-width: 700px) { td { overflow-wrap: anywhere; } }
.compute { fill: #6a9fd8; background: #6a9fd8; }
.file { fill: #9a9a9a; background: #9a9a9a; }
.call { fill: #b9b9c9; background: #b9b9c9; }
.pull { fill: #e2a93b; background: #e2a93b; }
.merge { fill: #3f9d6b; background: #3f9d6b; }
";
