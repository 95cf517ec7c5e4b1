//! Debian's source packages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::shell::{output, program, run};

/// Unpacks the sources that an installed package was made of into a folder, if they are not there, and returns theirs.
/// The lists of apt for source packages are kept there too: those of the machine stay as they are.
///
/// # Errors
/// If apt does not find or cannot fetch them.
pub(super) fn unpack(package: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let format = "-f=${source:Package} ${source:Version}";
    let source = output(program("dpkg-query", &["--show", format, package]))?;
    let (name, version) = source.split_once(' ').context("dpkg-query names no version")?;
    if let Some(unpacked) = unpacked(name, folder)? {
        return Ok(unpacked);
    }
    let parts = folder.join("apt/parts");
    for created in ["apt/parts", "apt/lists/partial", "apt/cache/archives/partial"] {
        fs::create_dir_all(folder.join(created))?;
    }
    write_lists(&parts)?;
    run(apt_get(folder, &["update"]))?;
    run(apt_get(
        folder,
        &["source", "--only-source", &format!("{name}={version}")],
    ))?;
    match unpacked(name, folder)? {
        Some(unpacked) => Ok(unpacked),
        None => bail!("apt-get source {name} left no folder in {}", folder.display()),
    }
}

fn unpacked(name: &str, folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file_name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && file_name.starts_with(&format!("{name}-")) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Writes the machine's lists of packages with their sources in the packages' place.
fn write_lists(parts: &Path) -> anyhow::Result<()> {
    let mut lists = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        lists.extend(entries.flatten().map(|entry| entry.path()));
    }
    for list in lists.iter().filter(|list| list.exists()) {
        let text = fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
        fs::write(
            parts.join(list.file_name().unwrap_or_default()),
            of_sources(&text),
        )?;
    }
    Ok(())
}

/// A list of either format.
fn of_sources(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("deb ") {
        Some(rest) => format!("deb-src {rest}\n"),
        None if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn apt_get(folder: &Path, words: &[&str]) -> Command {
    let mut command = program("apt-get", words);
    for (option, path) in [
        ("Dir::Etc::SourceParts", "apt/parts"),
        ("Dir::State::Lists", "apt/lists"),
        ("Dir::Cache", "apt/cache"),
    ] {
        command.args(["-o", &format!("{option}={}", folder.join(path).display())]);
    }
    // The user _apt may not write into the folder.
    command
        .args([
            "-o",
            "Dir::Etc::SourceList=/dev/null",
            "-o",
            "APT::Sandbox::User=root",
        ])
        .current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of both formats name sources.
    #[test]
    fn lists_name_sources() {
        assert_eq!(
            of_sources("Types: deb\nURIs: http://a\n"),
            "Types: deb-src\nURIs: http://a\n"
        );
        assert_eq!(
            of_sources("# b\ndeb http://a c main\n"),
            "# b\ndeb-src http://a c main\n"
        );
    }
}
