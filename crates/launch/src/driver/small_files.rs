//! Files that whoever uses the job names while it runs: reading one must not keep the launcher.

use std::{ffi::OsStr, fs::File, io, io::Read, os::unix::fs::OpenOptionsExt};

use rustix::fs::OFlags;

/// As much as a list of the most hosts that a job may have needs, about.
const SIZE_MAX: u64 = 16 << 20;

/// Reads a file, which must be a regular one: a pipe might never have anything to say.
pub(super) fn read(path: &OsStr) -> io::Result<Vec<u8>> {
    let no_wait = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(no_wait).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(io::Error::other(format!("it is larger than {SIZE_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regular file is read; what has no end, or none yet, is not.
    #[test]
    fn only_regular_files_are_read() {
        let own = file!();
        let own = own.strip_prefix("crates/launch/").unwrap_or(own);
        assert!(!read(OsStr::new(own)).unwrap().is_empty());
        assert!(read(OsStr::new("/dev/zero")).is_err());
        assert!(read(OsStr::new("/nowhere/at/all")).is_err());
    }
}
