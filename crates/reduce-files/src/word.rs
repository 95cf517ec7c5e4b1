//! The words of workers to the command, lines of their standard output.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::arrays::Kind;

/// Something that a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// It lives.
    Beat,
    /// It writes the result, of so many bytes, from the beginning.
    Begin { length: u64 },
    /// The next bytes of the result, from a worker that cannot reach the output file.
    Data(Vec<u8>),
    /// It has no result, and its files are not to blame.
    Error(String),
    /// A file is to blame.
    Fault(String),
    /// The kind of the first array that it can open.
    Kind(Kind),
    /// It cannot open these of the files, by their numbers, as the first says for these reasons.
    Missing { files: Vec<u32>, reasons: Vec<String> },
    /// It has waited for this file for longer than a process may be silent.
    Slow(String),
    /// All of the result is written.
    Written,
}

impl Word {
    /// The most bytes of a result in one word: with all of them escaped they fit into a line.
    pub(super) const DATA_MAX: usize = 512 << 10;

    /// Says it. That nobody hears it changes nothing for a worker.
    pub(super) fn say(&self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(&self.encode()).and_then(|()| stdout.flush());
    }

    fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_allocvec(self).expect("words have only what can be encoded");
        let mut line = Vec::with_capacity(bytes.len() + bytes.len() / 64 + 1);
        for byte in bytes {
            match byte {
                b'\n' => line.extend([ESCAPE, b'n']),
                ESCAPE => line.extend([ESCAPE, ESCAPE]),
                byte => line.push(byte),
            }
        }
        line.push(b'\n');
        line
    }

    /// Understands a line; `None` if it is none of ours.
    pub(super) fn decode(line: &[u8]) -> Option<Self> {
        let mut bytes = Vec::with_capacity(line.len());
        let mut rest = line.strip_suffix(b"\n")?.iter();
        while let Some(&byte) = rest.next() {
            bytes.push(match byte {
                ESCAPE if *rest.next()? == b'n' => b'\n',
                byte => byte,
            });
        }
        postcard::from_bytes(&bytes).ok()
    }
}

const ESCAPE: u8 = 0x1b;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_launch::OUTPUT_LINE_SIZE_MAX;

    use super::*;

    /// The longest word fits into a line.
    #[test]
    fn words_fit_into_lines() {
        let longest = Word::Data(vec![ESCAPE; Word::DATA_MAX]).encode();
        assert!(longest.len() <= OUTPUT_LINE_SIZE_MAX);
    }

    proptest! {
        /// Any bytes pass in one line.
        #[test]
        fn words_are_understood(data in "[\n\u{1b}n\0]{0,50}") {
            let word = Word::Data(data.into_bytes());
            let line = word.encode();
            prop_assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1));
            prop_assert_eq!(Word::decode(&line), Some(word));
        }
    }
}
