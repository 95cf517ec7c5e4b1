//! `ropewalk bench reduce`: that it measures the calls that it names, not how fast any is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{collections::BTreeSet, fs, process::Command};

use rig::{ROPEWALK, told};
use serde_json::Value;

const HOSTS: &[&str] = &["-hosts", "h1:2,h2:2", "-launcher", "fork"];

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ROPEWALK);
    command.args(["bench", "reduce", "--rounds", "3"]).args(arguments);
    told(command)
}

/// Every call is measured with every length, on one host and on two, and its result is right (the command fails
/// otherwise).
#[test]
fn all_calls_are_measured() {
    const CALLS: &str = "reduce,allreduce,broadcast,gather,allgather,reduce-scatter";
    const FIELDS: [&str; 7] = ["bytes", "call", "least_s", "median_s", "most_s", "order", "ranks"];
    let usual = ["--json", "--calls", CALLS, "--bytes", "32,64KiB"];
    let ordered = ["--order", "ordered", "--protection", "none"];
    for (options, order) in [
        ([&["-n", "4"][..], &usual].concat(), "any"),
        ([HOSTS, &usual, &ordered].concat(), "ordered"),
    ] {
        let (code, stdout, stderr) = bench(&options);
        assert_eq!(code, Some(0), "{options:?}: {stdout}{stderr}");
        let rows: Vec<Value> = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row["call"].as_str().unwrap(), row["bytes"].as_u64().unwrap()))
            .collect();
        let calls = CALLS.split(',');
        let expected: Vec<_> = calls.flat_map(|call| [(call, 32), (call, 65_536)]).collect();
        assert_eq!(found, expected);
        for row in &rows {
            let fields: BTreeSet<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(fields, FIELDS.into(), "{row}");
            assert_eq!(
                (&row["ranks"], &row["order"]),
                (&4.into(), &order.into()),
                "{row}"
            );
            let [least, median, most] =
                ["least_s", "median_s", "most_s"].map(|field| row[field].as_f64().unwrap());
            assert!(0.0 < least && least <= median && median <= most, "{row}");
        }
    }
}

/// Another program's times stand in the table, in the rows and in the picture.
#[test]
fn another_program_stands_beside() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("times.svg");
    let osu = "printf '# OSU MPI Allreduce Latency Test\\n# Size  Avg Latency(us)\\n8 5.25\\n4096 50\\n'";
    let arguments = ["--calls", "allreduce", "--bytes", "8,64", "--beside", osu];
    let drawn = ["--svg", svg.to_str().unwrap()];
    let (code, stdout, stderr) = bench(&[HOSTS, &arguments, &drawn].concat());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let line = |bytes: &str| {
        let is_row = |line: &&str| line.split('┆').nth(1).is_some_and(|cell| cell.trim() == bytes);
        stdout.lines().find(is_row).unwrap()
    };
    assert!(
        line("8").contains(" 5.2 ") && line("8").contains(" x "),
        "{stdout}"
    );
    assert!(!line("64").contains(" x "), "{stdout}");
    let picture = fs::read_to_string(svg).unwrap();
    assert_eq!(picture.matches("<polyline").count(), 2, "{picture}");

    let (_, stdout, stderr) = bench(&[&["-n", "2", "--json"], &arguments[..]].concat());
    let rows: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2, "{stdout}{stderr}");
    assert_eq!(rows[0]["beside_s"], 5.25e-6);
    assert!(rows[1].get("beside_s").is_none(), "{stdout}");
}

/// The number of ranks is the number of slots of the hosts, and any number has the usual lengths, rounded up.
#[test]
fn ranks_and_lengths_have_defaults() {
    let (code, stdout, stderr) = bench(&[
        "-hosts",
        "h1:1,h2:2",
        "-launcher",
        "fork",
        "--calls",
        "reduce-scatter",
        "--json",
    ]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let found: Vec<u64> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .inspect(|row| assert_eq!(row["ranks"], 3))
        .map(|row| row["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(found, [24, 1032, 65_544, 1_048_584, 8_388_624]);
}

/// Wrong arguments are refused with a reason, before anything is measured.
#[test]
fn wrong_arguments_are_told() {
    for (arguments, expected) in [
        (&["--calls", "tea"][..], "possible values: allgather, allreduce"),
        (
            &["-n", "4", "--calls", "reduce-scatter", "--bytes", "8"],
            "a positive multiple of 32",
        ),
        (&["--bytes", "12"], "a positive multiple of 8"),
        (&["--bytes", "much"], "a size is wanted"),
        (&["--rounds", "0"], "0 is not in 1..=10000"),
        (&["--beside", "true"], "name it by --calls"),
        (&["--calls", "reduce", "--beside", "exit 3"], "exit status: 3"),
        (
            &["--calls", "reduce", "--beside", "echo tea"],
            "BYTES MICROSECONDS",
        ),
        (&["-hosts", "h1:x"], "no number of ranks for host h1"),
    ] {
        let mut command = Command::new(ROPEWALK);
        command.args(["bench", "reduce"]).args(arguments);
        let (code, stdout, stderr) = told(command);
        assert!(code != Some(0) && stdout.is_empty(), "{arguments:?}: {stdout}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}
