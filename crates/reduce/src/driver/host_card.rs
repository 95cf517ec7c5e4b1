//! On which of its addresses a rank listens in a job that no launcher of ours runs.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use ropewalk_fabric::{address_towards, interface_addresses};

use super::bootstrap::HostMark;

/// A host, as its ranks tell the others of it before they listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostCard {
    pub(super) mark: HostMark,
    networks: Vec<Network>,
}

/// An address of a host, and how many of its first bits are those of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Where a rank listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    At(IpAddr),
    /// At the address from which packets to this one go.
    Towards(IpAddr),
}

impl HostCard {
    /// More addresses than this are not told: a value of PMI is short.
    const NETWORKS_MAX: usize = 12;

    /// The card of this process's host, with the addresses of one interface or of all.
    pub(super) fn of_this_host(interface: Option<&str>) -> io::Result<Self> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Hosts may have the same name, and containers of one machine have networks of their own.
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let mark = HostMark::of(&format!("{name} {machine} {}", network.display()));
        let all = interface_addresses()?.into_iter();
        let told = all.filter(|found| match interface {
            Some(name) => found.interface == name,
            None => !found.address.is_loopback(),
        });
        let networks = told.map(|found| Network {
            address: found.address,
            prefix_bits: found.prefix_bits,
        });
        Ok(Self {
            mark,
            networks: networks.take(Self::NETWORKS_MAX).collect(),
        })
    }

    /// Says if the host has an address for others.
    pub(super) fn has_address(&self) -> bool {
        !self.networks.is_empty()
    }

    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.address == address)
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let differing_bits = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => u128::from(own.to_bits() ^ other.to_bits()) << 96,
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differing_bits.leading_zeros() >= u32::from(self.prefix_bits)
    }
}

/// The address on which a rank listens, of the cards of all ranks: the loopback interface's if all are on one host.
///
/// # Errors
/// If no way leads from this host to the others.
pub(super) fn listening_address(own: &HostCard, cards: &[HostCard]) -> io::Result<IpAddr> {
    match choose(own, cards) {
        None => Ok(Ipv4Addr::LOCALHOST.into()),
        Some(Place::At(address)) => Ok(address),
        Some(Place::Towards(other)) => address_towards(SocketAddr::new(other, ANY_PORT)),
    }
}

/// Takes the first network of the first host in which each host has an address, and no two the same one, as those of
/// bridges for containers are. If routers are between all of them, it is the way to another host that counts.
fn choose(own: &HostCard, cards: &[HostCard]) -> Option<Place> {
    let mut marks = BTreeSet::new();
    let hosts: Vec<&HostCard> = cards.iter().filter(|card| marks.insert(card.mark)).collect();
    let others = || hosts.iter().filter(|host| host.mark != own.mark);
    others().next()?;
    let is_of_one_host = |address| hosts.iter().filter(|host| host.has(address)).count() == 1;
    let address_in = |network: &Network, host: &HostCard| {
        let addresses = host.networks.iter().map(|its| its.address);
        let mut inside = addresses.filter(|address| network.contains(*address) && is_of_one_host(*address));
        inside.next()
    };
    let is_common = |network: &&Network| hosts.iter().all(|host| address_in(network, host).is_some());
    if let Some(common) = hosts[0].networks.iter().find(is_common) {
        return address_in(common, own).map(Place::At);
    }
    let mut reached = others()
        .flat_map(|host| &host.networks)
        .map(|network| network.address);
    reached
        .find(|address| is_of_one_host(*address))
        .map(Place::Towards)
}

impl fmt::Display for HostCard {
    /// Without blanks, `=` and `;`, which end values of PMI.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.mark.number())?;
        for Network { address, prefix_bits } in &self.networks {
            write!(f, ",{address}/{prefix_bits}")?;
        }
        Ok(())
    }
}

