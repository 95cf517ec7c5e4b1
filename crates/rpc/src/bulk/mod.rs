//! Large data: many pieces of memory shown as one range, moved whole or chunk by chunk.

mod checksum;
mod chunk_queue;
mod chunks;
mod flow;
mod handle;
mod layout;
mod moving;
mod pieces;
mod pipeline;
mod wire;

pub use chunks::{Chunk, ChunkToFill, PipelinedChunks, PulledChunks, PushedChunks};
pub use handle::{BulkHandle, BulkHandleError, BulkSegment};
pub use pipeline::{Amount, Pipeline};

pub(crate) use chunk_queue::{ChunkMove, ChunkQueue};
pub(crate) use chunks::{Attention, Pipe, PipelineId};
pub(crate) use handle::Segment;
pub(crate) use layout::groups;
pub(crate) use moving::{BulkId, Moving};
pub(crate) use pieces::Piece;
