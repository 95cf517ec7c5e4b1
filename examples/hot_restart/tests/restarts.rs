//! The demonstration, with real processes.

use std::time::Duration;

/// A server that is replaced five times under load loses no deposit and counts none twice, and no client waits
/// for long. The demonstration itself compares the ledger with what the clients deposited.
#[test]
fn nothing_is_lost() {
    let mut command = assert_cmd::Command::cargo_bin("hot-restart").expect("it is built with this test");
    let assert = command
        .args(["--restarts", "5", "--clients", "4", "--period-ms", "150"])
        .timeout(Duration::from_secs(60))
        .assert()
        .success();
    let said = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    let deposits: u64 = said
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("it says how many");
    assert!(deposits > 100, "{said}");
    assert!(said.contains("5 restarts: none lost, none twice"), "{said}");
}
