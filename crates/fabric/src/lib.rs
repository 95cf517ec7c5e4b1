//! Moves bytes between the processes of a job.

mod agent_link;
mod buffer;
mod key;
pub mod memfd;
mod region;

pub use agent_link::{
    AgentLink, AgentLinkError, FromAgent, Held, HoldId, Identity, Progress, Role, SpanKind, ToAgent,
    TraceEvent, Welcome,
};
pub use buffer::Buffer;
pub use key::JobKey;
pub use region::{Address, Permission, RegionHandle};
