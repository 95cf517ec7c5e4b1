//! A request to the server of metrics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_cli::fuzzing::metrics_request(bytes));
