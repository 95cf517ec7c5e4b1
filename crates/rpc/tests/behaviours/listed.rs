//! The list of behaviours in `README.md` beside these tests, compared with the tests that there are.

use std::{env, process::Command};

const LIST: &str = include_str!("../README.md");

/// The provider of each column after the name of a test, with true if tests over it are made here.
const PROVIDERS: [(&str, bool); 6] = [
    ("over_tcp", true),
    ("over_shm", true),
    ("over_either", true),
    ("over_ofi_shm", cfg!(feature = "ofi")),
    ("over_ofi_tcp", cfg!(feature = "ofi")),
    ("over_ofi_sockets", cfg!(feature = "ofi")),
];

/// Every test that the list names in this program is there, over each provider that the list says and over no other.
#[test]
fn listed_behaviours_are_tested() {
    let tests = tests();
    let mut looked_at = 0;
    for row in LIST.lines().filter_map(Row::of) {
        if row.alone.starts_with('(') {
            wanted(row.alone);
        }
        for (test, cell, over, is_made) in row.wanted() {
            let Some(test) = test.strip_prefix(concat!(env!("CARGO_CRATE_NAME"), "::")) else {
                continue;
            };
            if is_made {
                let found = tests.iter().filter(|found| is_over(found, test, over)).count();
                assert_eq!(found, wanted(cell), "{test} {over} is {cell} in the list");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 0, "the list names no test of this program");
}

/// A behaviour: its tests, and a cell for each provider.
struct Row<'a> {
    between: &'a str,
    cells: [&'a str; PROVIDERS.len()],
    alone: &'a str,
}

impl<'a> Row<'a> {
    /// The row of this line, unless it is none that names a test.
    fn of(line: &'a str) -> Option<Self> {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &[_, _, between, ref cells @ .., alone, _] = &cells[..] else {
            return None;
        };
        between.contains("::").then(|| Self {
            between: between.trim_matches('`'),
            cells: (cells.try_into()).unwrap_or_else(|_| panic!("not so many columns as providers: {line}")),
            alone: alone.trim_matches('`'),
        })
    }

    /// Each test with its cell, over what it is, and whether that is made here.
    fn wanted(&self) -> impl Iterator<Item = (&'a str, &'a str, &'static str, bool)> {
        let between = self.between;
        let cells = self.cells.into_iter().zip(PROVIDERS);
        let cells = cells.map(move |(cell, (over, is_made))| (between, cell, over, is_made));
        cells.chain([(self.alone, "both", "over_loopback", true)])
    }
}

/// How many tests a cell asks for.
fn wanted(cell: &str) -> usize {
    match cell {
        "both" => 2,
        "waits" => 1,
        reason => {
            let number = reason.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let number = number.unwrap_or_else(|| panic!("no cell of the list: {cell:?}"));
            let is_given = LIST.lines().any(|line| line.starts_with(&format!("{number}. ")));
            assert!(is_given, "the list does not give reason {number}");
            0
        }
    }
}

/// Returns true if the test `found` is `module::test` over this.
fn is_over(found: &str, test: &str, over: &str) -> bool {
    let (module, name) = match test.rsplit_once("::") {
        Some((module, name)) => (format!("{module}::"), name),
        None => (String::new(), test),
    };
    let inner = found.strip_prefix(&module).unwrap_or_default();
    let mut parts: Vec<_> = inner.split("::").collect();
    parts.pop() == Some(name) && parts.contains(&over)
}

/// The names of all tests of this program.
fn tests() -> Vec<String> {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}
