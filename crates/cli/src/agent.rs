//! `ropewalk agent`.

use std::process::ExitCode;

use ropewalk_launch::agent_main;

/// Serves the launcher at the other end of standard input.
pub(crate) fn run() -> ExitCode {
    agent_main()
}
