//! The book in `docs/book`: its links and its list of pages, and the programs and commands in it.

mod blocks;
mod markdown;
mod options_page;
mod pages;

use std::fs;

use anyhow::bail;

use crate::{
    project, python,
    shell::{program, run, succeeds},
};

/// The folder with `book.toml`.
const BOOK: &str = "docs/book";

/// The folder with the pages and `SUMMARY.md`.
const PAGES: &str = "docs/book/src";

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
    }
    Ok(())
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
    use super::*;

    /// The links of all documents lead to files and headings that exist, and the list of pages names each page once.
    #[test]
    fn nothing_is_broken() {
        let broken = pages::broken(&project::root(), &project::documents().unwrap()).unwrap();
        assert_eq!(broken, [""; 0]);
    }
}
