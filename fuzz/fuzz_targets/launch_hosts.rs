//! Host files, lists of hosts, and what Slurm says about nodes: every host that comes out has a name that no
//! command takes for an option, and there are never more than allowed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_launch_core::hosts::{HOSTS_MAX, parse_host_file, parse_hosts, parse_node_list, slurm_hosts};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (nodes, tasks) = text.split_once('\n').unwrap_or((text, ""));
    let lists = [
        parse_host_file(text),
        parse_hosts(text),
        parse_node_list(text),
        slurm_hosts(nodes, Some(tasks)),
    ];
    for hosts in lists.into_iter().flatten() {
        assert!(hosts.len() <= HOSTS_MAX);
        for host in hosts {
            assert!(!host.name().is_empty() && !host.name().starts_with('-'));
            assert!(host.name().bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
});
