//! The rules of the house that no compiler knows: pure files, few files with `unsafe`, short files, plain
//! names.

use std::path::Path;

use anyhow::anyhow;
use proc_macro2::TokenStream;

use super::paths::paths;

/// The files that decide and do nothing else: (what their paths begin with, what is excepted below that).
const PURE: &[(&str, &[&str])] = &[
    ("crates/checkpoint-core/src/", &[]),
    ("crates/fabric/src/frame.rs", &[]),
    ("crates/fabric/src/fences.rs", &[]),
    ("crates/fabric/src/member_key.rs", &[]),
    ("crates/fabric/src/operations.rs", &[]),
    ("crates/fabric/src/provider/frames", &[]),
    ("crates/fabric/src/endpoint/heartbeat.rs", &[]),
    ("crates/fabric-ofi/src/messaging", &[]),
    ("crates/membership/src/", &[]),
    ("crates/launch-core/src/", &[]),
    ("crates/names/src/", &[]),
    ("crates/pmi/src/", &[]),
    ("crates/reduce/src/", &["driver/", "driver.rs"]),
    ("crates/reduce-core/src/", &[]),
    ("crates/rpc/src/bulk/", &["chunks.rs"]),
    ("crates/rpc/src/hedging.rs", &[]),
    ("crates/sim/src/", &[]),
];

