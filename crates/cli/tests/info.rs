//! `ropewalk info`.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use assert_cmd::Command;
use serde_json::Value;

fn output(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    let output = command.arg("info").args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Everything that was probed is told by name, with what was found, in both forms.
#[test]
fn probes_are_told() {
    let info: Value = serde_json::from_str(&output(&["--json"])).unwrap();
    let table = output(&[]);
    let probes = info["probes"].as_array().unwrap();
    for name in ["robust mutexes", "process_vm_readv", "TCP congestion control"] {
        let found = probes.iter().filter(|probe| probe["name"] == name).count();
        assert_eq!(found, 1, "{name} in {info}");
    }
    for probe in probes {
        assert!(probe["usable"].is_boolean(), "{probe}");
        assert!(!probe["found"].as_str().unwrap().is_empty(), "{probe}");
        assert!(table.contains(probe["name"].as_str().unwrap()), "{table}");
    }
}

/// Every provider is told; what every Linux has is usable, and what is not says why.
#[test]
fn providers_are_told() {
    let info: Value = serde_json::from_str(&output(&["--json"])).unwrap();
    let providers = info["providers"].as_array().unwrap();
    let names: Vec<_> = providers.iter().map(|provider| &provider["name"]).collect();
    assert_eq!(names, ["loopback", "shm", "unix", "tcp", "ofi"]);
    let table = output(&[]);
    for provider in providers {
        let usable = provider["usable"].as_bool().unwrap();
        assert_eq!(usable, provider["unavailable"].is_null(), "{provider}");
        assert!(usable || provider["name"] == "ofi", "{provider}");
        assert!(table.contains(provider["name"].as_str().unwrap()), "{table}");
    }
}

/// The tables fit into 80 columns, or into the terminal, and say all that the JSON says.
#[test]
fn tables_fit_with_every_word() {
    let info: Value = serde_json::from_str(&output(&["--json"])).unwrap();
    let on_terminal = |columns: usize| {
        let command = format!("stty cols {columns}; {} info", env!("CARGO_BIN_EXE_ropewalk"));
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .output()
            .expect("script is missing: install the Debian package bsdutils");
        String::from_utf8(output.stdout).unwrap()
    };
    for (columns, table) in [(80, output(&[])), (80, on_terminal(80)), (60, on_terminal(60))] {
        let wide: Vec<_> = table
            .lines()
            .filter(|line| line.chars().count() > columns)
            .collect();
        assert!(wide.is_empty(), "{wide:#?}");
        // The cells of the last column, whose lines were broken between and within words.
        let cells = table
            .lines()
            .filter_map(|line| line.trim_end().strip_suffix('│')?.rsplit('┆').next());
        let said = without_blanks(&cells.collect::<String>());
        let probes = info["probes"].as_array().unwrap();
        for probe in probes {
            let found = without_blanks(probe["found"].as_str().unwrap());
            assert!(said.contains(&found), "{found} in {table}");
        }
    }
}

fn without_blanks(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_whitespace())
        .collect()
}
