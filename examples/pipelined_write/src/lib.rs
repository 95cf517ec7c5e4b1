//! Remote writes to files, pulled by the target chunk by chunk: the example of the Mercury paper, section IV-A.

mod origin;
mod target;

pub use origin::{expose_file, expose_pattern, write};
pub use target::{WriteServer, WriteServerError};

use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{Amount, BulkHandle, EndpointOptions, Fault, Identity, JobKey, Pipeline, Procedure, Role};
use serde::{Deserialize, Serialize};

/// Writes exposed data to a file of the target.
pub struct Write;

impl Procedure for Write {
    const NAME: &'static str = "pipelined_write.write";
    type Input = WriteRequest;
    type Output = Written;
}

/// The file and the data of a [`Write`], and how the data is pulled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteRequest {
    /// The file's name in the target's folder.
    pub name: String,
    /// The data.
    pub data: BulkHandle,
    /// How it is pulled.
    pub stages: Stages,
}

/// How the data is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stages {
    /// All of it before any of it is written.
    AtOnce,
    /// Chunk by chunk; what is not given is chosen.
    Pipelined {
        /// How many chunks are in progress.
        depth: Option<usize>,
        /// How long a chunk is, in bytes.
        chunk: Option<usize>,
    },
}

/// The result of a [`Write`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// How many bytes were written.
    pub bytes: u64,
    /// How long that took, in seconds.
    pub seconds: f64,
    /// The depth and the chunk at the end.
    pub chosen: Option<(usize, usize)>,
}

impl Stages {
    /// As the pipeline that it means; `None` if it means none.
    fn pipeline(self) -> Option<Pipeline> {
        let amount = |number: Option<usize>| number.map_or(Amount::Auto, Amount::Exactly);
        match self {
            Self::AtOnce => None,
            Self::Pipelined { depth, chunk } => Some(Pipeline {
                depth: amount(depth),
                chunk: amount(chunk),
            }),
        }
    }
}

/// Options for an endpoint of either side: whoever has the key belongs to it.
pub fn endpoint_options(key: JobKey) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(std::process::id()),
        incarnation: Incarnation(0),
    };
    EndpointOptions::new(JobId(*b"pipelined write!"), key, identity)
}

fn fault(error: &dyn std::error::Error) -> Fault {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Fault::new(message)
}
