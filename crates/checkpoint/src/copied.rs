//! Word of what is copied to other hosts, from the process that sees to it to the program that waits for it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::files::{Files, RealFiles};

/// The file of a directory that says which generation is the newest of which each part is on two hosts, or on one if no
/// other is left.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    path: PathBuf,
}

impl Copied {
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(NAME),
        }
    }

    /// Says so.
    #[cfg(feature = "partner")]
    pub(super) fn write(&self, generation: u64) -> io::Result<()> {
        let temporary = self.path.with_extension("tmp");
        fs::write(&temporary, format!("{generation}\n"))?;
        fs::rename(temporary, &self.path)
    }

    /// Which generation that is; nothing if nobody has said it, or it cannot be read.
    pub(super) fn read(&self) -> Option<u64> {
        let text = RealFiles.read(&self.path, BYTES_MAX).ok()?;
        std::str::from_utf8(&text).ok()?.trim_end().parse().ok()
    }

    /// How long ago it was said; no time if the clock was set meanwhile.
    pub(super) fn age(&self) -> io::Result<Duration> {
        let written = fs::metadata(&self.path)?.modified()?;
        Ok(written.elapsed().unwrap_or_default())
    }
}

const NAME: &str = "copied";

/// A number and a line feed.
const BYTES_MAX: usize = 32;

#[cfg(all(test, feature = "partner"))]
mod tests {
    use super::*;

    /// A generation that was written is read back; a text that is no number is read as `None`.
    #[test]
    fn what_is_said_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let copied = Copied::of(folder.path());
        assert_eq!(copied.read(), None);
        assert!(copied.age().is_err());
        for generation in [7, u64::MAX] {
            copied.write(generation).unwrap();
            assert_eq!(copied.read(), Some(generation));
            assert!(copied.age().unwrap() < Duration::from_secs(60));
        }
        fs::write(folder.path().join(NAME), "seven\n").unwrap();
        assert_eq!(copied.read(), None);
    }
}
