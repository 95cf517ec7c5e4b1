//! Large data: many pieces of memory shown as one range, moved whole or chunk by chunk.
#![allow(dead_code, reason = "the engine uses the rest next")]

mod handle;
mod checksum;
mod layout;
mod moving;
mod pieces;
mod pipeline;
mod wire;

pub use handle::{BulkHandle, BulkHandleError, BulkSegment};
pub use pipeline::{Amount, Pipeline};
