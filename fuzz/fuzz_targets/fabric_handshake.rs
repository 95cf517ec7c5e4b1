//! The bytes that a stranger sends before it has proven who it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::handshake(bytes));
