//! The end of a job, over all of its attempts.

use core::fmt;

use crate::{restart::Attempt, verdict::Verdict};

/// How a job ended: the verdict about its last attempt, and the attempts before.
///
/// Displayed, it is the verdicts about all attempts, one line for each failure, without a line end after the last;
/// nothing for a job that went well at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// The verdict about the last attempt, which decides.
    pub verdict: Verdict,
    /// The attempts before that one, if the job was started again: the last hundred of them.
    pub attempts: Vec<Attempt>,
    /// Why there was no further attempt, if one could have helped.
    pub gave_up: Option<String>,
}

impl JobOutcome {
    /// The exit code of the job, which is that of the [`verdict`](Verdict::exit_code).
    pub fn exit_code(&self) -> i32 {
        self.verdict.exit_code()
    }

    /// Returns true if every rank did its work, if only in the last attempt.
    pub fn is_success(&self) -> bool {
        self.verdict.is_success()
    }
}

/// The outcome of a job with one attempt.
impl From<Verdict> for JobOutcome {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            attempts: Vec::new(),
            gave_up: None,
        }
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for attempt in &self.attempts {
            for line in attempt.verdict.to_string().lines() {
                write!(f, "{separator}attempt {}: {line}", attempt.number)?;
                separator = "\n";
            }
        }
        for line in self.verdict.to_string().lines() {
            write!(f, "{separator}{line}")?;
            separator = "\n";
        }
        match &self.gave_up {
            Some(why) => write!(f, "{separator}the job was not started again: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::verdict::Ending;

    /// Attempts before the last are told, each with its culprit; only the last decides about the exit code.
    #[test]
    fn an_outcome_names_its_attempts() {
        let failed = Verdict {
            ending: Ending::TimedOut(Duration::from_secs(2)),
            ..Verdict::new(1)
        };
        let attempt = Attempt {
            number: 1,
            began: Duration::ZERO,
            lasted: Duration::from_secs(2),
            verdict: failed.clone(),
        };
        let mut outcome = JobOutcome {
            attempts: vec![attempt],
            ..JobOutcome::from(Verdict::new(1))
        };
        let culprit = "the job took longer than 2 s and was ended";
        assert_eq!(outcome.to_string(), format!("attempt 1: {culprit}"));
        assert!(outcome.is_success() && outcome.exit_code() == 0);
        outcome.verdict = failed;
        outcome.gave_up = Some("that is enough".to_owned());
        let expected =
            format!("attempt 1: {culprit}\n{culprit}\nthe job was not started again: that is enough");
        assert_eq!((outcome.to_string(), outcome.exit_code()), (expected, 124));
    }

    /// A job that went well at once has nothing to say.
    #[test]
    fn success_is_silent() {
        assert_eq!(JobOutcome::from(Verdict::new(2)).to_string(), "");
    }
}
