//! The report of a job: one static page.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use ropewalk_plot::{WIDTH, escaped};

use super::{
    super::page::{TimeAxis, page},
    record::{Life, Record},
    summary,
};

/// The page about a job that ran `command`, and what else there is to say of it as a section of its own.
pub(super) fn report(record: &Record, command: &str, section: &str) -> String {
    let ranks: BTreeSet<Rank> = record.lives.iter().map(|life| life.rank).collect();
    let hosts: BTreeSet<&str> = record.lives.iter().map(|life| &*life.host).collect();
    let (end, exit_code, verdict) = match &record.outcome {
        Some((end, outcome)) => (*end, outcome.exit_code().to_string(), outcome.to_string()),
        None => (Duration::ZERO, "?".to_owned(), String::new()),
    };
    let verdict = match verdict.is_empty() {
        true => "All ranks did their work.".to_owned(),
        false => verdict,
    };
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n<table>\n",
        escaped(command),
        escaped(&verdict).replace('\n', "<br>")
    );
    let [stdout, stderr] = &record.output;
    let fences = &record.fences;
    for (name, value) in [
        ("exit code", exit_code),
        ("time", seconds(end)),
        ("ranks", ranks.len().to_string()),
        ("processes", record.lives.len().to_string()),
        ("hosts", hosts.len().to_string()),
        (
            "output",
            format!("{} bytes, {} lines", stdout.bytes, stdout.lines),
        ),
        (
            "error output",
            format!("{} bytes, {} lines", stderr.bytes, stderr.lines),
        ),
        (
            "fences",
            format!(
                "{}, {} failed, {} between first arrival and end",
                fences.count,
                fences.failed,
                seconds(fences.waited)
            ),
        ),
    ] {
        row(&mut body, &[name.to_owned(), value]);
    }
    body += "</table>\n";
    let shown = shown_ranks(record, &ranks);
    let caption = match ranks.len() - shown.len() {
        0 => "Processes".to_owned(),
        hidden => format!("Processes; {hidden} ranks that did not fail are not shown"),
    };
    let axis = TimeAxis {
        length: end,
        left: LABELS,
    };
    let _ = writeln!(
        body,
        "<figure><figcaption>{caption}</figcaption>{}\
         <p class=\"legend\"><span class=\"runs\"></span> runs <span class=\"stopped\"></span> stopped by a signal \
         <span class=\"fence\"></span> somebody waits in a fence; ✝ did not end well</p></figure>",
        draw_lives(record, &shown, axis)
    );
    if stdout.bytes + stderr.bytes > 0 {
        let _ = writeln!(
            body,
            "<figure><figcaption>Output, bytes in each {}</figcaption>{}\
             <p class=\"legend\"><span class=\"stdout\"></span> standard output \
             <span class=\"stderr\"></span> standard error</p></figure>",
            seconds(stdout.stretch.max(stderr.stretch)),
            draw_output(record, axis)
        );
    }
    tables(&mut body, record);
    body += section;
    let style = [STYLE, summary::STYLE].concat();
    page(&format!("ropewalk: {command}"), &style, &body)
}

/// All ranks, or those that failed and the first of the others.
fn shown_ranks(record: &Record, ranks: &BTreeSet<Rank>) -> Vec<Rank> {
    let failed = record.lives.iter().filter(|life| is_failure(life));
    let failed: BTreeSet<Rank> = failed.map(|life| life.rank).take(LANES_MAX).collect();
    let others = ranks.difference(&failed).take(LANES_MAX - failed.len());
    let mut shown: Vec<_> = failed.iter().chain(others).copied().collect();
    shown.sort_unstable();
    shown
}

fn is_failure(life: &Life) -> bool {
    life.ended.is_some_and(|(_, cause)| !cause.is_success())
}

