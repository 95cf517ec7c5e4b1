//! From a byte stream to whole messages.

use thiserror::Error;

use super::Form;
use crate::{BLOCK_SIZE_MAX, FRAME_SIZE_MAX, PAIR_LINE_SIZE_MAX};

/// The size of the length before a frame, in bytes.
pub(super) const FRAME_HEADER_SIZE: usize = 6;

/// Collects bytes until they make a message, whose form is told by how it begins. Holds at most one unfinished
/// message and the bytes of one [`push`](Self::push).
#[derive(Clone, Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    taken: usize,
    /// How much of an unfinished block is known not to hold its end.
    searched: usize,
}

/// A whole message, still as its sender wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// How it is written.
    pub form: Form,
    /// Its attributes, without length or end.
    pub body: &'a [u8],
}

/// Why the received bytes are no message. The stream is of no use after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A block without end.
    #[error("a PMI-1 spawn block is longer than {BLOCK_SIZE_MAX} bytes")]
    BlockTooLong,
    /// Six bytes that are no length.
    #[error(
        "a PMI-2 message begins with six bytes of decimal length of at most {FRAME_SIZE_MAX}, not {header:?}"
    )]
    FrameLength {
        /// The six bytes.
        header: [u8; FRAME_HEADER_SIZE],
    },
    /// A line without end.
    #[error("a PMI-1 line is longer than {PAIR_LINE_SIZE_MAX} bytes")]
    LineTooLong,
    /// A byte with which no form of message begins.
    #[error("a message of PMI begins with \"cmd=\", \"mcmd=\" or a length, not with the byte {byte}")]
    NoMessage {
        /// The first byte.
        byte: u8,
    },
}

impl MessageBuffer {
    /// Adds what came from the peer. Take all messages out before the next call.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..self.taken);
        }
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// If what comes next can be no message, or one that is too long.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, MessageError> {
        let rest = &self.bytes[self.taken..];
        let found = match rest.first() {
            None => None,
            Some(b'c') => find_line(rest)?,
            Some(b'm') => find_block(rest, &mut self.searched)?,
            Some(b' ' | b'0'..=b'9') => find_frame(rest)?,
            Some(&byte) => return Err(MessageError::NoMessage { byte }),
        };
        let Some(Found {
            form,
            start,
            end,
            next,
        }) = found
        else {
            return Ok(None);
        };
        let begin = self.taken;
        self.taken += next;
        self.searched = 0;
        let body = &self.bytes[begin + start..begin + end];
        Ok(Some(Message { form, body }))
    }
}

/// Where in what is left the body of the next message lies, and where the message after it begins.
struct Found {
    form: Form,
    start: usize,
    end: usize,
    next: usize,
}

fn find_line(rest: &[u8]) -> Result<Option<Found>, MessageError> {
    let end = rest
        .iter()
        .take(PAIR_LINE_SIZE_MAX)
        .position(|&byte| byte == b'\n');
    match end {
        Some(newline) => {
            // A NUL ends a parse too.
            let end = rest[..newline]
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(newline);
            Ok(Some(Found {
                form: Form::Line,
                start: 0,
                end,
                next: newline + 1,
            }))
        }
        None if rest.len() < PAIR_LINE_SIZE_MAX => Ok(None),
        None => Err(MessageError::LineTooLong),
    }
}

/// The end counts only as a whole line: an argument may hold the same word.
fn find_block(rest: &[u8], searched: &mut usize) -> Result<Option<Found>, MessageError> {
    const END: &[u8] = b"\nendcmd\n";
    let from = searched.saturating_sub(END.len());
    let window = &rest[from..rest.len().min(BLOCK_SIZE_MAX)];
    match bstr::ByteSlice::find(window, END) {
        Some(position) => Ok(Some(Found {
            form: Form::Block,
            start: 0,
            end: from + position,
            next: from + position + END.len(),
        })),
        None if rest.len() < BLOCK_SIZE_MAX => {
            *searched = rest.len();
            Ok(None)
        }
        None => Err(MessageError::BlockTooLong),
    }
}

