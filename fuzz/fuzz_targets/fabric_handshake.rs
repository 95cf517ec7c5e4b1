//! What a stranger sends before it has proven the job's key.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_fabric::fuzzing::handshake(bytes));