fn draw_lives(record: &Record, shown: &[Rank], axis: TimeAxis) -> String {
    let lane = (900.0 / shown.len().max(1) as f64).clamp(2.0, 22.0);
    let bottom = lane * shown.len() as f64;
    let height = bottom + AXIS;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n");
    let mut bar = |class: &str, from: Duration, to: Duration, y: f64, height: f64, title: &str| {
        let (x, end) = (axis.x(from), axis.x(to));
        let width = (end - x).max(0.5);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            escaped(title)
        );
    };
    for life in &record.lives {
        let Ok(index) = shown.binary_search(&life.rank) else {
            continue;
        };
        let (y, height) = (index as f64 * lane + lane * 0.15, lane * 0.7);
        let (end, how) = match life.ended {
            Some((end, cause)) => (end, cause.to_string()),
            None => (axis.length, "not seen to end".to_owned()),
        };
        let title = format!(
            "rank {} on {}, pid {}: {} to {}, {how}",
            life.rank,
            life.host,
            life.pid,
            seconds(life.started),
            seconds(end)
        );
        bar("runs", life.started, end, y, height, &title);
        for (from, to) in &life.stops {
            let to = to.unwrap_or(end);
            let title = format!("rank {} stopped for {}", life.rank, seconds(to - *from));
            bar("stopped", *from, to, y, height, &title);
        }
    }
    for fence in &record.fences.longest {
        let took = seconds(fence.ended - fence.began);
        let title = format!("fence {}: {} ranks, {took}", fence.name, fence.members);
        bar("fence", fence.began, fence.ended, 0.0, bottom, &title);
    }
    for life in record.lives.iter().filter(|life| is_failure(life)) {
        if let (Some((end, cause)), Ok(index)) = (life.ended, shown.binary_search(&life.rank)) {
            draw_failure(&mut svg, axis.x(end), index as f64 * lane, lane, cause);
        }
    }
    for (at, why) in &record.restarts {
        let x = axis.x(*at);
        let _ = writeln!(
            svg,
            "<line class=\"restart\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"0\" y2=\"{bottom:.1}\">\
             <title>started again: {}</title></line>",
            escaped(why)
        );
    }
    if lane >= 10.0 {
        for (index, rank) in shown.iter().enumerate() {
            let y = (index as f64 + 0.7) * lane;
            let _ = writeln!(svg, "<text x=\"0\" y=\"{y:.1}\">rank {rank}</text>");
        }
    }
    axis.draw(&mut svg, bottom);
    svg.push_str("</svg>\n");
    svg
}

fn draw_failure(svg: &mut String, x: f64, y: f64, lane: f64, cause: Cause) {
    let bottom = y + lane;
    let _ = writeln!(
        svg,
        "<line class=\"death\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{y:.1}\" y2=\"{bottom:.1}\"/>"
    );
    if lane >= 10.0 {
        // Near the right end there is room on the left only.
        let (anchor, x) = match x > WIDTH - 200.0 {
            true => ("end", x - 5.0),
            false => ("start", x + 5.0),
        };
        let y = y + lane * 0.7;
        let _ = writeln!(
            svg,
            "<text class=\"death\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">✝ {}</text>",
            escaped(&cause.to_string())
        );
    }
}

fn draw_output(record: &Record, axis: TimeAxis) -> String {
    let height = 120.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n", height + AXIS);
    let stretches = record.output.iter().flat_map(|output| &output.stretches);
    let most = stretches.copied().max().unwrap_or(1).max(1);
    for (class, output) in ["stdout", "stderr"].into_iter().zip(&record.output) {
        for (index, &bytes) in output
            .stretches
            .iter()
            .enumerate()
            .filter(|(_, bytes)| **bytes > 0)
        {
            let (from, to) = (output.stretch * index as u32, output.stretch * (index as u32 + 1));
            let (x, width) = (axis.x(from), (axis.x(to) - axis.x(from)).max(0.5));
            let bar = bytes as f64 / most as f64 * height;
            let y = height - bar;
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{bar:.2}\">\
                 <title>{bytes} bytes from {} on</title></rect>",
                seconds(from)
            );
        }
    }
    let _ = writeln!(svg, "<text x=\"0\" y=\"12\">{most}</text>");
    axis.draw(&mut svg, height);
    svg.push_str("</svg>\n");
    svg
}

