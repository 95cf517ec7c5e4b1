//! The words of `ropewalk run`, and the files and variables that are read beside them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ropewalk_cli::fuzzing::run_command_line(bytes));
