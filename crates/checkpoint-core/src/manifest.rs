//! The contents of a checkpoint, written down so that a torn or changed one is recognised.

use std::fmt::Write;

use thiserror::Error;

use crate::advisor::Level;

/// The content that one rank has saved in one generation.
///
/// As text it is one line for each fact and ends with a checksum of all that is before it, so that people can read it
/// and no part of it can be missing. Paths are percent-encoded where they are not plain ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The number of the generation.
    pub generation: u64,
    /// Who has saved this.
    pub rank: u32,
    /// How many ranks save together. A generation is complete when all of them have.
    pub ranks: u32,
    /// The time step that was saved, or whatever number the program gives. All ranks give the same.
    pub step: u64,
    /// Where the paths of the files begin.
    pub place: Place,
    /// The level of the save: other hosts are to have copies of a full one, not of a fast one.
    pub level: Level,
    /// The files, in order of path.
    pub files: Vec<SavedFile>,
    /// Directories without files, in order of path.
    pub empty_directories: Vec<Vec<u8>>,
}

/// Where saved files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the folder of the generation.
    Inside,
    /// Where the program has written them, below a folder that the store is told.
    InPlace,
    /// The same, and they stay there when the generation is removed: they are also the program's results.
    Kept,
}

/// A file as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedFile {
    /// Its path from the place, its parts separated by `/`.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub size: u64,
    /// The blake3 hash of its content.
    pub hash: [u8; 32],
}

/// Why a text is no manifest.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is longer than any that is written.
    #[error("the manifest has {found} bytes; at most {MANIFEST_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        found: usize,
    },
    /// The last line with the checksum is missing or does not match: it was cut off or changed.
    #[error("the manifest does not match its checksum: it was cut off or changed")]
    Checksum,
    /// It was written by another version.
    #[error("expected a manifest that begins with \"{HEADER}\"")]
    Version,
    /// A line does not say what has to stand there.
    #[error("line {line} of the manifest: expected {expected}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The expected content.
        expected: &'static str,
    },
    /// A path that would lead out of its place, or nowhere.
    #[error("line {line} of the manifest: a path has to be relative and without \"..\"")]
    Path {
        /// Counted from 1.
        line: usize,
    },
}

impl Manifest {
    /// The text that [`parse`](Self::parse) reads.
    pub fn encode(&self) -> String {
        let mut text = format!("{HEADER}\n");
        let place = match self.place {
            Place::Inside => "inside",
            Place::InPlace => "in-place",
            Place::Kept => "kept",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "generation {}", self.generation);
        let _ = writeln!(text, "rank {} of {}", self.rank, self.ranks);
        let _ = writeln!(text, "step {}", self.step);
        let _ = writeln!(text, "place {place}");
        if self.level == Level::Fast {
            let _ = writeln!(text, "{FAST}");
        }
        for file in &self.files {
            let hash = blake3::Hash::from_bytes(file.hash).to_hex();
            let _ = writeln!(text, "file {} {hash} {}", file.size, escape(&file.path));
        }
        for directory in &self.empty_directories {
            let _ = writeln!(text, "directory {}", escape(directory));
        }
        let sum = blake3::hash(text.as_bytes()).to_hex();
        let _ = writeln!(text, "end {sum}");
        text
    }

    /// Reads the text of a manifest. Takes no more memory than a small multiple of its length.
    ///
    /// # Errors
    /// If it is not, to the last byte, what [`encode`](Self::encode) writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLong { found: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Checksum)?;
        let end = text
            .trim_end_matches('\n')
            .rfind('\n')
            .ok_or(ManifestError::Checksum)?
            + 1;
        let (body, last) = text.split_at(end);
        let sum = format!("end {}\n", blake3::hash(body.as_bytes()).to_hex());
        if last != sum {
            return Err(ManifestError::Checksum);
        }
        let mut lines = Lines {
            lines: body.lines(),
            line: 0,
        };
        if lines.next() != Some(HEADER) {
            return Err(ManifestError::Version);
        }
        let generation = lines.number("generation ")?;
        let (rank, ranks) = lines.rank_of_ranks()?;
        let step = lines.number("step ")?;
        let place = match lines.after("place ")? {
            "inside" => Place::Inside,
            "in-place" => Place::InPlace,
            "kept" => Place::Kept,
            _ => return Err(lines.expected("inside, in-place or kept")),
        };
        let mut manifest = Self {
            generation,
            rank,
            ranks,
            step,
            place,
            level: Level::Full,
            files: Vec::new(),
            empty_directories: Vec::new(),
        };
        while let Some(line) = lines.next() {
            if line == FAST {
                manifest.level = Level::Fast;
                continue;
            }
            if let Some(path) = line.strip_prefix("directory ") {
                manifest.empty_directories.push(lines.path(path)?);
                continue;
            }
            let fields = line.strip_prefix("file ").and_then(|rest| {
                let (size, rest) = rest.split_once(' ')?;
                let (hash, path) = rest.split_once(' ')?;
                Some((number(size)?, blake3::Hash::from_hex(hash).ok()?, path))
            });
            let (size, hash, path) = fields.ok_or_else(|| lines.expected("a size, a hash and a path"))?;
            manifest.files.push(SavedFile {
                path: lines.path(path)?,
                size,
                hash: *hash.as_bytes(),
            });
        }
        // Only one text stands for a manifest, so that two that differ in spelling cannot both be valid.
        if manifest.encode() != text {
            return Err(lines.expected("numbers and paths as they are written"));
        }
        Ok(manifest)
    }

    /// How many bytes the files have together.
    pub fn bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

