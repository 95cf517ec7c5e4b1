//! Compares the list of rules in `README.md` beside these tests with the tests that there are, and with the
//! rules in `rules.md`.

use std::{collections::BTreeSet, env, fs, path::Path, process::Command};

const LIST: &str = include_str!("../README.md");
const RULES: &str = include_str!("../rules.md");

/// The tests of this program.
const OWN: &str = "pmi/tests/server/";

/// Shorter parts of quotations than this stand anywhere, and are no sign that a rule is meant.
const TELLING: usize = 8;

/// Every test that the list names is there, in the file that the list names, is run, and quotes rules in its
/// comment, word by word. Every rule is quoted by one of them.
#[test]
fn listed_rules_are_tested() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = tests();
    let rules: Vec<_> = RULES
        .split("\n* ")
        .skip(1)
        .filter_map(|rule| rule.split("\n\n").next())
        .map(plain)
        .collect();
    let mut quoted = BTreeSet::new();
    let mut not_rules = Vec::new();
    for (file, test) in LIST.lines().filter_map(row) {
        let source = fs::read_to_string(crates.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let comment = comment_of(&source, test).unwrap_or_else(|| panic!("{file} has no test {test}"));
        let quotations = quotations(&comment);
        assert!(!quotations.is_empty(), "{test} in {file} quotes no rule");
        for quotation in &quotations {
            let found = (0..rules.len()).filter(|&rule| rules[rule].contains(quotation));
            let found: Vec<_> = found.collect();
            if found.is_empty() {
                not_rules.push(format!("{test} in {file} quotes {quotation:?}"));
            }
            quoted.extend(found);
        }
        if let Some(module) = file.strip_prefix(OWN) {
            let name = format!("{}::{test}", module.trim_end_matches(".rs"));
            assert!(own.contains(&name), "{name} is not run");
        }
    }
    assert!(not_rules.is_empty(), "what is no rule: {not_rules:#?}");
    let missed = (0..rules.len()).filter(|rule| !quoted.contains(rule));
    let missed: Vec<_> = missed.map(|rule| &rules[rule]).collect();
    assert!(
        missed.is_empty() && !rules.is_empty(),
        "no listed test quotes {missed:#?}"
    );
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

/// The comment above a test; `None` if there is no such test, or one that is not run.
fn comment_of(source: &str, test: &str) -> Option<String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let head = format!("fn {test}(");
    let at = lines.iter().position(|line| line.starts_with(&head))?;
    let above = lines[..at].iter().rev();
    let above = above.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let above: Vec<_> = above.copied().collect();
    let is_left_out = |line: &&str| line.starts_with("#[ignore") || line.starts_with("#[cfg");
    (above.contains(&"#[test]") && !above.iter().any(is_left_out)).then(|| {
        let comments = above.iter().rev().filter_map(|line| line.strip_prefix("///"));
        comments.collect()
    })
}

/// The quotations in a comment, each split where words are left out.
fn quotations(comment: &str) -> Vec<String> {
    let quoted = comment.split('"').skip(1).step_by(2);
    // Three dots are the specification's own, as are two behind a word.
    let quoted = quoted.map(|text| {
        format!(" {text}")
            .replace("...", "\u{2026}")
            .replace("(..", " ..")
    });
    let parts: Vec<_> = quoted
        .flat_map(|text| text.split(" ..").map(plain).collect::<Vec<_>>())
        .collect();
    parts.into_iter().filter(|part| part.len() >= TELLING).collect()
}

/// A text without marks, breaks, the difference of great and small letters, and what ends a sentence.
fn plain(text: &str) -> String {
    let text = text
        .replace("...", "\u{2026}")
        .replace(['`', '*', '"'], "")
        .to_lowercase();
    let words: Vec<_> = text.split_whitespace().collect();
    words
        .join(" ")
        .trim_matches(['.', ',', ';', ':', '(', ')', ' '])
        .to_owned()
}

/// The names of all tests of this program.
fn tests() -> Vec<String> {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}
