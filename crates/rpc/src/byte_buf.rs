//! Bytes that are encoded in one piece.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

/// Bytes in an input or output, encoded and decoded by one copy.
///
/// serde sees a `Vec<u8>` as a list of any other elements and goes through it one by one, which takes 10 to
/// 20 times as long to encode and 3 to 20 times to decode (1 KiB and 64 KiB). On the wire both are the same:
/// the two sides of a call need not agree on which they use. Data of more than some hundred kilobytes is best
/// not part of an input or output at all, but pulled by a bulk handle.
///
/// ```
/// use ropewalk_rpc::{ByteBuf, Procedure};
///
/// struct Append;
///
/// impl Procedure for Append {
///     const NAME: &'static str = "example.append";
///     type Input = (u64, ByteBuf);
///     type Output = u64;
/// }
///
/// let input = (7, ByteBuf::from(vec![1, 2, 3]));
/// assert_eq!(input.1.len(), 3);
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteBuf(Vec<u8>);

impl ByteBuf {
    /// The bytes themselves.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for ByteBuf {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for ByteBuf {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl From<Vec<u8>> for ByteBuf {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Copies the bytes.
impl From<&[u8]> for ByteBuf {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<ByteBuf> for Vec<u8> {
    fn from(bytes: ByteBuf) -> Self {
        bytes.0
    }
}

impl AsRef<[u8]> for ByteBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Without the bytes, of which there may be many.
impl fmt::Debug for ByteBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteBuf({} bytes)", self.len())
    }
}

impl Serialize for ByteBuf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ByteBuf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }
}

struct Bytes;

impl Bytes {
    /// The room that a list begins with, whatever it says of its length.
    const ROOM_MAX: usize = 4096;
}

impl<'de> Visitor<'de> for Bytes {
    type Value = ByteBuf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<ByteBuf, E> {
        Ok(ByteBuf::from(bytes))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<ByteBuf, E> {
        Ok(ByteBuf(bytes))
    }

    /// Of formats that know no bytes, such as JSON.
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<ByteBuf, A::Error> {
        let room = elements.size_hint().unwrap_or(0).min(Self::ROOM_MAX);
        let mut bytes = Vec::with_capacity(room);
        while let Some(byte) = elements.next_element()? {
            bytes.push(byte);
        }
        Ok(ByteBuf(bytes))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{self, SeqDeserializer};

    use super::*;

    /// Either side of a call may have a `Vec<u8>` in its place.
    #[test]
    fn the_wire_is_that_of_a_vector() {
        for length in [0, 1, 127, 128, 5000] {
            let vector: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let bytes = ByteBuf::from(vector.clone());
            let encoded = postcard::to_allocvec(&(3u8, &bytes)).unwrap();
            assert_eq!(encoded, postcard::to_allocvec(&(3u8, &vector)).unwrap());
            assert_eq!(
                postcard::from_bytes::<(u8, Vec<u8>)>(&encoded).unwrap(),
                (3, vector)
            );
            assert_eq!(
                postcard::from_bytes::<(u8, ByteBuf)>(&encoded).unwrap(),
                (3, bytes)
            );
        }
    }

    /// A length that is not there is an error, and takes no memory.
    #[test]
    fn what_is_cut_off_is_refused() {
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2];
        assert!(postcard::from_bytes::<ByteBuf>(&huge).is_err());
    }

    /// Formats without bytes have a list of numbers instead.
    #[test]
    fn lists_of_numbers_are_bytes_too() {
        let list = SeqDeserializer::<_, value::Error>::new([1_u8, 2, 255].into_iter());
        assert_eq!(
            ByteBuf::deserialize(list).unwrap(),
            ByteBuf::from(vec![1, 2, 255])
        );
    }
}
