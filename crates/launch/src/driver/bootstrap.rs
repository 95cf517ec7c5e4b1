//! How an agent learns of its job.

use ropewalk_fabric::JobKey;
use ropewalk_launch_core::tree::NodeId;
use ropewalk_names::Address;
use serde::{Deserialize, Serialize};

/// The first message to an agent: it reads it from its standard input, behind a 32-bit little-endian length. An agent
/// that is a fork of the launcher knows all of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bootstrap {
    /// The job's secret; it stands in no arguments, variables or files.
    pub(super) key: JobKey,
    /// The agent's place in the tree.
    pub(super) node: NodeId,
    /// Where the node above listens.
    pub(super) parent: Address,
    /// Where the launcher listens, for when the node above is lost.
    pub(super) launcher: Address,
    /// A [`Plan`](ropewalk_launch_core::protocol::Plan), which is handed on as it is.
    pub(super) plan: Vec<u8>,
}
