//! The times of another program, which prints them as the OSU micro-benchmarks do.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    process::{Command, ExitStatus, Stdio},
};

use thiserror::Error;

/// Seconds by the bytes of a vector.
pub(super) type Latencies = BTreeMap<u64, f64>;

/// Runs a command by the shell, and reads the table that it prints.
///
/// # Errors
/// If the command fails, prints too much, or prints no table.
pub(super) fn run(command: &str) -> Result<Latencies, BesideError> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(BesideError::Run)?;
    let mut output = Vec::new();
    // Its end closes the pipe: a command that still prints ends by SIGPIPE.
    let read = child.stdout.take().map_or(Ok(0), |stdout| {
        stdout.take(OUTPUT_MAX as u64 + 1).read_to_end(&mut output)
    });
    let is_too_long = output.len() > OUTPUT_MAX;
    if is_too_long {
        // If it has ended already, nothing is left to kill.
        let _ = child.kill();
    }
    let status = child.wait().map_err(BesideError::Run)?;
    read.map_err(BesideError::Run)?;
    if is_too_long {
        return Err(BesideError::TooLong);
    }
    if !status.success() {
        return Err(BesideError::Failed(status));
    }
    let latencies = parse(&String::from_utf8_lossy(&output));
    match latencies.is_empty() {
        true => Err(BesideError::NoTable),
        false => Ok(latencies),
    }
}

/// Reads lines `BYTES MICROSECONDS ...`. Other lines are passed over: comments begin with `#`, and launchers print
/// notes. Of two lines with the same length the last counts.
fn parse(text: &str) -> Latencies {
    let latency = |line: &str| {
        let mut words = line.split_whitespace();
        let bytes = words.next()?.parse().ok()?;
        let microseconds: f64 = words.next()?.parse().ok()?;
        (microseconds.is_finite() && microseconds > 0.0).then_some((bytes, microseconds / 1e6))
    };
    text.lines().filter_map(latency).collect()
}

/// The other program has no times to show.
#[derive(Debug, Error)]
pub(super) enum BesideError {
    /// The command failed.
    #[error("the command of --beside failed: {0}")]
    Failed(ExitStatus),
    /// No line is one of a table.
    #[error("the command of --beside printed no line `BYTES MICROSECONDS`")]
    NoTable,
    /// The command could not be run.
    #[error("cannot run the command of --beside")]
    Run(#[source] io::Error),
    /// The output is no table.
    #[error("the command of --beside printed more than {OUTPUT_MAX} bytes")]
    TooLong,
}

/// The most that a table is long.
const OUTPUT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of `osu_reduce` is read, with `-f` too, and whatever stands around its lines is passed over.
    #[test]
    fn tables_of_osu_are_read() {
        let text = "mpiexec: a note\n\n# OSU MPI Reduce Latency Test v7.4\n# Datatype: MPI_FLOAT.\n\
                    # Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n\
                    4                       0.75              0.50              1.00        1000\n\
                    1024                    2.50\n8 nan\n16 -1\n32 0\n64\n-8 1\n128 x\n";
        assert_eq!(parse(text), [(4, 0.75e-6), (1024, 2.5e-6)].into());
        assert_eq!(parse("8 1\n8 2\n"), [(8, 2e-6)].into());
        assert_eq!(parse(""), [].into());
    }

    /// A command that fails, prints no table or prints without end is an error.
    #[test]
    fn commands_are_run() {
        assert_eq!(
            run("echo '8 5.0'; echo '16 6'").unwrap(),
            [(8, 5e-6), (16, 6e-6)].into()
        );
        for (command, expected) in [
            ("echo 8 5; exit 3", "failed: exit status: 3"),
            ("echo tea", "no line"),
            ("yes 8 5", "more than 1048576 bytes"),
            ("exec >&-; kill -9 $$", "failed: signal: 9"),
        ] {
            let error = run(command).unwrap_err().to_string();
            assert!(error.contains(expected), "{command}: {error}");
        }
    }
}
