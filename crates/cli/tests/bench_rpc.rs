//! `ropewalk bench rpc`: that it measures what it says, not how fast anything is.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

fn rows(arguments: &[&str]) -> Vec<Value> {
    let mut command = assert_cmd::Command::new(ROPEWALK);
    command
        .args(["bench", "rpc", "--json", "--quick"])
        .args(arguments);
    let output = command.timeout(Duration::from_secs(180)).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {row}"))
}

/// Every row has every field, of its type; every case is there for every provider; and it ends in time.
#[test]
fn all_cases_are_there() {
    let start = Instant::now();
    let rows = rows(&[]);
    let took = start.elapsed();
    for row in &rows {
        let fields: BTreeSet<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "case",
                "floor",
                "in_flight",
                "mode",
                "provider",
                "size",
                "unit",
                "value"
            ]
            .into(),
            "{row}"
        );
        assert!(row["value"].as_f64().unwrap() >= 0.0, "{row}");
        assert!(
            row["floor"].is_null() || row["floor"].as_f64().unwrap() >= 0.0,
            "{row}"
        );
        assert!(row["size"].is_null() || row["size"].is_u64(), "{row}");
        assert!(row["in_flight"].is_u64(), "{row}");
        let unit = match text(row, "case") {
            "bulk_pull" => "GB/s",
            "calls_per_second" => "calls/s",
            "idle_connections" => "%",
            "null_call" => "us",
            "peer_killed" | "peer_stopped" => "ms",
            other => panic!("unknown case {other}"),
        };
        assert_eq!(text(row, "unit"), unit, "{row}");
    }
    let found = |provider: &str, case: &str| {
        let wanted = |row: &&Value| text(row, "case") == case && text(row, "provider") == provider;
        rows.iter().filter(wanted).count()
    };
    for (case, shm, tcp) in [
        ("null_call", 2, 2),
        ("calls_per_second", 3, 3),
        ("bulk_pull", 14, 7),
        ("peer_killed", 2, 2),
        ("peer_stopped", 1, 1),
        ("idle_connections", 1, 1),
    ] {
        assert_eq!((found("shm", case), found("tcp", case)), (shm, tcp), "{case}");
    }
    // A build that is not optimised, beside other tests, may take longer than the 40 seconds that are promised.
    assert!(took < Duration::from_secs(120), "{took:?}");
}

/// Two processes that share nothing but a key file and an address measure; with another key there is no answer.
#[test]
fn two_hosts_measure_with_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    let key_file = key_file.to_str().unwrap();
    let mut serving = Command::new(ROPEWALK)
        .args([
            "bench",
            "rpc",
            "--serve",
            "--provider",
            "tcp",
            "--key-file",
            key_file,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(serving.stdout.as_mut().unwrap())
        .read_line(&mut address)
        .unwrap();
    let connect = [
        "--connect",
        address.trim(),
        "--case",
        "null_call,bulk_pull",
        "--key-file",
    ];

    let rows = rows(&[&connect[..], &[key_file]].concat());
    assert_eq!(rows.len(), 9);
    assert!(
        rows.iter()
            .all(|row| text(row, "provider") == "tcp" && row["floor"].is_f64())
    );

    let other = folder.path().join("other");
    std::fs::write(&other, "00".repeat(32)).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = assert_cmd::Command::new(ROPEWALK);
    command.args(["bench", "rpc"]).args(connect).arg(&other);
    command.timeout(Duration::from_secs(60)).assert().failure();

    serving.kill().unwrap();
    serving.wait().unwrap();
}

/// Each row of JSON is there as soon as it is measured, on a line of its own, long before the last one.
#[test]
fn json_rows_come_as_they_are_measured() {
    let mut bench = Command::new(ROPEWALK)
        .args([
            "bench",
            "rpc",
            "--json",
            "--provider",
            "tcp",
            "--case",
            "null_call,idle_connections",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bench.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "[");
    let first = lines.next().unwrap().unwrap();
    let row: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(text(&row, "case"), "null_call");
    // It has the other case to measure, in which alone it waits for seconds.
    assert!(
        bench.try_wait().unwrap().is_none(),
        "it has ended by the first row"
    );
    bench.kill().unwrap();
    bench.wait().unwrap();
}

/// Where the result cannot be written, that is said, and is a failure.
#[test]
fn a_full_output_is_told() {
    for format in [&[][..], &["--json"]] {
        let output = Command::new(ROPEWALK)
            .args([
                "bench",
                "rpc",
                "--quick",
                "--case",
                "null_call",
                "--provider",
                "shm",
            ])
            .args(format)
            .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = "ropewalk bench: cannot write to the standard output: ";
        assert!(said.contains(expected), "{format:?}: {said}");
    }
}

/// What cannot be measured is said at once, with what to do.
#[test]
fn wrong_arguments_are_told() {
    for (arguments, expected) in [
        (&["--connect", "tcp://127.0.0.1:1"][..], "--key-file"),
        (&["--bind", "127.0.0.1:1"], "--serve"),
        (&["--case", "tea"], "null_call"),
    ] {
        let mut command = assert_cmd::Command::new(ROPEWALK);
        let output = command.args(["bench", "rpc"]).args(arguments).output().unwrap();
        assert!(!output.status.success());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}
