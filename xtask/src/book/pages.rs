//! Links that lead nowhere, and pages that the list does not name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use anyhow::Context;

use super::{PAGES, markdown};

/// Everything that is broken in the documents, given as (path, text), one line each.
///
/// # Errors
/// If the book has no list of pages.
pub(super) fn broken(root: &Path, documents: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let texts: BTreeMap<&str, &str> = documents
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let mut broken = Vec::new();
    for (&path, &text) in &texts {
        for (line, link) in markdown::links(text) {
            if let Some(why) = is_broken(root, &texts, path, &link) {
                broken.push(format!("{path}:{line}: {why}"));
            }
        }
        for (line, file) in markdown::includes(text) {
            if !root.join(beside(path, file)).is_file() {
                broken.push(format!("{path}:{line}: there is no {file}"));
            }
        }
    }
    let summary = format!("{PAGES}/SUMMARY.md");
    let list = texts
        .get(summary.as_str())
        .with_context(|| format!("there is no {summary}"))?;
    broken.extend(unlisted(&texts, &summary, list));
    Ok(broken)
}

/// Pages that the list does not name, or more than once.
fn unlisted(texts: &BTreeMap<&str, &str>, summary: &str, list: &str) -> Vec<String> {
    let mut named = BTreeSet::new();
    let mut broken = Vec::new();
    for (line, link) in markdown::links(list) {
        let page = beside(summary, &link);
        if !named.insert(page) {
            broken.push(format!("{summary}:{line}: {link} is named twice"));
        }
    }
    let pages = texts
        .keys()
        .filter(|path| path.starts_with(PAGES) && **path != summary);
    let missing = pages.filter(|path| !named.contains(Path::new(path)));
    broken.extend(missing.map(|path| format!("{summary}: {path} is not named")));
    broken
}

/// Says why a link leads nowhere; links to other places are not followed.
fn is_broken(root: &Path, texts: &BTreeMap<&str, &str>, page: &str, link: &str) -> Option<String> {
    if is_elsewhere(link) {
        return None;
    }
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => PathBuf::from(page),
        file => beside(page, file),
    };
    if !root.join(&target).exists() {
        return Some(format!("there is no {link}"));
    }
    let text = target.to_str().and_then(|target| texts.get(target))?;
    let is_there = fragment.is_empty() || markdown::anchors(text).iter().any(|anchor| anchor == fragment);
    (!is_there).then(|| format!("there is no heading for {link}"))
}

/// Returns true for a link to another site, or an address of mail.
pub(super) fn is_elsewhere(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// A path from the root to what a page names by a path from its own folder.
pub(super) fn beside(page: &str, file: &str) -> PathBuf {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(pages: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let documents: Vec<_> = pages
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        for (path, text) in &documents {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        broken(folder.path(), &documents).unwrap()
    }

    /// Links to files and headings that are there are fine, and so are those to other places.
    #[test]
    fn sound_books_pass() {
        let pages = [
            (
                "README.md",
                "[book](docs/book/src/a.md#part) [web](https://example.org/x)",
            ),
            ("docs/book/src/SUMMARY.md", "[A](a.md)\n- [B](b/b.md)\n"),
            ("docs/book/src/a.md", "# Part\n[above](#part)\n"),
            (
                "docs/book/src/b/b.md",
                "[a](../a.md) [readme](../../../../README.md)",
            ),
        ];
        assert_eq!(judge(&pages), [""; 0]);
    }

    /// Files, headings and included files that are not there are found, and pages that the list leaves out.
    #[test]
    fn broken_books_are_found() {
        let pages = [
            ("docs/book/src/SUMMARY.md", "[A](a.md)\n[A again](a.md)\n"),
            (
                "docs/book/src/a.md",
                "[b](c.md)\n[part](b.md#part)\n{{#include d.py}}\n",
            ),
            ("docs/book/src/b.md", "# Other"),
        ];
        let expected = [
            "docs/book/src/a.md:1: there is no c.md",
            "docs/book/src/a.md:2: there is no heading for b.md#part",
            "docs/book/src/a.md:3: there is no d.py",
            "docs/book/src/SUMMARY.md:2: a.md is named twice",
            "docs/book/src/SUMMARY.md: docs/book/src/b.md is not named",
        ];
        assert_eq!(judge(&pages), expected);
    }
}