fn find_frame(rest: &[u8]) -> Result<Option<Found>, MessageError> {
    let Some((header, body)) = rest.split_first_chunk::<FRAME_HEADER_SIZE>() else {
        return Ok(None);
    };
    let length = std::str::from_utf8(header)
        .ok()
        .map(|text| text.trim_matches(' '))
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse::<usize>().ok())
        .filter(|length| (1..=FRAME_SIZE_MAX).contains(length))
        .ok_or(MessageError::FrameLength { header: *header })?;
    Ok((body.len() >= length).then_some(Found {
        form: Form::Frame,
        start: FRAME_HEADER_SIZE,
        end: FRAME_HEADER_SIZE + length,
        next: FRAME_HEADER_SIZE + length,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Messages = Vec<(Form, Vec<u8>)>;

    fn messages_of(buffer: &mut MessageBuffer) -> Result<Messages, MessageError> {
        let mut messages = Vec::new();
        while let Some(message) = buffer.next_message()? {
            messages.push((message.form, message.body.to_vec()));
        }
        Ok(messages)
    }

    fn parse(stream: &[u8]) -> Result<Messages, MessageError> {
        let mut buffer = MessageBuffer::default();
        buffer.push(stream);
        messages_of(&mut buffer)
    }

    /// "S must decide per MESSAGE, not per connection".
    #[test]
    fn the_form_is_told_for_each_message() {
        let stream = b"cmd=init pmi_version=2 pmi_subversion=0\n14    cmd=job-getid;\
            mcmd=spawn\narg1=x\nendcmd\n    13cmd=finalize;";
        assert_eq!(
            parse(stream).unwrap(),
            [
                (Form::Line, b"cmd=init pmi_version=2 pmi_subversion=0".to_vec()),
                (Form::Frame, b"cmd=job-getid;".to_vec()),
                (Form::Block, b"mcmd=spawn\narg1=x".to_vec()),
                (Form::Frame, b"cmd=finalize;".to_vec()),
            ]
        );
    }

    /// "LEN6 = 6 ASCII bytes, decimal length of BODY, blank padded .. skip blanks, digits, skip blanks"; "Max body
    /// of clients 64 KiB - 6; refuse larger; length 0 is invalid".
    #[test]
    fn frame_lengths_are_padded_on_either_side_and_bounded() {
        for header in ["3     ", "     3", "  3   ", "000003"] {
            let stream = format!("{header}abc");
            assert_eq!(
                parse(stream.as_bytes()).unwrap(),
                [(Form::Frame, b"abc".to_vec())]
            );
        }
        let longest = format!("65530 {}", "x".repeat(65530));
        assert_eq!(parse(longest.as_bytes()).unwrap().len(), 1);
        for header in [
            "0     ", "65531 ", "1 2   ", "      ", "12a   ", " -1   ", "+1    ",
        ] {
            let header = header.as_bytes();
            let error = if header[0] == b'+' {
                MessageError::NoMessage { byte: b'+' }
            } else {
                MessageError::FrameLength {
                    header: header.try_into().unwrap(),
                }
            };
            assert_eq!(parse(header), Err(error));
        }
    }

    /// "`endcmd\n` is a terminator only as a whole line".
    #[test]
    fn a_block_ends_with_a_whole_line() {
        let stream = b"mcmd=spawn\narg1=endcmd\narg2=x endcmd\nendcmd\ncmd=finalize\n";
        assert_eq!(
            parse(stream).unwrap(),
            [
                (Form::Block, b"mcmd=spawn\narg1=endcmd\narg2=x endcmd".to_vec()),
                (Form::Line, b"cmd=finalize".to_vec()),
            ]
        );
    }

    /// A line may be as long as the announced sizes allow and no longer, however it arrives.
    #[test]
    fn lines_are_bounded() {
        let mut longest = vec![b'c'; PAIR_LINE_SIZE_MAX - 1];
        assert_eq!(parse(&longest), Ok(vec![]));
        longest.push(b'\n');
        assert_eq!(parse(&longest).unwrap().len(), 1);
        longest.insert(0, b'c');
        assert_eq!(parse(&longest), Err(MessageError::LineTooLong));
    }

    /// "Client writes are several `write()`s and can be larger than 1024 in total": a block may come byte by
    /// byte, and has an end.
    #[test]
    fn blocks_are_bounded() {
        let mut buffer = MessageBuffer::default();
        for byte in b"mcmd=spawn\nendcmd" {
            buffer.push(&[*byte]);
            assert_eq!(buffer.next_message(), Ok(None));
        }
        buffer.push(b"\n");
        assert!(buffer.next_message().unwrap().is_some());
        let piece = [b'm'; 1024];
        for _ in 1..BLOCK_SIZE_MAX / piece.len() {
            buffer.push(&piece);
            assert_eq!(buffer.next_message(), Ok(None));
        }
        buffer.push(&piece);
        assert_eq!(buffer.next_message(), Err(MessageError::BlockTooLong));
    }

    /// "Terminator `\n` (NUL also ends a parse)".
    #[test]
    fn a_nul_ends_the_parse() {
        assert_eq!(
            parse(b"cmd=finalize\0garbage\ncmd=x\n").unwrap(),
            [
                (Form::Line, b"cmd=finalize".to_vec()),
                (Form::Line, b"cmd=x".to_vec())
            ]
        );
    }

    proptest! {
        /// "Header and body may arrive in separate reads": the messages do not depend on how the stream is
        /// cut into pieces.
        #[test]
        fn split_anywhere_gives_the_same_messages(
            pieces in proptest::collection::vec(
                prop_oneof![
                    3 => "cmd=[a-z =;]{0,20}\n",
                    3 => "mcmd=[a-z]{0,5}\n(arg1=[a-z=]{0,5}\n){0,3}endcmd\n",
                    3 => "[0-9] {5}[a-z;=]{0,9}",
                    1 => "[ -~\n]{0,9}",
                ],
                0..20,
            ),
            cuts in proptest::collection::vec(1..40_usize, 1..30),
        ) {
            let stream = pieces.concat().into_bytes();
            let mut whole = MessageBuffer::default();
            whole.push(&stream);
            let mut expected = Vec::new();
            let failed = loop {
                match whole.next_message() {
                    Ok(Some(message)) => expected.push((message.form, message.body.to_vec())),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };

            let mut buffer = MessageBuffer::default();
            let mut found = Vec::new();
            let mut rest = &stream[..];
            let mut error = None;
            for cut in cuts.iter().cycle() {
                if rest.is_empty() || error.is_some() {
                    break;
                }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                buffer.push(piece);
                loop {
                    match buffer.next_message() {
                        Ok(Some(message)) => found.push((message.form, message.body.to_vec())),
                        Ok(None) => break,
                        Err(failure) => {
                            error = Some(failure);
                            break;
                        }
                    }
                }
                rest = tail;
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(error, failed);
        }
    }
}
