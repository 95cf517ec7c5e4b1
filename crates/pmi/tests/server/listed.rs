//! The list of rules in `README.md` beside these tests, compared with the tests that there are.

use std::{env, fs, path::Path, process::Command};

const LIST: &str = include_str!("../README.md");

/// The tests of this program.
const OWN: &str = "pmi/tests/server/";

/// Every test that the list names is there, in the file that it names, and begins with the rule in the specification's own
/// words.
#[test]
fn listed_rules_are_tested() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = tests();
    let mut looked_at = 0;
    for (file, test) in LIST.lines().filter_map(row) {
        let source = fs::read_to_string(crates.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let comment = comment_of(&source, test).unwrap_or_else(|| panic!("{file} has no test {test}"));
        assert!(comment.contains('"'), "{test} in {file} quotes no rule");
        if let Some(module) = file.strip_prefix(OWN) {
            let name = format!("{}::{test}", module.trim_end_matches(".rs"));
            assert!(own.contains(&name), "{name} is not run");
        }
        looked_at += 1;
    }
    assert!(looked_at > 0, "the list names no test");
}

/// File and test of a line of the list that names some.
fn row(line: &str) -> Option<(&str, &str)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let [_, _, file, test, _] = cells[..] else {
        assert!(cells.len() == 1, "not three columns: {line}");
        return None;
    };
    let test = test.strip_prefix('`')?.strip_suffix('`')?;
    Some((file.trim_matches('`'), test))
}

/// What stands above a test; `None` if there is no such test.
fn comment_of(source: &str, test: &str) -> Option<String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let head = format!("fn {test}(");
    let at = lines.iter().position(|line| line.starts_with(&head))?;
    let above = lines[..at].iter().rev();
    let above = above.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let above: Vec<_> = above.copied().collect();
    above.contains(&"#[test]").then(|| {
        let comments = above.iter().rev().filter_map(|line| line.strip_prefix("///"));
        comments.collect()
    })
}

/// The names of all tests of this program.
fn tests() -> Vec<String> {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}
