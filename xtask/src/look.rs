//! Looking at a report as a person would, in a browser.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{
    debian, project,
    shell::{finish, program},
};

/// Opens a page in headless Chromium, takes a picture of it under `target/look`, and returns the picture's path.
///
/// # Errors
/// If there is no such page, the browser fails, or the page says anything on the browser's console: a report
/// has nothing to say there.
pub(crate) fn look(page: &Path) -> anyhow::Result<PathBuf> {
    debian::provide()?;
    let page = page
        .canonicalize()
        .with_context(|| format!("cannot look at {}", page.display()))?;
    let folder = project::target()?.join("look");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let name = page.file_stem().unwrap_or_default();
    let picture = folder.join(name).with_extension("png");
    let log = folder.join(name).with_extension("log");
    // A picture of an earlier look must not pass for one of this.
    if picture.exists() {
        fs::remove_file(&picture)?;
    }
    let profile = tempfile::tempdir()?;

    let mut browser = program("chromium", FLAGS);
    browser
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .stdout(File::create(&log)?)
        .stderr(File::options().append(true).open(&log)?);
    finish(browser, TIME_MAX)?;

    let log = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let said: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    if !said.is_empty() {
        bail!(
            "{} says on the browser's console:\n{}",
            page.display(),
            said.join("\n")
        );
    }
    if !picture.exists() {
        bail!(
            "the browser took no picture of {}; it says:\n{log}",
            page.display()
        );
    }
    eprintln!("{} looks like {}", page.display(), picture.display());
    Ok(picture)
}

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,2200",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
];

const TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// A quiet page gives a picture; one whose script fails is an error that quotes it.
    #[test]
    fn fails_on_console_errors() {
        let folder = tempfile::tempdir().unwrap();
        let quiet = folder.path().join("look-quiet.html");
        fs::write(&quiet, "<!doctype html><title>quiet</title><p>quiet</p>").unwrap();
        let picture = look(&quiet).unwrap();
        assert!(fs::read(picture).unwrap().starts_with(b"\x89PNG"));

        let broken = folder.path().join("look-broken.html");
        fs::write(&broken, "<!doctype html><script>nowhere()</script>").unwrap();
        let error = look(&broken).unwrap_err().to_string();
        assert!(error.contains("nowhere is not defined"), "{error}");
    }
}
