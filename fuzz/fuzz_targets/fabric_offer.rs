//! A peer's offer of the memory that it shares.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::offer(bytes));
