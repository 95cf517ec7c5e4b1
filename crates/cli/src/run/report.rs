//! The report of a job: one static page.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};

use ropewalk_launch::restart::Attempt;
use ropewalk_names::Rank;
use ropewalk_plot::escaped;

use super::{
    super::page::{TimeAxis, begin_drawing, page},
    fate::Fate,
    record::{Life, Record},
    reductions::HostCounters,
    summary,
};

/// The page about a job that ran `command`, and what else there is to say of it as a section of its own.
pub(super) fn report(record: &Record, command: &str, section: &str) -> String {
    let ranks: BTreeSet<Rank> = record.lives.iter().map(|life| life.rank).collect();
    let hosts: BTreeSet<&str> = record.lives.iter().map(|life| &*life.host).collect();
    let (end, exit_code, verdict) = match &record.outcome {
        Some((end, outcome)) => (*end, Some(outcome.exit_code()), outcome.to_string()),
        None => (Duration::ZERO, None, String::new()),
    };
    let class = if exit_code == Some(0) { "well" } else { "culprit" };
    let exit_code = exit_code.map_or("?".to_owned(), |code| code.to_string());
    let verdict = match verdict.is_empty() {
        true => "All ranks did their work.".to_owned(),
        false => verdict,
    };
    let fates = Fate::of_all(record);
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"verdict {class}\">{}</p>\n",
        escaped(command),
        escaped(&verdict).replace('\n', "<br>")
    );
    let ended = fates.iter().filter(|fate| **fate == Fate::EndedWithJob).count();
    // Writing to a string cannot fail.
    let _ = match ended {
        0 => Ok(()),
        1 => writeln!(
            body,
            "<p>1 process was still there when the launcher ended the job.</p>"
        ),
        _ => writeln!(
            body,
            "<p>{ended} processes were still there when the launcher ended the job.</p>"
        ),
    };
    body += "<table>\n";
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
    let shown = shown_ranks(record, &fates, &ranks);
    let caption = match ranks.len() - shown.len() {
        0 => "Processes".to_owned(),
        hidden => format!("Processes; {hidden} more ranks are not shown"),
    };
    let axis = TimeAxis { length: end };
    let legend = match fates.iter().all(|fate| *fate == Fate::Well) {
        true => "",
        false => FAILURES_LEGEND,
    };
    let _ = writeln!(
        body,
        "<figure><figcaption>{caption}</figcaption>{}\
         <p class=\"legend\"><span class=\"runs\"></span>&nbsp;runs \
         <span class=\"stopped\"></span>&nbsp;stopped by a signal \
         <span class=\"fence\"></span>&nbsp;somebody waits in a fence{legend}</p></figure>",
        draw_lives(record, &fates, &shown, axis)
    );
    if stdout.bytes + stderr.bytes > 0 {
        let _ = writeln!(
            body,
            "<figure><figcaption>Output, bytes in each {}</figcaption>{}\
             <p class=\"legend\"><span class=\"stdout\"></span>&nbsp;standard output \
             <span class=\"stderr\"></span>&nbsp;standard error</p></figure>",
            seconds(stdout.stretch.max(stderr.stretch)),
            draw_output(record, axis)
        );
    }
    tables(&mut body, record, &fates);
    body += section;
    let style = [STYLE, summary::STYLE].concat();
    page(&format!("ropewalk: {command}"), &style, &body)
}

/// All ranks, or the first of them: those that failed before the others.
fn shown_ranks(record: &Record, fates: &[Fate], ranks: &BTreeSet<Rank>) -> Vec<Rank> {
    let mut order: Vec<_> = record.lives.iter().zip(fates).collect();
    order.sort_by_key(|(life, fate)| (**fate, life.rank));
    let mut shown = BTreeSet::new();
    for rank in order
        .iter()
        .map(|(life, _)| life.rank)
        .chain(ranks.iter().copied())
    {
        if shown.len() == LANES_MAX {
            break;
        }
        shown.insert(rank);
    }
    shown.into_iter().collect()
}

