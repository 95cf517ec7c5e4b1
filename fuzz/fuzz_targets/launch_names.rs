//! The messages between launchers and a name server, at both ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_launch_core::fuzzing::names(bytes));
