//! Bulk handles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_rpc::fuzzing::bulk_handles(bytes));