/// A lane for each rank. Above its bars stands its name, as long as there is room for that.
fn draw_lives(record: &Record, fates: &[Fate], shown: &[Rank], axis: TimeAxis) -> String {
    let (label, lane) = match shown.len() {
        ..=NAMED_LANES_MAX => (16.0, 34.0),
        many => (0.0, (900.0 / many as f64).max(2.0)),
    };
    let bottom = lane * shown.len() as f64;
    let mut svg = begin_drawing(bottom + AXIS);
    let mut names = vec![Names::default(); shown.len()];
    let top = |index: usize| index as f64 * lane;
    for (life, &fate) in record.lives.iter().zip(fates) {
        if let Ok(index) = shown.binary_search(&life.rank) {
            names[index].take(life, fate);
        }
    }
    for (index, _) in names.iter().enumerate().filter(|(_, names)| names.is_culprit) {
        let _ = writeln!(
            svg,
            "<rect class=\"culprit\" x=\"0\" y=\"{:.1}\" width=\"100%\" height=\"{lane:.1}\"/>",
            top(index)
        );
    }
    let mut bar = |class: &str, from: Duration, to: Duration, y: f64, height: f64, title: &str| {
        let (x, width) = axis.bar(from, to);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.3}%\" y=\"{y:.1}\" width=\"{width:.3}%\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            escaped(title)
        );
    };
    for (life, fate) in record.lives.iter().zip(fates) {
        let Ok(index) = shown.binary_search(&life.rank) else {
            continue;
        };
        let free = lane - label;
        let (y, height) = (top(index) + label + free * 0.15, free * 0.7);
        let end = life.ended.map_or(axis.length, |(end, _)| end);
        let title = format!(
            "rank {} on {}, pid {}: {} to {}, {}",
            life.rank,
            life.host,
            life.pid,
            seconds(life.started),
            seconds(end),
            how(life, *fate)
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
    for (life, &fate) in record.lives.iter().zip(fates) {
        if let (Some((end, _)), Ok(index), true) =
            (life.ended, shown.binary_search(&life.rank), fate != Fate::Well)
        {
            let (x, y, end) = (axis.x(end), top(index) + label, top(index) + lane);
            let class = fate.shown().0;
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"{y:.1}\" y2=\"{end:.1}\"/>"
            );
        }
    }
    for (at, failed) in &record.restarts {
        let x = axis.x(*at);
        let _ = writeln!(
            svg,
            "<line class=\"restart\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"0\" y2=\"{bottom:.1}\">\
             <title>started again: {}</title></line>",
            escaped(&why_again(failed))
        );
    }
    if label > 0.0 {
        for (index, (rank, names)) in shown.iter().zip(&names).enumerate() {
            let y = top(index) + 13.0;
            let hosts = escaped(&names.hosts.join(", "));
            let _ = writeln!(
                svg,
                "<text x=\"2\" y=\"{y:.1}\">rank {rank} on {hosts}{}</text>",
                names.ends
            );
        }
    }
    axis.draw(&mut svg, bottom);
    svg.push_str("</svg>\n");
    svg
}

/// The line of text above the bars of a rank.
#[derive(Clone, Debug, Default)]
struct Names<'a> {
    hosts: Vec<&'a str>,
    /// How its processes ended that did not end well, as SVG.
    ends: String,
    end_count: usize,
    is_culprit: bool,
}

impl<'a> Names<'a> {
    /// More would not fit.
    const ENDS_MAX: usize = 3;

    fn take(&mut self, life: &'a Life, fate: Fate) {
        self.is_culprit |= fate == Fate::FailedFirst;
        if !self.hosts.contains(&&*life.host) {
            self.hosts.push(&life.host);
        }
        if fate == Fate::Well || self.end_count == Self::ENDS_MAX {
            return;
        }
        self.end_count += 1;
        let _ = write!(
            self.ends,
            " <tspan class=\"{}\">✝ {}</tspan>",
            fate.shown().0,
            escaped(&how(life, fate))
        );
    }
}

/// How a process ended, and which part it played in the end of its job.
fn how(life: &Life, fate: Fate) -> String {
    match (life.ended, fate) {
        (None, _) => "not seen to end".to_owned(),
        (Some((_, cause)), Fate::Well) => cause.to_string(),
        (Some((_, cause)), _) => format!("{}: {cause}", fate.shown().1),
    }
}

fn why_again(failed: &Attempt) -> String {
    format!("attempt {}: {}", failed.number, failed.verdict)
}

fn draw_output(record: &Record, axis: TimeAxis) -> String {
    let height = 120.0;
    let mut svg = begin_drawing(height + AXIS);
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
            let (x, width) = axis.bar(from, to);
            let bar = bytes as f64 / most as f64 * height;
            let y = height - bar;
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.3}%\" y=\"{y:.2}\" width=\"{width:.3}%\" height=\"{bar:.2}\">\
                 <title>{bytes} bytes from {} on</title></rect>",
                seconds(from)
            );
        }
    }
    let _ = writeln!(svg, "<text x=\"0\" y=\"12\">{most} bytes</text>");
    axis.draw(&mut svg, height);
    svg.push_str("</svg>\n");
    svg
}

