//! Large data: many pieces of memory shown as one range, moved whole or chunk by chunk.

mod checksum;
mod flow;
mod handle;
mod layout;
mod moving;
mod pieces;
mod pipeline;
mod pulled_chunks;
mod pushed_chunks;
mod wire;

pub use handle::{BulkHandle, BulkHandleError, BulkSegment};
pub use pipeline::{Amount, Pipeline};
pub use pulled_chunks::{Chunk, PulledChunks};
pub use pushed_chunks::{ChunkToFill, PushedChunks};

pub(crate) use handle::Segment;
pub(crate) use layout::groups;
pub(crate) use moving::{BulkId, Moving};
pub(crate) use pieces::Piece;
pub(crate) use pulled_chunks::{Attention, ChunkQueue, PipelineId};
pub(crate) use pushed_chunks::{PushQueue, PushWork, sent};