impl FromStr for HostCard {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(',');
        let mark = parts.next().and_then(|mark| u64::from_str_radix(mark, 16).ok());
        let networks = parts.take(Self::NETWORKS_MAX).map(|part| {
            let (address, prefix_bits) = part.split_once('/')?;
            Some(Network {
                address: address.parse().ok()?,
                prefix_bits: prefix_bits.parse().ok()?,
            })
        });
        let networks: Option<_> = networks.collect();
        match (mark, networks) {
            (Some(mark), Some(networks)) => Ok(Self {
                mark: HostMark::with_number(mark),
                networks,
            }),
            _ => Err(()),
        }
    }
}

/// The discard service's; nothing is sent to it.
const ANY_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cards(texts: &[&str]) -> Vec<HostCard> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn chosen(texts: &[&str]) -> Vec<Option<Place>> {
        let cards = cards(texts);
        cards.iter().map(|own| choose(own, &cards)).collect()
    }

    fn at(address: &str) -> Option<Place> {
        Some(Place::At(address.parse().unwrap()))
    }

    /// Ranks of one host need no network, whatever it has.
    #[test]
    fn one_host_needs_no_network() {
        assert_eq!(chosen(&["1,10.0.0.1/8", "1,10.0.0.1/8"]), [None, None]);
        assert_eq!(chosen(&["1"]), [None]);
    }

    /// The first common network of the first host is taken by all: not the one of a bridge for containers, which is the
    /// same on each, nor one that a host lacks.
    #[test]
    fn the_first_common_network_is_taken() {
        let found = chosen(&[
            "1,172.17.0.1/16,10.1.0.1/16,192.168.3.1/24,10.2.0.1/16",
            "1,172.17.0.1/16,10.1.0.1/16,192.168.3.1/24,10.2.0.1/16",
            "2,10.2.7.2/16,192.168.3.2/24,172.17.0.1/16",
            "3,192.168.3.3/24,172.17.0.1/16,10.2.0.3/16,10.1.0.3/16",
        ]);
        let expected = ["192.168.3.1", "192.168.3.1", "192.168.3.2", "192.168.3.3"];
        assert_eq!(found, expected.map(at));
    }

    /// Networks of IPv6 are as good, and of no use to hosts that have others.
    #[test]
    fn networks_may_be_of_ipv6() {
        let found = chosen(&["1,10.0.0.1/8,fd00::1/64", "2,fd00::2/64"]);
        assert_eq!(found, ["fd00::1", "fd00::2"].map(at));
    }

    /// Where each host is in a network of its own, the way to the first address of another one counts that is not also
    /// an own one.
    #[test]
    fn the_way_to_others_counts_where_routers_are_between() {
        let found = chosen(&["1,172.17.0.1/16,10.0.1.1/32", "2,172.17.0.1/16,10.0.2.1/32"]);
        let towards = |address: &str| Some(Place::Towards(address.parse().unwrap()));
        assert_eq!(found, [towards("10.0.2.1"), towards("10.0.1.1")]);
    }

    /// The own card is understood.
    #[test]
    fn the_own_card_is_understood() {
        let card = HostCard::of_this_host(Some("lo")).unwrap();
        assert!(card.has_address());
        assert_eq!(card.to_string().parse(), Ok(card.clone()));
        assert!(
            !HostCard::of_this_host(Some("no-such-interface"))
                .unwrap()
                .has_address()
        );
    }

    proptest! {
        /// Whatever the text of another rank is: nothing panics, and what is understood is few addresses.
        #[test]
        fn any_text_is_harmless(text in "[0-9a-f]{0,17}(,([0-9.]{0,20}|[0-9a-f:]{0,12})/[0-9]{0,4}){0,20}") {
            if let Ok(card) = text.parse::<HostCard>() {
                prop_assert!(card.networks.len() <= HostCard::NETWORKS_MAX);
                let own = HostCard { mark: HostMark::of("here"), networks: card.networks.clone() };
                choose(&own, &[own.clone(), card]);
            }
        }
    }
}
