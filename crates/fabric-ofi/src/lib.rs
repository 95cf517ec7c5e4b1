//! Endpoints over [libfabric](https://ofiwg.github.io/libfabric), which is loaded when it is asked for: [`bind`].
//!
//! A [`Transports::external`](ropewalk_fabric::Transports::external) of `ofi:PROVIDER` asks for it, with libfabric's
//! name of one of its providers.

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