/// The paths that a pure file must not name: (the path or its end or its middle, what to do instead).
const IMPURE: &[(&str, &str)] = &[
    (
        "HashMap",
        "its order differs from run to run: use BTreeMap or IndexMap",
    ),
    (
        "HashSet",
        "its order differs from run to run: use BTreeSet or IndexSet",
    ),
    ("Instant::now", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("getrandom", "take a seed or the random bytes as an argument"),
    ("rand::random", "take a seed as an argument"),
    ("rand::rng", "take a seed as an argument"),
    ("rand::thread_rng", "take a seed as an argument"),
    ("rustix", "leave system calls to the driver"),
    ("std::env", "take what the environment says as an argument"),
    ("std::fs", "leave files to the driver"),
    ("std::net", "leave sockets to the driver"),
    ("std::os", "leave descriptors to the driver"),
    ("std::process", "leave processes to the driver"),
    ("std::thread", "leave threads to the driver"),
    ("tokio", "leave tasks to the driver"),
];

/// The files that may say `unsafe`, and what for.
const UNSAFE: &[(&str, &str)] = &[
    (
        "benches/rivals/src/pmi/far.rs",
        "takes over the descriptor that a process manager gave it",
    ),
    (
        "crates/reduce-files/src/mapping.rs",
        "maps files, and catches the signal of pages that are gone",
    ),
    (
        "crates/c-abi/src/memory.rs",
        "reads and writes memory that C hands over",
    ),
    (
        "crates/c-abi/src/pointers.rs",
        "reads and writes through pointers that C hands over",
    ),
    ("crates/c-abi/src/text.rs", "reads texts that C hands over"),
    (
        "crates/checkpoint-core/tests/no_allocation/counting_allocator.rs",
        "is the allocator of a test that counts",
    ),
    ("crates/reduce/src/driver/huge_pages.rs", "gives advice on memory"),
    (
        "crates/checkpoint-c/src/declared.rs",
        "declares the functions that are exported to C",
    ),
    (
        "crates/checkpoint-c/src/exports.rs",
        "exports the functions of checkpoints to C",
    ),
    (
        "crates/checkpoint-c/src/run.rs",
        "exports the functions of runs with named state to C",
    ),
    (
        "crates/fabric/src/agent_link.rs",
        "takes over the descriptor that the agent let it inherit",
    ),
    (
        "crates/cli/examples/reduce_buffers/stray_write.rs",
        "writes where it must not, to show that it cannot",
    ),
    ("crates/fabric/src/arena.rs", "views its blocks as bytes"),
    ("crates/fabric/src/streamed_copy.rs", "stores past the caches"),
    ("crates/fabric/src/buffer.rs", "asks for large pages"),
    (
        "crates/fabric/src/call_table/interleavings.rs",
        "watches the table's memory in tests",
    ),
    (
        "crates/fabric/src/call_table/memory.rs",
        "reads and writes memory that other processes have too",
    ),
    (
        "crates/fabric/src/fork_guard.rs",
        "maps a page that the kernel clears in children",
    ),
    ("crates/fabric/tests/forked_memory.rs", "forks a process"),
    (
        "crates/fabric/src/lent_buffer.rs",
        "lets several fill one buffer, each its part",
    ),
    (
        "crates/fabric/src/provider/stream/send_queue.rs",
        "asks the kernel by ioctl",
    ),
    ("crates/fabric/src/memfd.rs", "maps memory"),
    (
        "crates/fabric/src/provider/shm/credentials.rs",
        "asks who is at the other end of a socket",
    ),
    (
        "crates/fabric/src/provider/shm/direct/copy.rs",
        "copies from and to memory of other processes",
    ),
    (
        "crates/fabric/src/provider/shm/direct/peer_process.rs",
        "has the kernel copy from and to other processes",
    ),
    (
        "crates/fabric/src/provider/shm/direct/region_board.rs",
        "views a mapping as slots of atomics",
    ),
    (
        "crates/fabric/src/provider/shm/direct/writing_word.rs",
        "views a word of a mapping as an atomic",
    ),
    (
        "crates/fabric/src/provider/shm/liveness/page.rs",
        "holds a mutex in shared memory",
    ),
    (
        "crates/fabric/src/provider/shm/ring/interleavings.rs",
        "watches the ring's memory in tests",
    ),
    (
        "crates/fabric/src/provider/shm/ring_memory.rs",
        "reads and writes memory that another process has too",
    ),
    (
        "crates/fabric-ofi/src/provider/info.rs",
        "asks libfabric what it has",
    ),
    (
        "crates/fabric-ofi/src/provider/objects.rs",
        "opens libfabric's objects and has the memory they work on",
    ),
    (
        "crates/fabric-ofi/src/provider/rdm.rs",
        "gives libfabric messages and buffers",
    ),
    (
        "crates/launch/src/driver/agent_process.rs",
        "forks, and closes what nobody owns, before there is anything else",
    ),
    (
        "crates/launch/src/driver/command_keeper.rs",
        "forks a process off the launcher, and closes what that inherits",
    ),
    (
        "crates/launch/src/driver/forked_agent.rs",
        "forks the agent off the launcher, and renames it",
    ),
    (
        "crates/launch/src/driver/idle_memory.rs",
        "asks the allocator to give free memory back",
    ),
    (
        "crates/launch/src/driver/keeper.rs",
        "forks the agent off its keeper",
    ),
    (
        "crates/launch/src/driver/process.rs",
        "runs between clone and exec",
    ),
    (
        "crates/launch/src/driver/session.rs",
        "calls posix_spawn, which the standard library does not for sessions",
    ),
    (
        "crates/launch/src/driver/signals.rs",
        "blocks signals and has a descriptor tell of them",
    ),
    (
        "crates/launch/src/driver/watched.rs",
        "has the runtime watch descriptors that it does not own",
    ),
    (
        "crates/fabric-ofi/src/sys/calls.rs",
        "calls libfabric through the tables of its objects",
    ),
    ("crates/fabric-ofi/src/sys/library.rs", "loads libfabric"),
    (
        "crates/fabric-ofi/src/sys/types.rs",
        "names the types of libfabric's functions",
    ),
    (
        "crates/fabric-ofi/tests/layout.rs",
        "calls a function of libfabric's",
    ),
    (
        "crates/pmi-abi/src/pointers.rs",
        "reads lists of pointers that C hands over",
    ),
    (
        "crates/pmi-c/src/exports.rs",
        "exports the functions of PMI-1 to C",
    ),
    (
        "crates/pmi2-c/src/exports.rs",
        "exports the functions of PMI-2 to C",
    ),
    (
        "crates/pmi-client/src/inherited.rs",
        "takes over the descriptor that the process manager let it inherit",
    ),
    ("crates/pmix/src/sys/library.rs", "loads libpmix"),
    ("crates/pmix/src/sys/module.rs", "is called by libpmix"),
    ("crates/pmix/src/sys/replies.rs", "answers calls of libpmix"),
    (
        "crates/pmix/src/sys/server.rs",
        "calls the functions of a PMIx server",
    ),
    (
        "crates/pmix/src/sys/types.rs",
        "names the types of libpmix's functions",
    ),
    (
        "crates/pmix/src/sys/values.rs",
        "reads values that libpmix lends, and makes values for it",
    ),
    (
        "crates/python/src/buffer.rs",
        "shows Python memory that calls are lent, while no call has it",
    ),
    (
        "crates/python/src/memory.rs",
        "copies from and to buffers of Python, and shows it results as such",
    ),
    (
        "crates/bench/src/floors/shared_memory.rs",
        "maps memory, reads that of other processes, and locks a mutex in it",
    ),
    ("crates/rpc/tests/adversity/forking.rs", "forks"),
    (
        "crates/rpc/tests/thousand_clients/live_heap.rs",
        "is the allocator of a test that counts",
    ),
    (
        "crates/rpc/src/promise/handover.rs",
        "hands a value from one thread to another without a lock",
    ),
    (
        "crates/rpc/src/promise/shared.rs",
        "frees a value with the second of its two owners",
    ),
    (
        "crates/rpc/src/tokio/watched.rs",
        "has the runtime watch a descriptor that it owns",
    ),
    (
        "crates/reduce/src/driver/notices.rs",
        "ignores the signal by which a foreign process manager tells of a lost rank",
    ),
];

/// Longer files are hard to hold in mind.
const LINES_MAX: usize = 600;

/// The files that may be longer, and why.
const LONG: &[(&str, &str)] = &[];

/// Names that say nothing about what is in a file.
const EMPTY_NAMES: &[&str] = &["common", "helpers", "misc", "utils"];

/// Every place in the files, given as (path, text), where a rule is broken, one line each.
///
/// # Errors
/// If a file is no Rust.
pub(crate) fn broken(files: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for (path, text) in files {
        let tokens: TokenStream =
            (text.parse()).map_err(|error| anyhow!("{path} does not parse as Rust: {error}"))?;
        if is_pure(path) {
            broken.extend(impurities(path, tokens.clone()));
        }
        broken.extend(unlisted_unsafe(path, tokens));
        let lines = text.lines().count();
        if lines > LINES_MAX && !is_listed(LONG, path) {
            broken.push(format!("{path}: {lines} lines, more than {LINES_MAX}: split it"));
        }
        let named_emptily = |part: &str| EMPTY_NAMES.contains(&part.trim_end_matches(".rs"));
        if path.split('/').any(named_emptily) {
            broken.push(format!("{path}: the name does not say what is in it"));
        }
    }
    broken.extend(stale_entries(files));
    Ok(broken)
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|(folder, except)| {
        path.strip_prefix(folder)
            .is_some_and(|rest| !except.iter().any(|excepted| rest.starts_with(excepted)))
    })
}

