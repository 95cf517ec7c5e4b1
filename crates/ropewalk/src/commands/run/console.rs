//! Writing what the ranks write.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

use ropewalk::{group::Rank, launch::OutputStream};

use super::{pattern::Pattern, progress, shown_ranks::ShownRanks};

/// Writes the lines of all ranks, each in one piece.
pub(super) struct Console {
    prefix: Option<Pattern>,
    /// Where standard output and standard error go, if not to our own.
    patterns: [Option<Pattern>; 2],
    shown_ranks: ShownRanks,
    files: BTreeMap<PathBuf, File>,
    buffer: Vec<u8>,
    stream: OutputStream,
    /// The rank whose last line has no end yet, of standard error and of standard output.
    unfinished: [Option<Rank>; 2],
}

impl Console {
    /// How many bytes are collected before they are written.
    const BUFFERED_MAX: usize = 64 << 10;

    pub(super) fn new(
        prefix: Option<Pattern>,
        patterns: [Option<Pattern>; 2],
        shown_ranks: ShownRanks,
    ) -> Self {
        Self {
            prefix,
            patterns,
            shown_ranks,
            files: BTreeMap::new(),
            buffer: Vec::new(),
            stream: OutputStream::Stdout,
            unfinished: [None; 2],
        }
    }

    /// Takes a line of a rank, with its end if it has one. What nobody wants to see goes nowhere.
    #[inline(never)]
    pub(super) fn line(
        &mut self,
        rank: Rank,
        host: &str,
        stream: OutputStream,
        line: &[u8],
    ) -> io::Result<()> {
        if !self.shown_ranks.has(rank) {
            return Ok(());
        }
        if let Some(pattern) = &self.patterns[usize::from(stream == OutputStream::Stderr)] {
            let path = PathBuf::from(pattern.fill(rank.0, host));
            return self.write_to_file(path, line);
        }
        if stream != self.stream || self.buffer.len() >= Self::BUFFERED_MAX {
            self.flush()?;
            self.stream = stream;
        }
        let unfinished = &mut self.unfinished[usize::from(stream == OutputStream::Stdout)];
        let continues = *unfinished == Some(rank);
        if unfinished.is_some() && !continues {
            self.buffer.push(b'\n');
        }
        if let Some(prefix) = self.prefix.as_ref().filter(|_| !continues) {
            self.buffer
                .extend_from_slice(prefix.fill(rank.0, host).as_bytes());
        }
        self.buffer.extend_from_slice(line);
        *unfinished = (!line.ends_with(b"\n")).then_some(rank);
        Ok(())
    }

    /// Whether all that was written, be it to a terminal or not, ended with a line's end.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.unfinished.iter().all(Option::is_none)
    }

    /// Writes what was collected.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            progress::erase();
        }
        match self.stream {
            OutputStream::Stderr => io::stderr().write_all(&buffer),
            OutputStream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&buffer)?;
                stdout.flush()
            }
        }
    }

    /// The first line that goes to a file replaces what was in it before.
    fn write_to_file(&mut self, path: PathBuf, line: &[u8]) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if !self.files.contains_key(&path) {
            let file = File::create(&path).map_err(named)?;
            self.files.insert(path.clone(), file);
        }
        match self.files.get_mut(&path) {
            Some(file) => file.write_all(line).map_err(named),
            None => Ok(()),
        }
    }
}
