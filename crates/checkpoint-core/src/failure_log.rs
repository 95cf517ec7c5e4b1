//! Logs of failures, and the mean time between failures that follows from one.

use thiserror::Error;

use crate::timestamp::{Zone, seconds_since_epoch};

/// The moments at which something failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailureLog {
    /// In seconds, in rising order, each once.
    times: Vec<f64>,
}

/// A mean time between failures, with its confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MtbfEstimate {
    /// The number of failures in the log.
    pub failures: usize,
    /// The estimate, in seconds.
    pub mtbf: f64,
    /// The lower end of the interval, in seconds.
    pub low: f64,
    /// The upper end of the interval, in seconds.
    pub high: f64,
}

/// A log from which no mean time between failures follows.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FailureLogError {
    /// A line without a time.
    #[error(
        "line {line}: expected a time such as 2026-11-27T14:00:00Z or seconds since 1970, found {found:?}"
    )]
    Time {
        /// Its number, counted from 1.
        line: usize,
        /// The text in the place of the time, or its beginning.
        found: String,
    },
    /// A row of sacct that does not fit its heading.
    #[error("line {line}: expected {expected} fields as in the heading, found {found}")]
    Fields {
        /// Its number, counted from 1.
        line: usize,
        /// The number of fields of the heading.
        expected: usize,
        /// The number of fields of the row.
        found: usize,
    },
    /// A heading of sacct without a column that is needed.
    #[error(
        "line {line}: sacct's heading has no column {column}; it is written by sacct --format=JobID,State,End"
    )]
    Column {
        /// The number of the heading's line, counted from 1.
        line: usize,
        /// The name of the column.
        column: &'static str,
    },
    /// There is no time between fewer than two failures.
    #[error(
        "a mean time between failures needs at least two failures at different times, and the log has {0}"
    )]
    TooFew(usize),
}

impl FailureLog {
    /// Reads a log: one time a line, as RFC 3339 or in seconds since 1970, in any order; or the output of
    /// `sacct --parsable2` with the columns `State` and `End`, whose rows with the state `NODE_FAIL` count. Empty lines
    /// and lines that begin with `#` are passed over.
    ///
    /// Failures at the same time count once: the loss of a host ends several jobs, and each of their steps has a row.
    /// Times of sacct have no time zone and are taken for UTC, which changes no time between two of them.
    ///
    /// # Errors
    /// If a line is malformed.
    pub fn parse(text: &str) -> Result<Self, FailureLogError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = (1..)
            .zip(text.lines().map(str::trim))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .peekable();
        let mut times = match lines.peek() {
            Some((_, first)) if first.contains('|') => parse_sacct(lines)?,
            _ => lines
                .map(|(line, text)| parse_time(line, text, Zone::Required))
                .collect::<Result<Vec<f64>, _>>()?,
        };
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        Ok(Self { times })
    }

    /// The failures in seconds since 1970, in rising order.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// Estimates the mean time between failures from the first failure to the last, which are as many times between
    /// failures as there are failures without the first.
    ///
    /// If failures come at a constant rate, these times are exponential, and twice their sum divided by the true mean
    /// has a chi-square distribution with twice as many degrees of freedom. So the interval is exact (B. Epstein and M.
    /// Sobel, "Life Testing", Journal of the American Statistical Association 48(263), 1953).
    ///
    /// # Errors
    /// If the log has fewer than two failures.
    pub fn mtbf(&self) -> Result<MtbfEstimate, FailureLogError> {
        let failures = self.times.len();
        let (Some(first), Some(last), true) = (self.times.first(), self.times.last(), failures > 1) else {
            return Err(FailureLogError::TooFew(failures));
        };
        let (span, count) = (last - first, failures - 1);
        Ok(MtbfEstimate {
            failures,
            mtbf: span / count as f64,
            low: span / gamma_quantile(count, 1.0 - TAIL),
            high: span / gamma_quantile(count, TAIL),
        })
    }
}

