//! The `ropewalk` command: everything that it does is in `ropewalk-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk_cli::main()
}
