//! How long the batch system lets this command run.

use std::{
    env,
    io::Read,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long Slurm lets the allocation live from now on; nothing outside of one, or if it has no limit, or
/// does not answer soon. Newer versions tell it in a variable, others are asked once.
pub(super) fn time_left() -> Option<Duration> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let job = variable("SLURM_JOB_ID")?;
    if let Some(end) = variable("SLURM_JOB_END_TIME").and_then(|end| end.parse().ok()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        return Some(Duration::from_secs(end).saturating_sub(now));
    }
    let mut command = Command::new("squeue");
    command.args(["-h", "-j", &job, "-o", "%L"]);
    parse(&answer(command)?)
}

/// A controller that is away is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The output of a command, if it ends soon and well.
fn answer(mut command: Command) -> Option<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            // A line is less than what the pipe holds.
            Ok(Some(status)) => {
                let mut text = String::new();
                child
                    .stdout
                    .take()?
                    .take(1 << 10)
                    .read_to_string(&mut text)
                    .ok()?;
                return status.success().then_some(text);
            }
            Ok(None) if Instant::now() < until => sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// `[[DAYS-]HOURS:]MINUTES:SECONDS` (squeue(1)), with other words for jobs without a limit.
fn parse(text: &str) -> Option<Duration> {
    let (days, time) = match text.trim().split_once('-') {
        Some((days, time)) => (days.parse::<u64>().ok()?, time),
        None => (0, text.trim()),
    };
    let parts: Option<Vec<u64>> = time.split(':').map(|part| part.parse().ok()).collect();
    let seconds = match parts?[..] {
        [minutes, seconds] => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => {
            let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
            minutes.checked_mul(60)?.checked_add(seconds)?
        }
        _ => return None,
    };
    let seconds = days.checked_mul(24 * 60 * 60)?.checked_add(seconds)?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slurm's times are read in all their forms, and its words for no limit are none.
    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("0:45\n", Some(45)),
            ("1:00:00", Some(3600)),
            ("2-01:00:05", Some(2 * 86_400 + 3605)),
            ("UNLIMITED", None),
            ("INVALID", None),
            ("NOT_SET", None),
            ("", None),
            ("99999999999999999999-0:0", None),
        ] {
            assert_eq!(parse(text), seconds.map(Duration::from_secs), "{text}");
        }
    }

    /// A command that hangs is not waited for.
    #[test]
    fn nobody_waits_for_ever() {
        let mut hanging = Command::new("sleep");
        hanging.arg("1000");
        assert_eq!(answer(hanging), None);
        let mut echo = Command::new("echo");
        echo.arg("1:00");
        assert_eq!(answer(echo).as_deref(), Some("1:00\n"));
    }
}
