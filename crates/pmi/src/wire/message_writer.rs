//! From attributes to a message.

use bstr::BStr;

use super::{Form, message_buffer::FRAME_HEADER_SIZE};
use crate::{BLOCK_SIZE_MAX, EncodeError, FRAME_SIZE_MAX, LINE_SIZE_MAX, PAIR_LINE_SIZE_MAX};

/// A message being written behind what a buffer holds already.
pub(crate) struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    form: Form,
    line_size_max: usize,
    unwritable: bool,
}

impl<'a> MessageWriter<'a> {
    /// Begins a message. `thread` says for whom it is, in the words of the peer (`thrid`, PMI-2 only).
    pub(crate) fn new(out: &'a mut Vec<u8>, form: Form, command: &str, thread: Option<&BStr>) -> Self {
        let start = out.len();
        let mut writer = Self {
            out,
            start,
            form,
            line_size_max: match command {
                "get_result" | "put" => PAIR_LINE_SIZE_MAX,
                _ => LINE_SIZE_MAX,
            },
            unwritable: false,
        };
        match form {
            Form::Block => writer.pair("mcmd", command.as_bytes()),
            Form::Frame => {
                writer.out.extend_from_slice(&[b' '; FRAME_HEADER_SIZE]);
                writer.pair("cmd", command.as_bytes());
                if let Some(thread) = thread {
                    writer.pair("thrid", thread);
                }
            }
            Form::Line => {
                writer.out.extend_from_slice(b"cmd=");
                writer.out.extend_from_slice(command.as_bytes());
            }
        }
        writer
    }

    /// How the message is written.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Adds an attribute.
    pub(crate) fn pair(&mut self, key: &str, value: &[u8]) {
        if self.form == Form::Line {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(b'=');
        if self.form == Form::Frame {
            for &byte in value {
                self.out.push(byte);
                if byte == b';' {
                    self.out.push(b';');
                }
            }
            self.out.push(b';');
            return;
        }
        self.unwritable |= value.iter().any(|&byte| byte == b'\n' || byte == 0);
        self.out.extend_from_slice(value);
        if self.form == Form::Block {
            self.out.push(b'\n');
        }
    }

    /// Ends the message. If it cannot be written, nothing of it stays in the buffer.
    pub(crate) fn finish(self) -> Result<(), EncodeError> {
        let (head, size_max) = match self.form {
            Form::Block => (0, BLOCK_SIZE_MAX),
            Form::Frame => (FRAME_HEADER_SIZE, FRAME_SIZE_MAX),
            Form::Line => (0, self.line_size_max),
        };
        match self.form {
            Form::Block => self.out.extend_from_slice(b"endcmd\n"),
            Form::Frame => {}
            Form::Line => self.out.push(b'\n'),
        }
        let size = self.out.len() - self.start - head;
        let error = if self.unwritable {
            EncodeError::Character
        } else if size > size_max {
            EncodeError::TooLong { size, size_max }
        } else {
            if self.form == Form::Frame {
                let length = format!("{size:<width$}", width = FRAME_HEADER_SIZE);
                self.out[self.start..self.start + FRAME_HEADER_SIZE].copy_from_slice(length.as_bytes());
            }
            return Ok(());
        };
        self.out.truncate(self.start);
        Err(error)
    }
}
