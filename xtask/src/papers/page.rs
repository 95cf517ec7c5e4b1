//! The places of tables and figures in their pages.

use anyhow::bail;

use super::Entry;

/// The part of a page that the command writes: picture, table, origin of the numbers, and the command.
pub(super) fn section(entry: &Entry, text: &str) -> String {
    let picture = match entry.has_picture {
        true => format!("![{0}]({0}.svg)\n\n", entry.name),
        false => String::new(),
    };
    format!(
        "{picture}{}\n{} `cargo xtask papers --only {}`",
        text.trim_start(),
        entry.source.text(),
        entry.name
    )
}

/// A page with another section between the marks.
///
/// # Errors
/// If the page has no marks of this name.
pub(super) fn replaced(page: &str, entry: &Entry, section: &str) -> anyhow::Result<String> {
    let begin = begin(entry);
    let Some((before, rest)) = page.split_once(&begin) else {
        bail!("{} lacks the line {begin:?}", entry.page);
    };
    let Some((_, after)) = rest.split_once(END) else {
        bail!("{} has no {END:?} behind {begin:?}", entry.page);
    };
    Ok(format!("{before}{begin}\n\n{section}\n\n{END}{after}"))
}

/// The section that a page has, if it stands below a heading of its own.
#[cfg(test)]
pub(super) fn shown<'a>(page: &'a str, entry: &Entry) -> Option<&'a str> {
    let (before, rest) = page.split_once(&begin(entry))?;
    let heading = before.rfind("\n## ")?;
    let is_own = !before[heading..].contains(END);
    Some(rest.split_once(END)?.0).filter(|_| is_own)
}

/// The names of all sections of a page.
#[cfg(test)]
pub(super) fn names(page: &str) -> Vec<&str> {
    let parts = page.split(BEGIN).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(" -->")?.0))
        .collect()
}

fn begin(entry: &Entry) -> String {
    format!("{BEGIN}{} -->", entry.name)
}

const BEGIN: &str = "<!-- written by cargo xtask papers --only ";
const END: &str = "<!-- end -->";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::{Made, Source};

    /// Only the section of that name is replaced.
    #[test]
    fn replaces_its_section() {
        let entry = Entry {
            name: "1-a",
            page: "a.md",
            source: Source::Simulated,
            has_picture: true,
            make: |_| {
                Ok(Made {
                    text: String::new(),
                    picture: None,
                })
            },
        };
        let page = format!("\n## A\n{BEGIN}1-a -->\nold\n{END}\n## B\n{BEGIN}1-b -->\nother\n{END}\n");
        let new = replaced(&page, &entry, &section(&entry, "| new |\n")).unwrap();
        assert_eq!(names(&new), ["1-a", "1-b"]);
        let shown = shown(&new, &entry).unwrap();
        assert!(
            shown.starts_with("\n\n![1-a](1-a.svg)\n\n| new |\n\nSimulated."),
            "{shown}"
        );
        assert!(
            new.ends_with("## B\n<!-- written by cargo xtask papers --only 1-b -->\nother\n<!-- end -->\n")
        );
        assert!(replaced("nothing", &entry, "").is_err());
    }
}
