//! Lines: how PMI-1 cuts a byte stream into messages, and a message into attributes.

use thiserror::Error;

use crate::LINE_SIZE_MAX;

/// Collects bytes until they make a line. Holds at most one unfinished line and the bytes of one
/// [`push`](Self::push).
#[derive(Clone, Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl LineBuffer {
    /// Adds what came from the peer. Take all lines out before the next call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its end (a newline; what follows a NUL in it is ignored).
    ///
    /// # Errors
    /// If the line is longer than [`LINE_SIZE_MAX`]. The stream is of no use after that.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        let rest = &self.bytes[self.taken..];
        let end = rest.iter().take(LINE_SIZE_MAX).position(|&byte| byte == b'\n');
        let Some(end) = end else {
            return if rest.len() < LINE_SIZE_MAX {
                Ok(None)
            } else {
                Err(LineTooLong)
            };
        };
        let line = self.taken..self.taken + end;
        self.taken = line.end + 1;
        let line = &self.bytes[line];
        Ok(line.split(|&byte| byte == 0).next())
    }
}

/// The peer sent a line longer than [`LINE_SIZE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a line is longer than {LINE_SIZE_MAX} bytes")]
pub struct LineTooLong;

/// The attributes of one message, in the order in which they stand in its line.
pub(crate) struct Attributes<'a> {
    line: &'a [u8],
    pairs: Vec<Pair>,
}

struct Pair {
    key: (usize, usize),
    value: (usize, usize),
}

impl<'a> Attributes<'a> {
    /// Cuts a line at its spaces and each token at its first `=`. A token without a `=` belongs to the value
    /// before it: MPICH sends service names with spaces in them.
    pub(crate) fn parse(line: &'a [u8]) -> Self {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut start = 0;
        for token in line.split(|&byte| byte == b' ') {
            let end = start + token.len();
            match token.iter().position(|&byte| byte == b'=') {
                Some(split @ 1..) => pairs.push(Pair {
                    key: (start, start + split),
                    value: (start + split + 1, end),
                }),
                _ => {
                    if let Some(last) = pairs.last_mut() {
                        last.value.1 = end;
                    }
                }
            }
            start = end + 1;
        }
        let mut attributes = Self { line, pairs };
        attributes.trim_separators();
        attributes
    }

    /// Several spaces in a row separate as one does; only at the end of the line do they belong to a value.
    fn trim_separators(&mut self) {
        let Some((_, others)) = self.pairs.split_last_mut() else {
            return;
        };
        for pair in others {
            while pair.value.1 > pair.value.0 && self.line[pair.value.1 - 1] == b' ' {
                pair.value.1 -= 1;
            }
        }
    }

    /// The value of the first attribute called `key`.
    pub(crate) fn value(&self, key: &str) -> Option<&'a [u8]> {
        let found = self
            .pairs
            .iter()
            .find(|pair| &self.line[pair.key.0..pair.key.1] == key.as_bytes())?;
        Some(&self.line[found.value.0..found.value.1])
    }

    /// The value of the first attribute, if that is called `key`.
    pub(crate) fn first(&self, key: &str) -> Option<&'a [u8]> {
        let first = self.pairs.first()?;
        (&self.line[first.key.0..first.key.1] == key.as_bytes())
            .then(|| &self.line[first.value.0..first.value.1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(buffer: &mut LineBuffer) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut lines = Vec::new();
        while let Some(line) = buffer.next_line()? {
            lines.push(line.to_vec());
        }
        Ok(lines)
    }

    /// "VALUE: everything up to the next space or `\n`", "Split at the FIRST `=` only", "An empty value is
    /// legal".
    #[test]
    fn a_value_may_be_empty_and_hold_equals_signs() {
        let attributes = Attributes::parse(b"cmd=put key=k value=segments=3 port= info=ok");
        assert_eq!(attributes.first("cmd"), Some(&b"put"[..]));
        assert_eq!(attributes.first("key"), None);
        assert_eq!(attributes.value("value"), Some(&b"segments=3"[..]));
        assert_eq!(attributes.value("port"), Some(&b""[..]));
        assert_eq!(attributes.value("absent"), None);
    }

    /// "append a token without `=` to the previous value with one space", "clients tolerate several".
    #[test]
    fn a_token_without_equals_sign_continues_the_value() {
        let attributes = Attributes::parse(b"cmd=publish_name   service=my svc  port=p  q ");
        assert_eq!(attributes.value("cmd"), Some(&b"publish_name"[..]));
        assert_eq!(attributes.value("service"), Some(&b"my svc"[..]));
        assert_eq!(attributes.value("port"), Some(&b"p  q "[..]));
    }

    /// A line may be as long as a client's buffer and no longer, however it arrives.
    #[test]
    fn lines_are_bounded() {
        let mut buffer = LineBuffer::default();
        let mut longest = vec![b'x'; LINE_SIZE_MAX - 1];
        buffer.push(&longest);
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.push(b"\n");
        assert_eq!(buffer.next_line(), Ok(Some(&longest[..])));
        longest.extend(b"x\n");
        buffer.push(&longest);
        assert_eq!(buffer.next_line(), Err(LineTooLong));
    }

    /// "Terminator `\n` (NUL also ends a parse)".
    #[test]
    fn a_nul_ends_the_parse() {
        let mut buffer = LineBuffer::default();
        buffer.push(b"cmd=finalize\0garbage\ncmd=x\n");
        assert_eq!(buffer.next_line(), Ok(Some(&b"cmd=finalize"[..])));
        assert_eq!(buffer.next_line(), Ok(Some(&b"cmd=x"[..])));
    }

    proptest! {
        /// The lines do not depend on how the stream is cut into pieces.
        #[test]
        fn split_anywhere_gives_the_same_lines(
            stream in proptest::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..3000),
            cuts in proptest::collection::vec(1..200_usize, 1..50),
        ) {
            let mut whole = LineBuffer::default();
            whole.push(&stream);
            let expected = lines_of(&mut whole);

            let mut pieces = LineBuffer::default();
            let mut lines = Vec::new();
            let mut failed = false;
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                match lines_of(&mut pieces) {
                    Ok(more) => lines.extend(more),
                    Err(LineTooLong) => failed = true,
                }
                rest = tail;
                if failed || rest.is_empty() {
                    break;
                }
            }
            match expected {
                Ok(expected) => prop_assert_eq!(lines, expected),
                Err(LineTooLong) => prop_assert!(failed),
            }
        }

        /// No line makes the attribute parser panic, and each value is a part of the line.
        #[test]
        fn garbage_is_parsed_without_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let attributes = Attributes::parse(&line);
            if let Some(value) = attributes.first("cmd") {
                prop_assert!(value.len() + 4 <= line.len());
            }
        }
    }
}
