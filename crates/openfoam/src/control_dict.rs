//! The file `system/controlDict` of a case.
//!
//! It belongs to the user, who may edit it while the case runs. So it is not replaced and put back: blocks of
//! our own stand in it while the job runs, and are cut out afterwards. The one at the end overrides what is
//! above it; one after the header makes our function object the first. Blocks that a killed job has left are
//! replaced by the next.

use std::fmt::Write;

/// The entries that are looked up in the file. They are of its outermost level and one word each.
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

/// The contents of the block.
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
    /// How the run goes on; `None` if it begins at the first time.
    pub resumed: Option<Resumed>,
}

/// How a run goes on from a save.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// The time of the save with all its digits; `None` for that of the latest folder's name.
    pub begin: Option<String>,
    /// The time at which the run began for the first time, from which OpenFOAM counts the user's outputs.
    pub origin: f64,
    /// The names of the user's outputs that there are, oldest first, if older ones are to be removed.
    pub outputs: Vec<String>,
}

impl Entries {
    /// Looks entries up, as the user has written them. Entries of included files and computed ones are not
    /// seen.
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

/// The number of an entry of a dictionary, as it is written there.
pub fn number_of<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    let (_, value) = top_level(text).find(|&(found, _)| found == keyword)?;
    value.parse::<f64>().is_ok_and(f64::is_finite).then_some(value)
}

/// The file without our blocks, if it has any, and otherwise as it is.
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

/// The file with our blocks.
pub fn with_block(text: &str, block: &Block) -> String {
    let text = without_block(text);
    // A time that the user has written has all its digits, which the name of its folder may not have.
    let begins_as_told = matches!(Entries::read(&text).begin, Begin::Time(_));
    let (header, rest) = text.split_at(header_length(&text));
    let mut text = header.to_owned();
    text.push_str(FIRST_LINE);
    // Its entries follow in the second block, where nothing overrides them.
    text.push_str("\n#inputMode merge;\nfunctions { ropewalk { } }\n");
    text.push_str(LAST_LINE);
    text.push_str(rest);
    let ends_with_line = rest.is_empty() || rest.ends_with('\n');
    text.push_str(FIRST_LINE);
    if !ends_with_line {
        // Inside the block, so that it goes with it.
        text.push('\n');
    }
    let quoted = |path: &str| format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n#inputMode merge;");
    match block.resumed.as_ref().map(|resumed| &resumed.begin) {
        Some(Some(begin)) => {
            let _ = writeln!(text, "startFrom startTime;\nstartTime {begin};");
        }
        None if begins_as_told => {}
        Some(None) | None => {
            let _ = writeln!(text, "startFrom latestTime;");
        }
    }
    let _ = writeln!(text, "functions\n{{\n    ropewalk\n    {{");
    let _ = writeln!(text, "        type ropewalkCheckpoint;");
    let _ = writeln!(text, "        libs ({});", quoted(&block.library));
    let _ = writeln!(text, "        directory {};", quoted(&block.directory));
    let _ = writeln!(text, "        keep {};", block.keep);
    if let Some(mtbf) = block.mtbf {
        let _ = writeln!(text, "        mtbf {mtbf:?};");
    }
    if let Some(every) = block.every {
        let _ = writeln!(text, "        every {every};");
    }
    if let Some(resumed) = &block.resumed {
        let outputs: Vec<String> = resumed.outputs.iter().map(|name| quoted(name)).collect();
        let _ = writeln!(text, "        origin {:?};", resumed.origin);
        let _ = writeln!(text, "        outputs ({});", outputs.join(" "));
    }
    let _ = writeln!(text, "    }}\n}}");
    text.push_str(LAST_LINE);
    text
}

/// How long the header of a file of OpenFOAM is, which has to stand first; 0 without one.
fn header_length(text: &str) -> usize {
    let mut tokens = Tokens { rest: text };
    if tokens.next() != Some("FoamFile") || tokens.next() != Some("{") {
        return 0;
    }
    match tokens.find(|&token| token == "}") {
        Some(_) => text.len() - tokens.rest.len(),
        None => 0,
    }
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
            resumed: Some(Resumed {
                begin: Some("0.30000000000000004".into()),
                origin: 0.1,
                outputs: vec!["0.2".into()],
            }),
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

    /// Changes that the user makes while the job runs stay.
    #[test]
    fn the_users_changes_stay() {
        let with = with_block("endTime 1;\n", &block());
        let changed = with.replace("endTime 1;", "endTime 2;") + "writeInterval 5;\n";
        assert_eq!(without_block(&changed), "endTime 2;\nwriteInterval 5;\n");
    }

    /// Our function object is the first of all, behind the header, and a run that goes on begins at the exact
    /// time.
    #[test]
    fn our_function_object_is_first() {
        let text = "// of the user\nFoamFile { version 2.0; }\nfunctions { probes { } }\nstartTime 7;";
        let with = with_block(text, &block());
        let at = |word: &str| with.find(word).unwrap();
        assert!(at("FoamFile") < at("ropewalk { }") && at("ropewalk { }") < at("probes"));
        assert_eq!(number_of(&with[at("probes")..], "deltaT"), None);
        let begin = "startFrom startTime;\nstartTime 0.30000000000000004;\n";
        assert!(with.rfind(begin) > with.find("startTime 7"));
        assert!(with.contains("origin 0.1;") && with.contains("outputs (\"0.2\");"));
        let first = Block {
            resumed: None,
            ..block()
        };
        assert!(with_block(text, &first).contains("startFrom latestTime;"));
        let told = "startFrom startTime; startTime 7;";
        assert!(!with_block(told, &first).contains("latestTime"));
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
            purgeWrite 3;
            value 0.30000000000000004;";
        assert_eq!(number_of(text, "value"), Some("0.30000000000000004"));
        assert_eq!(number_of(text, "startFrom"), None);
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
