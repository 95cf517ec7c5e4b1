//! Decides over a job: when it is being ended, how, and what the verdict is.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ropewalk_group::{Cause, Rank};

use crate::{
    event::JobEvent,
    job::OnFailure,
    protocol::{Order, Report, StartErrorKind},
    verdict::{Ending, Failure, FailureKind, Verdict},
};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The launcher's mind. `now` is the time since the start of the job.
///
/// Tell it what happens with `handle_*`; after each call do what [`poll_action`](Self::poll_action) says until
/// it says nothing, and call [`handle_timeout`](Self::handle_timeout) when
/// [`deadline`](Self::deadline) has come. It is over when [`JobEvent::Finished`] came out.
#[derive(Debug)]
pub(crate) struct Supervisor {
    ranks: u32,
    on_failure: OnFailure,
    limit: Option<Duration>,
    program: String,
    host_name: String,
    is_agent_ready: bool,
    running: BTreeMap<Rank, u32>,
    failures: Vec<Failure>,
    phase: Phase,
    actions: VecDeque<Action>,
}

/// What has to be done for a [`Supervisor`].
#[derive(Debug)]
pub(crate) enum Action {
    /// Tell whoever watches the job.
    Event(JobEvent),
    /// The agent does not do what it is told: end it, and then its ranks without it.
    KillAgent,
    /// Send this to the agent.
    Order(Order),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The ranks were asked to end; at `kill_at` they are killed, and so is the agent if it shows no sign of
    /// that until `despair_at`.
    Ending {
        ending: Ending,
        kill_at: Option<Duration>,
        despair_at: Option<Duration>,
    },
    Over,
}

impl Supervisor {
    /// How long ranks have between the request to end and SIGKILL.
    pub(crate) const GRACE: Duration = Duration::from_secs(1);
    /// How long the agent has after that to tell that the ranks are gone.
    pub(crate) const AGENT_PATIENCE: Duration = Duration::from_secs(3);

    pub(crate) fn new(ranks: u32, on_failure: OnFailure, limit: Option<Duration>, program: String) -> Self {
        Self {
            ranks,
            on_failure,
            limit,
            program,
            host_name: "localhost".to_owned(),
            is_agent_ready: false,
            running: BTreeMap::new(),
            failures: Vec::new(),
            phase: Phase::Running,
            actions: VecDeque::new(),
        }
    }

    pub(crate) fn handle_report(&mut self, now: Duration, report: Report) {
        if self.phase == Phase::Over {
            return;
        }
        match report {
            Report::Aborted {
                rank,
                exit_code,
                message,
            } => {
                let kind = FailureKind::Aborted { exit_code, message };
                self.fail(now, rank, kind, OnFailure::Abort, SIGTERM);
            }
            Report::Departed {
                departure,
                unfinished,
                at_ns,
            } => {
                let rank = departure.rank;
                let kind = match departure.cause {
                    Cause::Exited(0) if unfinished => Some(FailureKind::Unfinished),
                    Cause::Exited(0) => None,
                    Cause::Exited(code) => Some(FailureKind::Exited(code)),
                    Cause::Signalled(signal) => Some(FailureKind::Signalled(signal)),
                    // Only agents report, and what they report they saw.
                    _ => None,
                };
                if let Some(kind) = kind {
                    self.fail(now, rank, kind, self.on_failure, SIGTERM);
                }
                self.running.remove(&rank);
                self.tell(JobEvent::Departed {
                    departure,
                    host: self.host_name.clone(),
                    at_ns,
                });
            }
            Report::Finished => self.finish(),
            Report::Notice { rank, text } => self.tell(JobEvent::Notice { rank, text }),
            Report::NotStarted { rank, error } => {
                let exit_code = match error.kind {
                    StartErrorKind::NotFound => 127,
                    StartErrorKind::NotExecutable => 126,
                    StartErrorKind::System => 125,
                };
                let reason = format!("{}: {}", self.program, error.reason);
                // What runs already has just begun: there is nothing to finish in an orderly way.
                let kind = FailureKind::NotStarted { exit_code, reason };
                self.fail(now, rank, kind, OnFailure::Abort, SIGKILL);
            }
            // What carries bytes is counted and handed on by the driver.
            Report::Output { .. } | Report::StdinTaken(_) => {}
            Report::Ready { host_name } => {
                self.host_name = host_name;
                self.is_agent_ready = true;
            }
            Report::Started { rank, pid } => {
                self.running.insert(rank, pid);
                self.tell(JobEvent::Started { rank, pid });
            }
            Report::Trace { rank, event } => self.tell(JobEvent::Trace { rank, event }),
        }
    }

    /// The connection to the agent ended before the job did, and its ranks were killed; `how` says what became of
    /// the agent.
    pub(crate) fn handle_agent_lost(&mut self, how: String) {
        if self.phase == Phase::Over {
            return;
        }
        if !matches!(self.phase, Phase::Ending { .. }) {
            let host = self.host_name.clone();
            self.phase = Phase::Ending {
                ending: Ending::AgentLost { host, how },
                kill_at: None,
                despair_at: None,
            };
        }
        self.finish();
    }

