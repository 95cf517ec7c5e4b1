//! Texts in the server's own words.

use bstr::BString;

/// Words that any client can read, even if they hold a name that a client gave: in one piece, because "a
/// token without `=` in a RESPONSE makes the 4.0.2 client fail to parse"; without a `\`, which newer clients
/// take for an escape; and short, because clients refuse a message with a long value as a whole.
pub(super) fn words(text: impl AsRef<[u8]>) -> BString {
    let text = text.as_ref().iter().take(SIZE_MAX);
    let plain = text.map(|&byte| match byte {
        b'\\' => b'_',
        byte if byte.is_ascii_graphic() => byte,
        _ => b'_',
    });
    plain.collect::<Vec<_>>().into()
}

/// Leaves room in a line for all else that an answer says.
const SIZE_MAX: usize = 512;