/// The lines of a manifest and where one is.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.line += 1;
        self.lines.next()
    }

    fn expected(&self, expected: &'static str) -> ManifestError {
        ManifestError::Line {
            line: self.line,
            expected,
        }
    }

    fn after(&mut self, word: &'static str) -> Result<&'a str, ManifestError> {
        let rest = self.next().and_then(|line| line.strip_prefix(word));
        rest.ok_or_else(|| self.expected(word))
    }

    fn number(&mut self, word: &'static str) -> Result<u64, ManifestError> {
        let text = self.after(word)?;
        number(text).ok_or_else(|| self.expected("a number"))
    }

    fn rank_of_ranks(&mut self) -> Result<(u32, u32), ManifestError> {
        let both = self.after("rank ")?.split_once(" of ");
        let both = both.and_then(|(rank, ranks)| Some((rank.parse().ok()?, ranks.parse().ok()?)));
        both.filter(|(rank, ranks)| rank < ranks)
            .ok_or_else(|| self.expected("a rank below the number of ranks"))
    }

    fn path(&self, text: &str) -> Result<Vec<u8>, ManifestError> {
        let path = unescape(text).ok_or_else(|| self.expected("a percent-encoded path"))?;
        match is_safe(&path) {
            true => Ok(path),
            false => Err(ManifestError::Path { line: self.line }),
        }
    }
}

/// Returns true if a path stays below the folder where it begins.
pub fn is_safe(path: &[u8]) -> bool {
    path.len() <= PATH_BYTES_MAX
        && !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|part| !part.is_empty() && part != b"." && part != b"..")
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit()?, digit()?);
        path.push((high * 16 + low) as u8);
    }
    Some(path)
}

const HEADER: &str = "ropewalk checkpoint 1";

/// The line of a fast save, after the place; a full one has none.
const FAST: &str = "level fast";

/// The longest manifest that is read, in bytes: about 400,000 files.
pub const MANIFEST_BYTES_MAX: usize = 64 << 20;

/// The longest path of Linux.
const PATH_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Manifest {
        Manifest {
            generation: 17,
            rank: 1,
            ranks: 4,
            step: 1200,
            place: Place::InPlace,
            level: Level::Fast,
            files: vec![SavedFile {
                path: b"processor1/0.5/p rgh%\xff".to_vec(),
                size: 10,
                hash: [7; 32],
            }],
            empty_directories: vec![b"uniform".to_vec()],
        }
    }

    proptest! {
        /// A written manifest is read back the same, whatever bytes the paths have.
        #[test]
        fn manifests_come_back(parts in proptest::collection::vec("[^/\\x00]{1,9}", 1..4), size: u64, step: u64) {
            let path = parts.join("/").into_bytes();
            prop_assume!(is_safe(&path));
            let file = SavedFile { path, size, hash: [9; 32] };
            let manifest = Manifest { step, files: vec![file; 3], ..some() };
            prop_assert_eq!(Manifest::parse(manifest.encode().as_bytes()), Ok(manifest));
        }

        /// No flipped bit and no cut goes unnoticed.
        #[test]
        fn changed_manifests_are_refused(at: prop::sample::Index, bit in 0u8..8) {
            let text = some().encode().into_bytes();
            let at = at.index(text.len());
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(Manifest::parse(&changed).is_err());
            prop_assert!(Manifest::parse(&text[..at]).is_err());
        }
    }

    /// A text with the right checksum but senseless content is refused by its line.
    #[test]
    fn forged_manifests_are_refused() {
        let sealed = |body: &str| {
            let text = format!("{body}end {}\n", blake3::hash(body.as_bytes()).to_hex());
            Manifest::parse(text.as_bytes())
        };
        let head = "ropewalk checkpoint 1\ngeneration 1\nrank 0 of 1\nstep 1\nplace inside\n";
        assert!(sealed(head).is_ok());
        for path in ["../etc/passwd", "/etc/passwd", "a//b", "%00", "."] {
            let found = sealed(&format!("{head}directory {path}\n"));
            assert_eq!(found, Err(ManifestError::Path { line: 6 }), "{path}");
        }
        assert_eq!(sealed("ropewalk checkpoint 2\n"), Err(ManifestError::Version));
        assert!(sealed(&format!("{head}level fast\ndirectory a\n")).is_ok());
        assert!(sealed(&format!("{head}directory a\nlevel fast\n")).is_err());
        assert!(sealed(&format!("{head}level fast\nlevel fast\n")).is_err());
        assert!(sealed(&head.replace("0 of 1", "1 of 1")).is_err());
        assert!(sealed(&head.replace("step 1", "step 01")).is_err());
    }
}
