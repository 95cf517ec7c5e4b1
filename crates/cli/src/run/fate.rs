//! The parts that the processes of a job play in its end.

use std::time::Duration;

use ropewalk_launch::{Ending, Verdict};
use ropewalk_membership::Cause;

use super::record::{Life, Record};

/// The part of a process in the end of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It failed before all others: the culprit.
    FailedFirst,
    /// It failed by itself after another one.
    Failed,
    /// It did not end well, after the launcher had begun to end the job.
    EndedWithJob,
    /// It did its work, or was not seen to end.
    Well,
}

impl Fate {
    /// The fate of each process of a job that is over, in the order of [`Record::lives`].
    ///
    /// If the loss of a host is the first failure, all processes of that host have failed first. A host that is lost
    /// while a job ends for another reason is no culprit.
    pub(super) fn of_all(record: &Record) -> Vec<Self> {
        let attempts = record.lives.chunk_by(|one, next| one.attempt == next.attempt);
        attempts
            .flat_map(|lives| {
                let verdict = lives.first().and_then(|life| record.verdict_of(life.attempt));
                Self::of_attempt(lives, verdict)
            })
            .collect()
    }

    fn of_attempt(lives: &[Life], verdict: Option<&Verdict>) -> Vec<Self> {
        let failures = verdict
            .into_iter()
            .flat_map(|verdict| verdict.failures.iter().chain(&verdict.respawned));
        // The order of the verdict is that of the failures: a process that aborts may live longer than others.
        let failures: Vec<_> = failures.map(|failure| (failure.rank, failure.pid)).collect();
        let place = |life: &Life| {
            failures
                .iter()
                .position(|failure| *failure == (life.rank, Some(life.pid)))
        };
        let counts_hosts = verdict.is_none_or(|verdict| match verdict.ending {
            Ending::AgentLost { .. } | Ending::Completed => true,
            Ending::Failed => failures.is_empty(),
            _ => false,
        });
        // A failure may have the exit code 0.
        let is_failure = |life: &Life| counts_hosts && is_lost(life) || place(life).is_some();
        let ended = |life: &Life| life.ended.map_or(Duration::MAX, |(at, _)| at);
        let culprit = lives.iter().filter(|life| is_failure(life)).min_by_key(|life| {
            let place = place(life).filter(|_| !counts_hosts);
            (place.unwrap_or_default(), ended(life))
        });
        let is_culprit = |life: &Life| {
            culprit.is_some_and(|culprit| match is_lost(culprit) {
                true => is_lost(life) && life.host == culprit.host,
                false => (life.rank, life.pid) == (culprit.rank, culprit.pid),
            })
        };
        let fate = |life: &Life| match life.ended {
            _ if is_culprit(life) => Self::FailedFirst,
            _ if is_failure(life) => Self::Failed,
            Some((_, cause)) if !cause.is_success() => Self::EndedWithJob,
            _ => Self::Well,
        };
        lives.iter().map(fate).collect()
    }

    /// The class of its marks in a page, and its words there.
    pub(super) fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::FailedFirst => ("culprit", "failed first"),
            Self::Failed => ("failure", "failed"),
            Self::EndedWithJob => ("ended", "ended with the job"),
            Self::Well => ("well", ""),
        }
    }
}

fn is_lost(life: &Life) -> bool {
    matches!(life.ended, Some((_, Cause::AgentLost)))
}

#[cfg(test)]
mod tests {
    use ropewalk_launch::{Ending, Failure, FailureKind};
    use ropewalk_names::Rank;

    use super::*;

    fn life(rank: u32, host: &str, ended_ms: u64, cause: Cause) -> Life {
        Life {
            rank: Rank(rank),
            host: host.to_owned(),
            pid: 100 + rank,
            attempt: 0,
            started: Duration::ZERO,
            ended: Some((Duration::from_millis(ended_ms), cause)),
            stops: Vec::new(),
            output_bytes: 0,
        }
    }

    fn failure(rank: u32, kind: FailureKind) -> Failure {
        Failure {
            rank: Rank(rank),
            spawned: None,
            host: "a".to_owned(),
            pid: Some(100 + rank),
            kind,
            stage: None,
            after: Duration::ZERO,
        }
    }

    fn fates(lives: Vec<Life>, ending: Ending, failures: Vec<Failure>) -> Vec<Fate> {
        let verdict = Verdict {
            ending,
            failures,
            ..Verdict::new(lives.len() as u32)
        };
        let mut record = Record::default();
        record.lives = lives;
        record.outcome = Some((Duration::from_secs(1), verdict.into()));
        Fate::of_all(&record)
    }

    /// The first in time is the culprit, whatever its rank and its exit code. A process that the verdict does not
    /// blame was ended with the job, also if it exited by itself.
    #[test]
    fn the_first_failure_is_the_culprit() {
        let lives = vec![
            life(0, "a", 30, Cause::Signalled(15)),
            life(1, "a", 20, Cause::Exited(2)),
            life(2, "b", 10, Cause::Exited(0)),
            life(3, "b", 30, Cause::Exited(1)),
            life(4, "b", 5, Cause::Exited(0)),
        ];
        let failures = vec![
            failure(2, FailureKind::Unfinished),
            failure(1, FailureKind::Exited(2)),
        ];
        let expected = [
            Fate::EndedWithJob,
            Fate::Failed,
            Fate::FailedFirst,
            Fate::EndedWithJob,
            Fate::Well,
        ];
        assert_eq!(fates(lives, Ending::Failed, failures), expected);
    }

    /// All processes of the host that is lost first are culprits, those of a host that is lost later are not.
    #[test]
    fn a_lost_host_is_the_culprit() {
        let lives = vec![
            life(0, "a", 12, Cause::Signalled(15)),
            life(1, "b", 10, Cause::AgentLost),
            life(2, "b", 11, Cause::AgentLost),
            life(3, "c", 12, Cause::AgentLost),
        ];
        let ending = Ending::AgentLost {
            host: "b".to_owned(),
            how: "was killed".to_owned(),
            more: Vec::new(),
            continued: false,
        };
        let expected = [
            Fate::EndedWithJob,
            Fate::FailedFirst,
            Fate::FailedFirst,
            Fate::Failed,
        ];
        assert_eq!(fates(lives, ending, Vec::new()), expected);
    }

    /// If nothing failed before the job was ended, there is no culprit.
    #[test]
    fn a_job_whose_time_was_over_has_no_culprit() {
        let lives = vec![life(0, "a", 10, Cause::Signalled(15))];
        let ending = Ending::TimedOut(Duration::from_secs(1));
        assert_eq!(fates(lives, ending, Vec::new()), [Fate::EndedWithJob]);
    }
}
