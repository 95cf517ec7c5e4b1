//! The messages of a stranger over a transport without connections.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric_ofi::fuzzing::association(bytes));
