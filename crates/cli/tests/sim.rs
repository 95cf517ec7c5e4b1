//! `ropewalk sim`, as users call it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use rig::{ROPEWALK, told};

fn sim(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ROPEWALK);
    command.arg("sim").args(words);
    told(command)
}

/// The streaming reduction is nearest to the floor, with a slow link too, and the paper's master has its messages.
#[test]
fn policies_are_compared() {
    for disturbance in [&[][..], &["--slow", "3:1:0.1:1"]] {
        let words = [
            &["reduce", "--hosts", "8", "--size", "4MiB", "--json"],
            disturbance,
        ]
        .concat();
        let (code, rows, _) = sim(&words);
        assert_eq!(code, Some(0));
        let rows = rows.lines().map(|row| {
            let row: Value = serde_json::from_str(row).unwrap();
            let factor = row["time_s"].as_f64().unwrap() / row["floor_s"].as_f64().unwrap();
            (row["policy"].as_str().unwrap().to_owned(), (factor, row))
        });
        let rows: BTreeMap<_, _> = rows.collect();
        let factor = |policy: &str| rows[policy].0;
        assert!(factor("streaming") < 1.1, "{rows:?}");
        for other in ["binomial", "paper", "rabenseifner"] {
            assert!(factor(other) > 1.5, "{rows:?}");
        }
        assert_eq!(rows["paper"].1["messages_to_scheduler"], 15);
        assert_eq!(rows["paper"].1["messages_from_scheduler"], 7);
    }
}

/// Each collective is near the floor, and has the algorithms of MPI libraries beside it.
#[test]
fn collectives_are_compared() {
    for (collective, others) in [
        ("allreduce", vec!["rabenseifner", "doubling", "ring"]),
        ("broadcast", vec!["binomial", "pipeline", "ring"]),
        ("gather", vec!["binomial", "linear"]),
        ("allgather", vec!["doubling", "ring"]),
    ] {
        let words = [
            "reduce",
            "--collective",
            collective,
            "--hosts",
            "50",
            "--size",
            "1MiB",
            "--json",
        ];
        let (code, rows, _) = sim(&words);
        assert_eq!(code, Some(0));
        let rows = rows.lines().map(|row| {
            let row: Value = serde_json::from_str(row).unwrap();
            let factor = row["time_s"].as_f64().unwrap() / row["floor_s"].as_f64().unwrap();
            (row["policy"].as_str().unwrap().to_owned(), factor)
        });
        let rows: BTreeMap<_, _> = rows.collect();
        assert!(rows["streaming"] < 1.6, "{collective}: {rows:?}");
        assert!(
            rows.len() == 1 + others.len() && others.iter().all(|other| rows[*other] > 0.99),
            "{collective}: {rows:?}"
        );
    }
    let (code, _, error) = sim(&["reduce", "--collective", "gather", "--policy", "ring"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("gather has streaming, binomial, linear, not ring"),
        "{error}"
    );
}

/// A rank that dies costs little, and words that make no sense are explained.
#[test]
fn ranks_may_die() {
    let (code, rows, _) = sim(&["reduce", "--size", "32MiB", "--kill", "5:300ms", "--json"]);
    assert_eq!(code, Some(0));
    let row: Value = serde_json::from_str(&rows).unwrap();
    let (time, floor) = (row["time_s"].as_f64().unwrap(), row["floor_s"].as_f64().unwrap());
    assert!(time < 1.15 * floor + 0.005, "{row}");
    for (words, reason) in [
        (["--kill", "8:1s"], "there is no rank 8"),
        (["--size", "many"], "a size is wanted"),
        (["--slow", "1:2"], "HOST:OUT:IN:CPU"),
        (["--late", "1"], "RANK:TIME"),
    ] {
        let (code, _, error) = sim(&[&["reduce"], &words[..]].concat());
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

/// A tree is faster than a star, and the launcher hears of all ranks in fewer messages than there are.
#[test]
fn starts_are_compared() {
    let words = [
        "--hosts", "1000", "--ranks", "10000", "--arity", "16,1000", "--json",
    ];
    let (code, rows, _) = sim(&[&["launch"], &words[..]].concat());
    assert_eq!(code, Some(0));
    let rows: Vec<Value> = rows
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let [tree, star] = [0, 1].map(|row| rows[row]["last_rank_s"].as_f64().unwrap());
    assert!(2.0 * tree < star, "{rows:?}");
    assert!(
        rows[0]["messages_to_launcher"].as_u64().unwrap() < 3_000,
        "{rows:?}"
    );
    let (_, table, _) = sim(&[&["launch"], &words[..6]].concat());
    assert!(
        table.contains("star") && table.contains("known to the launcher"),
        "{table}"
    );
}

/// Seeds with random faults break no promise.
#[test]
fn seeds_are_tried() {
    for world in ["launch", "reduce"] {
        let (code, text, _) = sim(&[world, "--seeds", "100", "--seed", "7000"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("0 break a promise"), "{text}");
    }
}
