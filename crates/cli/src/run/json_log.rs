//! `--log json`: a line of JSON on standard error for each event.

use std::{
    io::{self, Write},
    time::Duration,
};

use ropewalk_launch::{JobEvent, Launcher};
use serde_json::Value;

use super::{progress, saving::Saving};
use crate::watcher::Watcher;

/// Writes events as JSON, but neither output nor traces.
#[derive(Debug)]
pub(super) struct JsonLog;

impl Watcher for JsonLog {
    fn handle(&mut self, event: &JobEvent, _launcher: &Launcher) -> anyhow::Result<()> {
        if !matches!(event, JobEvent::Output { .. } | JobEvent::Trace { .. }) {
            log(&serde_json::to_value(event)?);
        }
        Ok(())
    }

    fn handle_saving(&mut self, saving: Saving, turned: Option<Duration>) {
        if let Some(now) = turned {
            let event = match saving.unprotected_since {
                Some(_) => "saves_fail",
                None => "saves_work",
            };
            log(&saving.to_json(event, now));
        }
    }
}

/// Writes a line, if that is possible: the job does not depend on it.
pub(super) fn log(object: &Value) {
    progress::erase();
    let _ = writeln!(io::stderr(), "{object}");
}

#[cfg(test)]
mod tests {
    use ropewalk_launch::{Ending, Failure, FailureKind, Verdict, restart::Attempt};
    use ropewalk_membership::{Cause, Departure};
    use ropewalk_names::{Epoch, Incarnation, Rank};

    use super::*;

    /// Each event has the keys and values that programs read, in the order of the alphabet.
    #[test]
    fn events_have_their_keys() {
        let (rank, host) = (Rank(3), "node".to_owned());
        let (pause, second) = (Duration::from_millis(1_500), Duration::from_secs(1));
        let failure = Failure {
            rank,
            spawned: None,
            host: host.clone(),
            pid: Some(7),
            kind: FailureKind::Exited(4),
            stage: None,
            after: second,
        };
        let verdict = Verdict {
            ending: Ending::Failed,
            failures: vec![failure.clone()],
            ..Verdict::new(1)
        };
        let departure = Departure {
            rank,
            incarnation: Incarnation(0),
            epoch: Epoch(1),
            cause: Cause::Signalled(9),
        };
        let attempt = Attempt {
            number: 2,
            began: second,
            lasted: pause,
            verdict: verdict.clone(),
        };
        let told = failure.to_string();
        let events = [
            (
                JobEvent::Continued {
                    rank,
                    host: host.clone(),
                },
                r#"{"event":"continued","host":"node","rank":3}"#.to_owned(),
            ),
            (
                JobEvent::Departed {
                    departure,
                    host: host.clone(),
                    at_ns: 5,
                },
                format!(
                    r#"{{"cause":"{}","event":"departed","host":"node","rank":3}}"#,
                    departure.cause
                ),
            ),
            (
                JobEvent::EndAnnounced {
                    ending: Ending::Interrupted(15),
                    left: None,
                },
                r#"{"event":"end_announced","left_s":null}"#.to_owned(),
            ),
            (
                JobEvent::FenceBegan {
                    group: 1,
                    fence: "WORLD".to_owned(),
                },
                r#"{"event":"fence_began","fence":"WORLD","group":1}"#.to_owned(),
            ),
            (
                JobEvent::FenceEnded {
                    group: 1,
                    fence: "WORLD".to_owned(),
                    members: 8,
                    failed: Some(rank),
                },
                r#"{"event":"fence_ended","failed":3,"fence":"WORLD","group":1,"members":8}"#.to_owned(),
            ),
            (
                JobEvent::Finished(verdict.into()),
                format!(r#"{{"event":"finished","exit_code":4,"verdict":"{told}"}}"#),
            ),
            (
                JobEvent::HostLate {
                    host: host.clone(),
                    after: pause,
                },
                r#"{"after_s":1.5,"event":"host_late","host":"node"}"#.to_owned(),
            ),
            (
                JobEvent::HostReady {
                    host: host.clone(),
                    ready: 1,
                    hosts: 2,
                },
                r#"{"event":"host_ready","host":"node","hosts":2,"ready":1}"#.to_owned(),
            ),
            (
                JobEvent::Injected {
                    rank,
                    host: host.clone(),
                },
                r#"{"event":"injected","host":"node","rank":3}"#.to_owned(),
            ),
            (
                JobEvent::Lost {
                    what: "gone".to_owned(),
                    stall: Some(second),
                },
                r#"{"event":"lost","stall_s":1.0,"what":"gone"}"#.to_owned(),
            ),
            (
                JobEvent::NameServerFailed {
                    reason: "why".to_owned(),
                },
                r#"{"event":"name_server_failed","reason":"why"}"#.to_owned(),
            ),
            (
                JobEvent::Notice {
                    rank,
                    text: "odd".to_owned(),
                },
                r#"{"event":"notice","rank":3,"text":"odd"}"#.to_owned(),
            ),
            (
                JobEvent::Overwritten {
                    rank,
                    key: "k".to_owned(),
                },
                r#"{"event":"overwritten","key":"k","rank":3}"#.to_owned(),
            ),
            (
                JobEvent::Respawning {
                    failure,
                    pause,
                    stall: None,
                },
                format!(
                    r#"{{"cause":"{told}","event":"respawning","host":"node","pause_s":1.5,"rank":3,"stall_s":null}}"#
                ),
            ),
            (
                JobEvent::Restarting {
                    failed: Box::new(attempt),
                    pause: second,
                },
                format!(
                    r#"{{"after_s":1.5,"attempt":2,"event":"restarting","exit_code":4,{}"{told}"}}"#,
                    r#""pause_s":1.0,"verdict":"#
                ),
            ),
            (
                JobEvent::Spawned {
                    group: 1,
                    first: rank,
                    size: 2,
                    by: Rank(0),
                },
                r#"{"by":0,"event":"spawned","first_rank":3,"group":1,"size":2}"#.to_owned(),
            ),
            (
                JobEvent::Stalled {
                    after: pause,
                    who: "all".to_owned(),
                    ends_after: second,
                },
                r#"{"after_s":1.5,"ends_after_s":1.0,"event":"stalled","who":"all"}"#.to_owned(),
            ),
            (
                JobEvent::Started { rank, pid: 7 },
                r#"{"event":"started","pid":7,"rank":3}"#.to_owned(),
            ),
            (
                JobEvent::Stopped {
                    rank,
                    host,
                    pid: 7,
                    signal: 19,
                },
                r#"{"event":"stopped","host":"node","pid":7,"rank":3,"signal":19}"#.to_owned(),
            ),
        ];
        for (event, expected) in events {
            assert_eq!(serde_json::to_value(event).unwrap().to_string(), expected);
        }
    }
}
