//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the
//! parser.

use bytes::Bytes;

use crate::{
    BulkHandle,
    wire::{Reply, RequestHeader},
};

/// Decodes a request and a reply.
pub fn messages(bytes: &[u8]) {
    if let Some((_, input)) = RequestHeader::decode(Bytes::copy_from_slice(bytes)) {
        assert!(input.len() < bytes.len(), "the input is what follows the header");
    }
    drop(Reply::<(String, Vec<u64>)>::decode(bytes));
}

/// Decodes a bulk handle and uses it: whatever came, it shows as many bytes as its segments have, and passed on it
/// is the same.
pub fn bulk_handles(bytes: &[u8]) {
    let Ok(handle) = postcard::from_bytes::<BulkHandle>(bytes) else {
        return;
    };
    let lengths = handle.segments().map(|segment| segment.length);
    assert_eq!(
        handle.len(),
        lengths.sum::<u64>(),
        "its length is that of its segments"
    );
    let encoded = postcard::to_allocvec(&handle).expect("what was decoded can be encoded");
    assert!(
        postcard::from_bytes::<BulkHandle>(&encoded).as_ref() == Ok(&handle),
        "it is the same when it is passed on"
    );
    let middle = handle.len() / 2;
    let halves = [0..middle, middle..handle.len()].map(|half| handle.slice(half));
    let [Ok(first), Ok(second)] = halves else {
        panic!("both halves are inside");
    };
    assert_eq!(
        first.len() + second.len(),
        handle.len(),
        "the halves are all of it"
    );
}
