//! What an endpoint is made with.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ropewalk_group::JobId;

use crate::{Identity, JobKey, Limits};

/// What an endpoint needs to know to be made.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The job; processes of another one are refused.
    pub job: JobId,
    /// The job's secret, by which processes prove that they belong to it.
    pub key: JobKey,
    /// Who this process is.
    pub identity: Identity,
    /// The address and port to listen on; port 0 lets the system choose.
    pub bind: SocketAddr,
    /// The maxima.
    pub limits: Limits,
}

impl EndpointOptions {
    /// Options for an endpoint on a port of the system's choice on the loopback interface, with the default
    /// limits.
    pub fn new(job: JobId, key: JobKey, identity: Identity) -> Self {
        Self {
            job,
            key,
            identity,
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            limits: Limits::default(),
        }
    }
}
