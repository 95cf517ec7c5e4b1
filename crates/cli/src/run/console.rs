//! Writing what the ranks write.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use ropewalk_launch::{JobEvent, Launcher, OUTPUT_LINE_SIZE_MAX, OutputStream, RankPlace};
use ropewalk_names::{HostId, Rank};

use super::{
    file_table::FileTable, pattern::Pattern, progress, rank_files::RankFiles, shown_ranks::ShownRanks,
};
use crate::watcher::Watcher;

/// Writes the lines of all ranks, each in one piece.
pub(super) struct Console {
    prefix: Option<Pattern>,
    /// Colours are taken out of standard output and standard error.
    is_plain: [bool; 2],
    /// Where standard output and standard error go, if not to our own.
    patterns: [Option<Pattern>; 2],
    /// Where both go besides, or instead.
    rank_files: Option<RankFiles>,
    shown_ranks: ShownRanks,
    files: FileTable,
    buffer: Vec<u8>,
    stream: OutputStream,
    /// The rank whose last line has no end yet, of standard error and of standard output.
    unfinished: [Option<Rank>; 2],
    /// Whose lines were cut and are going on, per stream.
    cut: BTreeSet<(Rank, bool)>,
    /// The first error; nothing is written after it.
    failure: Option<io::Error>,
}

/// Ends a piece of a line that is too long to wait for its end, where another rank has something to say
/// meanwhile. The next piece begins with the same.
const CUT: &[u8] = b"[...]";

impl Console {
    /// How many bytes are collected before they are written.
    const BUFFERED_MAX: usize = 64 << 10;

    pub(super) fn new(
        prefix: Option<Pattern>,
        patterns: [Option<Pattern>; 2],
        rank_files: Option<RankFiles>,
        shown_ranks: ShownRanks,
    ) -> Self {
        Self {
            is_plain: [io::stdout().is_terminal(), io::stderr().is_terminal()]
                .map(|is_terminal| prefix.is_some() && !is_terminal),
            prefix,
            patterns,
            rank_files,
            shown_ranks,
            files: FileTable::default(),
            buffer: Vec::new(),
            stream: OutputStream::Stdout,
            unfinished: [None; 2],
            cut: BTreeSet::new(),
            failure: None,
        }
    }

    /// Writes what was collected. If that is impossible the job is ended, as a shell would end it in a pipeline.
    pub(super) fn flush_for(&mut self, launcher: &Launcher) -> anyhow::Result<()> {
        let flushed = self.flush();
        self.note(flushed, launcher)
    }

    /// Writes what was collected, and tells of the first error that there was.
    pub(super) fn finish(mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.flush(),
        }
    }

    fn note(&mut self, written: io::Result<()>, launcher: &Launcher) -> anyhow::Result<()> {
        if let Err(error) = written {
            self.failure.get_or_insert(error);
            launcher.interrupt(SIGPIPE)?;
        }
        Ok(())
    }

    /// Takes a line of a rank, with its end if it has one. What nobody wants to see goes nowhere.
    fn line(
        &mut self,
        rank: Rank,
        place: &RankPlace<'_>,
        stream: OutputStream,
        line: &[u8],
    ) -> io::Result<()> {
        if let Some(files) = &self.rank_files {
            self.files
                .write_in_folder(files.file(rank, place, stream), line)?;
            if !files.is_shown {
                return Ok(());
            }
        }
        if !self.shown_ranks.has(rank) {
            return Ok(());
        }
        if let Some(pattern) = &self.patterns[usize::from(stream == OutputStream::Stderr)] {
            return self.files.write(PathBuf::from(pattern.fill(rank, place)), line);
        }
        if stream != self.stream || self.buffer.len() >= Self::BUFFERED_MAX {
            self.flush()?;
            self.stream = stream;
        }
        let is_stdout = stream == OutputStream::Stdout;
        let unfinished = &mut self.unfinished[usize::from(is_stdout)];
        let continues = *unfinished == Some(rank);
        if let Some(other) = unfinished.filter(|_| !continues) {
            if self.cut.contains(&(other, is_stdout)) {
                self.buffer.extend_from_slice(CUT);
            }
            self.buffer.push(b'\n');
        }
        if let Some(prefix) = self.prefix.as_ref().filter(|_| !continues) {
            self.buffer.extend_from_slice(prefix.fill(rank, place).as_bytes());
        }
        let was_cut = self.cut.remove(&(rank, is_stdout));
        if was_cut && !continues {
            self.buffer.extend_from_slice(CUT);
        }
        match self.is_plain[usize::from(!is_stdout)] {
            true => extend_without_colours(&mut self.buffer, line),
            false => self.buffer.extend_from_slice(line),
        }
        if line.len() > OUTPUT_LINE_SIZE_MAX && !line.ends_with(b"\n") {
            self.cut.insert((rank, is_stdout));
        }
        *unfinished = (!line.ends_with(b"\n")).then_some(rank);
        Ok(())
    }

    /// Returns true if all that was written, be it to a terminal or not, ended with a line's end.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.unfinished.iter().all(Option::is_none)
    }

    /// Writes what was collected.
    fn flush(&mut self) -> io::Result<()> {
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

    /// A rank has files from its start on, whatever it writes.
    fn make_rank_files(&mut self, rank: Rank, place: &RankPlace<'_>) -> io::Result<()> {
        let Some(files) = &self.rank_files else {
            return Ok(());
        };
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            self.files.write_in_folder(files.file(rank, place, stream), b"")?;
        }
        Ok(())
    }
}

