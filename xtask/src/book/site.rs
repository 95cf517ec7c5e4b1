//! The site: the book, and the documents and files of the repository that its pages link to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, bail};

use super::{
    BOOK, PAGES, markdown,
    pages::{beside, is_elsewhere},
};

/// Writes the sources of the site to a folder, for mdBook: the pages of the book below `src`, all else below
/// `src/repository`, with links that lead to these places.
///
/// # Errors
/// If a file cannot be read or written, or a link leads nowhere.
pub(super) fn lay_out(root: &Path, documents: &[(String, String)], site: &Path) -> anyhow::Result<()> {
    let summary = Path::new(PAGES).join("SUMMARY.md");
    let texts = documents
        .iter()
        .map(|(path, text)| (PathBuf::from(path), text.clone()));
    let mut texts: BTreeMap<PathBuf, String> = texts.collect();
    let list = texts.remove(&summary);
    let list = list.with_context(|| format!("there is no {}", summary.display()))?;
    let mut left: Vec<PathBuf> = texts
        .keys()
        .filter(|path| path.starts_with(PAGES))
        .cloned()
        .collect();
    let mut seen: BTreeSet<PathBuf> = left.iter().cloned().collect();
    // The documents beside the book, with their titles.
    let mut others = BTreeMap::new();
    while let Some(path) = left.pop() {
        let Some(text) = texts.remove(&path) else {
            let target = with_folder(site, &path)?;
            let from = root.join(&path);
            fs::copy(&from, &target).with_context(|| format!("cannot copy {}", from.display()))?;
            continue;
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut text = markdown::expanded(&text, |included| {
            Ok(fs::read_to_string(root.join(folder).join(included))?)
        })?;
        for (line, link) in markdown::links(&text.clone()) {
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            if file.is_empty() || is_elsewhere(&link) {
                continue;
            }
            let mut linked = beside(&path.to_string_lossy(), file);
            if root.join(&linked).is_dir() {
                let listed = linked.join("README.md");
                if !root.join(&listed).exists() && !seen.contains(&listed) {
                    texts.insert(listed.clone(), listing(root, &linked)?);
                }
                linked = listed;
            } else if !root.join(&linked).exists() && !seen.contains(&linked) {
                bail!("{}:{line}: there is no {link}", path.display());
            }
            let target = match linked == summary {
                // No page of the site; the list is beside each page.
                true => PathBuf::from("index.html"),
                false => place(&linked),
            };
            let mark = if fragment.is_empty() { "" } else { "#" };
            let new = format!("{}{mark}{fragment}", relative(&place(&path), &target));
            text = text.replace(&format!("]({link})"), &format!("]({new})"));
            if linked != summary && seen.insert(linked.clone()) {
                left.push(linked);
            }
        }
        if !path.starts_with(PAGES) {
            let title = text.lines().find_map(|line| line.strip_prefix("# "));
            let title = title.map_or_else(|| path.display().to_string(), str::to_owned);
            others.insert(path.clone(), title);
        }
        let target = with_folder(site, &path)?;
        fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
    }
    fs::write(site.join("src/SUMMARY.md"), with_documents(&list, &others))?;
    for name in SETTINGS {
        let from = root.join(BOOK).join(name);
        fs::copy(&from, site.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// The files beside the pages of the book that mdBook reads.
const SETTINGS: [&str; 2] = ["book.toml", "narrow.css"];

/// The path of a file of the repository among the sources of the site, in a folder that exists.
fn with_folder(site: &Path, path: &Path) -> anyhow::Result<PathBuf> {
    let target = site.join("src").join(place(path));
    let folder = target.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(target)
}

/// A page that lists the files of a folder.
fn listing(root: &Path, folder: &Path) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    let items: String = names.iter().map(|name| format!("- [{name}]({name})\n")).collect();
    Ok(format!("# {}\n\n{items}", folder.display()))
}

/// The list of pages with the documents beside the book in a part of their own, before the pages without numbers.
fn with_documents(list: &str, others: &BTreeMap<PathBuf, String>) -> String {
    let (numbered, rest) = list.split_once("\n---\n").unwrap_or((list, ""));
    let mut part = String::from("\n# Documents\n\n");
    let (decisions, documents): (Vec<_>, Vec<_>) = others
        .iter()
        .partition(|(path, _)| path.starts_with("docs/decisions"));
    let line = |(path, title): &(&PathBuf, &String)| format!("- [{title}]({})\n", place(path).display());
    for document in &documents {
        part += &line(document);
    }
    if !decisions.is_empty() {
        part += "- [Decisions]()\n";
    }
    for decision in &decisions {
        // Writing to a string does not fail.
        let _ = write!(part, "  {}", line(decision));
    }
    format!("{numbered}{part}\n---\n{rest}")
}

/// The path of a file of the repository below the sources of the site.
fn place(path: &Path) -> PathBuf {
    match path.strip_prefix(PAGES) {
        Ok(page) => page.to_owned(),
        Err(_) => Path::new("repository").join(path),
    }
}

/// The path of a file as a link in a page beside it.
fn relative(page: &Path, file: &Path) -> String {
    let folder: Vec<_> = page.parent().into_iter().flat_map(Path::components).collect();
    let parts: Vec<_> = file.components().collect();
    let common = folder.iter().zip(&parts).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, folder.len() - common);
    let path: PathBuf = up.chain(parts[common..].iter().copied()).collect();
    path.display().to_string()
}

/// The links of a built site that lead nowhere, one line each. Those to other sites are not followed.
///
/// # Errors
/// If a page cannot be read.
pub(super) fn broken(site: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(site, &mut pages)?;
    // The first is at each path that does not exist, the other has all pages in one.
    let special = ["404.html", "print.html"].map(|name| site.join(name));
    let mut broken = Vec::new();
    for (path, html) in pages.iter().filter(|(path, _)| !special.contains(path)) {
        let own = path.strip_prefix(site).unwrap_or(path).display().to_string();
        for link in attributes(html, &["href=\"", "src=\""]) {
            if is_elsewhere(link) || link.starts_with("data:") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let linked = match file {
                "" => path.clone(),
                file => site.join(beside(&own, file)),
            };
            let is_there = match pages.get(&linked) {
                Some(html) => fragment.is_empty() || attributes(html, &["id=\""]).any(|id| id == fragment),
                None => linked.is_file(),
            };
            if !is_there {
                broken.push(format!("{own}: {link}"));
            }
        }
    }
    Ok(broken)
}

/// The values of attributes, each given with the quote behind it.
fn attributes<'a>(html: &'a str, names: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let values = |name: &'a str| html.split(name).skip(1);
    let ended = |text: &'a str| text.split_once('"').map(|(value, _)| value);
    names.iter().flat_map(move |name| values(name).filter_map(ended))
}

fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let html = fs::read_to_string(&path)?;
            pages.insert(path, html);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(site: &Path, path: &str) -> String {
        fs::read_to_string(site.join("src").join(path)).unwrap()
    }

    const SUMMARY: &str = "[Why](why.md)\n\n# How to\n\n- [A](howto/a.md)\n\n---\n\n[More](more.md)\n";

    /// A folder that a page links to is the list of its files.
    const FILES: &[(&str, &str)] = &[
        ("docs/book/book.toml", "[book]"),
        ("docs/book/narrow.css", ""),
        ("docs/book/src/SUMMARY.md", SUMMARY),
        (
            "docs/book/src/why.md",
            "[a](howto/a.md#part) [web](https://x.org)\n",
        ),
        (
            "docs/book/src/howto/a.md",
            "# Part\n[one](../../../decisions/0001.md#why) [c](../../../../a.c) [here](#part)\n\
             {{#include ../../../../a.c}}\n",
        ),
        (
            "docs/book/src/more.md",
            "![p](../../p.svg) [all](../../decisions)\n",
        ),
        (
            "docs/decisions/0001.md",
            "# 1. One\n## Why\n[read](../../README.md)\n",
        ),
        ("docs/decisions/0002.md", "# 2. Two\n"),
        ("docs/alone.md", "# Nobody links here\n"),
        ("docs/p.svg", "<svg/>"),
        (
            "README.md",
            "# Read\n[why](docs/book/src/why.md) [book](docs/book/src/SUMMARY.md)\n",
        ),
        ("a.c", "int a;\n"),
    ];

    /// Documents to which the book links, and those to which they link, are in the site, with links that lead there.
    #[test]
    fn linked_documents_are_in_the_site() {
        let (root, site) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (path, text) in FILES {
            file(root.path(), path, text);
        }
        let documents = FILES.iter().filter(|(path, _)| path.ends_with(".md"));
        let documents: Vec<_> = documents
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        lay_out(root.path(), &documents, site.path()).unwrap();
        let site = site.path();
        assert_eq!(
            read(site, "why.md"),
            "[a](howto/a.md#part) [web](https://x.org)\n"
        );
        assert_eq!(
            read(site, "howto/a.md"),
            "# Part\n[one](../repository/docs/decisions/0001.md#why) [c](../repository/a.c) [here](#part)\nint a;\n"
        );
        assert_eq!(
            read(site, "more.md"),
            "![p](repository/docs/p.svg) [all](repository/docs/decisions/README.md)\n"
        );
        assert_eq!(
            read(site, "repository/README.md"),
            "# Read\n[why](../why.md) [book](../index.html)\n"
        );
        assert_eq!(
            read(site, "repository/docs/decisions/README.md"),
            "# docs/decisions\n\n- [0001.md](0001.md)\n- [0002.md](0002.md)\n"
        );
        assert_eq!(read(site, "repository/a.c"), "int a;\n");
        assert!(!site.join("src/repository/docs/alone.md").exists());
        assert_eq!(
            read(site, "SUMMARY.md"),
            "[Why](why.md)\n\n# How to\n\n- [A](howto/a.md)\n\n# Documents\n\n- [Read](repository/README.md)\n\
             - [Decisions]()\n  - [1. One](repository/docs/decisions/0001.md)\n  - [2. \
             Two](repository/docs/decisions/0002.md)\n  - \
             [docs/decisions](repository/docs/decisions/README.md)\n\n---\n\n[More](more.md)\n"
        );
    }

    /// A link that leads nowhere is an error with its line.
    #[test]
    fn missing_files_are_told() {
        let (root, site) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pages = [("SUMMARY.md", ""), ("a.md", "\n[no](../../no.md)\n")]
            .map(|(name, text)| (format!("{PAGES}/{name}"), text.to_owned()));
        let error = lay_out(root.path(), &pages, site.path()).unwrap_err().to_string();
        assert!(error.contains("docs/book/src/a.md:2"), "{error}");
    }

    /// Missing files and missing headings are found in built pages.
    #[test]
    fn broken_links_are_found() {
        let site = tempfile::tempdir().unwrap();
        let page = "<h1 id=\"top\"><a href=\"b/c.html#low\">c</a><a href=\"#top\">t</a><a href=\"https://x.org\">x</a>\
                    <img src=\"no.svg\"><a href=\"b/c.html#no\">";
        file(site.path(), "a.html", page);
        file(site.path(), "b/c.html", "<p id=\"low\"><a href=\"../a.html\">");
        file(site.path(), "print.html", "<a href=\"nowhere.html\">");
        assert_eq!(
            broken(site.path()).unwrap(),
            ["a.html: b/c.html#no", "a.html: no.svg"]
        );
    }
}
