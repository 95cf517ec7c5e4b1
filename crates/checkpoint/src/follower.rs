//! A journal that others write, read as it grows.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

use ropewalk_checkpoint_core::{History, Record};

/// Reads what is new in a journal at each look, and from its beginning when another has come into its place.
#[derive(Debug)]
pub struct JournalFollower {
    path: PathBuf,
    open: Option<Open>,
    history: History,
}

#[derive(Debug)]
struct Open {
    file: File,
    read: u64,
    /// A line whose end is not there yet.
    rest: Vec<u8>,
}

impl JournalFollower {
    /// A follower of the journal at a path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            open: None,
            history: History::default(),
        }
    }

    /// Reads what is new and returns all that the journal says.
    ///
    /// # Errors
    /// If it cannot be read. A journal that does not exist says nothing.
    pub fn look(&mut self) -> io::Result<&History> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(&self.history),
            Err(error) => return Err(error),
        };
        let now = file.metadata()?;
        let is_same = match &self.open {
            Some(open) => {
                let before = open.file.metadata()?;
                (before.dev(), before.ino()) == (now.dev(), now.ino()) && now.len() >= open.read
            }
            None => false,
        };
        if !is_same {
            self.history = History::default();
            self.open = None;
        }
        let open = self.open.get_or_insert(Open {
            file,
            read: 0,
            rest: Vec::new(),
        });
        let mut new = Vec::new();
        (&open.file).take(READ_BYTES_MAX).read_to_end(&mut new)?;
        open.read += new.len() as u64;
        open.rest.extend(new);
        let whole = open
            .rest
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = open.rest.drain(..whole).collect();
        for record in lines.split(|&byte| byte == b'\n').filter_map(Record::parse) {
            self.history.add(record);
        }
        // What has no line end for so long is no line.
        if open.rest.len() > REST_BYTES_MAX {
            open.rest.clear();
        }
        Ok(&self.history)
    }
}

/// As much is read at each look; ours are made short long before.
const READ_BYTES_MAX: u64 = 16 << 20;

const REST_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JournalFile;

    /// An appended line is seen once, a line that is cut off when its end is there, and another journal in the place of
    /// the first is read from its beginning.
    #[test]
    fn a_journal_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut follower = JournalFollower::new(&path);
        assert_eq!(follower.look().unwrap(), &History::default());
        let step = Record::Step { seconds: 1.0 };
        let start = Record::Start { start: 1 };
        let line = step.encode();
        let (first, second) = line.split_at(5);
        std::fs::write(&path, [start.encode().as_str(), first].concat()).unwrap();
        assert_eq!(follower.look().unwrap().open_steps(), Some((1, 0)));
        let append = |text: &str| {
            use std::io::Write;
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append(second);
        append(&line);
        for _ in 0..2 {
            assert_eq!(follower.look().unwrap().open_steps(), Some((1, 2)));
        }
        let short = follower.look().unwrap().clone();
        JournalFile::replace(&path, &short).unwrap();
        append(&line);
        assert_eq!(follower.look().unwrap().open_steps(), Some((1, 3)));
    }
}
