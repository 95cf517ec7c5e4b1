//! The page of the book with the results.

use std::fmt::Write as _;

use super::{
    part::{PARTS, Part, Suite},
    result::{Compared, Test, Verdict},
};

/// The page: a table of the parts, and below it the tests that do not pass under both launchers.
pub(super) fn page(all: &[Compared]) -> String {
    let mut page = format!("{INTRODUCTION}\n{HEADING}");
    let mut sums = [0; 4];
    for part in all {
        let counts = counts(part);
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        page.push_str(&row(&label(part), counts));
    }
    page.push_str(&row("all", sums));
    let is_run = |part: &&Part| all.iter().any(|run| run.part.name() == part.name());
    let missing: Vec<_> = PARTS
        .iter()
        .filter(|part| !is_run(part))
        .map(Part::name)
        .collect();
    if !missing.is_empty() {
        page.push_str(&format!("\nNot run: {}.\n", missing.join(", ")));
    }
    for (heading, theirs, ours) in [
        ("Only under the library's own launcher", true, false),
        ("Only under ropewalk", false, true),
        ("Under neither", false, false),
    ] {
        let lines: Vec<_> = all.iter().flat_map(|part| lines(part, theirs, ours)).collect();
        let lines = match lines.is_empty() {
            true => "None.\n".to_owned(),
            false => lines.concat(),
        };
        write!(page, "\n## {heading}\n\n{lines}").expect("a String takes all that is written");
    }
    page
}

/// The tests of a part that pass only under the library's own launcher, and have no known reason.
pub(super) fn unexplained(part: &Compared) -> Vec<String> {
    let tests = part.passed(true, false).into_iter();
    tests
        .filter(|(test, _)| reason(part, &test.name).is_none())
        .map(|(test, _)| format!("{} ({})", test.name, part.part.name()))
        .collect()
}

fn label(part: &Compared) -> String {
    match part.part.suite {
        Suite::Mpich => part.part.folder.to_owned(),
        Suite::MpichWheel => format!("{}, wheel", part.part.folder),
        Suite::OpenMpi => "Open MPI".to_owned(),
    }
}

fn row(label: &str, [both, theirs, ours, neither]: [usize; 4]) -> String {
    format!("| {label} | {both} | {theirs} | {ours} | {neither} |\n")
}

fn counts(part: &Compared) -> [usize; 4] {
    [(true, true), (true, false), (false, true), (false, false)]
        .map(|(theirs, ours)| part.passed(theirs, ours).len())
}

/// A line for each reason with its tests.
fn lines(part: &Compared, theirs: bool, ours: bool) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for tests in part.passed(theirs, ours) {
        let why = why(part, tests);
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(&tests.0.name),
            None => reasons.push((why, vec![&tests.0.name])),
        }
    }
    let line = |(why, names): (String, Vec<&str>)| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        wrapped(&format!("- {}: {}. {why}", label(part), names.join(", ")))
    };
    reasons.into_iter().map(line).collect()
}

fn why(part: &Compared, (theirs, ours): &(Test, Test)) -> String {
    if let Some(reason) = reason(part, &theirs.name) {
        return reason.to_owned();
    }
    let failed = match (theirs.verdict, ours.verdict) {
        (Verdict::TimedOut, Verdict::TimedOut) => return "Not done in time under both.".to_owned(),
        (Verdict::Failed, Verdict::Failed) => return "Failed under both.".to_owned(),
        (Verdict::Passed, Verdict::TimedOut) | (Verdict::TimedOut, Verdict::Passed) => {
            return "Not done in time.".to_owned();
        }
        (Verdict::TimedOut, Verdict::Failed) => {
            return "Not done in time, and failed under ropewalk.".to_owned();
        }
        (Verdict::Failed, Verdict::TimedOut) => {
            return "Failed, and not done in time under ropewalk.".to_owned();
        }
        (Verdict::Passed, _) => ours,
        (_, Verdict::Passed) => theirs,
    };
    // Hydra draws a line first.
    let is_told = |line: &&str| !line.starts_with('=') && !line.trim().is_empty();
    let said = failed.said.lines().find(is_told).unwrap_or("nothing was said");
    let said: String = said.trim().chars().take(QUOTED_MAX).collect();
    format!("`{}`", said.replace('`', "'"))
}

fn reason(part: &Compared, test: &str) -> Option<&'static str> {
    let of_test =
        |(suite, start, _): &&(Suite, &str, &str)| part.part.suite == *suite && test.starts_with(start);
    REASONS.iter().find(of_test).map(|(_, _, reason)| *reason)
}

/// An item of a list in lines that are not too long.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.len() + 1 + word.len() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    format!("{}\n", lines.join("\n"))
}

const WIDTH: usize = 120;
const QUOTED_MAX: usize = 100;
/// Known reasons by the beginning of the names of tests.
const REASONS: &[(Suite, &str, &str)] = &[(
    Suite::MpichWheel,
    "errors/spawn/",
    "At times the library fails in `MPI_Finalize` (`flush_send_queue`), under each launcher.",
)];
const HEADING: &str = "\
| tests | both | only the library's launcher | only ropewalk | neither |
|---|---|---|---|---|
";
const INTRODUCTION: &str = "\
# Suites of MPI libraries

`cargo xtask mpi-suites` writes this page: it takes the suites from Debian's source packages, and runs each test under
`ropewalk run` and under the library's own launcher.

- attr to topo are the folders of MPICH's suite, run by its script `runtests` with Debian's MPICH 4.0.2 and Hydra: the
  tests in C, without those that MPICH expects to fail. A test passes if its output and its exit code are right.
- *wheel*: the same programs with the library and the Hydra of the wheel of MPICH 4.0.3. It can spawn; Debian's cannot.
- *Open MPI*: examples of Open MPI 4.1.4 and tests of its runtime, with Debian's library and `mpirun`. A program passes
  if it exits with 0, or with another code if it aborts.
- A test may take a minute, or as long as the suite grants it. The machine has two cores, of which MPICH's ranks would
  keep each other by spinning: a preloaded library lets those over UCX wait for 50 us when there is nothing to do.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(tests: &[(&str, Verdict, Verdict)]) -> Compared {
        let test = |name: &str, verdict| Test {
            name: name.to_owned(),
            verdict,
            said: "====\nno port\n".to_owned(),
        };
        let both = |&(name, theirs, ours): &(&str, _, _)| (test(name, theirs), test(name, ours));
        Compared {
            part: PARTS[0],
            tests: tests.iter().map(both).collect(),
        }
    }

    /// Tests are counted by where they passed, and named with the reason if that is not under both.
    #[test]
    fn differences_are_named() {
        let part = compared(&[
            ("a", Verdict::Passed, Verdict::Passed),
            ("b", Verdict::Passed, Verdict::Failed),
            ("c", Verdict::TimedOut, Verdict::Passed),
            ("d", Verdict::TimedOut, Verdict::TimedOut),
        ]);
        assert_eq!(unexplained(&part), ["b (attr)"]);
        let page = page(&[part]);
        for line in [
            "| attr | 1 | 1 | 1 | 1 |",
            "- attr: `b`. `no port`",
            "- attr: `c`. Not done in time.",
            "- attr: `d`. Not done in time under both.",
            "Not run: coll, comm, errhan, errors, group, info, init, io, pt2pt, rma, spawn, topo, \
             spawn-wheel, errors-spawn-wheel, open-mpi.",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line:?} in {page}");
        }
    }
}
