//! The messages between the launcher and its agents, at both ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_launch_core::fuzzing::links(bytes));
