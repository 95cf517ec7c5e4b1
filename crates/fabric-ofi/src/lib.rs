//! Endpoints over [libfabric](https://ofiwg.github.io/libfabric), which is loaded when it is asked for: [`bind`].
//!
//! A [`Transports::external`](ropewalk_fabric::Transports::external) of `ofi:PROVIDER` asks for it, with libfabric's
//! name of one of its providers. Users of `ropewalk` and `ropewalk-rpc` switch on the feature `ofi`, and need not call
//! this crate.
//!
//! # Examples
//! ```
//! use ropewalk_fabric::{EndpointOptions, Identity, JobKey, Role};
//! use ropewalk_names::{Incarnation, JobId, Rank};
//!
//! let identity = Identity { role: Role::Rank, rank: Rank(0), incarnation: Incarnation(0) };
//! let mut options = EndpointOptions::new(JobId([7; 16]), JobKey::generate()?, identity);
//! options.transports = "ofi:tcp;ofi_rxm".parse()?;
//! match ropewalk_fabric_ofi::bind(options) {
//!     Ok(endpoint) => assert_eq!(endpoint.address().provider(), "ofi"),
//!     Err(error) => eprintln!("this host has no libfabric with that provider: {error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ropewalk_fabric::{BindError, Endpoint, EndpointOptions};

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod messaging;
mod provider;
pub mod sys;

use provider::OfiProvider;

/// As [`Endpoint::bind`], and over libfabric if the options ask for `ofi:PROVIDER`.
///
/// # Errors
/// As for that, and if libfabric or its provider cannot be had.
pub fn bind(options: EndpointOptions) -> Result<Endpoint, BindError> {
    Endpoint::bind_with(options, OfiProvider::NAME, OfiProvider::open)
}
