//! The book in `docs/book`: its links and its list of pages, and the programs and commands in it.

mod blocks;
mod markdown;
mod options_page;
mod pages;
mod site;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{
    project, python,
    shell::{cargo, program, run, succeeds},
};

/// The folder with `book.toml`.
const BOOK: &str = "docs/book";

/// The folder with the pages and `SUMMARY.md`.
pub(crate) const PAGES: &str = "docs/book/src";

/// How much is done.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Builds only the site, in target/book/html, and installs mdBook below target if it is nowhere else
    #[arg(long)]
    site: bool,
}

/// Checks links and the list of pages, writes the page of options anew, compiles the programs in the book and runs its
/// commands. Builds the site too if mdBook is installed.
///
/// # Errors
/// If something is broken, does not compile, or fails.
pub(crate) fn book(options: &Options) -> anyhow::Result<()> {
    pages()?;
    if options.site {
        return build_site(&installed_mdbook()?);
    }
    project::build()?;
    python::environment()?;
    blocks()?;
    match mdbook()? {
        Some(mdbook) => build_site(&mdbook),
        None => Ok(()),
    }
}

/// The path of mdBook, if it is on the path or was installed below target.
fn mdbook() -> anyhow::Result<Option<PathBuf>> {
    let own = tools()?.join("bin/mdbook");
    let candidates = [PathBuf::from("mdbook"), own];
    let is_there = |path: &PathBuf| succeeds(program(&path.to_string_lossy(), &["--version"]));
    Ok(candidates.into_iter().find(is_there))
}

/// The same; it is installed below target if it is nowhere.
fn installed_mdbook() -> anyhow::Result<PathBuf> {
    if let Some(mdbook) = mdbook()? {
        return Ok(mdbook);
    }
    let folder = tools()?;
    let mut install = cargo(&[
        "install",
        "--locked",
        "--debug",
        "--version",
        MDBOOK,
        "mdbook",
        "--root",
    ]);
    install.arg(&folder);
    run(install)?;
    Ok(folder.join("bin/mdbook"))
}

/// The folder for programs that only some tasks need.
fn tools() -> anyhow::Result<PathBuf> {
    Ok(project::target()?.join("tools"))
}

/// The version of mdBook by which the site was tried.
const MDBOOK: &str = "0.5.4";

/// Builds the site in `target/book/html`, and follows its links.
fn build_site(mdbook: &Path) -> anyhow::Result<()> {
    let folder = project::target()?.join("book");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    site::lay_out(&project::root(), &project::documents()?, &folder)?;
    let mut build = program(&mdbook.to_string_lossy(), &["build"]);
    build.arg(&folder);
    run(build)?;
    let html = folder.join("html");
    let broken = site::broken(&html)?;
    if !broken.is_empty() {
        bail!("links of the site lead nowhere:\n{}", broken.join("\n"));
    }
    println!("{}", html.join("index.html").display());
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
    use std::collections::BTreeSet;

    use super::*;

    /// The links of all documents lead to files and headings that exist, and the list of pages names each page once.
    #[test]
    fn nothing_is_broken() {
        let broken = pages::broken(&project::root(), &project::documents().unwrap()).unwrap();
        assert_eq!(broken, [""; 0]);
    }

    /// Every picture of the documents is shown in the chapter on benchmarks.
    #[test]
    fn pictures_are_in_the_book() {
        let documents = project::documents().unwrap();
        let docs = project::root().join("docs");
        let is_picture = |path: &Path| path.extension().is_some_and(|extension| extension == "svg");
        let (_, text) = documents
            .iter()
            .find(|(path, _)| path.ends_with("src/benchmarks.md"))
            .unwrap();
        let links = markdown::links(text).into_iter().map(|(_, link)| link);
        let shown: BTreeSet<_> = links.filter(|link| is_picture(Path::new(link))).collect();
        let there = ["", "papers"]
            .iter()
            .flat_map(|folder| fs::read_dir(docs.join(folder)).unwrap());
        let there = there.filter(|entry| is_picture(&entry.as_ref().unwrap().path()));
        assert_eq!(shown.len(), there.count());
    }

    /// The sources of the site can be laid out: every link of a page of it leads to a file.
    #[test]
    fn the_site_is_laid_out() {
        let folder = tempfile::tempdir().unwrap();
        site::lay_out(&project::root(), &project::documents().unwrap(), folder.path()).unwrap();
        assert!(
            folder
                .path()
                .join("src/repository/docs/papers/reduction.md")
                .is_file()
        );
    }
}
