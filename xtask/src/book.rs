//! The book in `docs/book`: its links and its list of pages, and the programs and commands in it.

mod blocks;
mod markdown;
mod options_page;
mod pages;

use std::{fs, path::Path};

use anyhow::{Context, bail};

use crate::{
    project, python,
    shell::{program, run, succeeds},
};

/// The folder with `book.toml`.
const BOOK: &str = "docs/book";

/// The folder with the pages and `SUMMARY.md`.
pub(crate) const PAGES: &str = "docs/book/src";

/// Checks links and the list of pages, writes the page of options anew, compiles the programs in the book and runs its
/// commands. Builds the site too if mdBook is installed.
///
/// # Errors
/// If something is broken, does not compile, or fails.
pub(crate) fn book() -> anyhow::Result<()> {
    pages()?;
    project::build()?;
    python::environment()?;
    blocks()?;
    if succeeds(program("mdbook", &["--version"])) {
        run(program("mdbook", &["build", BOOK]))?;
        let site = project::target()?.join("book");
        copy_pictures(&project::root().join("docs"), &project::documents()?, &site)?;
    }
    Ok(())
}

/// Copies the pictures of the documents that the book shows to the paths that the site has for them. mdBook copies only
/// what is beside its pages.
fn copy_pictures(docs: &Path, documents: &[(String, String)], site: &Path) -> anyhow::Result<()> {
    for (page, text) in documents.iter().filter(|(path, _)| path.starts_with(PAGES)) {
        for (_, link) in markdown::links(text) {
            let path = pages::beside(page, &link);
            let Some(picture) = path.strip_prefix("docs").ok().filter(|path| is_picture(path)) else {
                continue;
            };
            let copy = site.join(picture);
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(docs.join(picture), copy)
                .with_context(|| format!("cannot copy {}", picture.display()))?;
        }
    }
    Ok(())
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

/// Checks links and the list of pages.
///
/// # Errors
/// If something is broken.
pub(crate) fn pages() -> anyhow::Result<()> {
    let broken = pages::broken(&project::root(), &project::documents()?)?;
    if !broken.is_empty() {
        bail!("{}\n{} in all", broken.join("\n"), broken.len());
    }
    Ok(())
}

/// Compiles the programs in the book and runs its commands, with what is built and the environment for Python that is
/// there.
///
/// # Errors
/// If something does not compile, or fails, or if the page of options was out of date.
pub(crate) fn blocks() -> anyhow::Result<()> {
    let tools = blocks::Tools {
        target: project::target()?,
        python: python::installed()?,
    };
    let mut failed = Vec::from_iter(options_page::write(&tools.ropewalk()).err());
    for (path, text) in project::documents()? {
        if path.starts_with(PAGES) || path == "README.md" {
            let page = project::root().join(&path);
            let text = markdown::expanded(&text, |included| {
                let folder = page.parent().unwrap_or(&page);
                Ok(fs::read_to_string(folder.join(included))?)
            })?;
            failed.extend(blocks::check(&path, &markdown::blocks(&text), &tools).err());
        }
    }
    if !failed.is_empty() {
        // All at once, so that one run shows what there is to mend.
        let lines: Vec<_> = failed.iter().map(|error| format!("{error:#}")).collect();
        bail!("{}", lines.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The links of all documents lead to files and headings that exist, and the list of pages names each page once.
    #[test]
    fn nothing_is_broken() {
        let broken = pages::broken(&project::root(), &project::documents().unwrap()).unwrap();
        assert_eq!(broken, [""; 0]);
    }

    /// Every picture of the documents is shown in the chapter on benchmarks, and in the site each is where that
    /// chapter's page looks for it.
    #[test]
    fn pictures_are_in_the_site() {
        let site = tempfile::tempdir().unwrap();
        let documents = project::documents().unwrap();
        let docs = project::root().join("docs");
        copy_pictures(&docs, &documents, site.path()).unwrap();
        let settings = fs::read_to_string(project::root().join(BOOK).join("book.toml")).unwrap();
        let below = settings
            .split_once("target/book/")
            .unwrap()
            .1
            .split_once('"')
            .unwrap()
            .0;
        let page = site.path().join(below);
        fs::create_dir_all(&page).unwrap();
        let (path, text) = documents
            .iter()
            .find(|(path, _)| path.ends_with("src/benchmarks.md"))
            .unwrap();
        let links = markdown::links(text).into_iter().map(|(_, link)| link);
        let shown: BTreeSet<_> = links.filter(|link| is_picture(Path::new(link))).collect();
        for picture in &shown {
            assert!(page.join(picture).is_file(), "{path}: {picture}");
        }
        let there = ["", "papers"]
            .iter()
            .flat_map(|folder| fs::read_dir(docs.join(folder)).unwrap());
        let there = there.filter(|entry| is_picture(&entry.as_ref().unwrap().path()));
        assert_eq!(shown.len(), there.count());
    }
}
