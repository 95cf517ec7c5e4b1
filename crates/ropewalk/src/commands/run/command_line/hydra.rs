//! The options and variables of Hydra's that say what it does itself: what has a meaning here is heeded, what only tunes
//! Hydra is named and passed over, and what would make another job is refused.

use std::{
    net::{IpAddr, ToSocketAddrs},
    path::PathBuf,
};

use anyhow::{Context, bail};
use ropewalk::launch::{NameServerAccess, RankNetwork, hosts::HostSlots, is_own_host};

use super::{Surroundings, addresses::interface_address, resources::ResourceManager, words::Words};
use crate::commands::nameserver::{default_key_file, server_address};

/// What such options say.
#[derive(Default)]
pub(super) struct Hydra {
    pub(super) manager: Option<ResourceManager>,
    pub(super) forwards_x: Option<bool>,
    pub(super) gpus_per_rank: Option<u16>,
    pub(super) prints_rank_map: bool,
    localhost: Option<String>,
    skips_own_host: bool,
    order: Option<Order>,
    propagates_name: Option<bool>,
    name_server: Option<String>,
    name_server_key: Option<PathBuf>,
    /// What was passed over, in sentences.
    pub(super) notices: Vec<String>,
}

/// In which order hosts are used.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Descending,
}

/// More graphics processors than any host has.
const GPUS_MAX: u16 = 1024;

