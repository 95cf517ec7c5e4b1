//! The providers that carry the calls.

use std::{fmt, str::FromStr};

use anyhow::Context;
use ropewalk_rpc::{Buffer, EndpointOptions, Engine, PeerId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A choice of the provider that carries the calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Provider {
    /// The provider that the endpoints choose.
    Auto,
    /// This provider of libfabric's.
    Ofi(String),
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
    /// TCP, encrypted.
    TcpEncrypted,
}

impl Provider {
    /// The default provider of libfabric: it is there on every host.
    const OFI_DEFAULT: &str = "tcp;ofi_rxm";

    /// Restricts an endpoint to this provider.
    pub(super) fn choose(&self, options: &mut EndpointOptions) {
        options.encrypt = *self == Self::TcpEncrypted;
        let transports = &mut options.transports;
        transports.tcp = matches!(self, Self::Auto | Self::Tcp | Self::TcpEncrypted);
        transports.shm = matches!(self, Self::Auto | Self::Shm);
        transports.external = match self {
            Self::Ofi(name) => Some(format!("ofi:{name}")),
            _ => None,
        };
    }

    /// Memory in which peers on the same host can read for themselves, where there is such.
    pub(super) fn allocate(engine: &mut Engine, length: usize) -> Buffer {
        engine.allocate(length)
    }

    /// How many connections one process may hold without taking all memory.
    pub(super) fn connections_max(&self) -> u32 {
        match self {
            // Each endpoint takes tens of megabytes at libfabric.
            Self::Ofi(_) => 30,
            Self::Auto | Self::Shm | Self::Tcp | Self::TcpEncrypted => u32::MAX,
        }
    }

    /// The name of the provider that carries the calls to a target that has been called.
    pub(super) fn used(&self, engine: &Engine, target: PeerId) -> anyhow::Result<String> {
        let used = engine.provider_of(target).context("there is no connection")?;
        Ok(match self {
            Self::Ofi(_) | Self::TcpEncrypted => self.to_string(),
            Self::Auto | Self::Shm | Self::Tcp => used.to_owned(),
        })
    }
}

/// A name that is none of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is one of auto, ofi, ofi:NAME, shm, tcp and tcp-encrypted")]
pub(crate) struct UnknownProvider;

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        match (text, text.split_once(':')) {
            ("auto", _) => Ok(Self::Auto),
            ("ofi", _) => Ok(Self::Ofi(Self::OFI_DEFAULT.to_owned())),
            ("shm", _) => Ok(Self::Shm),
            ("tcp", _) => Ok(Self::Tcp),
            ("tcp-encrypted", _) => Ok(Self::TcpEncrypted),
            (_, Some(("ofi", name))) => Ok(Self::Ofi(name.to_owned())),
            _ => Err(UnknownProvider),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Ofi(name) => write!(f, "ofi:{name}"),
            Self::Shm => f.write_str("shm"),
            Self::Tcp => f.write_str("tcp"),
            Self::TcpEncrypted => f.write_str("tcp-encrypted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider is read as it is written, and what is none is refused with what there is.
    #[test]
    fn providers_have_names() {
        for name in [
            "auto",
            "ofi:verbs",
            "ofi:tcp;ofi_rxm",
            "shm",
            "tcp",
            "tcp-encrypted",
        ] {
            assert_eq!(name.parse::<Provider>().unwrap().to_string(), name);
        }
        assert_eq!("ofi".parse(), "ofi:tcp;ofi_rxm".parse::<Provider>());
        assert!("udp".parse::<Provider>().unwrap_err().to_string().contains("shm"));
    }
}
