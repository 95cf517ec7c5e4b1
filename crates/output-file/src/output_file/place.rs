//! The thing that the path of an output file leads to.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::FileTypeExt},
    },
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags, PROC_SUPER_MAGIC, fcntl_getfl, fcntl_setfl, open, statfs},
    io::Errno,
};

use super::{Problem, folder_of};

/// The thing that a path leads to.
pub(super) enum Place {
    /// A name in a folder, and the regular file that has it.
    Name {
        target: PathBuf,
        replaced: Option<Metadata>,
    },
    /// A pipe, a device or a descriptor of this process, open for writing.
    Stream(File),
}

impl Place {
    /// Follows a path. A pipe may be without a reader for as long as `patience`.
    pub(super) fn of(path: &Path, patience: Duration) -> Result<Self, Problem> {
        if path == Path::new("-") {
            return Ok(Self::Stream(duplicate(io::stdout())?));
        }
        // The system follows the links too: it refuses those that a stranger has put into a folder for all.
        let found = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let target = match follow(path)? {
            Followed::Path(target) => target,
            Followed::Descriptor(1) => return Ok(Self::Stream(duplicate(io::stdout())?)),
            Followed::Descriptor(2) => return Ok(Self::Stream(duplicate(io::stderr())?)),
            Followed::Descriptor(_) => return Ok(Self::Stream(open_stream(path, patience)?)),
        };
        match found {
            None if path.as_os_str().as_bytes().ends_with(b"/") => Err(Problem::Folder),
            None => Ok(Self::Name {
                target,
                replaced: None,
            }),
            Some(found) if found.is_dir() => Err(Problem::Folder),
            Some(found) if found.file_type().is_socket() => Err(Problem::Socket),
            Some(found) if found.is_file() => Ok(Self::Name {
                target,
                replaced: Some(found),
            }),
            Some(_) => Ok(Self::Stream(open_stream(path, patience)?)),
        }
    }
}

/// The end of a chain of symbolic links.
enum Followed {
    Path(PathBuf),
    /// A link that the system makes for an open file, which may have no name. The number is that of a
    /// descriptor of this process, or none.
    Descriptor(i32),
}

fn follow(path: &Path) -> Result<Followed, Problem> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = folder_of(&path);
        let Ok(link) = fs::read_link(&path) else {
            return Ok(Followed::Path(path));
        };
        if statfs(folder).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC) {
            let is_own = fs::canonicalize(folder).is_ok_and(|found| found == own_descriptors());
            let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            return Ok(Followed::Descriptor(number.filter(|_| is_own).unwrap_or(-1)));
        }
        path = folder.join(link);
    }
    Err(Problem::Links)
}

fn own_descriptors() -> PathBuf {
    format!("/proc/{}/fd", process::id()).into()
}

/// Opens what is no regular file, or has no name.
fn open_stream(path: &Path, patience: Duration) -> Result<File, Problem> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let end = Instant::now() + patience;
    let stream = loop {
        match open(path, flags, Mode::empty()) {
            // A pipe without a reader, or a device that is not there.
            Err(Errno::NXIO) if is_pipe(path) => {}
            opened => break opened.map_err(io::Error::from)?,
        }
        if Instant::now() >= end {
            return Err(Problem::NoReader(patience));
        }
        thread::sleep(PAUSE);
    };
    let flags = fcntl_getfl(&stream).map_err(io::Error::from)?;
    fcntl_setfl(&stream, flags - OFlags::NONBLOCK).map_err(io::Error::from)?;
    Ok(stream.into())
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

fn duplicate(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// As many symbolic links as the system follows.
pub(super) const LINKS_MAX: usize = 40;

/// The time between two attempts to open a pipe.
const PAUSE: Duration = Duration::from_millis(50);
