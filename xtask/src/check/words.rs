//! Lines that read badly: documentation that begins with a word of questions and is none, and long lines.

use std::{collections::BTreeMap, fs};

use anyhow::Context;

use crate::project;

/// The lines that were there before the rule, counted by file: a list that only shrinks.
const LIST: &str = "xtask/src/check/words.txt";

/// A sentence names its thing first.
const OPENINGS: [&str; 3] = ["What ", "Whether ", "Whoever "];

const COLUMNS_MAX: usize = 120;

/// Files that have more such lines than the list says, or fewer.
///
/// # Errors
/// If the list cannot be read.
pub(super) fn broken(files: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let text =
        fs::read_to_string(project::root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    Ok(judge(files, &parse(&text)?))
}

/// Writes the list anew, with no number higher than before.
///
/// # Errors
/// If the list cannot be read or written.
pub(super) fn shrink(files: &[(String, String)]) -> anyhow::Result<()> {
    let path = project::root().join(LIST);
    let text = fs::read_to_string(&path)?;
    let listed = parse(&text)?;
    let lower = |(path, text): &(String, String)| {
        let count = bad_lines(text)
            .count()
            .min(listed.get(path.as_str()).copied().unwrap_or_default());
        (count > 0).then(|| format!("{count} {path}\n"))
    };
    Ok(fs::write(
        path,
        files.iter().filter_map(lower).collect::<String>(),
    )?)
}

fn parse(list: &str) -> anyhow::Result<BTreeMap<&str, usize>> {
    list.lines()
        .map(|line| {
            let (count, path) = line.split_once(' ').context("a line is a number and a path")?;
            Ok((path, count.parse()?))
        })
        .collect()
}

fn judge(files: &[(String, String)], listed: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut known = listed.clone();
    for (path, text) in files {
        let listed = known.remove(path.as_str()).unwrap_or_default();
        let found: Vec<_> = bad_lines(text).collect();
        if found.len() > listed {
            for (line, why) in found {
                broken.push(format!("{path}:{line}: {why}"));
            }
        } else if found.len() < listed {
            broken.push(format!(
                "{LIST}: {path} is down to {}: run `cargo xtask fix`",
                found.len()
            ));
        }
    }
    broken.extend(
        known
            .keys()
            .map(|path| format!("{LIST}: there is no {path}: run `cargo xtask fix`")),
    );
    broken
}

/// The numbers of the lines, and a reason each.
fn bad_lines(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(at, line)| {
        let words = line.trim_start();
        let documentation = words.strip_prefix("/// ").or_else(|| words.strip_prefix("//! "));
        let begins = |text: &str| OPENINGS.iter().any(|opening| text.starts_with(opening));
        if documentation.is_some_and(|text| begins(text) && !text.contains('?')) {
            Some((
                at + 1,
                "documentation names its subject first (style: plain words)",
            ))
        } else if line.chars().count() > COLUMNS_MAX {
            Some((at + 1, "longer than 120 columns"))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_found() {
        let text = format!(
            "/// Whether it is.\n/// What is it?\n//! What it is.\n// What it is.\n{}\n",
            "x".repeat(121)
        );
        let found: Vec<_> = bad_lines(&text).map(|(line, _)| line).collect();
        assert_eq!(found, [1, 3, 5]);
    }

    /// More lines than listed are broken, and so is a list that could shrink.
    #[test]
    fn the_list_only_shrinks() {
        let files = [("a.rs".to_owned(), "/// What it is.\n".to_owned())];
        assert_eq!(judge(&files, &parse("1 a.rs\n").unwrap()), [""; 0]);
        assert_eq!(judge(&files, &BTreeMap::new()).len(), 1);
        assert_eq!(judge(&files, &parse("2 a.rs\n1 b.rs\n").unwrap()).len(), 2);
    }
}
