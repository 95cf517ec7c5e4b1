//! Times as users write and read them.

use std::time::Duration;

use thiserror::Error;

/// A length of time: seconds, or numbers with their units.
pub(super) fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

/// The same in seconds, as the value of an option.
pub(super) fn seconds(text: &str) -> Result<f64, NoTime> {
    duration(text).map(|time| time.as_secs_f64()).ok_or(NoTime)
}

/// The value of an option is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{TIMES} is wanted")]
pub(super) struct NoTime;

pub(super) const TIMES: &str = "seconds, or a time such as 500ms, 10m, 1h30m or 2d";

/// A time for a reader, in the unit that suits its length.
pub(super) fn shown(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.0 => format!("-{}", shown(-seconds)),
        0.0 => "0 s".to_owned(),
        _ if seconds < 0.9995 => format!("{} ms", digits(seconds * 1e3)),
        _ if seconds < LONG => format!("{seconds:.2} s"),
        _ if seconds < 2.0 * DAY => format!("{:.2} h", seconds / HOUR),
        _ if seconds < 1e4 * DAY => format!("{:.2} days", seconds / DAY),
        _ => format!("{:.3e} days", seconds / DAY),
    }
}

/// The same without zeros at its end, and with the seconds if it is in another unit.
pub(super) fn with_seconds(seconds: f64) -> String {
    match seconds < LONG {
        true => format!("{seconds} s"),
        false => format!("{seconds:.0} s ({})", shown(seconds)),
    }
}

/// By which part something takes longer; beyond ten times it is told how many times as much it adds.
pub(super) fn part(part: f64) -> String {
    match part {
        _ if part < 10.0 => format!("{:.2} %", part * 100.0),
        _ if part < 1e6 => format!("{part:.0} times"),
        _ => format!("{part:.1e} times"),
    }
}

/// At least three digits.
fn digits(number: f64) -> String {
    match number {
        _ if number < 9.95 => format!("{number:.2}"),
        _ if number < 99.5 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A longer time is not told in seconds alone.
const LONG: f64 = 7200.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Times are read with and without units.
    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("30", 30.0),
            ("0.5s", 0.5),
            ("1e3", 1000.0),
            ("30s", 30.0),
            ("1d", 86_400.0),
            ("24h", 86_400.0),
            ("1h30m", 5400.0),
            ("250ms", 0.25),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "x", "-1", "1 parsec", "nan"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    /// Long times are shown in long units, and what is many times as much is no percentage.
    #[test]
    fn times_are_shown() {
        let times = [0.0, 0.004_12, 0.412, 5.0847, 1500.0, 7300.0, 86_400.0, 864_000.0];
        let expected = [
            "0 s",
            "4.12 ms",
            "412 ms",
            "5.08 s",
            "1500.00 s",
            "2.03 h",
            "24.00 h",
            "10.00 days",
        ];
        assert_eq!(times.map(shown), expected.map(str::to_owned));
        assert_eq!(with_seconds(25.0), "25 s");
        assert_eq!(with_seconds(86_400.0), "86400 s (24.00 h)");
        assert_eq!(
            [0.1234, 155.57, 1e9].map(part),
            ["12.34 %", "156 times", "1.0e9 times"]
        );
    }
}