/// The times of the rows with the state `NODE_FAIL`.
fn parse_sacct<'a>(mut lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Vec<f64>, FailureLogError> {
    let Some((line, heading)) = lines.next() else {
        return Ok(Vec::new());
    };
    let names: Vec<&str> = heading.split('|').collect();
    let place = |column: &'static str| {
        let place = names.iter().position(|name| name.eq_ignore_ascii_case(column));
        place.ok_or(FailureLogError::Column { line, column })
    };
    let (state, end) = (place("State")?, place("End")?);
    let mut times = Vec::new();
    for (line, row) in lines {
        let fields: Vec<&str> = row.split('|').collect();
        if fields.len() != names.len() {
            return Err(FailureLogError::Fields {
                line,
                expected: names.len(),
                found: fields.len(),
            });
        }
        if fields[state] == FAILED {
            times.push(parse_time(line, fields[end], Zone::Optional)?);
        }
    }
    Ok(times)
}

fn parse_time(line: usize, text: &str, zone: Zone) -> Result<f64, FailureLogError> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.0..=LATEST).contains(seconds));
    let time = seconds.or_else(|| seconds_since_epoch(text, zone));
    time.ok_or_else(|| FailureLogError::Time {
        line,
        found: text.chars().take(SHOWN_MAX).collect(),
    })
}

