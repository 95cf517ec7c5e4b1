//! Starting on many hosts, which are network namespaces behind a bridge.

use std::ffi::OsString;

use super::{Arguments, medians};
use crate::network::Network;

pub(super) fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let network = Network::new(arguments.hosts)?;
    println!("| on so many hosts, /bin/true | ropewalk, ms | Hydra, ms | ropewalk / Hydra |");
    println!("|---|---|---|---|");
    let mut counts: Vec<u8> = [1, 4, 16, 64]
        .into_iter()
        .filter(|count| *count < arguments.hosts)
        .collect();
    counts.push(arguments.hosts);
    for count in counts {
        let (ours, hydra) = medians(arguments.repetitions, |manager| {
            let mut words = network.options(manager, count);
            words.extend(["-ppn", "1", "-n", &count.to_string(), "/bin/true"].map(OsString::from));
            words
        })?;
        println!(
            "| {count} | {ours:.0} | {hydra:.0} | {:.2} |",
            ours / hydra
        );
    }
    Ok(())
}
