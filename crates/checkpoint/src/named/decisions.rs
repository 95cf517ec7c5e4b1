//! The decisions of rank 0 when to save, which all ranks follow.
//!
//! A file of the directory that the ranks share. Its first 16 bytes say up to which step rank 0 has decided; a record
//! of 16 bytes follows for each save, in order of step. Each has a checksum, so that a reader beside the writer takes
//! nothing that is half written. Rank 0 never waits; another rank waits at the end of a step until rank 0 has decided
//! on it.

use std::{
    fs::{self, File},
    hint::spin_loop,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use ropewalk_checkpoint_core::Level;
use rustix::fs::{FlockOperation, flock};

use super::error::RunError;

/// The end of the file that one rank has.
#[derive(Debug)]
pub(super) struct Decisions {
    path: PathBuf,
    file: File,
    /// Where the next record is.
    next: u64,
    is_writer: bool,
}

impl Decisions {
    /// The file of this start of the job: rank 0 makes it, and others wait so long for it.
    pub(super) fn open(
        directory: &Path,
        start: &str,
        rank: u32,
        patience: Duration,
    ) -> Result<Self, RunError> {
        let path = directory.join(format!("{FOLDER}{start}")).join(NAME);
        let opened = match rank {
            0 => make(&path),
            _ => await_file(&path, patience),
        };
        let file = opened.map_err(|source| RunError::Decisions {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            path,
            file,
            next: RECORD,
            is_writer: rank == 0,
        })
    }

    /// Rank 0 says whether to save at the end of a step.
    pub(super) fn publish(&mut self, step: u64, save: Option<Level>) -> Result<(), RunError> {
        if let Some(level) = save {
            let record = encoded(step, level as u32);
            self.file
                .write_all_at(&record, self.next)
                .map_err(|source| self.failed(source))?;
            self.next += RECORD;
        }
        self.file
            .write_all_at(&encoded(step, 0), 0)
            .map_err(|source| self.failed(source))
    }

    /// Waits for the decision about the end of a step.
    pub(super) fn wait(&mut self, step: u64) -> Result<Option<Level>, RunError> {
        let begin = Instant::now();
        let mut looked = begin;
        let mut pause = FIRST_PAUSE;
        while self.read(0)?.is_none_or(|(decided, _)| decided < step) {
            if begin.elapsed() < SPIN {
                spin_loop();
                thread::yield_now();
                continue;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                // On a network file system an open file may show what it held long ago.
                self.file = File::open(&self.path).map_err(|source| self.failed(source))?;
                let is_free = flock(&self.file, FlockOperation::NonBlockingLockShared).is_ok();
                if is_free && self.read(0)?.is_none_or(|(decided, _)| decided < step) {
                    return Err(RunError::DeciderGone);
                }
            }
        }
        while let Some((saved, level)) = self.read(self.next)? {
            if saved > step {
                return Ok(None);
            }
            self.next += RECORD;
            if saved == step {
                return Ok(Some(if level == Level::Fast as u32 {
                    Level::Fast
                } else {
                    Level::Full
                }));
            }
        }
        Ok(None)
    }

    /// The record at an offset, if all of it is there.
    fn read(&self, offset: u64) -> Result<Option<(u64, u32)>, RunError> {
        let mut record = [0; RECORD as usize];
        let length = self
            .file
            .read_at(&mut record, offset)
            .map_err(|source| self.failed(source))?;
        Ok((length == record.len()).then(|| decoded(record)).flatten())
    }

    fn failed(&self, source: io::Error) -> RunError {
        RunError::Decisions {
            path: self.path.clone(),
            source,
        }
    }
}

/// After the last word of rank 0 nobody waits for another, and there are no more saves.
impl Drop for Decisions {
    fn drop(&mut self) {
        if self.is_writer {
            // If that fails, ranks that wait see that the lock is free.
            let _ = self.file.write_all_at(&encoded(u64::MAX, 0), 0);
        }
    }
}

fn make(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension("tmp");
    let file = File::create(&temporary)?;
    // As long as rank 0 lives. Nobody else knows the file yet.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(temporary, path)?;
    Ok(file)
}

fn await_file(path: &Path, patience: Duration) -> io::Result<File> {
    let end = Instant::now() + patience;
    loop {
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                thread::sleep(LAST_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn encoded(step: u64, level: u32) -> [u8; RECORD as usize] {
    let mut record = [0; RECORD as usize];
    record[..8].copy_from_slice(&step.to_le_bytes());
    record[8..12].copy_from_slice(&level.to_le_bytes());
    let sum = crc32c::crc32c(&record[..12]) ^ MARK;
    record[12..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn decoded(record: [u8; RECORD as usize]) -> Option<(u64, u32)> {
    let (step, rest) = record.split_first_chunk::<8>()?;
    let (level, sum) = rest.split_first_chunk::<4>()?;
    let expected = crc32c::crc32c(&record[..12]) ^ MARK;
    (sum == expected.to_le_bytes()).then(|| (u64::from_le_bytes(*step), u32::from_le_bytes(*level)))
}

const RECORD: u64 = 16;
/// So that 16 zeros are no record.
const MARK: u32 = 0x5257_4453;
const NAME: &str = "decisions";
/// The folder in which the ranks of a start meet; see `coordination.rs`.
const FOLDER: &str = crate::coordination::MEETING;

/// Ranks that compute in step wait no longer than that.
const SPIN: Duration = Duration::from_micros(50);
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LAST_PAUSE: Duration = Duration::from_millis(2);
/// Between two looks whether rank 0 lives.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank behind rank 0 finds each decision, and after the last word waits for none.
    #[test]
    fn decisions_are_found_later() {
        let folder = tempfile::tempdir().unwrap();
        let open = |rank| Decisions::open(folder.path(), "7", rank, Duration::from_secs(5)).unwrap();
        let mut writer = open(0);
        let mut reader = open(1);
        assert_eq!(reader.read(0).unwrap(), None);
        for step in 1..=9 {
            let save = (step % 4 == 1).then_some(if step == 5 { Level::Fast } else { Level::Full });
            writer.publish(step, save).unwrap();
        }
        let found: Vec<_> = (1..=7).map(|step| reader.wait(step).unwrap()).collect();
        let [no, full] = [None, Some(Level::Full)];
        assert_eq!(found, [full, no, no, no, Some(Level::Fast), no, no]);
        drop(writer);
        assert_eq!(
            [8, 9, 10, 11].map(|step| reader.wait(step).unwrap()),
            [no, full, no, no]
        );
        let late = Decisions::open(folder.path(), "8", 1, Duration::ZERO).unwrap_err();
        assert!(late.to_string().contains("all ranks have to see"), "{late}");
    }

    /// A rank that waits for a decision gets it when it comes.
    #[test]
    fn a_rank_waits_for_the_decision() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Decisions::open(folder.path(), "1", 0, Duration::ZERO).unwrap();
        let mut reader = Decisions::open(folder.path(), "1", 1, Duration::ZERO).unwrap();
        let waiting = thread::spawn(move || reader.wait(2).unwrap());
        writer.publish(1, None).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        writer.publish(2, Some(Level::Full)).unwrap();
        assert_eq!(waiting.join().unwrap(), Some(Level::Full));
        // As if rank 0 were killed: no last word, and the lock is free.
        let mut reader = Decisions::open(folder.path(), "1", 1, Duration::ZERO).unwrap();
        flock(&writer.file, FlockOperation::Unlock).unwrap();
        assert!(matches!(reader.wait(3), Err(RunError::DeciderGone)));
    }
}
