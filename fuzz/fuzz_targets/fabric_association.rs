//! What a stranger sends over a transport without connections.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::association(bytes));
