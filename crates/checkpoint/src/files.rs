//! The operations of a file system that the store needs.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use rustix::{fs::FlockOperation, io::Errno};

/// The calls of a file system that the store needs, so that tests can put one in its place that crashes.
pub trait Files {
    /// Makes a directory and those above it; one that exists is as good.
    ///
    /// # Errors
    /// As the file system says.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, in order of name.
    ///
    /// # Errors
    /// As the file system says.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// The kind of what is at a path, itself and not what it links to.
    ///
    /// # Errors
    /// As the file system says.
    fn kind(&self, path: &Path) -> io::Result<EntryKind>;

    /// The content of a file of at most so many bytes.
    ///
    /// # Errors
    /// As the file system says, or [`io::ErrorKind::FileTooLarge`].
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>>;

    /// Writes a file, in the place of any of that name. It need not be on the disk afterwards.
    ///
    /// # Errors
    /// As the file system says.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// The length and the blake3 hash of a file.
    ///
    /// # Errors
    /// As the file system says.
    fn digest(&self, path: &Path) -> io::Result<(u64, [u8; 32])>;

    /// Returns when a file's content, or a directory's list of names, is on the disk.
    ///
    /// # Errors
    /// As the file system says.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or directory another name at once, in the place of any file of that name.
    ///
    /// # Errors
    /// As the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the file system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the file system says.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is made if it does not exist, for this process alone until it is closed or the
    /// process ends. `None` if there are no locks.
    ///
    /// # Errors
    /// As the file system says; [`io::ErrorKind::WouldBlock`] if another process has locked it.
    fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        let _ = path;
        Ok(None)
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The kind of the entry.
    pub kind: EntryKind,
}

/// The kind of file that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// An ordinary file.
    File,
    /// A link, a socket, a device: nothing that a checkpoint can hold.
    Other,
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealFiles;

impl Files for RealFiles {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let entries = fs::read_dir(path)?.map(|entry| {
            let entry = entry?;
            Ok(Entry {
                kind: kind(entry.file_type()?),
                name: entry.file_name(),
            })
        });
        let mut entries: Vec<Entry> = entries.collect::<io::Result<_>>()?;
        entries.sort_unstable();
        Ok(entries)
    }

    fn kind(&self, path: &Path) -> io::Result<EntryKind> {
        Ok(kind(fs::symlink_metadata(path)?.file_type()))
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(path)?
            .take(most as u64 + 1)
            .read_to_end(&mut content)?;
        match content.len() > most {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(content),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        fs::write(path, content)
    }

    fn digest(&self, path: &Path) -> io::Result<(u64, [u8; 32])> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok((hasher.count(), *hasher.finalize().as_bytes()))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        // Whoever opens it a second time, and closes it, lets go of the lock.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::AGAIN | Errno::ACCESS) => Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn kind(of: fs::FileType) -> EntryKind {
    if of.is_dir() {
        EntryKind::Directory
    } else if of.is_file() {
        EntryKind::File
    } else {
        EntryKind::Other
    }
}
