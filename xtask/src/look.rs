//! Looking at pages as a person would, in a browser.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{
    debian, project,
    shell::{finish, program},
    test::report,
};

/// Opens a page in headless Chromium as wide as a telephone's and a desktop's screen, light and dark, takes a picture
/// of each under `target/look`, and returns the paths of the pictures.
///
/// # Errors
/// If there is no such page, the browser fails, or the page says anything on the browser's console: a report
/// has nothing to say there.
pub(crate) fn look(page: &Path) -> anyhow::Result<Vec<PathBuf>> {
    debian::provide()?;
    VIEWS.iter().map(|view| look_once(page, view)).collect()
}

/// Looks at pages, or at the demo's report if there are none.
///
/// # Errors
/// As [`look`].
pub(crate) fn look_at_all(pages: &[PathBuf]) -> anyhow::Result<()> {
    match pages {
        [] => look(&report()).map(drop),
        pages => pages.iter().try_for_each(|page| look(page).map(drop)),
    }
}

/// How a page is shown.
struct View {
    /// In pixels.
    width: u32,
    height: u32,
    is_dark: bool,
}

const VIEWS: &[View] = &[
    View {
        width: 1400,
        height: 2200,
        is_dark: false,
    },
    View {
        width: 1400,
        height: 2200,
        is_dark: true,
    },
    View {
        width: 390,
        height: 3000,
        is_dark: false,
    },
    View {
        width: 390,
        height: 3000,
        is_dark: true,
    },
];

fn look_once(page: &Path, view: &View) -> anyhow::Result<PathBuf> {
    let page = page
        .canonicalize()
        .with_context(|| format!("cannot look at {}", page.display()))?;
    let folder = project::target()?.join("look");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let name = page.file_stem().unwrap_or_default().to_string_lossy();
    // Chromium counts its schemes from the dark one.
    let (shade, scheme) = match view.is_dark {
        true => ("dark", 0),
        false => ("light", 1),
    };
    let name = format!("{name}-{}-{shade}", view.width);
    let picture = folder.join(format!("{name}.png"));
    let log = folder.join(format!("{name}.log"));
    // A picture of an earlier look must not pass for one of this.
    if picture.exists() {
        fs::remove_file(&picture)?;
    }
    let profile = tempfile::tempdir()?;

    let mut browser = program("chromium", FLAGS);
    browser
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={},{}", view.width, view.height))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
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
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
];

const TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A quiet page gives four pictures, which differ; one whose script fails is an error that quotes it.
    #[test]
    fn fails_on_console_errors() {
        let folder = tempfile::tempdir().unwrap();
        let quiet = folder.path().join("look-quiet.html");
        let text =
            "<!doctype html><meta name=color-scheme content='light dark'><title>quiet</title><p>quiet</p>";
        fs::write(&quiet, text).unwrap();
        let pictures = look(&quiet).unwrap().into_iter();
        let pictures: BTreeSet<_> = pictures.map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(pictures.len(), 4);
        assert!(pictures.iter().all(|picture| picture.starts_with(b"\x89PNG")));

        let broken = folder.path().join("look-broken.html");
        fs::write(&broken, "<!doctype html><script>nowhere()</script>").unwrap();
        let error = look(&broken).unwrap_err().to_string();
        assert!(error.contains("nowhere is not defined"), "{error}");
    }
}
