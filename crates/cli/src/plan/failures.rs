//! The option `--failures`: a log of failures, in the place of a mean time between failures.

use anyhow::Context;
use ropewalk_checkpoint::{FailureLog, MtbfEstimate, optimal_interval};
use serde::Serialize;

use super::{super::times::shown, interval};

/// Reads a log as the value of an option.
pub(super) fn read(path: &str) -> anyhow::Result<MtbfEstimate> {
    let text = std::fs::read_to_string(path).context("cannot be read")?;
    Ok(FailureLog::parse(&text)?.mtbf()?)
}

/// The mean time between failures that a log shows, and the intervals that follow from the ends of its confidence
/// interval.
#[derive(Debug, Serialize)]
pub(super) struct FromLog {
    failures: usize,
    mtbf_low_s: f64,
    mtbf_high_s: f64,
    interval_low_s: f64,
    interval_high_s: f64,
    #[serde(skip)]
    mtbf_s: f64,
}

impl FromLog {
    pub(super) fn new(estimate: &MtbfEstimate, save: f64) -> Self {
        Self {
            failures: estimate.failures,
            mtbf_low_s: estimate.low,
            mtbf_high_s: estimate.high,
            interval_low_s: optimal_interval(save, estimate.low),
            interval_high_s: optimal_interval(save, estimate.high),
            mtbf_s: estimate.mtbf,
        }
    }

    /// Two lines for a reader.
    pub(super) fn text(&self) -> String {
        format!(
            "{} failures: an MTBF of {} (95 % confidence: {} to {}, exact if failures come at a constant rate).\n\
             At the ends of this range the interval would be {} and {}.",
            self.failures,
            shown(self.mtbf_s),
            shown(self.mtbf_low_s),
            shown(self.mtbf_high_s),
            interval(self.interval_low_s),
            interval(self.interval_high_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A log is read, and an error says why it is not.
    #[test]
    fn logs_are_read_or_refused() {
        let read_text = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            read(file.path().to_str().unwrap()).map_err(|error| error.to_string())
        };
        let found = read_text("0\n100\n200\n").unwrap();
        assert_eq!((found.failures, found.mtbf), (3, 100.0));
        let text = FromLog::new(&found, 0.6).text();
        assert!(
            text.starts_with("3 failures: an MTBF of 100.00 s (95 % confidence: 35.90 s to 825.73 s,"),
            "{text}"
        );
        assert!(
            read_text("0\nyesterday\n")
                .unwrap_err()
                .contains("line 2: expected a time")
        );
        assert!(read_text("5\n").unwrap_err().contains("at least two failures"));
        assert!(read("/nonexistent").is_err());
    }
}
