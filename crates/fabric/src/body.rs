//! The body of a message.

use std::{fmt, ops::Deref};

use bytes::Bytes;

/// The body of a message. A small one stands in it, so that it costs no allocation.
#[derive(Clone)]
pub struct Body(Repr);

/// Nothing but whole words, in an order that is given: a copy that the compiler makes of it then reads what was just
/// written in the pieces that it was written in. Reads across such pieces cannot be served from the processor's store
/// buffer, and wait until all that was written before is in memory.
#[derive(Clone)]
#[repr(u64)]
enum Repr {
    Inline { length: usize, bytes: Small },
    Shared(Bytes),
}

/// As aligned as the widest copies of the compiler.
#[derive(Clone)]
#[repr(align(16))]
struct Small([u8; Body::INLINE_MAX]);

impl Body {
    /// The largest body in bytes that needs no allocation.
    pub const INLINE_MAX: usize = 48;

    /// An empty body.
    pub const fn new() -> Self {
        Self(Repr::Inline {
            length: 0,
            bytes: Small([0; Self::INLINE_MAX]),
        })
    }

    /// Makes it a body of `length` bytes, at most [`INLINE_MAX`](Self::INLINE_MAX), which are to be written where this
    /// says; what stands behind them does not matter.
    ///
    /// # Panics
    /// If there are more.
    #[inline]
    pub fn inline(&mut self, length: usize) -> &mut [u8; Self::INLINE_MAX] {
        assert!(length <= Self::INLINE_MAX, "{length} bytes are not few");
        if let Repr::Shared(_) = self.0 {
            *self = Self::new();
        }
        match &mut self.0 {
            Repr::Inline { length: known, bytes } => {
                *known = length;
                &mut bytes.0
            }
            Repr::Shared(_) => unreachable!("it has just been made small"),
        }
    }

    /// Takes what it says out of it; what it says then does not matter: a small one still says the same, which spares
    /// the clearing of it.
    #[inline]
    pub fn take(&mut self) -> Self {
        match &mut self.0 {
            Repr::Inline { length, bytes } => Self(Repr::Inline {
                length: *length,
                bytes: bytes.clone(),
            }),
            Repr::Shared(bytes) => Self(Repr::Shared(std::mem::take(bytes))),
        }
    }

    /// The memory of the bytes, unless the body is small.
    pub fn shared(&self) -> Option<&Bytes> {
        match &self.0 {
            Repr::Inline { .. } => None,
            Repr::Shared(bytes) => Some(bytes),
        }
    }

    /// The bytes, copied if the body is small.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Repr::Inline { .. } => Bytes::copy_from_slice(&self),
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Body {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes.0[..*length],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Copies the bytes.
impl From<&[u8]> for Body {
    fn from(slice: &[u8]) -> Self {
        let length = slice.len();
        if length > Self::INLINE_MAX {
            return Self(Repr::Shared(Bytes::copy_from_slice(slice)));
        }
        let mut bytes = [0; Self::INLINE_MAX];
        bytes[..slice.len()].copy_from_slice(slice);
        let bytes = Small(bytes);
        Self(Repr::Inline { length, bytes })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Repr::Shared(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Shared(bytes.into()))
    }
}

/// Bodies are compared with whatever has bytes.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Body {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies on both sides of the limit keep their bytes, however they are made.
    #[test]
    fn bodies_keep_their_bytes() {
        for length in [0, 1, Body::INLINE_MAX, Body::INLINE_MAX + 1, 255, 256, 1000] {
            let bytes = vec![length as u8; length];
            assert_eq!(Body::from(&bytes[..]).take(), bytes);
            assert_eq!(Body::from(&bytes[..]), bytes);
            assert_eq!(Body::from(bytes.clone()).into_bytes(), bytes);
            assert_eq!(Body::from(&bytes[..]).into_bytes(), bytes);
        }
        assert_eq!(size_of::<Body>(), 64);
    }
}
