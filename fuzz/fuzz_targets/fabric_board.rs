//! The bytes that a peer writes onto the board where it publishes its regions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::board(bytes));
