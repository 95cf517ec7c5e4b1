//! A key-value service: an example of procedures, and of bulk for what is too large for their arguments.

mod client;
mod protocol;
mod server;
mod store;

pub use client::{Client, ClientError};
pub use protocol::{Delete, Get, INLINE_MAX, List, ListPage, Listed, Put, PutRequest, Refusal, Value};
pub use server::serve;

use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{EndpointOptions, Identity, JobKey, Role};

/// Options for an endpoint of the service, server or client: whoever has the key belongs to it.
pub fn endpoint_options(key: JobKey) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(std::process::id()),
        incarnation: Incarnation(0),
    };
    EndpointOptions::new(JobId(*b"ropewalk example"), key, identity)
}
