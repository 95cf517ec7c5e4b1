//! What `ropewalk run` shows of a job to whoever watches: metrics while it runs, and a page afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
/// Generous: the tests run beside each other on few cores.
const PATIENCE: Duration = Duration::from_secs(60);

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
        "ropewalk_job_output_lines_total{stream=\"stdout\"} 3",
        "ropewalk_job_ranks_started_total 3.0",
        "ropewalk_job_ranks_running 1.0",
        "ropewalk_job_ranks_ended_total{how=\"ok\"} 2",
    ];
    let mut text = String::new();
    while !wanted.iter().all(|line| text.lines().any(|found| found == *line)) {
        assert!(begin.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(20));
        text = get(address);
    }
    job.stdin.take().unwrap().write_all(b"end\n").unwrap();
    job.wait().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it is served after the end");
}

/// The page names who failed and how, the fences, and what was run.
#[test]
fn a_report_tells_of_the_job() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("report.html");
    let script = "echo line; [ $RANK = 2 ] && kill -9 $$; exit 0";
    let status = Command::new(ROPEWALK)
        .args(["run", "-n", "3", "--report"])
        .arg(&path)
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(137));
    let page = fs::read_to_string(&path).unwrap();
    for text in [
        "<td>exit code</td><td>137</td>",
        "rank 2 on host",
        "killed by signal 9",
        "sh -c echo line; [ $RANK = 2 ] &amp;&amp; kill -9 $$; exit 0",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
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
        text.contains("cannot write the report /no/such/folder/report.html"),
        "{text}"
    );
}

fn get(address: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text
}
