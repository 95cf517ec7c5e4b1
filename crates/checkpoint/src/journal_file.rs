//! A journal on a disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{History, Record};
use rustix::fs::FallocateFlags;

/// A journal that is only ever appended to, and rewritten in short when it becomes long.
///
/// A line that was written is there after the process is killed. After a crash of the machine the last lines may be
/// missing, which [`History::read`] does not mind.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    length: u64,
    /// The last line may be there in part.
    is_torn: bool,
}

impl JournalFile {
    /// Opens a journal, or begins one, and says what is in it.
    ///
    /// # Errors
    /// If it cannot be read and written.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<(Self, History)> {
        let path = path.into();
        let mut file = options().open(&path)?;
        let length = file.metadata()?.len();
        let text = read_end(&mut file, length)?;
        let history = History::read(&text);
        let is_torn = text.last().is_some_and(|&byte| byte != b'\n');
        let mut journal = Self {
            path,
            file,
            length,
            is_torn,
        };
        if journal.length > LONG_BYTES {
            journal.rewrite(&history)?;
        }
        journal.reserve();
        Ok((journal, history))
    }

    /// The history in a journal that others may write; `None` if there is no journal.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn look(path: &Path) -> io::Result<Option<History>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let length = file.metadata()?.len();
        Ok(Some(History::read(&read_end(&mut file, length)?)))
    }

    /// Puts a journal that says this in the place of what there is, at once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn replace(path: &Path, history: &History) -> io::Result<()> {
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(history.encode().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        self.write(&record.encode())?;
        if self.length > LONG_BYTES {
            match self.shorten() {
                // It is in the long one, which is made short another time.
                Err(error) if is_for_lack_of_room(&error) => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn shorten(&mut self) -> io::Result<()> {
        // Somebody else may have done it.
        let (journal, _) = Self::open(&self.path)?;
        *self = journal;
        Ok(())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        // The line must not become part of one that was cut off.
        let text = if self.is_torn { &format!("\n{text}") } else { text };
        self.is_torn = true;
        self.file.write_all(text.as_bytes())?;
        self.is_torn = false;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Takes room on the disk for all that the journal may become, so that it can be written when others have
    /// filled the disk: when it has most to tell.
    fn reserve(&self) {
        // It is a service of file systems that not all offer.
        let _ = rustix::fs::fallocate(
            &self.file,
            FallocateFlags::KEEP_SIZE,
            0,
            LONG_BYTES + RESERVE_BYTES,
        );
    }

    /// Puts a short journal in the place of the long one, at once.
    fn rewrite(&mut self, history: &History) -> io::Result<()> {
        Self::replace(&self.path, history)?;
        self.file = options().open(&self.path)?;
        self.length = self.file.metadata()?.len();
        Ok(())
    }
}

/// A longer journal than this reads was not written by us. Its end says most.
fn read_end(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES_MAX)))?;
    file.take(READ_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// True if there is no room on the disk, which may pass.
pub(super) fn is_for_lack_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    options
}

/// A journal that is longer is rewritten. Its short form has 4096 steps at most, of about 40 bytes.
const LONG_BYTES: u64 = 512 << 10;

/// More room than the limit is taken, for the line that goes beyond it.
const RESERVE_BYTES: u64 = 4 << 10;

const READ_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_checkpoint_core::Level;

    /// A journal grows to its limit and is then made short, without losing what counts.
    #[test]
    fn journals_stay_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = JournalFile::open(&path).unwrap();
        journal.add(Record::Start { start: 1 }).unwrap();
        for number in 0..30_000 {
            journal.add(Record::Step { seconds: 0.5 }).unwrap();
            if number % 100 == 99 {
                let saved = Record::Saved {
                    level: Level::Full,
                    seconds: 2.0,
                };
                journal.add(saved).unwrap();
            }
            assert!(fs::metadata(&path).unwrap().len() <= LONG_BYTES + 100);
        }
        journal.add(Record::Failed { ran: 0.0 }).unwrap();
        let (_, history) = JournalFile::open(&path).unwrap();
        let totals = history.totals();
        assert!((totals.exposure - 15_600.0).abs() < 1e-6, "{totals:?}");
        assert_eq!((totals.failures, totals.saves, totals.lost), (1, 300, 0.0));
        assert_eq!(history.unreadable(), 0);
    }

    /// A line that a crash cut off costs that line, not the next.
    #[test]
    fn a_torn_tail_costs_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let line = Record::Ran { seconds: 1.0 }.encode();
        fs::write(&path, format!("{line}{}", &line[..7])).unwrap();
        let (mut journal, _) = JournalFile::open(&path).unwrap();
        journal.add(Record::Ran { seconds: 2.0 }).unwrap();
        let (_, history) = JournalFile::open(&path).unwrap();
        assert_eq!(history.totals().exposure, 3.0);
        assert_eq!(history.unreadable(), 1);
    }
}
