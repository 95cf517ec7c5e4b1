mod place;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, Metadata},
    io::{self, Seek, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, open};
use tempfile::TempPath;
use thiserror::Error;

use self::place::Place;

/// A file that a command writes.
///
/// A regular file, or a name that nothing has, gets the whole content in one step, with
/// [`commit`](Self::commit); until then the old content stays. The content waits in a file without a name in
/// the same folder, so a command that is killed leaves nothing. If the file system has no such files, the
/// content waits in one with a name, which the next command that writes into this folder removes if its owner
/// is dead. A symbolic link stays, and the file that it leads to is replaced. A pipe or a device is written
/// into; `-` is the standard output.
#[derive(Debug)]
pub struct OutputFile {
    /// As the user gave it.
    path: PathBuf,
    content: File,
    destination: Destination,
}

/// The place that the content goes to.
#[derive(Debug)]
enum Destination {
    /// The content becomes the file of this name.
    Name(Replacement),
    /// The content is copied into something that is open already.
    Stream(File),
}

/// How a file takes the name of another.
#[derive(Debug)]
struct Replacement {
    target: PathBuf,
    /// The name that the content has until then, if it has one.
    named: Option<TempPath>,
    /// The permissions of the file that is replaced, or those of any new one.
    mode: u32,
    /// User and group of the file that is replaced.
    owner: Option<(u32, u32)>,
}

impl OutputFile {
    /// The prefix of the names of temporary files.
    const PREFIX: &'static str = ".ropewalk-output-";

    /// How long a pipe may be without a reader.
    const READER_PATIENCE: Duration = Duration::from_secs(10);

    /// Checks that the file can be written, and makes one for its content. To be called before any work is done.
    ///
    /// # Errors
    /// If it is a folder or a socket, a pipe that nobody reads, or in a folder where nothing can be written.
    pub fn prepare(path: &Path) -> Result<Self, OutputFileError> {
        Self::prepare_as(path, Waiting::Unnamed, Self::READER_PATIENCE)
    }

    fn prepare_as(path: &Path, waiting: Waiting, patience: Duration) -> Result<Self, OutputFileError> {
        let prepared = Place::of(path, patience).and_then(|place| match place {
            Place::Stream(stream) => Ok((tempfile::tempfile()?, Destination::Stream(stream))),
            Place::Name { target, replaced } => {
                let (content, named) = waiting_in(folder_of(&target), waiting).map_err(Problem::InFolder)?;
                let replacement = Replacement::new(target, named, &content, replaced.as_ref())?;
                Ok((content, Destination::Name(replacement)))
            }
        });
        let (content, destination) = prepared.map_err(|problem| OutputFileError::new(path, problem))?;
        Ok(Self {
            path: path.to_owned(),
            content,
            destination,
        })
    }

    /// A name by which other processes of this user can open the content, to write it, while this one lives.
    pub fn content_path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.content.as_raw_fd()).into()
    }

    /// The content, open for writing.
    pub fn content(&self) -> &File {
        &self.content
    }

    /// Writes the content and makes it the file's.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn write(self, content: impl AsRef<[u8]>) -> Result<(), OutputFileError> {
        match (&self.content).write_all(content.as_ref()) {
            Ok(()) => self.commit(),
            Err(error) => Err(OutputFileError::new(&self.path, error.into())),
        }
    }

    /// Makes what was written the content of the file.
    ///
    /// # Errors
    /// If the system refuses it. The file is then as it was before, unless it is a pipe or a device.
    pub fn commit(self) -> Result<(), OutputFileError> {
        let done = match self.destination {
            Destination::Name(replacement) => replacement.replace(&self.content),
            Destination::Stream(stream) => copy(self.content, stream),
        };
        done.map_err(|error| OutputFileError::new(&self.path, error.into()))
    }
}

