//! Which ranks run where, in a line for each host (`-print-rank-map`).

use std::io::{self, Write};

use ropewalk_launch::Launcher;
use ropewalk_names::Rank;

/// Writes the lines to standard output, before any of the ranks'.
pub(super) fn print(launcher: &Launcher, ranks: u32) {
    // Without a reader nobody wants it.
    let _ = io::stdout().write_all(lines((0..ranks).map(|rank| launcher.host_of(Rank(rank)))).as_bytes());
}

/// As older Hydras write them: the host, then its ranks.
fn lines<'a>(hosts: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut map: Vec<(&str, Vec<String>)> = Vec::new();
    for (rank, host) in hosts.enumerate() {
        let Some(host) = host else {
            continue;
        };
        match map.iter_mut().find(|(name, _)| *name == host) {
            Some((_, ranks)) => ranks.push(rank.to_string()),
            None => map.push((host, vec![rank.to_string()])),
        }
    }
    let lines = map
        .iter()
        .map(|(host, ranks)| format!("({host}:{})\n", ranks.join(",")));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host has one line, wherever its ranks are among the others.
    #[test]
    fn each_host_has_a_line() {
        let hosts = ["a", "a", "b", "a"].map(Some);
        assert_eq!(lines(hosts.into_iter()), "(a:0,1,3)\n(b:2)\n");
    }
}