/// Appends a line without its control sequences SGR (ECMA-48, 8.3.117), which set colours: `ESC [`, digits, colons and
/// semicolons, `m`.
fn extend_without_colours(buffer: &mut Vec<u8>, mut line: &[u8]) {
    while let Some(start) = line.windows(2).position(|pair| pair == b"\x1b[") {
        let (before, sequence) = line.split_at(start);
        buffer.extend_from_slice(before);
        let is_parameter = |byte: &u8| byte.is_ascii_digit() || b":;".contains(byte);
        let parameters = sequence[2..]
            .iter()
            .take_while(|&byte| is_parameter(byte))
            .count();
        let length = match sequence.get(2 + parameters) {
            Some(b'm') => parameters + 3,
            _ => {
                buffer.extend_from_slice(&sequence[..2]);
                2
            }
        };
        line = &sequence[length..];
    }
    buffer.extend_from_slice(line);
}

impl Watcher for Console {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Output { rank, stream, line } if self.failure.is_none() => {
                let written = self.line(*rank, &place_of(*rank, launcher), *stream, line);
                self.note(written, launcher)
            }
            JobEvent::Started { rank, .. } if self.failure.is_none() => {
                let made = self.make_rank_files(*rank, &place_of(*rank, launcher));
                self.note(made, launcher)
            }
            _ => Ok(()),
        }
    }
}

fn place_of(rank: Rank, launcher: &Launcher) -> RankPlace<'_> {
    launcher.place_of(rank).unwrap_or(RankPlace {
        host: "",
        host_number: HostId(0),
        group: 0,
    })
}

pub(super) const SIGPIPE: i32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// Colours go, other sequences, ends of sequences and bytes that only look so stay.
    #[test]
    fn colours_are_taken_out() {
        for (line, plain) in [
            (&b"a\x1b[1;31mb\x1b[0m\x1b[mc\n"[..], &b"abc\n"[..]),
            (b"\x1b[38:5:1mx\x1b[K\x1b[3", b"x\x1b[K\x1b[3"),
            (b"\x1b[\x1b[1m\x1b", b"\x1b[\x1b"),
            (b"\xff[1m", b"\xff[1m"),
        ] {
            let mut buffer = Vec::new();
            extend_without_colours(&mut buffer, line);
            assert_eq!(buffer, plain, "{line:?}");
        }
    }

    /// A line that is too long comes in pieces; both ends of a cut are marked if another rank's line is
    /// between them, and neither if none is.
    #[test]
    fn cuts_are_marked() {
        let long = vec![b'x'; OUTPUT_LINE_SIZE_MAX + 1];
        let mut console = Console::new(None, [None, None], None, ShownRanks::default());
        let mut written = Vec::new();
        let place = RankPlace {
            host: "host",
            host_number: HostId(0),
            group: 0,
        };
        for (rank, line) in [
            (0, &long[..]),
            (0, b"y"),
            (1, b"z\n"),
            (0, &long),
            (1, b"z\n"),
            (0, b"y\n"),
        ] {
            console
                .line(Rank(rank), &place, OutputStream::Stdout, line)
                .unwrap();
            // Taken before it is printed.
            written.append(&mut console.buffer);
        }
        let expected = [&long[..], b"y\nz\n", &long, b"[...]\nz\n[...]y\n"].concat();
        assert!(written == expected);
        assert!(console.is_at_line_start());
    }
}
