//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the
//! parser.

use crate::{
    BulkHandle,
    reply::Reply,
    wire::{BatchedCall, Payload, Request},
};

/// Decodes a request and a reply, and what is inside them.
pub fn messages(bytes: &[u8]) {
    if let Some(request) = Request::decode(bytes) {
        match request.payload {
            Payload::Input(input) => assert!(input.len() < bytes.len(), "the input is behind a header"),
            Payload::Batch(mut calls) => {
                let mut left = calls.len();
                while let Some(call) = BatchedCall::decode_next(&mut calls) {
                    left -= BatchedCall::HEADER_SIZE + call.input.len();
                }
                assert!(calls.len() <= left, "calls do not overlap");
            }
            Payload::Cancel | Payload::Refused | Payload::RemoteInput(_) => {}
        }
    }
    match Reply::decode(bytes) {
        Some((Reply::Output(output), _)) => drop(postcard::from_bytes::<(String, Vec<u64>)>(output)),
        Some((Reply::Batch(replies), _)) => {
            let replies = replies.map(|(_, reply)| reply.len());
            assert!(replies.sum::<usize>() < bytes.len(), "replies do not overlap");
        }
        _ => {}
    }
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
