//! Barriers of real processes. What is checked stands in `examples/reduce_barriers`.

use std::{path::Path, time::Duration};

use assert_cmd::Command;

/// A barrier holds all ranks until the last has called, also one that dies after its call; those after it are the
/// others' and name the dead rank.
#[test]
fn barriers_outlive_ranks() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    let ropewalk = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
    let program = ropewalk.with_file_name("examples").join("reduce_barriers");
    for options in [&[][..], HOSTS] {
        for victim in ["none", "0", "2"] {
            let folder = tempfile::tempdir().expect("a folder can be made");
            let mut command = Command::new(ropewalk);
            command.args(["run", "-n", "4", "--on-failure", "continue", "--timeout", "100"]);
            command.args(options).arg(&program).arg(folder.path()).arg(victim);
            let output = command.timeout(Duration::from_secs(120)).output();
            let output = output.expect("the command runs");
            let stdout = String::from_utf8_lossy(&output.stdout);
            let ended = if victim == "none" { 4 } else { 3 };
            assert_eq!(
                stdout.matches("barriers: ok").count(),
                ended,
                "{options:?}, {victim} dies: {stdout}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}
