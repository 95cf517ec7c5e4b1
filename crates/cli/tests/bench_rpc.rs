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
                "least",
                "mode",
                "most",
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

fn found<'a>(rows: &'a [Value], mode: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| text(row, "mode") == mode).collect()
}

/// Writes are measured at the points that are asked for, each byte of them arrives, and rows say their range.
#[test]
fn pipelined_writes_are_measured_at_all_points() {
    let points = ["--depth", "1,3", "--buffer", "65536", "--segments", "1,16"];
    let rows = rows(&[&["--case", "bulk_pipelined"], &points[..]].concat());
    assert_eq!(rows.len(), 8);
    assert_eq!(found(&rows, "16 segments").len(), 4);
    for row in &rows {
        assert_eq!(
            (text(row, "unit"), &row["size"]),
            ("GB/s", &65536.into()),
            "{row}"
        );
        assert!([1, 3].map(Value::from).contains(&row["in_flight"]), "{row}");
        let of = |field: &str| row[field].as_f64().unwrap();
        assert!(
            0.0 < of("least") && of("least") <= of("value") && of("value") <= of("most"),
            "{row}"
        );
        assert!(of("floor") > 0.0, "{row}");
    }
}

/// Clients of one target, in two processes, all end calls and writes, and the target says how much memory it uses.
#[test]
fn many_clients_are_served() {
    let points = ["--clients", "1,20", "--client-processes", "2"];
    let rows = rows(&[&["--case", "many_clients"], &points[..]].concat());
    for (mode, unit) in [
        ("calls", "calls/s"),
        ("calls_slowest", "%"),
        ("writes", "GB/s"),
        ("writes_slowest", "%"),
        ("memory", "MiB"),
        ("memory_per_client", "KiB"),
    ] {
        let found = found(&rows, mode);
        assert_eq!(found.len(), 4, "{mode}");
        for row in found {
            assert_eq!(text(row, "unit"), unit, "{row}");
            assert!(
                mode.ends_with("slowest") || row["value"].as_f64().unwrap() > 0.0,
                "{row}"
            );
            assert_eq!(
                row["floor"].is_f64(),
                ["calls", "writes"].contains(&mode),
                "{row}"
            );
        }
    }
    let alone = found(&rows, "calls_slowest")
        .into_iter()
        .filter(|row| row["in_flight"] == 1);
    assert!(alone.into_iter().all(|row| row["value"] == 100.0));
}

/// Typed arguments have rows of bytes, of coding and of calls.
#[test]
fn encoding_is_measured() {
    let rows = rows(&["--case", "encoding", "--provider", "shm"]);
    assert_eq!(rows.len(), 6);
    let doubles = found(&rows, "doubles_encoded");
    // Each number as it is in memory, and the length of the array.
    assert_eq!(
        (&doubles[0]["value"], &doubles[0]["floor"]),
        (&8194.0.into(), &8192.0.into())
    );
    assert!(found(&rows, "arguments_call")[0]["floor"].is_f64());
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

/// A measurement that is not possible is refused at once, and the message says what to do.
#[test]
fn wrong_arguments_are_told() {
    for (arguments, expected) in [
        (&["--connect", "tcp://127.0.0.1:1"][..], "--key-file"),
        (&["--bind", "127.0.0.1:1"], "--serve"),
        (&["--case", "tea"], "null_call"),
        (&["--depth", "0"], "1..=1024"),
        (&["--buffer", "much"], "--buffer"),
        (&["--segments", "70000"], "1..=65536"),
        (&["--clients", "0"], "--clients"),
        (&["--client-processes", "0"], "--client-processes"),
    ] {
        let mut command = assert_cmd::Command::new(ROPEWALK);
        let output = command.args(["bench", "rpc"]).args(arguments).output().unwrap();
        assert!(!output.status.success());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}
