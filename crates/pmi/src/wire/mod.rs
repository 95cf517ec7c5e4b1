//! How PMI cuts a byte stream into messages and a message into attributes, in its three forms.

mod attributes;
mod message_buffer;
mod message_writer;

pub(crate) use attributes::Attributes;
pub use message_buffer::{Message, MessageBuffer, MessageError};
pub(crate) use message_writer::MessageWriter;

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// PMI-1's `mcmd=spawn`: a line for each attribute, and `endcmd` at the end.
    Block,
    /// PMI-2: six bytes of length, and attributes that each end with `;`. In a value `;` is doubled.
    Frame,
    /// PMI-1: attributes with spaces between them, and a newline at the end.
    Line,
}
