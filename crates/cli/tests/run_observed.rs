//! The view of a job that `ropewalk run` gives: metrics while it runs, and a page afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, example};

/// While a job runs Prometheus can read how many ranks run and what they wrote.
#[test]
fn metrics_tell_of_a_running_job() {
    let mut job = Command::new(ROPEWALK)
        .args([
            "run",
            "-n",
            "3",
            "--metrics",
            "0",
            "sh",
            "-c",
            "echo begun; read end; exit 0",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(job.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("ropewalk: metrics at http://");
    let address = address.and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    assert!(
        address.starts_with("127.0.0.1:"),
        "others could read it: {address}"
    );
    let begin = Instant::now();
    // Only rank 0 reads; for the others the input ends at once.
    let wanted = [
        ("output_lines_total", "stream=\"stdout\"", "3"),
        ("ranks_started_total", "", "3.0"),
        ("ranks", "state=\"running\"", "1"),
        ("ranks", "state=\"ended\"", "2"),
        ("ranks", "state=\"failed\"", "0"),
        ("ranks_ended_total", "how=\"ok\"", "2"),
        ("restarts_total", "", "0.0"),
        ("respawns_total", "", "0.0"),
    ];
    let mut text = String::new();
    let is_there = |text: &str, (name, label, value): (&str, &str, &str)| {
        text.lines().any(|line| {
            let name = format!("ropewalk_job_{name}{{job_id=\"");
            line.starts_with(&name) && line.contains(label) && line.ends_with(&format!(" {value}"))
        })
    };
    while !wanted.iter().all(|&line| is_there(&text, line)) {
        assert!(begin.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(20));
        text = get(address);
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let hosts = text.matches(&format!("host=\"{}\"", name.trim())).count();
    assert_eq!(hosts, 4, "a state for the host each: {text}");
    job.stdin.take().unwrap().write_all(b"end\n").unwrap();
    job.wait().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it is served after the end");
}

/// The page names who failed and how, and what was run.
#[test]
fn a_report_tells_of_the_job() {
    let script = "echo line; [ $RANK = 2 ] && kill -9 $$; exit 0";
    let page = report_of(&["sh", "-c", script], 137);
    for text in [
        "<td>exit code</td><td>137</td>",
        "rank 2 on host",
        "killed by signal 9",
        "sh -c echo line; [ $RANK = 2 ] &amp;&amp; kill -9 $$; exit 0",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert_eq!(bars(&page, "runs").len(), 3);
    assert_eq!(bars(&page, "fence"), []);
}

/// The time line has a bar for each process and each fence, where they were and as long as they took, a cross
/// where a process failed, and below it how much was written when. Of two fences the second waits half a
/// second for rank 1, which writes before and after it.
#[test]
fn a_report_shows_when_things_were() {
    let script = r#"
        ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
        ask 'cmd=init pmi_version=1 pmi_subversion=1'
        ask cmd=barrier_in
        if [ $RANK = 1 ]; then echo 12345; echo 1 >&2; sleep 0.5; echo 12345; fi
        ask cmd=barrier_in
        ask cmd=finalize
        [ $RANK != 2 ] || kill -9 $$
    "#;
    let page = report_of(&["bash", "-c", script], 137);
    let runs = bars(&page, "runs");
    assert_eq!(runs.len(), 3, "{page}");
    for (rank, bar) in runs.iter().enumerate() {
        assert!(bar.title.starts_with(&format!("rank {rank} on ")), "{bar:?}");
    }
    assert!(page.contains(">✝ failed first: killed by signal 9"), "{page}");
    assert!(
        page.contains("<td>fences</td><td>2, 0 failed, "),
        "not two fences: {page}"
    );
    assert!(page.contains("Longest fences"), "{page}");
    let mut fences = bars(&page, "fence");
    fences.sort_by(|a, b| a.x.total_cmp(&b.x));
    let [first, second] = &fences[..] else {
        panic!("not two fences: {page}")
    };
    assert!(
        first.x + first.width <= second.x + 0.1,
        "they are not one behind the other: {fences:?}"
    );
    let took = second.title.strip_prefix("fence WORLD: 3 ranks, ").map(seconds);
    let took = took.unwrap_or_else(|| panic!("{second:?}"));
    assert!(took >= 0.45, "the second fence took {took} s");
    let life = runs[1].title.split_once(": ").unwrap().1;
    let (begun, end) = life.split_once(" to ").unwrap();
    let lived = seconds(end.split_once(", ").unwrap().0) - seconds(begun);
    assert!(
        runs[1].x < second.x && second.x + second.width < runs[1].x + runs[1].width + 0.1,
        "{second:?} is not within {:?}",
        runs[1]
    );
    let expected = runs[1].width * took / lived;
    assert!(
        (second.width - expected).abs() < 0.1 * expected,
        "{second:?} has not the measure of {:?}",
        runs[1]
    );
    let written = |class| {
        let bars = bars(&page, class);
        let bytes = bars
            .iter()
            .map(|bar| bar.title.split(' ').next().unwrap().parse::<u64>().unwrap());
        (bars.len(), bytes.sum::<u64>())
    };
    assert_eq!(written("stdout"), (2, 12));
    assert_eq!(written("stderr"), (1, 2));
}

/// The page counts what ranks on two hosts send for a reduction, and the messages of its scheduler.
#[test]
fn a_report_counts_reductions() {
    let program = example("hello_reduce");
    let words = [
        "-launcher",
        "fork",
        "-hosts",
        "h1:2,h2:2",
        program.to_str().unwrap(),
    ];
    let page = report_of(&words, 0);
    assert!(page.contains("<h2>Reductions</h2>"), "{page}");
    for host in ["h1", "h2"] {
        assert!(
            page.contains(&format!("<tr><td>{host}</td><td>")),
            "{host}: {page}"
        );
    }
    let load = page.split_once("The scheduler received ").unwrap().1;
    let numbers = load.split("</p>").next().unwrap();
    let numbers = numbers.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let [received, received_bytes, sent, sent_bytes] = numbers[..] else {
        panic!("not four numbers: {load}");
    };
    assert!(received >= 1 && sent >= 1, "{load}");
    assert!(received_bytes > received && sent_bytes > sent, "{load}");
}

/// The page about a job of three ranks, unless the words say another number. It has to end with this exit code.
fn report_of(words: &[&str], code: i32) -> String {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("report.html");
    let status = Command::new(ROPEWALK)
        .args(["run", "-n", "3", "--report"])
        .arg(&path)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(code));
    fs::read_to_string(&path).unwrap()
}

/// The culprit of a job on two hosts is set off from the ranks that the launcher ended because of it: in lanes, each
/// of which names its host, and in the table, where it comes first. Of a lost host all ranks are culprits.
#[test]
fn a_report_sets_off_the_culprit() {
    let failures = [
        ("exit 3", 3, "exited with code 3"),
        ("kill -9 $$", 137, "killed by signal 9"),
        // The agent of the host is the parent.
        ("kill -9 $PPID", 125, "lost with the agent of its host"),
    ];
    for (failure, code, cause) in failures {
        let script = format!("[ $RANK != 2 ] || {{ sleep 0.5; {failure}; }}; exec sleep 60");
        let options = ["-hosts", "a:2,b:2", "-launcher", "fork", "-n", "4"];
        let words = [&options[..], &["bash", "-c", &script]].concat();
        let page = report_of(&words, code);
        let culprits: &[u32] = if code == 125 { &[2, 3] } else { &[2] };
        for rank in 0..4 {
            let host = if rank < 2 { "a" } else { "b" };
            let (class, end) = match culprits.contains(&rank) {
                true => ("culprit", format!("failed first: {cause}")),
                false => ("ended", "ended with the job: killed by signal 15".to_owned()),
            };
            let name = format!(">rank {rank} on {host} <tspan class=\"{class}\">✝ {end}</tspan>");
            assert!(page.contains(&name), "{failure}: {name} is not in {page}");
        }
        let lanes = page.matches("<rect class=\"culprit\"").count();
        assert_eq!(lanes, culprits.len(), "{failure}: {page}");
        let rows: Vec<_> = page.split("<tr class=\"").skip(1).collect();
        assert_eq!(rows.len(), 4, "{failure}: {page}");
        for (index, row) in rows.iter().enumerate() {
            let is_culprit = row.starts_with("culprit\"");
            assert_eq!(is_culprit, index < culprits.len(), "{failure}: {page}");
        }
        let ended = format!("<p>{} processes were still there", 4 - culprits.len());
        assert!(page.contains(&ended), "{failure}: {page}");
    }
}

/// A rectangle of a drawing.
#[derive(Debug, PartialEq)]
struct Bar {
    x: f64,
    width: f64,
    title: String,
}

/// The rectangles of this class, in the order in which they stand.
fn bars(page: &str, class: &str) -> Vec<Bar> {
    let head = format!("<rect class=\"{class}\"");
    let texts = page.split(&head).skip(1);
    let bars = texts.map(|text| {
        let number = |name: &str| {
            let value = text.split_once(&format!(" {name}=\"")).unwrap().1;
            value.split(['"', '%']).next().unwrap().parse().unwrap()
        };
        let title = text.split_once("<title>").unwrap().1;
        Bar {
            x: number("x"),
            width: number("width"),
            title: title.split("</title>").next().unwrap().to_owned(),
        }
    });
    bars.collect()
}

/// Returns the seconds of a time as the page writes it.
fn seconds(text: &str) -> f64 {
    match text.strip_suffix(" ms") {
        Some(number) => number.parse::<f64>().unwrap() / 1e3,
        None => text.strip_suffix(" s").unwrap().parse().unwrap(),
    }
}

/// A report that cannot be written is refused before anything runs.
#[test]
fn an_impossible_report_is_refused_at_once() {
    let output = Command::new(ROPEWALK)
        .args(["run", "--report", "/no/such/folder/report.html", "echo", "ran"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("cannot write the report: /no/such/folder/report.html: "),
        "{text}"
    );
}

fn get(address: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text
}
