//! The providers that can carry calls on this host, found out by making endpoints.

use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{EndpointOptions, Identity, JobKey, Role, Transports};
use serde::Serialize;

/// One provider.
#[derive(Debug, Serialize)]
pub(super) struct ProviderInfo {
    pub(super) name: &'static str,
    pub(super) usable: bool,
    /// Whom it reaches.
    pub(super) reaches: &'static str,
    /// Why it is not usable, if it is not.
    pub(super) unavailable: Option<String>,
}

/// All that there are, whether usable or not, the fastest first.
pub(super) fn provider_infos() -> anyhow::Result<Vec<ProviderInfo>> {
    let key = JobKey::generate()?;
    // One endpoint for each, so that one that fails to be made takes no other with it.
    Ok(vec![
        ProviderInfo::of("loopback", "the same endpoint", None),
        ProviderInfo::of(
            "shm",
            "processes of this host",
            trouble("shm", &key, |transports| transports.shm = true),
        ),
        ProviderInfo::of(
            "unix",
            "processes of this host that have little to say",
            trouble("unix", &key, |transports| transports.unix = true),
        ),
        ProviderInfo::of(
            "tcp",
            "any host",
            trouble("tcp", &key, |transports| transports.tcp = true),
        ),
        ProviderInfo::of(
            "ofi",
            "hosts on a fabric that libfabric knows",
            trouble("ofi", &key, |transports| {
                transports.shm = true;
                transports.external = Some("ofi:tcp;ofi_rxm".to_owned());
            }),
        ),
    ])
}

impl ProviderInfo {
    fn of(name: &'static str, reaches: &'static str, unavailable: Option<String>) -> Self {
        Self {
            name,
            usable: unavailable.is_none(),
            reaches,
            unavailable,
        }
    }
}

/// Why an endpoint cannot be made with this provider alone, if it cannot.
fn trouble(name: &str, key: &JobKey, choose: impl FnOnce(&mut Transports)) -> Option<String> {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId(*b"ropewalk info  1"), key.clone(), identity);
    options.transports = Transports {
        tcp: false,
        shm: false,
        ..Transports::default()
    };
    choose(&mut options.transports);
    match ropewalk_rpc::bind(options) {
        Ok(endpoint) => {
            let told = endpoint.providers().iter().find(|status| status.name == name);
            told.map_or(Some("this build does not have it".to_owned()), |status| {
                status.unavailable.clone()
            })
        }
        Err(error) => Some(causes(&error)),
    }
}

/// The error and what it comes from, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
