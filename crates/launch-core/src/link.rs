//! One end of a link between neighbours in the tree. What is said over it comes whole, in order and once, also if the
//! connection below it breaks and is made again: by a reset, or because a byte came wrong.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::Serialize;

use crate::batch::{Head, LinkError, LinkMessage, decode, encode};

/// The messages to a neighbour: those to be sent, and those that are known to have come, there and here.
///
/// Send what [`poll_body`](Self::poll_body) says until it says nothing, and tell
/// [`handle_sent`](Self::handle_sent) of each that was taken; give what comes to
/// [`handle_body`](Self::handle_body). If the connection is lost, say so with [`handle_cut`](Self::handle_cut);
/// whoever makes another calls [`greet`](Self::greet). What the other end is not known to have is then sent again,
/// and who has it already drops it.
#[derive(Debug)]
pub struct Link<T> {
    /// Messages without a number yet, many in one.
    batches: VecDeque<Vec<T>>,
    /// Bytes of output or input in the last of them.
    size: usize,
    /// Batches that have a number and are not known to have come: the first has the number after the last that is.
    kept: VecDeque<Bytes>,
    acknowledged: u64,
    /// How many of these went over this connection.
    sent: usize,
    /// The number of the last that came.
    received: u64,
    /// The number that the other end was told of that, and how many bytes came since.
    told: u64,
    untold_bytes: usize,
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// Messages go over it.
    Open {
        /// The other end waits to hear what came.
        is_asked: bool,
    },
    Lost,
    /// It is new, and the other end has not said yet what came over the one before.
    Greeting {
        is_sent: bool,
    },
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self {
            batches: VecDeque::new(),
            size: 0,
            kept: VecDeque::new(),
            acknowledged: 0,
            sent: 0,
            received: 0,
            told: 0,
            untold_bytes: 0,
            connection: Connection::Open { is_asked: false },
        }
    }
}

impl<T> Link<T> {
    /// Bytes in one batch, about; a single message that is larger goes alone. What breaks again and again carries
    /// small ones all the same.
    const BATCH_SIZE_MAX: usize = 64 << 10;
    /// Messages without bytes of output in one batch.
    const BATCH_LENGTH_MAX: usize = 4096;
    /// After so many batches, or bytes, the other end hears that they came, so that it need not keep them.
    const UNTOLD_MAX: u64 = 32;
    const UNTOLD_BYTES_MAX: usize = 512 << 10;

    /// Adds a message with so many bytes of output or input.
    pub fn push(&mut self, message: T, size: usize) {
        let is_full = self.size + size > Self::BATCH_SIZE_MAX;
        match self.batches.back_mut() {
            Some(batch) if !is_full && batch.len() < Self::BATCH_LENGTH_MAX => batch.push(message),
            _ => {
                self.batches.push_back(vec![message]);
                self.size = 0;
            }
        }
        self.size += size;
    }

    /// How many batches have not gone anywhere yet.
    pub fn waiting(&self) -> usize {
        self.batches.len()
    }

    /// Says if all that was pushed went over this connection, or is known to have come.
    pub fn is_sent(&self) -> bool {
        let is_open = matches!(self.connection, Connection::Open { .. });
        is_open && self.batches.is_empty() && self.sent == self.kept.len()
    }

    /// Says if all that was pushed is known to have come.
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty() && self.batches.is_empty()
    }

    /// How much is known to have come, there and here: it grows while a connection is of any use.
    pub fn progress(&self) -> u64 {
        self.acknowledged + self.received
    }

    /// The connection is lost.
    pub fn handle_cut(&mut self) {
        self.connection = Connection::Lost;
    }

    /// There is another connection, which this end has made; or this end wants to hear at once what has come over
    /// the one that there is.
    pub fn greet(&mut self) {
        self.connection = Connection::Greeting { is_sent: false };
    }

    /// The body that [`poll_body`](Self::poll_body) gave was sent.
    pub fn handle_sent(&mut self) {
        match &mut self.connection {
            Connection::Open { .. } if self.sent < self.kept.len() => self.sent += 1,
            Connection::Open { is_asked } => {
                *is_asked = false;
                self.tell();
            }
            Connection::Greeting { is_sent } => *is_sent = true,
            Connection::Lost => {}
        }
    }

    /// Takes what came, and returns the messages that are new.
    ///
    /// # Errors
    /// If the other end does not speak as this version does: nothing it says is of use any more.
    pub fn handle_body<U: LinkMessage>(&mut self, body: &[u8]) -> Result<Vec<U>, LinkError> {
        let (head, messages) = decode::<U>(body)?;
        let known = self.acknowledged + self.kept.len() as u64;
        if head.received > known {
            return Err(LinkError::numbers(body));
        }
        // An earlier one is a body that was sent again.
        while self.acknowledged < head.received && self.kept.pop_front().is_some() {
            self.acknowledged += 1;
            self.sent = self.sent.saturating_sub(1);
        }
        if head.greets || matches!(self.connection, Connection::Greeting { .. }) {
            self.sent = 0;
            self.connection = Connection::Open {
                is_asked: head.greets,
            };
        }
        if head.number == 0 && messages.is_empty() {
            return Ok(messages);
        }
        self.untold_bytes += body.len();
        if (1..=self.received).contains(&head.number) {
            return Ok(Vec::new());
        }
        if head.number != self.received + 1 {
            return Err(LinkError::numbers(body));
        }
        self.received += 1;
        Ok(messages)
    }

    fn head(&self, number: u64) -> Head {
        Head {
            number,
            received: self.received,
            greets: matches!(self.connection, Connection::Greeting { .. }),
        }
    }

    fn tell(&mut self) {
        self.told = self.received;
        self.untold_bytes = 0;
    }

    fn has_to_tell(&self) -> bool {
        self.received - self.told >= Self::UNTOLD_MAX || self.untold_bytes >= Self::UNTOLD_BYTES_MAX
    }
}

impl<T: Serialize> Link<T> {
    /// The body to be sent next, and again until [`handle_sent`](Self::handle_sent) is called.
    pub fn poll_body(&mut self) -> Option<Bytes> {
        let is_asked = match self.connection {
            Connection::Open { is_asked } => is_asked,
            Connection::Greeting { is_sent: false } => return Some(encode(self.head(0), &[] as &[T])),
            Connection::Lost | Connection::Greeting { is_sent: true } => return None,
        };
        if self.sent == self.kept.len()
            && let Some(batch) = self.batches.pop_front()
        {
            let number = self.acknowledged + self.kept.len() as u64 + 1;
            self.kept.push_back(encode(self.head(number), &batch));
            self.tell();
        }
        match self.kept.get(self.sent) {
            Some(body) => Some(body.clone()),
            None => (is_asked || self.has_to_tell()).then(|| encode(self.head(0), &[] as &[T])),
        }
    }
}

#[cfg(test)]
mod tests;
