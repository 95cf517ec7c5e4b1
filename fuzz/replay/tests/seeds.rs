//! Each fuzz target passes on every file of its folder in `fuzz/seeds`. This file stands in for libfuzzer: it gives the
//! targets a macro of the same name, which makes a plain function of each.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

extern crate self as libfuzzer_sys;

use std::{collections::BTreeSet, fs, path::PathBuf};

#[allow(
    unused_attributes,
    reason = "with libfuzzer each target is a program without `main`"
)]
#[path = "../../fuzz_targets"]
mod targets {
    pub(super) mod advisor_link;
    pub(super) mod agent_link;
    pub(super) mod checkpoint_journal;
    pub(super) mod checkpoint_manifest;
    pub(super) mod checkpoint_state;
    pub(super) mod fabric_association;
    pub(super) mod fabric_board;
    pub(super) mod fabric_frames;
    pub(super) mod fabric_handshake;
    pub(super) mod fabric_offer;
    pub(super) mod fabric_ring;
    pub(super) mod failure_log;
    pub(super) mod launch_elf;
    pub(super) mod launch_hosts;
    pub(super) mod launch_links;
    pub(super) mod launch_names;
    pub(super) mod launch_spawn;
    pub(super) mod metrics_request;
    pub(super) mod npy_header;
    pub(super) mod openfoam_control_dict;
    pub(super) mod pmi_commands;
    pub(super) mod pmi_server;
    pub(super) mod pmi_tree;
    pub(super) mod rpc_bulk_handles;
    pub(super) mod rpc_messages;
    pub(super) mod run_command_line;
    pub(super) mod segy;
    pub(super) mod segy_import;
}

/// The function `run` of a target, which finds this macro by its path, as it does libfuzzer's.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($bytes: &[u8]) {
            $body
        }
    };
}

/// The name of a target, and its function.
type Target = (&'static str, fn(&[u8]));

/// All targets.
const TARGETS: [Target; 28] = [
    ("advisor_link", targets::advisor_link::run),
    ("agent_link", targets::agent_link::run),
    ("checkpoint_journal", targets::checkpoint_journal::run),
    ("checkpoint_manifest", targets::checkpoint_manifest::run),
    ("checkpoint_state", targets::checkpoint_state::run),
    ("fabric_association", targets::fabric_association::run),
    ("fabric_board", targets::fabric_board::run),
    ("fabric_frames", targets::fabric_frames::run),
    ("fabric_handshake", targets::fabric_handshake::run),
    ("fabric_offer", targets::fabric_offer::run),
    ("fabric_ring", targets::fabric_ring::run),
    ("failure_log", targets::failure_log::run),
    ("launch_elf", targets::launch_elf::run),
    ("launch_hosts", targets::launch_hosts::run),
    ("launch_links", targets::launch_links::run),
    ("launch_names", targets::launch_names::run),
    ("launch_spawn", targets::launch_spawn::run),
    ("metrics_request", targets::metrics_request::run),
    ("npy_header", targets::npy_header::run),
    ("openfoam_control_dict", targets::openfoam_control_dict::run),
    ("pmi_commands", targets::pmi_commands::run),
    ("pmi_server", targets::pmi_server::run),
    ("pmi_tree", targets::pmi_tree::run),
    ("rpc_bulk_handles", targets::rpc_bulk_handles::run),
    ("rpc_messages", targets::rpc_messages::run),
    ("run_command_line", targets::run_command_line::run),
    ("segy", targets::segy::run),
    ("segy_import", targets::segy_import::run),
];

/// The files of a target together, in bytes: seeds are few and small.
const SEEDS_SIZE_MAX: usize = 16 << 10;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Every target takes each of its seeds without a panic, and has some.
#[test]
fn targets_pass_on_their_seeds() {
    for (name, run) in TARGETS {
        let seeds = folder("seeds").join(name);
        let files = fs::read_dir(&seeds).unwrap_or_else(|error| panic!("{}: {error}", seeds.display()));
        let mut size = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            size += bytes.len();
            // A panic of the target names no file.
            eprintln!("{}", path.display());
            run(&bytes);
        }
        assert!(
            (1..=SEEDS_SIZE_MAX).contains(&size),
            "{name}: seeds of {size} bytes"
        );
    }
}

/// No target and no folder of seeds is left out.
#[test]
fn all_targets_are_run() {
    let listed: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = |folder: PathBuf| -> BTreeSet<_> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .map(|name| name.trim_end_matches(".rs").to_owned())
            .collect()
    };
    assert_eq!(names(folder("fuzz_targets")), listed);
    assert_eq!(names(folder("seeds")), listed);
}
