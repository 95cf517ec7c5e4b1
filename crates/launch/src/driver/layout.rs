//! Where the ranks of a job will be.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use ropewalk_launch_core::JobSpec;

use super::{
    attempts::make_plan,
    interface,
    launch_error::{LaunchError, system},
};

/// Where the ranks of a job will be, for those that do something on its hosts before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The names of its hosts, each once, in their order; those without ranks too.
    pub hosts: Vec<String>,
    /// Which of them each rank will be on.
    pub host_of_rank: Vec<usize>,
    /// The address by which the other hosts reach this one.
    pub interface: IpAddr,
}

impl Layout {
    /// The layout of a job that is started as it is asked for.
    ///
    /// # Errors
    /// If its ranks cannot be placed, or the system does not tell its addresses.
    pub fn of(spec: &JobSpec) -> Result<Self, LaunchError> {
        let plan = make_plan(spec)?;
        let mut hosts: Vec<String> = Vec::new();
        let mut known = BTreeMap::new();
        let named = spec.hosts.iter().map(|host| host.name());
        for name in named.chain(plan.hosts.iter().map(|host| host.name.as_str())) {
            known.entry(name.to_owned()).or_insert_with(|| {
                hosts.push(name.to_owned());
                hosts.len() - 1
            });
        }
        let mut host_of_rank = vec![0; plan.size as usize];
        for host in &plan.hosts {
            for rank in host.ranks() {
                if let Some(place) = host_of_rank.get_mut(rank.0 as usize) {
                    *place = known[&host.name];
                }
            }
        }
        let interface = interface::of_launcher(&plan).map_err(|source| system("its addresses", source))?;
        Ok(Self {
            hosts,
            host_of_rank,
            interface: interface.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_launch_core::{Segment, hosts::parse_hosts};

    /// Each rank has a host, and a host without ranks is one all the same.
    #[test]
    fn ranks_and_hosts_are_told() {
        let program = Segment {
            ranks: 3,
            ..Segment::new("program")
        };
        let mut spec = JobSpec {
            hosts: parse_hosts("a:2,b,c,a").unwrap(),
            ..JobSpec::new("agent", program)
        };
        spec.network.interface = Some([127, 0, 0, 1].into());
        let layout = Layout::of(&spec).unwrap();
        assert_eq!(layout.hosts, ["a", "b", "c"]);
        assert_eq!(layout.host_of_rank, [0, 0, 1]);
    }
}
