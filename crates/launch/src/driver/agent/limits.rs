//! The limits that the system sets for an agent: descriptors and memory.

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    system::sysinfo,
};

/// Lets this process have as many descriptors as it may: it needs four for each rank. Returns what it had.
pub(super) fn raise_descriptor_limit() -> Rlimit {
    let had = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    // If this fails, a rank that cannot be started says why.
    let _ = setrlimit(Resource::Nofile, raised);
    had
}

/// Half of the host's memory. What is held is shared with the rank that wrote it for as long as that has it
/// too, so that this bounds only what ranks would otherwise have given back.
pub(super) fn held_bytes_max() -> u64 {
    let info = sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / 2
}
