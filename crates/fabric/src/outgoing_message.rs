//! A message on its way out.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{Body, frame::MessageKind};

/// A message that is sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingMessage<'a> {
    /// Who takes it.
    pub kind: MessageKind,
    /// Its tag.
    pub tag: u64,
    /// Its body, or the beginning of it.
    pub body: &'a Body,
    /// The rest of its body, if there is one: bytes that need not be copied on their way to the system.
    pub data: Option<&'a Bytes>,
    /// It may wait for a moment, for others to the same peer.
    pub may_wait: bool,
}

impl<'a> OutgoingMessage<'a> {
    /// A message with this body, which does not wait.
    pub fn new(kind: MessageKind, tag: u64, body: &'a Body) -> Self {
        Self {
            kind,
            tag,
            body,
            data: None,
            may_wait: false,
        }
    }

    /// The size of the whole body in bytes.
    pub fn size(&self) -> usize {
        self.body.len() + self.data().len()
    }

    /// The whole body in one piece.
    pub fn whole(&self) -> Cow<'_, Body> {
        match self.data() {
            [] => Cow::Borrowed(self.body),
            data => Cow::Owned(Body::from([&self.body[..], data].concat())),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.data.map_or(&[], |data| &data[..])
    }
}
