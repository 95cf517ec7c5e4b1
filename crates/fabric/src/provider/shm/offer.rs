//! The offers by which the two ends of a UNIX socket tell each other about the memory that they share.

use bytes::{Buf, BufMut};

use super::{
    bells::Bells,
    direct::{MemoryOffer, Probe},
    layout::Layout,
};
use crate::{FrameError, frame::OFFER_SIZE};

/// The most descriptors that come with an offer.
pub(crate) const DESCRIPTORS_MAX: usize = 6;

/// The offer of one end. Its descriptors come with it, in the order of the fields that speak of them; bells
/// come before those of memory.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0..2 | version | [`VERSION`](Self::VERSION) |
/// | 2..4 | which descriptors come with it | bits 0 to 4: rings, liveness, arena, board, two bells |
/// | 4..8 | slots of a ring | 0 if it offers no rings |
/// | 8..12 | lines of a ring | 0 if it offers no rings |
/// | 12..16 | reserved | 0 |
/// | 16..24 | length of the arena in bytes | 0 if it offers none |
/// | 24..32 | address of the probe | 0 if it has none |
/// | 32..48 | content of the probe | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Memory for the rings of this connection: the offer of who made the connection.
    pub(super) rings: Option<Layout>,
    /// The page that tells of the process' death.
    pub(super) liveness: bool,
    /// The doorbells of both ends: the offer of who was called.
    pub(super) bells: bool,
    /// The memory of the end that may be reached.
    pub(crate) memory: Option<MemoryOffer>,
}

impl Offer {
    const VERSION: u16 = 2;
    const RINGS: u16 = 1;
    const LIVENESS: u16 = 2;
    const ARENA: u16 = 4;
    const BOARD: u16 = 8;
    const BELLS: u16 = 16;

    /// How many descriptors come with it.
    pub(super) fn descriptors(&self) -> usize {
        let memory = self.memory.as_ref().map_or(0, MemoryOffer::descriptors);
        let bells = if self.bells { Bells::DESCRIPTORS } else { 0 };
        usize::from(self.rings.is_some()) + usize::from(self.liveness) + bells + memory
    }

    pub(crate) fn encode(&self) -> [u8; OFFER_SIZE] {
        let mut shares = 0;
        if self.rings.is_some() {
            shares |= Self::RINGS;
        }
        if self.liveness {
            shares |= Self::LIVENESS;
        }
        if self.bells {
            shares |= Self::BELLS;
        }
        if let Some(memory) = &self.memory {
            shares |= Self::BOARD;
            if memory.arena_length > 0 {
                shares |= Self::ARENA;
            }
        }
        let mut bytes = [0; OFFER_SIZE];
        let mut at = &mut bytes[..];
        at.put_u16_le(Self::VERSION);
        at.put_u16_le(shares);
        at.put_u32_le(self.rings.map_or(0, Layout::slots));
        at.put_u32_le(self.rings.map_or(0, Layout::lines));
        at.put_u32_le(0);
        at.put_u64_le(self.memory.map_or(0, |memory| memory.arena_length));
        let probe = self.memory.and_then(|memory| memory.probe).unwrap_or_default();
        at.put_u64_le(probe.address);
        at.put_slice(&probe.content);
        bytes
    }

    /// The inverse of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If it is no offer of this version.
    pub(crate) fn decode(encoded: &[u8]) -> Result<Self, FrameError> {
        let mut bytes = encoded;
        if bytes.len() != OFFER_SIZE {
            return Err(FrameError::Length { length: bytes.len() });
        }
        let _version = bytes.get_u16_le();
        let shares = bytes.get_u16_le();
        let (slots, lines) = (bytes.get_u32_le(), bytes.get_u32_le());
        let _reserved = bytes.get_u32_le();
        let arena = bytes.get_u64_le();
        let address = bytes.get_u64_le();
        let mut content = [0; Probe::LENGTH];
        bytes.copy_to_slice(&mut content);
        let has = |share| shares & share != 0;
        let offer = Self {
            rings: match has(Self::RINGS) {
                true => Some(Layout::new(slots, lines).ok_or(FrameError::Header)?),
                false => None,
            },
            liveness: has(Self::LIVENESS),
            bells: has(Self::BELLS),
            memory: has(Self::BOARD).then_some(MemoryOffer {
                arena_length: arena,
                probe: (address != 0).then_some(Probe { address, content }),
            }),
        };
        // Of another version, or with something in fields that are not used.
        if offer.encode() != encoded {
            return Err(FrameError::Header);
        }
        Ok(offer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offers() -> impl Strategy<Value = Offer> {
        (
            any::<Option<(u8, u8)>>(),
            any::<[bool; 2]>(),
            any::<Option<(u64, Option<(u64, [u8; Probe::LENGTH])>)>>(),
        )
            .prop_map(|(rings, [liveness, bells], memory)| Offer {
                rings: rings.map(|(slots, lines)| Layout::new(4 << (slots % 14), 4 << (lines % 15)).unwrap()),
                liveness,
                bells,
                memory: memory.map(|(arena_length, probe)| MemoryOffer {
                    arena_length,
                    probe: probe
                        .filter(|&(address, _)| address != 0)
                        .map(|(address, content)| Probe { address, content }),
                }),
            })
    }

    proptest! {
        /// An offer is understood as it was meant, and no change of a single byte is taken for the same offer.
        #[test]
        fn offers_are_understood(offer in offers(), at in 0..OFFER_SIZE, change in 1u8..) {
            let mut bytes = offer.encode();
            prop_assert_eq!(Offer::decode(&bytes), Ok(offer));
            prop_assert!(offer.descriptors() <= DESCRIPTORS_MAX);
            bytes[at] ^= change;
            prop_assert_ne!(Offer::decode(&bytes), Ok(offer));
        }

        /// Any bytes are an offer that says just these bytes, or an error.
        #[test]
        fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(offer) = Offer::decode(&bytes) {
                prop_assert_eq!(&offer.encode()[..], &bytes[..]);
            }
        }
    }
}