fn tables(body: &mut String, record: &Record, fates: &[Fate]) {
    let lives = record.lives.iter().zip(fates);
    let mut failed: Vec<_> = lives.filter(|(_, fate)| **fate != Fate::Well).collect();
    failed.sort_by_key(|(life, fate)| (**fate, life.ended.map(|(at, _)| at)));
    if !failed.is_empty() {
        table(
            body,
            "Processes that did not end well",
            &["rank", "host", "pid", "when", "how"],
        );
        for (life, fate) in failed.iter().take(ROWS_MAX) {
            let end = life.ended.map(|(end, _)| seconds(end)).unwrap_or_default();
            let (rank, pid) = (life.rank.to_string(), life.pid.to_string());
            let cells = [rank, life.host.clone(), pid, end, how(life, **fate)];
            row_of(body, fate.shown().0, &cells);
        }
        finish_table(body, failed.len());
    }
    let fences = &record.fences;
    if !record.restarts.is_empty() {
        table(body, "Attempts that failed", &["started again", "why"]);
        for (at, failed) in &record.restarts {
            row(body, &[seconds(*at), why_again(failed)]);
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
    if let Some(total) = record.reductions.total() {
        let hosts = record.reductions.by_host();
        reduction_tables(body, &total, &hosts);
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

fn reduction_tables(body: &mut String, total: &HostCounters, hosts: &BTreeMap<&str, HostCounters>) {
    let heads = [
        "host",
        "ends",
        "chunks sent",
        "bytes",
        "mean send time",
        "mean wait",
        "longest queue",
        "sends, MB/s",
        "receives, MB/s",
    ];
    table(body, "Reductions", &heads);
    let mean = |sum: Duration, chunks: u64| match chunks {
        0 => String::new(),
        chunks => seconds(sum.div_f64(chunks as f64)),
    };
    let rate = |rate: u64| match rate {
        0 => String::new(),
        rate => format!("{:.1}", rate as f64 / 1e6),
    };
    for (host, counters) in hosts.iter().take(ROWS_MAX) {
        let cells = [
            (*host).to_owned(),
            counters.ends.to_string(),
            counters.chunks.to_string(),
            counters.chunk_bytes.to_string(),
            mean(counters.send_time, counters.chunks),
            mean(counters.wait_time, counters.chunks),
            counters.queue_max.to_string(),
            rate(counters.send_rate),
            rate(counters.receive_rate),
        ];
        row(body, &cells);
    }
    finish_table(body, hosts.len());
    let load = total.scheduler;
    // Writing to a string cannot fail.
    let _ = writeln!(
        body,
        "<p>The scheduler received {} messages ({} bytes) of other ranks and sent them {} ({} bytes).</p>",
        load.received, load.received_bytes, load.sent, load.sent_bytes
    );
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
    row_of(body, "", cells);
}

fn row_of(body: &mut String, class: &str, cells: &[String]) {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| format!("<td>{}</td>", escaped(cell)))
        .collect();
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let _ = writeln!(body, "<tr{class}>{}</tr>", cells.concat());
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 1.0 => format!("{:.1} ms", short * 1e3),
        long => format!("{long:.2} s"),
    }
}

const AXIS: f64 = 24.0;
/// With more lanes there is no room for the names of ranks and hosts.
const NAMED_LANES_MAX: usize = 64;
/// More lanes could not be told apart.
const LANES_MAX: usize = 450;
const ROWS_MAX: usize = 200;
const FENCES_MAX: usize = 20;

const FAILURES_LEGEND: &str = " <span class=\"culprit\"></span>&nbsp;failed first \
    <b class=\"failure\">✝</b>&nbsp;failed \
    <b class=\"ended\">✝</b>&nbsp;ended with the job";

const STYLE: &str = "
tr > :first-child { width: 9rem; }
.verdict { font-weight: 600; overflow-wrap: anywhere; padding: .5rem .7rem; border-left: 4px solid #3f9d6b; }
.verdict.culprit { border-color: var(--bad); }
.culprit { fill: #d6453d30; background: #d6453d30; }
svg line.culprit { stroke: var(--bad); stroke-width: 4; }
svg line.failure { stroke: var(--bad); stroke-width: 2; }
svg line.ended { stroke: var(--quiet); stroke-width: 2; }
svg tspan.culprit { fill: var(--bad); font-weight: 700; }
tspan.failure, b.failure { fill: var(--bad); color: var(--bad); }
tspan.ended, .ended { fill: var(--quiet); color: var(--quiet); }
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
    use ropewalk_membership::Cause;

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
        assert!(!page.contains("<text x=\"2\""), "there is no room for names");
        assert!(page.contains("4550 more ranks are not shown"));
        assert!(!page.contains("<script>") && !page.contains("<b>"), "not escaped");
    }
}