/// The value below which a sum of so many exponential times of mean 1 stays with a probability. It is half of the
/// quantile of the chi-square distribution with twice as many degrees of freedom.
fn gamma_quantile(count: usize, probability: f64) -> f64 {
    let mean = count as f64;
    // Beyond this a sum comes less than once in 1e15 times.
    let (mut low, mut high) = (0.0, mean + 10.0 * mean.sqrt() + 40.0);
    while high - low > high * 1e-14 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        match gamma_below(count, middle) < probability {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// The probability that a sum of so many exponential times of mean 1 is less than `sum`: that of as many events, or
/// more, of a Poisson process in this time.
fn gamma_below(count: usize, sum: f64) -> f64 {
    let events = count as f64;
    if sum <= 0.0 {
        return 0.0;
    }
    let chance_of = |events: f64| (events * sum.ln() - sum - ln_factorial(events)).exp();
    // The terms fall from the first on, on either side of the mean.
    if sum < events {
        let (mut total, mut term, mut at) = (0.0, chance_of(events), events);
        while term > total * f64::EPSILON {
            total += term;
            at += 1.0;
            term *= sum / at;
        }
        return total;
    }
    let (mut total, mut term, mut at) = (0.0, chance_of(events - 1.0), events - 1.0);
    while term > total * f64::EPSILON {
        total += term;
        term *= at / sum;
        at -= 1.0;
    }
    1.0 - total
}

/// The logarithm of a factorial, by Stirling's series where its error is below 1e-15 of it.
fn ln_factorial(number: f64) -> f64 {
    if number < 32.0 {
        return (2..=number as u32).map(|factor| f64::from(factor).ln()).sum();
    }
    let inverse = 1.0 / number;
    let rest = inverse / 12.0 - inverse.powi(3) / 360.0 + inverse.powi(5) / 1260.0;
    number * number.ln() - number + (std::f64::consts::TAU * number).ln() / 2.0 + rest
}

/// The state of a job that lost a host.
const FAILED: &str = "NODE_FAIL";

/// Half of the five percent outside of the interval.
const TAIL: f64 = 0.025;

/// Later seconds are milliseconds by mistake: this is in the year 5138.
const LATEST: f64 = 1e11;

const SHOWN_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    /// Quantiles of the chi-square distribution from tables: degrees of freedom, 0.025 and 0.975.
    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, low, high) in [
            (2, 0.050_635_616, 7.377_758_908),
            (4, 0.484_418_557, 11.143_286_782),
            (20, 9.590_777_392, 34.169_606_903),
            (100, 74.221_927_475, 129.561_197_186),
        ] {
            for (probability, expected) in [(0.025, low), (0.975, high)] {
                let found = 2.0 * gamma_quantile(freedom / 2, probability);
                assert!((found / expected - 1.0).abs() < 1e-8, "{freedom}: {found}");
            }
        }
        // A million failures are known to two per mille.
        let many = gamma_quantile(1_000_000, 0.025) / 1e6;
        assert!((many - (1.0 - 1.96e-3)).abs() < 1e-5, "{many}");
    }

    /// The interval holds the true mean in 95 of 100 logs, for few failures as for many.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = Pcg64::seed_from_u64(5);
        for failures in [2, 3, 10, 40] {
            let mut held = 0;
            for _ in 0..4000 {
                let mut now = 1e9;
                let times = std::iter::repeat_with(|| {
                    now -= (f64::from(random.next_u32()) + 1.0).ln() * 50.0 - 50.0 * 2f64.powi(32).ln();
                    now
                });
                let log = FailureLog {
                    times: times.take(failures).collect(),
                };
                let found = log.mtbf().unwrap();
                held += u32::from((found.low..=found.high).contains(&50.0));
            }
            let part = f64::from(held) / 4000.0;
            assert!((part - 0.95).abs() < 0.014, "{failures}: {part}");
        }
    }

    /// Times of each form are read, and equal ones count once.
    #[test]
    fn logs_are_read() {
        let log = FailureLog::parse(
            "\u{feff}# hosts lost\n1970-01-01T00:05:00+00:01\n\n  60.5\n1970-01-01t00:00:10.25Z\r\n60.5\n",
        )
        .unwrap();
        assert_eq!(log.times(), [10.25, 60.5, 240.0]);
        let found = log.mtbf().unwrap();
        assert_eq!((found.failures, found.mtbf), (3, 114.875));
        let sacct = "JobID|State|End\n7|COMPLETED|Unknown\n8|NODE_FAIL|1970-01-02T00:00:00\n\
                     8.batch|NODE_FAIL|1970-01-02T00:00:00\n9|CANCELLED by 0|x\n10|NODE_FAIL|1970-01-03T00:00:00\n";
        assert_eq!(FailureLog::parse(sacct).unwrap().times(), [86_400.0, 172_800.0]);
    }

    /// Each error names its line, and the reason.
    #[test]
    fn malformed_logs_are_refused() {
        for (text, expected) in [
            ("1\nx\n", "line 2: expected a time such as"),
            ("1\n\n2026-02-30T00:00:00Z", "line 3: expected a time"),
            ("2026-11-27T14:00:00", "line 1: expected a time"),
            ("1700000000000", "line 1: expected a time"),
            ("-1", "line 1: expected a time"),
            ("nan", "line 1: expected a time"),
            ("JobID|End\n", "line 1: sacct's heading has no column State"),
            ("JobID|State\n", "line 1: sacct's heading has no column End"),
            (
                "State|End\nNODE_FAIL\n",
                "line 2: expected 2 fields as in the heading, found 1",
            ),
            ("State|End\nNODE_FAIL|Unknown\n", "line 2: expected a time"),
        ] {
            let error = FailureLog::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
        for (text, count) in [
            ("", 0),
            ("5", 1),
            ("5\n5.0\n", 1),
            ("State|End\nCOMPLETED|5\n", 0),
        ] {
            let error = FailureLog::parse(text).unwrap().mtbf().unwrap_err();
            assert_eq!(error, FailureLogError::TooFew(count), "{text:?}");
        }
    }

    proptest! {
        /// No text is too odd to be read or refused.
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[0-9TZ:.+|\\-\nStateEnd]{0,60}") {
            if let Ok(log) = FailureLog::parse(&text) {
                prop_assert!(log.times().windows(2).all(|pair| pair[0] < pair[1]));
            }
        }

        /// Order does not matter, times written again are the same, and the estimate lies in its interval.
        #[test]
        fn order_does_not_matter(times in proptest::collection::vec(0u32..2_000_000_000, 2..40)) {
            let written = |times: &[u32]| {
                let lines: Vec<String> = times.iter().map(u32::to_string).collect();
                FailureLog::parse(&lines.join("\n")).unwrap()
            };
            let log = written(&times);
            let mut reversed = times.clone();
            reversed.reverse();
            prop_assert_eq!(&log, &written(&reversed));
            if let Ok(found) = log.mtbf() {
                prop_assert!(found.low < found.high && found.low > 0.0 && found.high.is_finite());
                prop_assert!((found.low..found.high).contains(&found.mtbf));
            }
        }
    }
}
