//! Where the project's files are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::shell::{cargo, output, run};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .expect("the manifest of xtask is in a folder of the root")
        .to_owned()
}

/// Builds everything as the tests do, and returns the folder. The features of what all depend on follow from all that
/// is built at once: with fewer packages most would be compiled again.
///
/// # Errors
/// If something does not compile.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let words = "build --workspace --all-features --all-targets --locked";
    run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
    Ok(target()?.join("debug"))
}

/// Where cargo puts what it builds.
///
/// # Errors
/// If cargo does not say.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let text = output(cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
    let folder = metadata["target_directory"]
        .as_str()
        .context("cargo names no target folder")?;
    Ok(folder.into())
}

/// Every Rust file of the project with its path from the root, in order of path.
///
/// # Errors
/// If a folder or file cannot be read.
pub(crate) fn rust_files() -> anyhow::Result<Vec<(String, String)>> {
    files(&["benches", "crates", "examples", "fuzz", "xtask"], "rs")
}

/// The same of every document in Markdown.
///
/// # Errors
/// If a folder or file cannot be read.
pub(crate) fn documents() -> anyhow::Result<Vec<(String, String)>> {
    files(&[""], "md")
}

fn files(folders: &[&str], extension: &str) -> anyhow::Result<Vec<(String, String)>> {
    let root = root();
    let mut files = Vec::new();
    for folder in folders {
        collect(&root, &root.join(folder), extension, &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect(
    root: &Path,
    folder: &Path,
    extension: &str,
    files: &mut Vec<(String, String)>,
) -> anyhow::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name != "target" && !name.starts_with('.') {
                collect(root, &path, extension, files)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            files.push((name.into_owned(), text));
        }
    }
    Ok(())
}
