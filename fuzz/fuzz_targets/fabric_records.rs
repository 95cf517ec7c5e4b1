//! What comes over an encrypted connection, from a stranger and from a peer with somebody on the way.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::records(bytes));