fn impurities(path: &str, tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for used in paths(tokens, false) {
        for (impure, instead) in IMPURE {
            let names: Vec<_> = impure.split("::").collect();
            if used.names.windows(names.len()).any(|window| window == names) {
                found.push(format!(
                    "{path}:{}: {impure} in a pure file: {instead}",
                    used.line
                ));
            }
        }
    }
    found
}

fn unlisted_unsafe(path: &str, tokens: TokenStream) -> Option<String> {
    if is_listed(UNSAFE, path) {
        return None;
    }
    let used = paths(tokens, true)
        .into_iter()
        .find(|used| used.names == ["unsafe"])?;
    Some(format!(
        "{path}:{}: unsafe outside the files that are listed for it in xtask/src/check/rules.rs",
        used.line
    ))
}

fn is_listed(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(listed, _)| *listed == path)
}

/// Entries of the tables above whose files are gone.
fn stale_entries(files: &[(String, String)]) -> Vec<String> {
    let entries =
        (PURE.iter().map(|(entry, _)| entry)).chain(UNSAFE.iter().chain(LONG).map(|(entry, _)| entry));
    entries
        .filter(|entry| {
            !files
                .iter()
                .any(|(path, _)| Path::new(path).starts_with(entry.trim_end_matches('/')))
        })
        .map(|entry| format!("xtask/src/check/rules.rs: there is no {entry}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        let found = broken(&[(path.to_owned(), text.to_owned())]).unwrap();
        found.into_iter().filter(|line| line.starts_with(path)).collect()
    }

    const IMPURE_SAMPLE: &str = "
use std::{collections::{BTreeMap, HashMap}, time::Instant};
fn f() -> Instant { Instant::now() }
#[cfg(test)]
mod tests { use std::net::TcpStream; }
";

    /// A pure file that reads the clock or hashes is found with its line; its tests may do as they like.
    #[test]
    fn finds_impurities_in_pure_files() {
        let found = check("crates/membership/src/sample.rs", IMPURE_SAMPLE);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/membership/src/sample.rs:2: HashMap in a pure file"));
        assert!(found[1].starts_with("crates/membership/src/sample.rs:3: Instant::now in a pure file"));
    }

    /// Drivers may read the clock.
    #[test]
    fn leaves_drivers_alone() {
        assert_eq!(
            check("crates/launch/src/driver/sample.rs", IMPURE_SAMPLE),
            [""; 0]
        );
        assert_eq!(check("crates/fabric/src/sample.rs", IMPURE_SAMPLE), [""; 0]);
    }

    /// `unsafe` in a file that is not listed is found, also in its tests; forbidding it is no use of it.
    #[test]
    fn finds_unsafe_in_unlisted_files() {
        let found = check(
            "crates/rpc/src/sample.rs",
            "#[cfg(test)]\nmod t { fn f() { unsafe { g() } } }",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/rpc/src/sample.rs:2: unsafe"));
        assert_eq!(check("crates/rpc/src/lib.rs", "#![forbid(unsafe_code)]"), [""; 0]);
        assert_eq!(
            check("crates/fabric/src/memfd.rs", "fn f() { unsafe { g() } }"),
            [""; 0]
        );
    }

    /// Long files and names that say nothing are found.
    #[test]
    fn finds_long_files_and_empty_names() {
        let found = check("crates/rpc/src/utils.rs", &"\n".repeat(LINES_MAX + 1));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    /// A table that names a file that is gone is itself found.
    #[test]
    fn finds_stale_entries() {
        assert!(stale_entries(&[]).len() == PURE.len() + UNSAFE.len() + LONG.len());
        let here = [("crates/membership/src/lib.rs".to_owned(), String::new())];
        assert!(
            !stale_entries(&here)
                .iter()
                .any(|line| line.contains("crates/membership"))
        );
    }
}