impl Hydra {
    /// Takes an option. Returns whether it is one of these.
    pub(super) fn option(&mut self, name: &str, words: &mut Words) -> anyhow::Result<bool> {
        match name {
            "rmk" => self.manager = Some(ResourceManager::of(&words.text(name)?)?),
            "localhost" => self.localhost = Some(words.text(name)?),
            "skip-launch-node" => self.skips_own_host = true,
            "order-nodes" => {
                let order = words.text(name)?;
                self.order = Some(match order.to_ascii_lowercase().as_str() {
                    "ascending" | "up" => Order::Ascending,
                    "descending" | "down" => Order::Descending,
                    _ => bail!("option -order-nodes wants ascending or descending, not {order:?}"),
                });
            }
            "disable-hostname-propagation" => self.propagates_name = Some(false),
            "enable-hostname-propagation" => self.propagates_name = Some(true),
            "enable-x" => self.forwards_x = Some(true),
            "disable-x" => self.forwards_x = Some(false),
            "print-rank-map" => self.prints_rank_map = true,
            "gpus-per-proc" | "g" => {
                let text = words.text(name)?;
                self.gpus_per_rank = match text.parse() {
                    _ if text.eq_ignore_ascii_case("auto") => None,
                    Ok(count) if count <= GPUS_MAX => Some(count),
                    _ => bail!("option -{name} wants auto or a number up to {GPUS_MAX}, not {text:?}"),
                };
            }
            "membind" => match words.text(name)?.as_str() {
                // Which is what Linux does by itself.
                "none" | "firsttouch" => {}
                other => bail!(
                    "-membind {other} is not there: memory is where it is touched first; -bind-to numa keeps each rank at \
                     its memory, and numactl(8) before the program places it otherwise"
                ),
            },
            "nameserver" => self.name_server = Some(words.text(name)?),
            "nameserver-key" => self.name_server_key = Some(words.next(name)?.into()),
            "hybrid-hosts" => bail!(
                "-hybrid-hosts is not there: this executable must have the same path on all hosts; -wdir says where \
                 programs start"
            ),
            "demux" | "topolib" => {
                let value = words.text(name)?;
                self.notices.push(format!(
                    "option -{name} {value} tunes what only Hydra has; it is passed over"
                ));
            }
            "profile" | "pmi-port" => self.notices.push(format!(
                "option -{name} tunes what only Hydra has; it is passed over"
            )),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes what variables say where no option did. Returns whether much is to be told.
    pub(super) fn take_variables(&mut self, around: &Surroundings<'_>) -> anyhow::Result<bool> {
        let text = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
        if self.manager.is_none()
            && let Some(name) = text("HYDRA_RMK")
        {
            self.manager = Some(ResourceManager::of(&name).context("the variable HYDRA_RMK")?);
        }
        if self.propagates_name.is_none() {
            self.propagates_name = truth("HYDRA_HOSTNAME_PROPAGATION", text("HYDRA_HOSTNAME_PROPAGATION"))?;
        }
        if let Some(policy) = text("HYDRA_MEMBIND") {
            self.option("membind", &mut Words([policy.into()].into()))
                .context("the variable HYDRA_MEMBIND")?;
        }
        for name in PASSED_OVER {
            if text(name).is_some() {
                self.notices.push(format!(
                    "the variable {name} tunes what only Hydra has; it is passed over"
                ));
            }
        }
        for name in PORT_RANGES {
            if text(name).is_some() {
                self.notices.push(format!(
                    "the variable {name} limits the ports of MPICH's own connections only; the launcher and its agents \
                     listen where the system lets them"
                ));
            }
        }
        Ok(truth("HYDRA_DEBUG", text("HYDRA_DEBUG"))?.unwrap_or(false))
    }

    /// Leaves out hosts and puts them in order as was wanted.
    pub(super) fn arrange(&self, hosts: &mut Vec<HostSlots>) -> anyhow::Result<()> {
        if self.skips_own_host {
            hosts.retain(|host| !is_own_host(host.name()));
            if hosts.is_empty() {
                bail!(
                    "option -skip-launch-node leaves no host to run on; name others with -hosts H1,H2.. or -f FILE"
                );
            }
        }
        match self.order {
            Some(Order::Ascending) => hosts.sort_by_key(|host| host.slots),
            Some(Order::Descending) => hosts.sort_by_key(|host| std::cmp::Reverse(host.slots)),
            None => {}
        }
        Ok(())
    }

    /// The address under which this host is known to the others, if that was said.
    pub(super) fn own_address(&self) -> anyhow::Result<Option<IpAddr>> {
        let Some(name) = &self.localhost else {
            return Ok(None);
        };
        if let Ok(address) = interface_address(name) {
            return Ok(Some(address));
        }
        let addresses = (name.as_str(), 0).to_socket_addrs().with_context(|| {
            format!("option -localhost wants a name or address of this host, not {name:?}")
        })?;
        // Of several one of the older protocol, which all hosts speak.
        let address = addresses.map(|address| address.ip()).min_by_key(IpAddr::is_ipv6);
        Ok(address)
    }

    /// Where names that programs publish are kept, if not in their job.
    pub(super) fn name_server(&self, around: &Surroundings<'_>) -> anyhow::Result<Option<NameServerAccess>> {
        let Some(text) = &self.name_server else {
            if self.name_server_key.is_some() {
                bail!("option --nameserver-key goes with -nameserver HOST");
            }
            return Ok(None);
        };
        let path = self.name_server_key.clone();
        let path = path.or_else(|| default_key_file((around.variable)("HOME")));
        let path = path.context("option -nameserver needs --nameserver-key FILE where there is no HOME")?;
        let key = (around.read_key)(&path).with_context(|| {
            format!(
                "the key {} of the name server cannot be used (`ropewalk nameserver` makes it where it is started; jobs \
                 elsewhere need a copy, there or where --nameserver-key says)",
                path.display()
            )
        })?;
        let address = server_address(text).context("option -nameserver")?;
        if address.port() == 0 {
            bail!(
                "option -nameserver wants the port that the server has, not 0: it prints it when it starts"
            );
        }
        Ok(Some(NameServerAccess { address, key }))
    }

    /// What ranks are told about the network, if `interface` is what was said about that.
    pub(super) fn rank_network(&self, interface: Option<&str>) -> RankNetwork {
        match interface.filter(|text| text.parse::<IpAddr>().is_err()) {
            // Other hosts have other addresses, but their interfaces are called the same.
            Some(name) => RankNetwork::Interface(name.to_owned()),
            None if self.propagates_name == Some(false) => RankNetwork::Unsaid,
            None => RankNetwork::HostName,
        }
    }
}

/// A variable that says yes or no, in the words that Hydra takes for that.
fn truth(name: &str, text: Option<String>) -> anyhow::Result<Option<bool>> {
    match text.map(|text| text.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("1" | "yes" | "true" | "on") => Ok(Some(true)),
        Some("0" | "no" | "false" | "off") => Ok(Some(false)),
        Some(other) => bail!("the variable {name} wants 1 or 0, not {other:?}"),
    }
}

const PASSED_OVER: [&str; 11] = [
    "HYDRA_DEMUX",
    "HYDRA_LAUNCHER_AUTOFORK",
    "HYDRA_LAUNCHER_SSH_ENABLE_WARNINGS",
    "HYDRA_LAUNCHER_SSH_LIMIT",
    "HYDRA_LAUNCHER_SSH_LIMIT_TIME",
    "HYDRA_PROXY_RETRY_COUNT",
    "HYDRA_TOPOLIB",
    "HYDRA_TOPO_DEBUG",
    "HYDRA_USE_DDD",
    "HYDRA_USE_STRACE",
    "HYDRA_USE_VALGRIND",
];

const PORT_RANGES: [&str; 3] = [
    "MPIEXEC_PORT_RANGE",
    "MPIEXEC_PORTRANGE",
    "MPIR_CVAR_CH3_PORT_RANGE",
];
