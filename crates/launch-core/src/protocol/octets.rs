//! Bytes that are serialized as one piece. The format is the same as that of a sequence of numbers, which is written
//! and read number by number.

use core::fmt;

use serde::{Deserializer, Serializer, de};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_bytes(Octets)
}

struct Octets;

impl de::Visitor<'_> for Octets {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Order;

    /// Bytes come back as they were, in the format of a sequence of numbers.
    #[test]
    fn bytes_come_back() {
        for bytes in [Vec::new(), vec![0, 200, 255], vec![7; 70_000]] {
            let encoded = postcard::to_allocvec(&Order::Stdin(bytes.clone())).unwrap();
            let sequence = postcard::to_allocvec(&bytes).unwrap();
            assert_eq!(encoded[1..], sequence);
            let decoded = postcard::from_bytes(&encoded).unwrap();
            assert!(matches!(decoded, Order::Stdin(found) if found == bytes));
            let cut = &encoded[..encoded.len() - 1];
            assert!(postcard::from_bytes::<Order>(cut).is_err());
        }
    }
}
