//! The encoded input of a call, and the data behind it.

use bytes::Bytes;
use serde::de::DeserializeOwned;

/// An input as it came, with the data of the call behind it.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    /// The memory in which it stands, if others may share that.
    memory: Option<&'a Bytes>,
}

impl<'a> Input<'a> {
    /// An input that stands in `memory`, if that is given.
    pub(crate) fn new(bytes: &'a [u8], memory: Option<&'a Bytes>) -> Self {
        Self { bytes, memory }
    }

    /// The bytes of both.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The input, and the data where it is; `None` if they begin with no such input.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Option<(T, Bytes)> {
        let (input, behind) = postcard::take_from_bytes::<T>(self.bytes).ok()?;
        let begin = (self.bytes.len() - behind.len()).next_multiple_of(DATA_ALIGNMENT);
        let data = self.bytes.get(begin..).unwrap_or_default();
        let data = match self.memory {
            Some(memory) => memory.slice_ref(data),
            None => Bytes::copy_from_slice(data),
        };
        Some((input, data))
    }
}

/// The data begins at a multiple of so many bytes from the begin of the input, and so of the message: numbers in it are
/// as aligned as in memory of their own.
pub(crate) const DATA_ALIGNMENT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The data is what stands behind the input, and is not copied if its memory can be shared.
    #[test]
    fn data_stands_behind_the_input() {
        let message = Bytes::from([&[1, 2][..], &[0; 14], &[7, 5]].concat());
        let (input, data): ((u8, u8), Bytes) = Input::new(&message, Some(&message)).decode().unwrap();
        assert_eq!((input, &data[..]), ((1, 2), &[7, 5][..]));
        assert_eq!(data.as_ptr(), message[16..].as_ptr());
        let (_, copied): ((u8, u8), Bytes) = Input::new(&message, None).decode().unwrap();
        assert!(copied == data && copied.as_ptr() != data.as_ptr());
        for length in 1..=16 {
            let (_, none): (u8, Bytes) = Input::new(&message[..length], Some(&message)).decode().unwrap();
            assert!(none.is_empty());
        }
        assert!(Input::new(&message[..1], None).decode::<(u8, u8)>().is_none());
    }
}
