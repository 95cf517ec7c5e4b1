//! What the loader has to find for the `ropewalk` command.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::process::Command;

/// Launcher and agent need no library of elementary functions: the executable has those that it calls
/// (`src/elementary_functions.rs`).
#[test]
fn no_library_of_functions_is_loaded() {
    let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let loaded = String::from_utf8(output.stdout).unwrap();
    assert!(loaded.contains("libc.so"), "{loaded}");
    assert!(!loaded.contains("libm.so"), "{loaded}");
}
