//! The hosts of a job, and their use.

use std::cmp::Reverse;

use anyhow::bail;
use ropewalk_launch::{hosts::HostSlots, is_own_host};

use super::{
    Surroundings,
    given::Given,
    resources::{self, ResourceManager},
};

/// The hosts of the job, as options and variables say it.
#[derive(Default)]
pub(super) struct Hosts {
    pub(super) named: Vec<HostSlots>,
    pub(super) manager: Option<ResourceManager>,
    pub(super) skips_own: bool,
    pub(super) order: Option<Order>,
}

/// The order in which hosts are used, by their slots.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Ascending,
    Descending,
}

impl Hosts {
    /// Asks the batch system for hosts if nobody names any. Returns which batch system has given the hosts, also if
    /// they are named besides.
    pub(super) fn find(&mut self, around: &Surroundings<'_>) -> anyhow::Result<Option<ResourceManager>> {
        if !self.named.is_empty() {
            // Without one, or with one that cannot be read, the hosts are those that are named all the same.
            let Ok(Some((manager, given))) = resources::find(self.manager, around) else {
                return Ok(None);
            };
            let is_given = |host: &HostSlots| given.iter().any(|given| given.name() == host.name());
            return Ok(self.named.iter().all(is_given).then_some(manager));
        }
        let found = resources::find(self.manager, around)?;
        Ok(found.map(|(manager, hosts)| {
            self.named = hosts;
            manager
        }))
    }

    /// The hosts that are used, in their order.
    pub(super) fn finish(mut self) -> anyhow::Result<Vec<HostSlots>> {
        if self.skips_own {
            self.named.retain(|host| !is_own_host(host.name()));
            if self.named.is_empty() {
                bail!(
                    "option -skip-launch-node leaves no host to run on; name others with -hosts H1,H2.. or -f FILE"
                );
            }
        }
        match self.order {
            Some(Order::Ascending) => self.named.sort_by_key(|host| host.slots),
            Some(Order::Descending) => self.named.sort_by_key(|host| Reverse(host.slots)),
            None => {}
        }
        Ok(self.named)
    }
}

/// The value of `-order-nodes`.
pub(super) fn order(given: &mut Given<'_>) -> anyhow::Result<Order> {
    let text = given.text()?;
    match text.to_ascii_lowercase().as_str() {
        "ascending" | "up" => Ok(Order::Ascending),
        "descending" | "down" => Ok(Order::Descending),
        _ => Err(given.wants("ascending or descending", &text)),
    }
}

/// The value of `-gpus-per-proc`.
pub(super) fn gpus_per_rank(given: &mut Given<'_>) -> anyhow::Result<Option<u16>> {
    let text = given.text()?;
    match text.parse() {
        _ if text.eq_ignore_ascii_case("auto") => Ok(None),
        Ok(count) if count <= GPUS_MAX => Ok(Some(count)),
        _ => Err(given.wants(&format!("auto or a number up to {GPUS_MAX}"), &text)),
    }
}

/// The value of `-membind`.
pub(super) fn membind(given: &mut Given<'_>) -> anyhow::Result<()> {
    match given.text()?.as_str() {
        // Linux does this by itself.
        "none" | "firsttouch" => Ok(()),
        other => bail!(
            "{given} {other} is not there: memory is where it is touched first; -bind-to numa keeps each rank at its \
             memory, and numactl(8) before the program places it otherwise"
        ),
    }
}

/// More graphics processors than any host has.
const GPUS_MAX: u16 = 1024;
