//! Checkpoints in an object store: what was saved is uploaded beside the job, and fetched where nothing is left of it.

#[cfg(not(feature = "object-store"))]
use std::path::Path;

#[cfg(feature = "object-store")]
pub(super) use with_object_stores::{fetch, start};

/// Uploads until it is told that the job is over.
#[derive(Debug)]
pub(super) struct Upload {
    #[cfg(feature = "object-store")]
    uploader: ropewalk_checkpoint::Uploader,
    #[cfg(not(feature = "object-store"))]
    never: std::convert::Infallible,
}

impl Upload {
    /// Uploads the last generation, if that does not take too long.
    pub(super) fn finish(self) {
        #[cfg(feature = "object-store")]
        self.uploader.finish(with_object_stores::LAST_MAX);
        #[cfg(not(feature = "object-store"))]
        match self.never {}
    }
}

#[cfg(feature = "object-store")]
mod with_object_stores {
    use std::{env, fs, path::Path, time::Duration};

    use anyhow::Context;
    use ropewalk_checkpoint::{Archive, Depot, Uploader};

    use super::{super::say, Upload};

    /// Begins to upload what is saved into a directory.
    pub(in super::super) fn start(url: &str, directory: &Path) -> anyhow::Result<Upload> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let uploader = Uploader::start(open(url)?, directory, |text| say(&text))?;
        Ok(Upload { uploader })
    }

    /// Fetches the newest generation that is uploaded, if there is one.
    pub(in super::super) fn fetch(url: &str, directory: &Path, start: u64) -> anyhow::Result<()> {
        let mut depot = Depot::open(directory, Some(start))?;
        let found = open(url)?.fetch(&mut depot);
        if let Some(held) = found.with_context(|| format!("cannot fetch what was uploaded to {url}"))? {
            say(&format!("generation {} was fetched from {url}", held.generation));
        }
        Ok(())
    }

    fn open(url: &str) -> anyhow::Result<Archive> {
        let options = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Ok(Archive::open(url, options)?)
    }

    /// How long the end of a job may wait for its last upload.
    pub(super) const LAST_MAX: Duration = Duration::from_secs(600);
}

#[cfg(not(feature = "object-store"))]
pub(super) fn start(_url: &str, _directory: &Path) -> anyhow::Result<Upload> {
    refuse()
}

#[cfg(not(feature = "object-store"))]
pub(super) fn fetch(_url: &str, _directory: &Path, _start: u64) -> anyhow::Result<()> {
    refuse()
}

#[cfg(not(feature = "object-store"))]
fn refuse<T>() -> anyhow::Result<T> {
    anyhow::bail!("--upload is not in this ropewalk: build it with --features object-store")
}
