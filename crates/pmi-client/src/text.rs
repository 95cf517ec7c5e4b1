//! Values of any kind over process managers that do not carry all of them.
//!
//! Hydra and Slurm lose `;`, PMI-1 cuts at spaces and newlines, and MPICH from 4.1 on takes `\` for an escape. What
//! is not plain travels as `%` and two digits; what is plain travels as it is, so that other clients can read it.

use std::borrow::Cow;

/// The text on the wire for the empty value, which not every server keeps.
const EMPTY: &[u8] = b"%_";

/// A value as it travels, to a process manager that keeps it whole or to another.
pub(super) fn to_wire(value: &[u8], keeps_whole: bool) -> Cow<'_, [u8]> {
    if value.is_empty() || value == EMPTY {
        return if value.is_empty() {
            EMPTY.into()
        } else {
            Cow::Borrowed(b"%25_")
        };
    }
    let travels = |index: usize, byte: u8| match byte {
        // What looks like an escape is escaped itself.
        b'%' => !is_escape(&value[index + 1..]),
        b'=' if !keeps_whole => index > 0,
        _ => is_plain(byte) || (keeps_whole && !matches!(byte, b'\n' | 0)),
    };
    if value
        .iter()
        .enumerate()
        .all(|(index, &byte)| travels(index, byte))
    {
        return value.into();
    }
    let mut wire = Vec::with_capacity(value.len() + 16);
    for (index, &byte) in value.iter().enumerate() {
        if travels(index, byte) {
            wire.push(byte);
        } else {
            wire.push(b'%');
            wire.push(DIGITS[usize::from(byte >> 4)]);
            wire.push(DIGITS[usize::from(byte & 15)]);
        }
    }
    wire.into()
}

/// The value that travelled. What [`to_wire`] would not have written is taken as it is: not all that is in a
/// key-value space was put by us.
pub(super) fn from_wire(wire: &[u8]) -> Cow<'_, [u8]> {
    if wire == EMPTY {
        return Cow::Borrowed(b"");
    }
    if !wire.contains(&b'%') {
        return wire.into();
    }
    let mut value = Vec::with_capacity(wire.len());
    let mut rest = wire;
    while let [first, tail @ ..] = rest {
        if *first == b'%'
            && let Some(byte) = escaped(tail)
        {
            value.push(byte);
            rest = &tail[2..];
        } else {
            value.push(*first);
            rest = tail;
        }
    }
    value.into()
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// The byte that the two digits behind a `%` stand for, if it is one that is escaped.
fn escaped(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else {
        return None;
    };
    let byte = digit(*high)? << 4 | digit(*low)?;
    (!is_plain(byte) || matches!(byte, b'=' | b'%')).then_some(byte)
}

/// Returns true if the bytes behind a `%` could be taken for the rest of an escape, whatever follows them on
/// the wire.
fn is_escape(following: &[u8]) -> bool {
    following.len() >= 2 && following[..2].iter().all(|&byte| digit(byte).is_some())
}

fn digit(byte: u8) -> Option<u8> {
    let digit = DIGITS.iter().position(|&digit| digit == byte)?;
    u8::try_from(digit).ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b';' | b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// "Never put `;`, space, `\n` or `=`-leading data in values": none of it travels, and plain values do as they are.
    #[test]
    fn only_plain_text_travels() {
        for (value, wire) in [
            ("a;b", "a%3Bb"),
            ("a b\n", "a%20b%0A"),
            ("100%", "100%"),
            ("%41", "%2541"),
            ("%%41%", "%%2541%"),
            ("=a=b", "%3Da=b"),
            ("", "%_"),
            ("%_", "%25_"),
            ("ä", "%C3%A4"),
            ("tcp://127.0.0.1:4711", "tcp://127.0.0.1:4711"),
            ("segments=3", "segments=3"),
        ] {
            assert_eq!(to_wire(value.as_bytes(), false), wire.as_bytes());
            assert_eq!(from_wire(wire.as_bytes()), value.as_bytes());
        }
        // What others put comes as they put it.
        for foreign in ["100%", "%41", "%zz", "a%_", "(vector,(0,1,2))"] {
            assert_eq!(from_wire(foreign.as_bytes()), foreign.as_bytes());
        }
    }

    proptest! {
        /// Every value comes back as it went in.
        #[test]
        fn values_come_back(
            value in proptest::collection::vec(
                prop_oneof![
                    any::<u8>(), Just(b'%'), Just(b'_'), Just(b'='), Just(b' '), Just(b'2'), Just(b'5')
                ],
                0..40,
            ),
        ) {
            let wire = to_wire(&value, false).into_owned();
            prop_assert!(wire.iter().all(|byte| byte.is_ascii_graphic() && !b";\\".contains(byte)));
            prop_assert_eq!(&*from_wire(&wire), &value[..]);
            let wire = to_wire(&value, true).into_owned();
            prop_assert!(!wire.is_empty() && wire.iter().all(|byte| !b"\n\0".contains(byte)));
            prop_assert_eq!(&*from_wire(&wire), &value[..]);
        }
    }
}
