//! As much of Markdown as the checks need: links, headings, blocks of code, and mdBook's `{{#include FILE}}`.

/// A block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its first fence, from 1.
    pub(super) line: usize,
    /// The words behind the first fence: the language, and then marks.
    pub(super) marks: Vec<String>,
    /// Its lines, each with its end.
    pub(super) text: String,
}

impl Block {
    pub(super) fn language(&self) -> &str {
        self.marks.first().map_or("", String::as_str)
    }

    /// Says if a mark stands behind the language.
    pub(super) fn is(&self, mark: &str) -> bool {
        self.marks.iter().skip(1).any(|found| found == mark)
    }

    /// The name of the file that the block is, for the commands after it.
    pub(super) fn file(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix("file="))
    }
}

/// The blocks of code between fences of three backquotes.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (line, words) in (1..).zip(text.lines()) {
        if let Some(marks) = words.trim_start().strip_prefix("```") {
            is_inside = !is_inside;
            if is_inside {
                let marks = marks.split([' ', ',']).filter(|mark| !mark.is_empty());
                found.push(Block {
                    line,
                    marks: marks.map(str::to_owned).collect(),
                    text: String::new(),
                });
            }
        } else if is_inside && let Some(block) = found.last_mut() {
            block.text += words;
            block.text.push('\n');
        }
    }
    found
}

/// The files that a page includes, with their lines.
pub(super) fn includes(text: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines
        .filter_map(|(line, words)| Some((line, included(words)?)))
        .collect()
}

fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")
}

/// The text with the files in it that it includes.
///
/// # Errors
/// Those of reading a file.
pub(super) fn expanded(text: &str, read: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mut all = String::new();
    for line in text.lines() {
        match included(line) {
            Some(file) => all += read(file)?.trim_end(),
            None => all += line,
        }
        all.push('\n');
    }
    Ok(all)
}

/// The destinations of links and pictures, with their lines: `[text](destination)` outside of code.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, words) in prose(text) {
        let words = without_code(words);
        let mut rest = words.as_str();
        while let Some((_, behind)) = rest.split_once("](") {
            let Some((destination, behind)) = behind.split_once(')') else {
                break;
            };
            let destination = destination.split(' ').next().unwrap_or_default();
            found.push((line, destination.to_owned()));
            rest = behind;
        }
    }
    found
}

/// The fragments by which headings are reached, as GitHub and mdBook make them: small letters, digits and dashes.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|(_, words)| {
        let title = words.trim_start_matches('#');
        let is_heading = title.len() < words.len() && title.starts_with(' ');
        is_heading.then(|| title.trim())
    });
    headings.map(anchor).collect()
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, words)| {
        let is_fence = words.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# A title, with `code`

See [one](one.md), [two](../two.md#part \"title\") and `[no](link.md)`.
![picture](picture.svg)

```sh run
echo [no](link.md)
```

## Part 2: more

```python file=a.py
{{#include ../a.py}}
```
";

    #[test]
    fn links_are_those_outside_of_code() {
        let expected = [(3, "one.md"), (3, "../two.md#part"), (4, "picture.svg")];
        assert_eq!(links(PAGE), expected.map(|(line, link)| (line, link.to_owned())));
    }

    #[test]
    fn headings_have_anchors() {
        assert_eq!(anchors(PAGE), ["a-title-with-code", "part-2-more"]);
    }

    /// Blocks have marks and a text, in which files are included.
    #[test]
    fn blocks_have_marks() {
        assert_eq!(includes(PAGE), [(13, "../a.py")]);
        let page = expanded(PAGE, |file| Ok(format!("# {file}\n"))).unwrap();
        let [shell, python] = &blocks(&page)[..] else {
            panic!("two blocks");
        };
        assert_eq!((shell.line, shell.language()), (6, "sh"));
        assert!(shell.is("run") && !shell.is("sh"));
        assert_eq!(shell.text, "echo [no](link.md)\n");
        assert_eq!(python.file(), Some("a.py"));
        assert_eq!(python.text, "# ../a.py\n");
    }
}