    /// Somebody wants the job to end, and says so with this signal.
    pub(crate) fn handle_interrupt(&mut self, now: Duration, signal: i32) {
        self.end(now, Ending::Interrupted(signal), signal);
    }

    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match &mut self.phase {
            Phase::Running => {
                let limit = self.limit.unwrap_or_default();
                self.end(now, Ending::TimedOut(limit), SIGTERM);
            }
            Phase::Ending {
                kill_at, despair_at, ..
            } => {
                if kill_at.take().is_some() {
                    self.signal_all(SIGKILL);
                    return;
                }
                *despair_at = None;
                // If no rank is left the agent waits for somebody to take the output, and rightly.
                if !self.is_agent_ready || !self.running.is_empty() {
                    self.actions.push_back(Action::KillAgent);
                }
            }
            Phase::Over => {}
        }
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Running => self.limit,
            Phase::Ending {
                kill_at, despair_at, ..
            } => kill_at.or(*despair_at),
            Phase::Over => None,
        }
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// What happens while the job is being ended is a consequence, not a failure.
    fn fail(&mut self, now: Duration, rank: Rank, kind: FailureKind, reaction: OnFailure, signal: i32) {
        if self.phase != Phase::Running {
            return;
        }
        self.failures.push(Failure {
            rank,
            host: self.host_name.clone(),
            pid: self.running.get(&rank).copied(),
            kind,
            after: now,
        });
        if reaction == OnFailure::Abort {
            self.end(now, Ending::Failed, signal);
        }
    }

    fn end(&mut self, now: Duration, ending: Ending, signal: i32) {
        if self.phase != Phase::Running {
            return;
        }
        let kill_at = (signal != SIGKILL).then(|| now + Self::GRACE);
        self.phase = Phase::Ending {
            ending,
            kill_at,
            despair_at: Some(kill_at.unwrap_or(now) + Self::AGENT_PATIENCE),
        };
        self.signal_all(signal);
    }

    fn signal_all(&mut self, signal: i32) {
        self.actions
            .push_back(Action::Order(Order::Signal { rank: None, signal }));
    }

    fn finish(&mut self) {
        let ending = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Ending { ending, .. } => ending,
            Phase::Running | Phase::Over => Ending::Completed,
        };
        let verdict = Verdict {
            ranks: self.ranks,
            ending,
            failures: std::mem::take(&mut self.failures),
        };
        self.tell(JobEvent::Finished(verdict));
    }

    fn tell(&mut self, event: JobEvent) {
        self.actions.push_back(Action::Event(event));
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_group::{Departure, Epoch, Incarnation};

    use super::*;
    use crate::protocol::StartError;

    const SECOND: Duration = Duration::from_secs(1);

    fn supervisor(on_failure: OnFailure) -> Supervisor {
        let mut supervisor = Supervisor::new(2, on_failure, Some(60 * SECOND), "program".to_owned());
        for (rank, pid) in [(0, 100), (1, 101)] {
            let rank = Rank(rank);
            supervisor.handle_report(Duration::ZERO, Report::Started { rank, pid });
        }
        while supervisor.poll_action().is_some() {}
        supervisor
    }

    fn depart(supervisor: &mut Supervisor, now: Duration, rank: u32, cause: Cause, unfinished: bool) {
        let departure = Departure {
            rank: Rank(rank),
            incarnation: Incarnation(0),
            epoch: Epoch(1),
            cause,
        };
        let report = Report::Departed {
            departure,
            unfinished,
            at_ns: 0,
        };
        supervisor.handle_report(now, report);
    }

    fn signals(supervisor: &mut Supervisor) -> Vec<i32> {
        std::iter::from_fn(|| supervisor.poll_action())
            .filter_map(|action| match action {
                Action::Order(Order::Signal { rank: None, signal }) => Some(signal),
                _ => None,
            })
            .collect()
    }

    fn verdict(supervisor: &mut Supervisor) -> Verdict {
        std::iter::from_fn(|| supervisor.poll_action())
            .find_map(|action| match action {
                Action::Event(JobEvent::Finished(verdict)) => Some(verdict),
                _ => None,
            })
            .unwrap()
    }

    /// With `abort` the first failure ends the others, first politely, then not; what dies then is no failure.
    #[test]
    fn the_first_failure_ends_the_job() {
        let mut supervisor = supervisor(OnFailure::Abort);
        depart(&mut supervisor, SECOND, 1, Cause::Exited(7), false);
        assert_eq!(signals(&mut supervisor), [SIGTERM]);
        assert_eq!(supervisor.deadline(), Some(SECOND + Supervisor::GRACE));
        supervisor.handle_timeout(SECOND + Supervisor::GRACE);
        assert_eq!(signals(&mut supervisor), [SIGKILL]);
        depart(&mut supervisor, 3 * SECOND, 0, Cause::Signalled(9), false);
        supervisor.handle_report(3 * SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        assert_eq!((verdict.exit_code(), verdict.failures.len()), (7, 1));
        assert_eq!(verdict.failures[0].pid, Some(101));
        assert!(supervisor.is_over());
    }

    /// An agent that does not end its ranks although it was told to is killed; one that only waits for somebody to
    /// take the output is not.
    #[test]
    fn an_agent_that_does_not_obey_is_killed() {
        for obeys in [false, true] {
            let mut supervisor = supervisor(OnFailure::Abort);
            let host_name = "vm".to_owned();
            supervisor.handle_report(Duration::ZERO, Report::Ready { host_name });
            supervisor.handle_interrupt(SECOND, SIGTERM);
            let kill_at = SECOND + Supervisor::GRACE;
            supervisor.handle_timeout(kill_at);
            assert_eq!(signals(&mut supervisor), [SIGTERM, SIGKILL]);
            if obeys {
                for rank in [0, 1] {
                    depart(&mut supervisor, kill_at, rank, Cause::Signalled(9), false);
                }
            }
            let despair_at = kill_at + Supervisor::AGENT_PATIENCE;
            assert_eq!(supervisor.deadline(), Some(despair_at));
            supervisor.handle_timeout(despair_at);
            let is_killed = std::iter::from_fn(|| supervisor.poll_action())
                .any(|action| matches!(action, Action::KillAgent));
            assert_eq!(is_killed, !obeys);
            assert_eq!(supervisor.deadline(), None);
        }
    }

    /// With `continue` the others go on, and the exit code is still the first failing rank's.
    #[test]
    fn with_continue_the_others_go_on() {
        let mut supervisor = supervisor(OnFailure::Continue);
        depart(&mut supervisor, SECOND, 0, Cause::Signalled(9), false);
        assert_eq!(signals(&mut supervisor), []);
        depart(&mut supervisor, SECOND, 1, Cause::Exited(3), false);
        supervisor.handle_report(SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        assert_eq!((verdict.exit_code(), verdict.failures.len()), (137, 2));
        assert_eq!(verdict.ending, Ending::Completed);
    }

    /// "EOF without finalize after any PMI command = abnormal end of that rank".
    #[test]
    fn a_rank_that_leaves_pmi_open_failed() {
        let mut supervisor = supervisor(OnFailure::Abort);
        depart(&mut supervisor, SECOND, 0, Cause::Exited(0), true);
        supervisor.handle_report(SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        assert_eq!(verdict.failures[0].kind, FailureKind::Unfinished);
        assert_eq!(verdict.exit_code(), 1);
    }

    /// An abort by PMI ends the job with the rank's exit code whatever the policy is.
    #[test]
    fn an_abort_ends_the_job() {
        let mut supervisor = supervisor(OnFailure::Continue);
        let rank = Rank(1);
        let message = String::new();
        let report = Report::Aborted {
            rank,
            exit_code: 9,
            message,
        };
        supervisor.handle_report(SECOND, report);
        assert_eq!(signals(&mut supervisor), [SIGTERM]);
        depart(&mut supervisor, SECOND, 1, Cause::Exited(1), true);
        supervisor.handle_report(SECOND, Report::Finished);
        assert_eq!(verdict(&mut supervisor).exit_code(), 9);
    }

    /// A program that cannot be started is 126 or 127, and what was started is killed at once.
    #[test]
    fn a_program_that_is_not_there_is_named() {
        let mut supervisor = supervisor(OnFailure::Continue);
        let error = StartError {
            kind: StartErrorKind::NotFound,
            reason: "no such file".to_owned(),
        };
        let rank = Rank(2);
        supervisor.handle_report(SECOND, Report::NotStarted { rank, error });
        assert_eq!(signals(&mut supervisor), [SIGKILL]);
        supervisor.handle_report(SECOND, Report::Finished);
        let verdict = verdict(&mut supervisor);
        assert_eq!(verdict.exit_code(), 127);
        assert!(verdict.to_string().contains("program: no such file"), "{verdict}");
    }

    /// Time-outs, interrupts and a lost agent have their own exit codes.
    #[test]
    fn other_endings() {
        let mut timed_out = supervisor(OnFailure::Abort);
        timed_out.handle_timeout(59 * SECOND);
        assert_eq!(signals(&mut timed_out), []);
        timed_out.handle_timeout(60 * SECOND);
        assert_eq!(signals(&mut timed_out), [SIGTERM]);
        timed_out.handle_report(60 * SECOND, Report::Finished);
        assert_eq!(verdict(&mut timed_out).exit_code(), 124);

        let mut interrupted = supervisor(OnFailure::Abort);
        interrupted.handle_interrupt(SECOND, 2);
        assert_eq!(signals(&mut interrupted), [2]);
        interrupted.handle_report(SECOND, Report::Finished);
        assert_eq!(verdict(&mut interrupted).exit_code(), 130);

        let mut lost = supervisor(OnFailure::Continue);
        lost.handle_agent_lost("was killed by signal 9".to_owned());
        let verdict = verdict(&mut lost);
        assert_eq!(verdict.exit_code(), 125);
        let text = "the agent on host localhost was killed by signal 9; the job was ended";
        assert_eq!(verdict.to_string(), text);
    }
}
