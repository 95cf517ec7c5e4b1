//! The stream of frames between two endpoints.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::frames(bytes));
