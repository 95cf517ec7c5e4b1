//! Which rank runs on which host, as a list says.

use core::str::FromStr;

use ropewalk_names::Rank;
use thiserror::Error;

use super::PlacementError;

/// The host of each rank, as `mpiexec` of MPICH 5 has it in `-rankmap`.
///
/// ```
/// use ropewalk_launch_core::RankMap;
///
/// let map: RankMap = "2,(0,2,3)".parse()?;
/// assert_eq!(map.hosts().collect::<Vec<_>>(), [2, 0, 0, 0, 1, 1, 1]);
/// # Ok::<_, ropewalk_launch_core::RankMapError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMap {
    blocks: Vec<Block>,
}

/// Hosts in a row, with as many ranks each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: u32,
    hosts: u32,
    ranks: u32,
}

/// Why text is no [`RankMap`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{entry:?} says no host: expected numbers of hosts, from 0 on, one for each rank, or (FIRST,HOSTS,RANKS) for \
     hosts in a row with so many ranks each, with commas between them"
)]
pub struct RankMapError {
    /// The entry that is not understood.
    pub entry: String,
}

impl RankMap {
    /// The host of each rank by its number: 0 is the first of a job's, and those that are named again do not count.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + Clone {
        self.blocks.iter().flat_map(|block| {
            let hosts = block.first..block.first + block.hosts;
            hosts.flat_map(|host| core::iter::repeat_n(host, block.ranks as usize))
        })
    }

    /// How many ranks it has a host for.
    pub fn ranks(&self) -> u64 {
        self.blocks
            .iter()
            .map(|block| u64::from(block.hosts) * u64::from(block.ranks))
            .fold(0, u64::saturating_add)
    }

    /// The host of each of so many ranks, if it has one for each and there are so many hosts.
    pub(super) fn of(&self, ranks: u32, hosts: usize) -> Result<impl Iterator<Item = usize>, PlacementError> {
        let mapped = self.ranks();
        if mapped < u64::from(ranks) {
            return Err(PlacementError::RankMapTooShort { ranks, mapped });
        }
        let own = self.hosts().map(|host| host as usize).take(ranks as usize);
        for (rank, host) in (0..ranks).map(Rank).zip(own.clone()) {
            if host >= hosts {
                return Err(PlacementError::NoSuchHost { rank, host, hosts });
            }
        }
        Ok(own)
    }
}

impl FromStr for RankMap {
    type Err = RankMapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut blocks = Vec::new();
        let mut rest = text;
        loop {
            // Commas are inside of blocks too.
            let behind_block = rest.starts_with('(').then(|| rest.find(')')).flatten();
            let from = behind_block.unwrap_or(0);
            let (entry, more) = match rest[from..].find(',') {
                Some(at) => (&rest[..from + at], Some(&rest[from + at + 1..])),
                None => (rest, None),
            };
            blocks.push(Block::parse(entry).ok_or_else(|| RankMapError {
                entry: entry.to_owned(),
            })?);
            match more {
                Some(more) => rest = more,
                None => return Ok(Self { blocks }),
            }
        }
    }
}

impl Block {
    fn parse(text: &str) -> Option<Self> {
        let Some(inside) = text.strip_prefix('(') else {
            let first = text.parse().ok().filter(|first| *first < u32::MAX)?;
            return Some(Self {
                first,
                hosts: 1,
                ranks: 1,
            });
        };
        let mut numbers = inside
            .strip_suffix(')')?
            .split(',')
            .map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let block = Self {
            first: next()?,
            hosts: next()?,
            ranks: next()?,
        };
        let is_whole = numbers.next().is_none() && block.hosts > 0 && block.ranks > 0;
        (is_whole && block.first.checked_add(block.hosts).is_some()).then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<u32> {
        text.parse::<RankMap>().unwrap().hosts().take(8).collect()
    }

    /// "1,1,2,2 puts rank 0 and 1 on node 1, rank 2 and 3 on node 2"; "(start_id, num_nodes, num_ranks), for
    /// example (1,2,2) describes the same rankmap".
    #[test]
    fn maps_are_read_as_hydra_has_them() {
        assert_eq!(hosts("1,1,2,2"), [1, 1, 2, 2]);
        assert_eq!(hosts("(1,2,2)"), [1, 1, 2, 2]);
        assert_eq!(hosts("5,(0,2,1),(3,1,2),0"), [5, 0, 1, 3, 3, 0]);
        let most = "(0,4294967295,4294967295),0".parse::<RankMap>().unwrap();
        assert_eq!(
            most.hosts().nth(1 << 20),
            Some(0),
            "what nobody asks for takes no time"
        );
        assert!(most.ranks() > 1 << 63);
    }

    /// An entry that is wrong is named.
    #[test]
    fn what_is_no_map_is_refused() {
        for (text, wrong) in [
            ("", ""),
            ("0,,1", ""),
            ("0,b", "b"),
            ("0-1", "0-1"),
            ("-1", "-1"),
            ("0,(1,2)", "(1,2)"),
            ("(1,2,3,4)", "(1,2,3,4)"),
            ("(1,2,3", "(1"),
            ("(1,2,3)4,5", "(1,2,3)4"),
            ("(1,0,3)", "(1,0,3)"),
            ("(1,1,0)", "(1,1,0)"),
            ("(1,4294967295,1)", "(1,4294967295,1)"),
            ("4294967295", "4294967295"),
            ("@file", "@file"),
        ] {
            let entry = wrong.to_owned();
            assert_eq!(text.parse::<RankMap>(), Err(RankMapError { entry }), "{text}");
        }
    }

    /// Each rank has a host that there is; what a map has for more ranks nobody needs.
    #[test]
    fn maps_are_for_all_ranks() {
        let of = |text: &str, ranks, hosts| {
            let map: RankMap = text.parse().unwrap();
            map.of(ranks, hosts).map(Iterator::collect::<Vec<_>>)
        };
        assert_eq!(of("1,0,9", 2, 2), Ok(vec![1, 0]));
        assert_eq!(
            of("1,0", 3, 2),
            Err(PlacementError::RankMapTooShort { ranks: 3, mapped: 2 })
        );
        let (rank, host, hosts) = (Rank(1), 2, 2);
        assert_eq!(
            of("1,2,0", 3, 2),
            Err(PlacementError::NoSuchHost { rank, host, hosts })
        );
    }
}
