//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the
//! parser.

use bytes::Bytes;

use crate::wire::{Reply, RequestHeader};

/// Decodes a request and a reply.
pub fn messages(bytes: &[u8]) {
    if let Some((_, input)) = RequestHeader::decode(Bytes::copy_from_slice(bytes)) {
        assert!(input.len() < bytes.len(), "the input is what follows the header");
    }
    drop(Reply::<(String, Vec<u64>)>::decode(bytes));
}
