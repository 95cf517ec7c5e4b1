//! Lines that read badly, in Rust and in Markdown: documentation that begins with a word of questions and is none, and
//! long lines.

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
        let count = bad_lines(path, text)
            .len()
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
        let found = bad_lines(path, text);
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
fn bad_lines(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    match path.ends_with(".md") {
        true => bad_lines_of_document(text),
        false => bad_lines_of_source(text),
    }
}

fn bad_lines_of_source(text: &str) -> Vec<(usize, &'static str)> {
    let lines = (1..).zip(text.lines()).filter_map(|(at, line)| {
        let words = line.trim_start();
        let documentation = words.strip_prefix("/// ").or_else(|| words.strip_prefix("//! "));
        let why = match documentation.is_some_and(asks_nothing) {
            true => NO_SUBJECT,
            false if line.chars().count() > COLUMNS_MAX => TOO_LONG,
            false => return None,
        };
        Some((at, why))
    });
    lines.collect()
}

/// A heading may name a question. Rows of tables, headings, and single words that are as long, such as links, cannot be
/// broken.
fn bad_lines_of_document(text: &str) -> Vec<(usize, &'static str)> {
    let mut is_code = false;
    let lines = (1..).zip(text.lines()).filter_map(|(at, line)| {
        if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
            return Some((at, UNMERGED));
        }
        let words = line.trim_start();
        let is_fence = words.starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !words.starts_with(['#', '|']);
        let sentence = without_marker(words);
        let is_long = line.chars().count() > COLUMNS_MAX;
        let why = match is_prose && asks_nothing(sentence) {
            true => NO_SUBJECT,
            false if is_long && is_code || is_long && is_prose && sentence.contains(' ') => TOO_LONG,
            false => return None,
        };
        Some((at, why))
    });
    lines.collect()
}

/// The text of a line without the sign that an item of a list begins with.
fn without_marker(line: &str) -> &str {
    let text = line.trim_start_matches(|sign: char| sign.is_ascii_digit() || "-*.>".contains(sign));
    text.strip_prefix(' ').map_or(line, str::trim_start)
}

/// Says if a text begins as a question does, and is none.
fn asks_nothing(text: &str) -> bool {
    OPENINGS.iter().any(|opening| text.starts_with(opening)) && !text.contains('?')
}

const NO_SUBJECT: &str = "documentation names its subject first (style: plain words)";

const UNMERGED: &str = "a sign of a merge that was not ended";

const TOO_LONG: &str = "longer than 120 columns";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_found() {
        let text = format!(
            "/// Whether it is.\n/// What is it?\n//! What it is.\n// What it is.\n{}\n",
            "x".repeat(121)
        );
        let found: Vec<_> = bad_lines("a.rs", &text).iter().map(|(line, _)| *line).collect();
        assert_eq!(found, [1, 3, 5]);
    }

    /// In documents prose and code are found; tables, headings and links that nothing can break are not.
    #[test]
    fn bad_lines_of_documents_are_found() {
        let long = "x ".repeat(61);
        let link = format!("[x](https://{})", "x".repeat(121));
        let text = format!(
            "# What it is\n- What it is.\nWhat is it?\n12. Whether it is.\n{long}\n| {long} |\n# {long}\n- {link}\n\
             - see {link}\n```\nWhat it is\n{long}\n```\n**What it is**\n<<<<<<< HEAD\n>>>>>>> a change\n"
        );
        let found: Vec<_> = bad_lines("a.md", &text).iter().map(|(line, _)| *line).collect();
        assert_eq!(found, [2, 4, 5, 9, 12, 15, 16]);
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
