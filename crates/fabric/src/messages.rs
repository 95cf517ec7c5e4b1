//! Messages on their way from a provider to the owner of an endpoint, many at once.

use crate::{Body, OperationId, PeerId};

/// The kind of a message, for the owner of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The reply that this operation waited for, which has ended: as an
    /// [`Event::Completed`](crate::Event::Completed).
    Reply {
        /// Which.
        operation: OperationId,
    },
    /// As an [`Event::Unexpected`](crate::Event::Unexpected).
    Unexpected {
        /// Who sent it.
        from: PeerId,
        /// The sender's tag.
        tag: u64,
    },
}

/// Room for messages that [`Endpoint::receive`](crate::Endpoint::receive) fills and its owner empties, again and again:
/// to hand them over one by one would cost more than their way from one process to the other.
#[derive(Debug)]
pub struct Messages {
    places: Vec<Place>,
    /// The first that was not taken.
    first: usize,
    /// Behind the last.
    end: usize,
}

#[derive(Debug)]
struct Place {
    received: Option<Received>,
    body: Body,
}

impl Messages {
    /// How many there is room for.
    pub const ROOM: usize = 32;

    /// Room without messages.
    pub fn new() -> Self {
        let place = || Place {
            received: None,
            body: Body::new(),
        };
        Self {
            places: std::iter::repeat_with(place).take(Self::ROOM).collect(),
            first: 0,
            end: 0,
        }
    }

    /// Returns true if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// The next message; what it says is put into `body`.
    #[inline]
    pub fn pop(&mut self, body: &mut Body) -> Option<Received> {
        let place = self.places[..self.end].get_mut(self.first)?;
        self.first += 1;
        *body = place.body.take();
        place.received.take()
    }

    /// Takes all room again.
    ///
    /// # Panics
    /// If there are messages.
    pub(crate) fn clear(&mut self) {
        assert!(self.is_empty(), "messages are taken before there are more");
        (self.first, self.end) = (0, 0);
    }

    /// Where the body of the next message may be put before it is [pushed](Self::push).
    #[inline]
    pub(crate) fn room(&mut self) -> Option<&mut Body> {
        self.places.get_mut(self.end).map(|place| &mut place.body)
    }

    /// Adds the message whose body is in the [room](Self::room).
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn push(&mut self, received: Received) {
        self.places[self.end].received = Some(received);
        self.end += 1;
    }
}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_table::PeerTable;

    /// Messages come out as they went in, as many as there is room for, time after time.
    #[test]
    fn messages_keep_their_order() {
        let from = PeerTable::default().intern(&"tcp://127.0.0.1:1".parse().unwrap());
        let mut messages = Messages::new();
        let mut body = Body::new();
        for round in 0..3 {
            messages.clear();
            let mut count = 0;
            while let Some(body) = messages.room() {
                *body = Body::from(&[round, count as u8][..]);
                messages.push(Received::Unexpected { from, tag: count });
                count += 1;
            }
            assert_eq!(count, Messages::ROOM as u64);
            for tag in 0..count {
                let received = messages.pop(&mut body).unwrap();
                assert_eq!(received, Received::Unexpected { from, tag });
                assert_eq!(body, [round, tag as u8]);
            }
            assert!(messages.is_empty() && messages.pop(&mut body).is_none());
        }
    }
}