impl Replacement {
    fn new(
        target: PathBuf,
        named: Option<TempPath>,
        content: &File,
        replaced: Option<&Metadata>,
    ) -> io::Result<Self> {
        // As the umask leaves them.
        let new = content.metadata()?.mode();
        // Whoever writes the content can open it, and nobody else reads half of it.
        content.set_permissions(fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            target,
            named,
            mode: replaced.map_or(new, Metadata::mode) & 0o777,
            owner: replaced.map(|replaced| (replaced.uid(), replaced.gid())),
        })
    }

    fn replace(self, content: &File) -> io::Result<()> {
        if let Some((user, group)) = self.owner {
            // Only root may give files away. Others own what they write.
            let _ = fchown(content, Some(user), Some(group));
        }
        content.set_permissions(fs::Permissions::from_mode(self.mode))?;
        // If the machine fails before the new content is on its disk, the old one must not be lost.
        if self.owner.is_some() {
            content.sync_all()?;
        }
        let named = match self.named {
            Some(named) => named,
            None => give_name(content, folder_of(&self.target))?,
        };
        named.persist(&self.target).map_err(io::Error::from)
    }
}

/// The kind of file in which content waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// One without a name, if the file system has such files.
    Unnamed,
    /// One with a name.
    #[cfg(test)]
    Named,
}

/// A new file in a folder, open for writing, and its name if it has one. Its lock says that its owner lives.
fn waiting_in(folder: &Path, waiting: Waiting) -> io::Result<(File, Option<TempPath>)> {
    remove_abandoned(folder);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if waiting == Waiting::Unnamed
        && let Ok(content) = open(folder, flags, Mode::from_raw_mode(MODE))
    {
        let content = File::from(content);
        // Where there are no locks, nobody takes it for abandoned either.
        let _ = flock(&content, FlockOperation::LockExclusive);
        return Ok((content, None));
    }
    loop {
        let mut builder = tempfile::Builder::new();
        builder.prefix(OutputFile::PREFIX);
        builder.permissions(fs::Permissions::from_mode(MODE));
        let (content, named) = builder.tempfile_in(folder)?.into_parts();
        let _ = flock(&content, FlockOperation::LockExclusive);
        // Before it was locked another process may have taken it for abandoned.
        if content.metadata()?.nlink() > 0 {
            return Ok((content, Some(named)));
        }
    }
}

/// Gives a file without a name one in a folder, for a moment.
fn give_name(content: &File, folder: &Path) -> io::Result<TempPath> {
    let own = format!("/proc/self/fd/{}", content.as_raw_fd());
    let link = |path: &Path| Ok(linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    let mut builder = tempfile::Builder::new();
    let linked = builder.prefix(OutputFile::PREFIX).make_in(folder, link)?;
    Ok(linked.into_temp_path())
}

/// Removes the temporary files whose owners are dead: nobody holds their locks.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let is_ours = name.as_encoded_bytes().starts_with(OutputFile::PREFIX.as_bytes());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options()
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(entry.path());
        // It stays locked until it is gone, so that its owner, if this is a new one, sees that.
        if let Ok(file) = file
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn copy(mut content: File, mut stream: File) -> io::Result<()> {
    content.rewind()?;
    io::copy(&mut content, &mut stream).map(drop)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Why a file cannot be written.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct OutputFileError {
    path: PathBuf,
    problem: Problem,
}

impl OutputFileError {
    fn new(path: &Path, problem: Problem) -> Self {
        Self {
            path: path.to_owned(),
            problem,
        }
    }
}

/// The reasons.
#[derive(Debug, Error)]
enum Problem {
    #[error("it is a folder")]
    Folder,
    #[error("it is a socket")]
    Socket,
    #[error("it is a pipe, and nobody opened it for reading within {} s", .0.as_secs_f64())]
    NoReader(Duration),
    #[error("more than {} symbolic links lead to it", place::LINKS_MAX)]
    Links,
    #[error("cannot write to its folder: {}", of_folder(.0))]
    InFolder(io::Error),
    #[error("cannot write to it: {0}")]
    Io(#[from] io::Error),
}

/// The reason without the temporary file's own name, which means nothing to the user.
fn of_folder(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        kind => io::Error::from(kind).to_string(),
    }
}

/// The mode of new files, before the umask.
const MODE: u32 = 0o666;
