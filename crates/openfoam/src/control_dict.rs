//! The file `system/controlDict` of a case.
//!
//! It belongs to the user, who may edit it while the case runs. So it is not replaced and put back: a block of our own
//! stands at its end while the job runs, where it overrides what is above it, and is cut out afterwards. A block that
//! a killed job has left is replaced by the next.

use std::fmt::Write;

/// What is looked up in the file: entries of its outermost level that are one word each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    /// Where the user wants the run to begin.
    pub begin: Begin,
    /// Of how many outputs the user wants the newest; 0 for all.
    pub purge_write: u64,
}

/// Where a run begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Begin {
    /// At the first time there is.
    First,
    /// At the last time there is, which is OpenFOAM's default.
    #[default]
    Latest,
    /// At this time.
    Time(f64),
}

/// What stands in the block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The library of the function object.
    pub library: String,
    /// The folder of the checkpoints.
    pub directory: String,
    /// How many of them are kept.
    pub keep: u32,
    /// The mean time between failures in seconds, if it is known.
    pub mtbf: Option<f64>,
    /// Save every so many steps, and not when it is best.
    pub every: Option<u32>,
}

impl Entries {
    /// Looks entries up, as the user has written them. What another file says that is included, and what is computed, is
    /// not seen.
    pub fn read(text: &str) -> Self {
        let mut entries = Self::default();
        let mut begin = None;
        let mut time = None;
        for (keyword, value) in top_level(&without_block(text)) {
            match keyword {
                "startFrom" => begin = Some(value.to_owned()),
                "startTime" => time = value.parse().ok().filter(|time: &f64| time.is_finite()),
                "purgeWrite" => entries.purge_write = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        entries.begin = match begin.as_deref() {
            Some("firstTime") => Begin::First,
            Some("startTime") => Begin::Time(time.unwrap_or(0.0)),
            _ => Begin::Latest,
        };
        entries
    }
}

/// The file without our block, if it has one, and otherwise as it is.
pub fn without_block(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once(FIRST_LINE) {
        kept.push_str(before);
        // A block without an end was cut off with the file.
        rest = after.split_once(LAST_LINE).map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept
}

/// The file with our block at its end.
pub fn with_block(text: &str, block: &Block) -> String {
    let mut text = without_block(text);
    let ends_with_line = text.is_empty() || text.ends_with('\n');
    text.push_str(FIRST_LINE);
    if !ends_with_line {
        // Inside the block, so that it goes with it.
        text.push('\n');
    }
    let quoted = |path: &str| path.replace('\\', "\\\\").replace('"', "\\\"");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n#inputMode merge;");
    let _ = writeln!(text, "startFrom latestTime;");
    let _ = writeln!(text, "functions\n{{\n    ropewalk\n    {{");
    let _ = writeln!(text, "        type ropewalkCheckpoint;");
    let _ = writeln!(text, "        libs (\"{}\");", quoted(&block.library));
    let _ = writeln!(text, "        directory \"{}\";", quoted(&block.directory));
    let _ = writeln!(text, "        keep {};", block.keep);
    if let Some(mtbf) = block.mtbf {
        let _ = writeln!(text, "        mtbf {mtbf:?};");
    }
    if let Some(every) = block.every {
        let _ = writeln!(text, "        every {every};");
    }
    let _ = writeln!(text, "    }}\n}}");
    text.push_str(LAST_LINE);
    text
}

/// The entries of the outermost level that have one word as value.
fn top_level(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut words: Vec<&str> = Vec::new();
    let mut depth = 0_u32;
    let mut tokens = Tokens { rest: text };
    std::iter::from_fn(move || {
        loop {
            match tokens.next()? {
                "{" | "(" | "[" => {
                    depth = depth.saturating_add(1);
                    words.clear();
                }
                "}" | ")" | "]" => {
                    depth = depth.saturating_sub(1);
                    words.clear();
                }
                _ if depth > 0 => {}
                ";" => {
                    let entry = match words[..] {
                        [keyword, value] => Some((keyword, value)),
                        _ => None,
                    };
                    words.clear();
                    if entry.is_some() {
                        return entry;
                    }
                }
                // A directive ends with its line and has no semicolon.
                word if word.starts_with('#') => {
                    tokens.skip_line();
                    words.clear();
                }
                // More words than an entry of interest has.
                word if words.len() < 3 => words.push(word),
                _ => {}
            }
        }
    })
}

/// Words and punctuation, without comments.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn skip_line(&mut self) {
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with("//") {
                self.skip_line();
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else {
                break;
            }
        }
        let first = self.rest.chars().next()?;
        if let Some(text) = self.rest.strip_prefix('"') {
            let mut is_escaped = false;
            let end = text.find(|character| {
                let is_end = character == '"' && !is_escaped;
                is_escaped = character == '\\' && !is_escaped;
                is_end
            });
            return Some(self.take(end.map_or(self.rest.len(), |end| end + 2)));
        }
        if PUNCTUATION.contains(first) {
            return Some(self.take(first.len_utf8()));
        }
        let is_end = |character: char| character.is_whitespace() || PUNCTUATION.contains(character);
        let length = self.rest.find(is_end).unwrap_or(self.rest.len());
        Some(self.take(length))
    }
}

const PUNCTUATION: &str = "{}()[];";

const FIRST_LINE: &str = "// ropewalk: from here to the next such line while the job runs";
const LAST_LINE: &str = "// ropewalk: up to here\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block() -> Block {
        Block {
            library: "/opt/a \"b\"/lib.so".into(),
            directory: "/case/checkpoints".into(),
            keep: 2,
            mtbf: Some(25.0),
            every: None,
        }
    }

    proptest! {
        /// Whatever the file is, it comes back to the byte, and is not read out of bounds.
        #[test]
        fn the_users_file_comes_back(text in "[ -~\n\u{e9}]{0,200}") {
            let with = with_block(&text, &block());
            prop_assert_eq!(&without_block(&with), &text);
            prop_assert_eq!(with_block(&with, &block()), with);
            let _ = Entries::read(&text);
        }
    }

    /// What the user changes while the job runs stays.
    #[test]
    fn the_users_changes_stay() {
        let with = with_block("endTime 1;\n", &block());
        let changed = with.replace("endTime 1;", "endTime 2;") + "writeInterval 5;\n";
        assert_eq!(without_block(&changed), "endTime 2;\nwriteInterval 5;\n");
    }

    /// Entries are found where they count: not in comments, not inside others, the last one of several.
    #[test]
    fn entries_are_found() {
        let text = "
            /* startFrom startTime; */ startFrom startTime; // startFrom latestTime;
            functions { a { startTime 7; startFrom firstTime; } }
            #include \"other\"
            startTime 3;
            startTime 0.25;
            note \"startTime 8; {\";
            purgeWrite 3;";
        let found = Entries::read(text);
        assert_eq!(found.begin, Begin::Time(0.25));
        assert_eq!(found.purge_write, 3);
        assert_eq!(Entries::read("").begin, Begin::Latest);
        assert_eq!(Entries::read("startFrom firstTime;").begin, Begin::First);
        assert_eq!(
            Entries::read(&with_block("startFrom firstTime;", &block())).begin,
            Begin::First
        );
    }
}
