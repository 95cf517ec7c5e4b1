//! How an endpoint of libfabric's is opened.

use ropewalk_ofi_sys::LoadError;
use thiserror::Error;

use super::{OfiProvider, opening::hexadecimal, rdm::Rdm};
use crate::{Address, AddressError, EndpointOptions};

/// An endpoint of libfabric's that is open, but has nothing to say of itself yet.
pub(crate) struct OfiListener {
    pub(super) rdm: Rdm,
    pub(super) provider: String,
}

impl OfiListener {
    /// Opens an endpoint of the libfabric provider that the options name, and says by which address peers
    /// reach it.
    pub(crate) fn open(provider: &str, options: &EndpointOptions) -> Result<(Self, Address), OfiError> {
        let rdm = Rdm::open(provider, options.bind)?;
        let provider = provider.to_owned();
        let text = format!("{}://{provider}/{}", OfiProvider::NAME, hexadecimal(rdm.name()));
        let address = text.parse().map_err(|error: AddressError| OfiError::Call {
            call: "fi_getname",
            message: error.to_string(),
        })?;
        Ok((Self { rdm, provider }, address))
    }
}

/// Why there is no endpoint of libfabric's.
#[derive(Debug, Error)]
pub(crate) enum OfiError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("libfabric's {call} failed: {message}")]
    Call { call: &'static str, message: String },
    #[error("libfabric has no provider {provider:?} for reliable messages in order here: {message}")]
    Unavailable { provider: String, message: String },
}
