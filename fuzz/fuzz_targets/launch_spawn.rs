//! The spawn request of a process: refused, or placed so that every process has a host and a program.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_launch_core::fuzzing::spawn(bytes));