fn tables(body: &mut String, record: &Record) {
    let failed: Vec<_> = record.lives.iter().filter(|life| is_failure(life)).collect();
    if !failed.is_empty() {
        table(
            body,
            "Processes that did not end well",
            &["rank", "host", "pid", "when", "how"],
        );
        for life in failed.iter().take(ROWS_MAX) {
            let (end, how) = life
                .ended
                .map_or((Duration::ZERO, String::new()), |(end, cause)| {
                    (end, cause.to_string())
                });
            let (rank, pid) = (life.rank.to_string(), life.pid.to_string());
            row(body, &[rank, life.host.clone(), pid, seconds(end), how]);
        }
        finish_table(body, failed.len());
    }
    let fences = &record.fences;
    if !record.restarts.is_empty() {
        table(body, "Attempts that failed", &["started again", "why"]);
        for (at, why) in &record.restarts {
            row(body, &[seconds(*at), why.clone()]);
        }
        *body += "</table>\n";
    }
    if !fences.longest.is_empty() {
        table(
            body,
            "Longest fences",
            &["fence", "ranks", "began", "took", "lost rank"],
        );
        for fence in fences.longest.iter().take(FENCES_MAX) {
            let failed = fence.failed.map(|rank| rank.to_string()).unwrap_or_default();
            let (began, took) = (seconds(fence.began), seconds(fence.ended - fence.began));
            row(
                body,
                &[fence.name.clone(), fence.members.to_string(), began, took, failed],
            );
        }
        *body += "</table>\n";
    }
    if !record.notices.is_empty() {
        table(body, "Notices", &["when", "rank", "what"]);
        for (at, rank, text) in &record.notices {
            row(body, &[seconds(*at), rank.to_string(), text.clone()]);
        }
        *body += "</table>\n";
        let more = record.notice_count - record.notices.len() as u64;
        if more > 0 {
            let _ = writeln!(body, "<p>and {more} more</p>");
        }
    }
}

fn table(body: &mut String, title: &str, heads: &[&str]) {
    let heads: Vec<_> = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let _ = writeln!(body, "<h2>{title}</h2>\n<table>\n<tr>{}</tr>", heads.concat());
}

fn finish_table(body: &mut String, rows: usize) {
    *body += "</table>\n";
    if rows > ROWS_MAX {
        let _ = writeln!(body, "<p>and {} more</p>", rows - ROWS_MAX);
    }
}

fn row(body: &mut String, cells: &[String]) {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| format!("<td>{}</td>", escaped(cell)))
        .collect();
    let _ = writeln!(body, "<tr>{}</tr>", cells.concat());
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 1.0 => format!("{:.1} ms", short * 1e3),
        long => format!("{long:.2} s"),
    }
}

const LABELS: f64 = 70.0;
const AXIS: f64 = 24.0;
/// More lanes could not be told apart.
const LANES_MAX: usize = 450;
const ROWS_MAX: usize = 200;
const FENCES_MAX: usize = 20;

const STYLE: &str = "
tr > :first-child { width: 9rem; }
tr > :first-child { width: 9rem; }
.verdict { font-weight: 600; overflow-wrap: anywhere; }
.runs { fill: #6a9fd8; background: #6a9fd8; }
.stopped { fill: #e2a93b; background: #e2a93b; }
.fence { fill: #3f9d6b66; background: #3f9d6b66; }
svg line.restart { stroke: var(--ink); stroke-dasharray: 4 3; }
.stdout { fill: #6a9fd8; background: #6a9fd8; }
.stderr { fill: #c8323299; background: #c8323299; }
";

#[cfg(test)]
mod tests {
    use ropewalk_launch::JobEvent;

    use super::*;

    /// Of very many ranks those that failed are shown whatever their number, and nothing of what a program says
    /// becomes part of the page.
    #[test]
    fn failures_are_shown_among_many() {
        let mut record = Record::default();
        for rank in (0..5_000).map(Rank) {
            record.handle(Duration::ZERO, &JobEvent::Started { rank, pid: 1 }, "node");
        }
        record.lives[4_321].ended = Some((Duration::from_secs(1), Cause::Signalled(9)));
        let text = "<script>".to_owned();
        let rank = Rank(0);
        record.handle(Duration::ZERO, &JobEvent::Notice { rank, text }, "node");
        let page = report(&record, "a <b>", "");
        assert!(page.contains("rank 4321 on node"), "it is not shown");
        assert!(page.contains("<td>4321</td>"), "it is not listed");
        assert!(page.contains("4550 ranks that did not fail are not shown"));
        assert!(!page.contains("<script>") && !page.contains("<b>"), "not escaped");
    }
}
