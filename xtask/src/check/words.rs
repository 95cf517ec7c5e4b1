//! Lines that read badly, in Rust and in Markdown: documentation that begins with a word of questions and is none, and
//! long lines.

/// A sentence names its thing first.
const OPENINGS: [&str; 3] = ["What ", "Whether ", "Whoever "];

const COLUMNS_MAX: usize = 120;

/// The lines, and a reason each.
pub(super) fn broken(files: &[(String, String)]) -> Vec<String> {
    let of_file = |(path, text): &(String, String)| {
        let found = bad_lines(path, text).into_iter();
        let described = found.map(|(line, why)| format!("{path}:{line}: {why}"));
        described.collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
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
}
