//! Starting on many hosts, which are network namespaces behind a bridge.

use std::ffi::OsString;

use super::Arguments;
use crate::{
    manager::{Manager, medians_ms},
    network::Network,
};

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
        let run = |manager: Manager| {
            let mut words = network.options(manager, count);
            words.extend(["-ppn", "1", "-n", &count.to_string(), "/bin/true"].map(OsString::from));
            manager.run(&words)
        };
        let [ours, hydra] = medians_ms(
            arguments.repetitions,
            [&|| run(Manager::Ropewalk), &|| run(Manager::Hydra)],
        )?;
        println!("| {count} | {ours:.0} | {hydra:.0} | {:.2} |", ours / hydra);
    }
    Ok(())
}
