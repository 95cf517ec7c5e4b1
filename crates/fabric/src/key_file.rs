//! Keys in files, for processes that no launcher started.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::JobKey;

impl JobKey {
    /// The key that a file holds, as 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file cannot be read, is not a regular file, holds something else, or may be read by others than its
    /// owner.
    pub fn read_from(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            let kind = kind(about.file_type());
            return Err(refused(format!(
                "a key is kept in a regular file, and this is {kind}"
            )));
        }
        let mode = about.mode();
        if mode & 0o077 != 0 {
            let mode = mode & 0o7777;
            return Err(refused(format!(
                "the key is open to others (mode {mode:04o}): change it to 0600"
            )));
        }
        let mut text = String::new();
        file.take(TEXT_SIZE_MAX).read_to_string(&mut text)?;
        Self::from_hex(text.trim())
            .ok_or_else(|| refused("a key is 64 hexadecimal digits, and this is something else".to_owned()))
    }

    /// The key that a file holds. If there is no such file it is made, with a new key, for its owner only.
    /// Nobody ever sees a part of it, and of several who make it at a time all get the same.
    ///
    /// # Errors
    /// As for [`read_from`](Self::read_from), or if the file cannot be made.
    pub fn read_from_or_make(path: &Path) -> io::Result<Self> {
        match Self::read_from(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => return read,
        }
        let key = Self::generate()?;
        let draft = draft_of(path)?;
        let linked = key.write_new(&draft).and_then(|()| fs::hard_link(&draft, path));
        let removed = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read_from(path),
            linked => linked.and(removed).map(|()| key),
        }
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let digits: String = self.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{digits}")?;
        file.sync_all()
    }

    fn from_hex(text: &str) -> Option<Self> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = u8::try_from(high? * 16 + low?).ok()?;
        }
        Some(Self::from_bytes(bytes))
    }
}

/// Never waits for who writes into a pipe, and leaves terminals what they are: what it is shows once it is open.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn kind(of: FileType) -> &'static str {
    match of {
        _ if of.is_dir() => "a folder",
        _ if of.is_fifo() => "a pipe",
        _ if of.is_block_device() || of.is_char_device() => "a device",
        _ => "something else",
    }
}

/// A name beside a file's that nobody else uses.
fn draft_of(path: &Path) -> io::Result<PathBuf> {
    let mut lot = [0; 8];
    getrandom::fill(&mut lot).map_err(io::Error::other)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_ne_bytes(lot)));
    Ok(name.into())
}

/// Longer files hold no key.
const TEXT_SIZE_MAX: u64 = 1 << 10;

fn refused(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Barrier, thread};

    use rustix::fs::{CWD, Mode};

    use super::*;

    /// A key that was made is read again, by its owner only; what is no key is refused.
    #[test]
    fn keys_are_kept_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(JobKey::read_from(&path).is_err());
        let made = JobKey::read_from_or_make(&path).unwrap();
        assert!(JobKey::read_from_or_make(&path).unwrap() == made);
        assert!(JobKey::read_from(&path).unwrap() == made);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let open = JobKey::read_from(&path).unwrap_err();
        assert!(open.to_string().contains("0640"), "{open}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "00", &"0g".repeat(32), &"00".repeat(33), &"0".repeat(63)] {
            fs::write(&path, wrong).unwrap();
            assert!(JobKey::read_from(&path).is_err(), "{wrong}");
        }
    }

    /// A file that is not regular is refused at once, though a pipe has nobody who writes into it and a
    /// device never ends.
    #[test]
    fn only_a_regular_file_holds_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for (path, kind) in [
            (pipe.as_path(), "a pipe"),
            (Path::new("/dev/zero"), "a device"),
            (folder.path(), "a folder"),
        ] {
            let error = JobKey::read_from_or_make(path).unwrap_err().to_string();
            assert!(error.ends_with(&format!("this is {kind}")), "{error}");
        }
    }

    /// Of those who start at a time one makes the key, the others read it whole, and nothing else is left.
    #[test]
    fn a_key_is_made_once() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("key");
            let barrier = Barrier::new(4);
            let make = || {
                barrier.wait();
                JobKey::read_from_or_make(&path).unwrap()
            };
            let keys = thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(make));
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
