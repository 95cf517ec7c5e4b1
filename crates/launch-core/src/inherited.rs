//! Which variables of the launcher programs get, and what they are told about the network.

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};

/// Which variables of the launcher's environment the ranks of a program get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inherited {
    /// All but those by which an outer job tells the launcher who it is.
    #[default]
    All,
    /// Those with these names, if they are set.
    Only(Vec<OsString>),
}

impl Inherited {
    /// Returns true if the variable `name` is among them.
    pub(crate) fn includes(&self, name: &OsStr) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|known| known == name),
        }
    }
}

/// The network over which ranks are told to talk, in the variables that MPICH reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankNetwork {
    /// The name of their host as the list of hosts has it (`MPIR_CVAR_CH3_INTERFACE_HOSTNAME`).
    #[default]
    HostName,
    /// The name of an interface that each host has (`MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE`).
    Interface(String),
    /// Nothing: they find out themselves.
    Unsaid,
}
