//! A ring in memory that a peer writes too.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::ring(bytes));
