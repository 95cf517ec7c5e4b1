//! The description of exposed memory that one process gives to another.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where an endpoint is reached: a provider and its own form of address, written `tcp://127.0.0.1:4711`.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(Arc<str>);

impl Address {
    /// The longest address, in bytes.
    pub const LENGTH_MAX: usize = 256;

    /// The provider's name, before `://`.
    pub fn provider(&self) -> &str {
        self.0.split_once("://").map_or("", |(provider, _)| provider)
    }

    /// The part behind `://`, which the provider interprets.
    pub fn location(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, location)| location)
    }

    /// Returns true if both are clones of one address, which is cheaper than to compare their text.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        match text.split_once("://") {
            _ if text.len() > Self::LENGTH_MAX => Err(AddressError::TooLong { length: text.len() }),
            Some((provider, location)) if !provider.is_empty() && !location.is_empty() => {
                Ok(Self(text.into()))
            }
            _ => Err(AddressError::Malformed { text }),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        (*address.0).to_owned()
    }
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It lacks the provider, `://`, or what follows.
    #[error("{text:?} is no address: expected PROVIDER://LOCATION, as in tcp://127.0.0.1:4711")]
    Malformed {
        /// The text.
        text: String,
    },
    /// It is longer than [`Address::LENGTH_MAX`].
    #[error(
        "an address of {length} bytes is longer than the longest, {}",
        Address::LENGTH_MAX
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

/// The right to read or write a region of some endpoint's memory; serialisable, and so handed to others.
///
/// Possession is the permission: the token is 128 random bits that only the exposing endpoint knows
/// otherwise. The right ends when the region is withdrawn.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionHandle {
    /// The endpoint that serves the region.
    pub address: Address,
    /// Which of its regions.
    pub region: u64,
    /// The proof of permission.
    pub token: u128,
    /// The region's length in bytes.
    pub length: u64,
    /// True if the region may be written too.
    pub writable: bool,
}

impl fmt::Debug for RegionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionHandle")
            .field("address", &self.address)
            .field("region", &self.region)
            .field("length", &self.length)
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address is a provider and a location, and comes back from its text; anything else is refused.
    #[test]
    fn addresses_are_checked() {
        let address: Address = "tcp://127.0.0.1:4711".parse().unwrap();
        assert_eq!(
            (address.provider(), address.location()),
            ("tcp", "127.0.0.1:4711")
        );
        assert_eq!(address.to_string().parse(), Ok(address));
        for text in ["", "tcp", "tcp://", "://127.0.0.1:1", "127.0.0.1:4711"] {
            let malformed = AddressError::Malformed {
                text: text.to_owned(),
            };
            assert_eq!(text.parse::<Address>(), Err(malformed));
        }
        let length = Address::LENGTH_MAX + 1;
        let long = format!("tcp://{}", "1".repeat(length - 6));
        assert_eq!(long.parse::<Address>(), Err(AddressError::TooLong { length }));
        let encoded = postcard::to_allocvec("no address").unwrap();
        assert!(postcard::from_bytes::<Address>(&encoded).is_err());
    }

    /// A handle survives being passed on, and does not show its token to whoever prints it.
    #[test]
    fn handles_are_passed_on_but_not_printed() {
        let handle = RegionHandle {
            address: "tcp://127.0.0.1:4711".parse().unwrap(),
            region: 3,
            token: 0x1234_5678_9abc_def0,
            length: 10,
            writable: true,
        };
        let encoded = postcard::to_allocvec(&handle).unwrap();
        assert!(postcard::from_bytes::<RegionHandle>(&encoded).unwrap() == handle);
        let printed = format!("{handle:?}");
        assert!(!printed.contains("token") && !printed.contains(&handle.token.to_string()));
    }
}
