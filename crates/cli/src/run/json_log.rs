//! `--log json`: a line of JSON on standard error for each event.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use humantime::format_rfc3339_millis;
use ropewalk_launch::{JobEvent, Launcher};
use ropewalk_names::JobId;
use serde_json::Value;

use super::{progress, saving::Saving};
use crate::watcher::Watcher;

/// Writes events as JSON, but neither output nor traces.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLog {
    /// The job that the events are about: its identity in the first attempt.
    job: JobId,
}

impl JsonLog {
    /// The version of the events. It grows when a key is removed or gets another meaning.
    const VERSION: u32 = 1;

    pub(super) fn new(job: JobId) -> Self {
        Self { job }
    }

    /// Writes an event, if that is possible: the job does not depend on it.
    pub(super) fn write(self, event: Value) {
        let line = self.stamp(event, SystemTime::now());
        progress::erase();
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Adds the keys that every event has.
    fn stamp(self, mut event: Value, time: SystemTime) -> Value {
        event["job"] = self.job.to_string().into();
        event["time"] = format_rfc3339_millis(time).to_string().into();
        event["version"] = Self::VERSION.into();
        event
    }
}

impl Watcher for JsonLog {
    fn handle(&mut self, event: &JobEvent, _launcher: &Launcher) -> anyhow::Result<()> {
        if !matches!(event, JobEvent::Output { .. } | JobEvent::Trace { .. }) {
            self.write(serde_json::to_value(event)?);
        }
        Ok(())
    }

    fn handle_saving(&mut self, saving: Saving, turned: Option<Duration>) {
        if let Some(now) = turned {
            let event = match saving.unprotected_since {
                Some(_) => "saves_fail",
                None => "saves_work",
            };
            self.write(saving.to_json(event, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        path::{Path, PathBuf},
    };

    use ropewalk_launch::{Ending, Failure, FailureKind, Verdict, restart::Attempt};
    use ropewalk_membership::{Cause, Departure};
    use ropewalk_names::{Epoch, Incarnation, Rank};

    use super::{super::summary::tests::summary, *};

    /// Each event has the keys and values that programs read, in the order of the alphabet.
    #[test]
    fn events_have_their_keys() {
        for (event, expected) in examples() {
            assert_eq!(serde_json::to_value(event).unwrap().to_string(), expected);
        }
    }

    /// The page of the book names the keys that every event has, and the version.
    #[test]
    fn the_page_names_the_keys_of_all_events() {
        let log = JsonLog::new(JobId([0xab; 16]));
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_210_096_007);
        let event = serde_json::to_value(JobEvent::Started {
            rank: Rank(3),
            pid: 7,
        })
        .unwrap();
        let stamped = log.stamp(event, time);
        let expected = format!(
            r#"{{"event":"started","job":"{}","pid":7,"rank":3,"time":"2024-02-29T12:34:56.007Z","version":1}}"#,
            "ab".repeat(16)
        );
        assert_eq!(stamped.to_string(), expected);
        let mut written: BTreeMap<_, _> = stamped
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (key.clone(), type_of(value).to_owned()))
            .collect();
        written.retain(|key, _| !["pid", "rank"].contains(&key.as_str()));
        let (common, _) = text_of_page();
        let rows = rows(&common).into_iter();
        let told: BTreeMap<_, _> = rows.map(|cells| (cells[1].clone(), cells[2].clone())).collect();
        assert_eq!(told, written);
        assert!(common.contains(&format!("the version of the events: {}", JsonLog::VERSION)));
    }

    /// The page of the book names every kind of event, and every key with its type, as examples of all of them have
    /// them. The list of kinds is that of the enum, which its source tells.
    #[test]
    fn the_page_names_every_key() {
        let mut kinds = kinds();
        assert_eq!(kinds.len(), 22, "{kinds:?}");
        let examples = examples().into_iter().map(|(event, _)| event);
        let mut objects: Vec<_> = examples
            .map(|event| serde_json::to_value(event).unwrap())
            .collect();
        let summary = summary();
        let saving = summary.saving.unwrap();
        let works = Saving {
            unprotected_since: None,
            ..saving
        };
        let now = Duration::from_secs(100);
        objects.extend([
            saving.to_json("saves_fail", now),
            works.to_json("saves_work", now),
            works.to_json("saving", now),
            summary.to_json(),
        ]);
        kinds.retain(|kind| !["output", "trace"].contains(&kind.as_str()));
        kinds.extend(["saves_fail", "saves_work", "saving"].map(str::to_owned));
        let mut told = BTreeMap::new();
        for object in &objects {
            let kind = object["event"].as_str().unwrap();
            let keys: &mut BTreeMap<_, BTreeSet<_>> = told.entry(kind.to_owned()).or_default();
            for (key, value) in object
                .as_object()
                .unwrap()
                .iter()
                .filter(|(key, _)| *key != "event")
            {
                keys.entry(key.clone())
                    .or_default()
                    .insert(type_of(value).to_owned());
            }
        }
        assert_eq!(
            told.keys().cloned().collect::<BTreeSet<_>>(),
            kinds,
            "examples are missing"
        );
        assert_eq!(page(), told);
    }

    /// The kinds of job events. Other crates cannot match all of them, so this reads the source of the enum.
    fn kinds() -> BTreeSet<String> {
        let source = fs::read_to_string(repository().join("crates/launch-core/src/event.rs")).unwrap();
        let (_, body) = source.split_once("pub enum JobEvent {\n").unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let names = body.lines().filter_map(|line| {
            let name = line.strip_prefix("    ")?;
            let end = name.find(|character: char| !character.is_alphanumeric())?;
            name.starts_with(|first: char| first.is_uppercase())
                .then_some(&name[..end])
        });
        let to_snake_case = |name: &str| {
            let mut text = String::new();
            for character in name.chars() {
                if character.is_uppercase() && !text.is_empty() {
                    text.push('_');
                }
                text.extend(character.to_lowercase());
            }
            text
        };
        names.map(to_snake_case).collect()
    }

    /// Kinds of events, their keys and the types of those, as the page of the book names them.
    fn page() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
        let mut page: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut kind = String::new();
        let (_, kinds) = text_of_page();
        for cells in rows(&kinds) {
            if cells[1].is_empty() {
                let keys = page.get_mut(&kind).unwrap();
                let types = cells[3].split(" or ").map(str::to_owned).collect();
                let other = keys.insert(cells[2].clone(), types);
                assert_eq!(other, None, "{cells:?}");
            } else {
                kind.clone_from(&cells[1]);
                assert_eq!(page.insert(kind.clone(), BTreeMap::new()), None, "{cells:?}");
            }
        }
        page
    }

    /// The page of the book: the keys of all events, and those of each kind.
    fn text_of_page() -> (String, String) {
        let text = fs::read_to_string(repository().join("docs/book/src/reference/events.md")).unwrap();
        let (common, kinds) = text.split_once("| event | key |").unwrap();
        (common.to_owned(), kinds.to_owned())
    }

    /// The cells of each row of a table, from the second.
    fn rows(text: &str) -> Vec<Vec<String>> {
        let rows = text
            .lines()
            .filter(|line| line.starts_with("| `") || line.starts_with("| | `"));
        let cells = |row: &str| {
            row.split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        };
        rows.map(cells).collect()
    }

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn type_of(value: &Value) -> &'static str {
        match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(items) if items.iter().all(Value::is_u64) => "array of integers",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// An example of each job event, with and without what it may lack.
    fn examples() -> Vec<(JobEvent, String)> {
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
        vec![
            (
                JobEvent::Bound {
                    rank,
                    host: host.clone(),
                    is_bound: true,
                    processors: vec![0, 4],
                },
                r#"{"event":"bound","host":"node","is_bound":true,"processors":[0,4],"rank":3}"#.to_owned(),
            ),
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
                    pid: Some(7),
                    at_ns: 5,
                },
                format!(
                    r#"{{"cause":"{}","event":"departed","exit_code":null,{}"rank":3,"signal":9}}"#,
                    departure.cause, r#""host":"node","pid":7,"#
                ),
            ),
            (
                JobEvent::Departed {
                    departure: Departure {
                        cause: Cause::Exited(4),
                        ..departure
                    },
                    host: host.clone(),
                    pid: None,
                    at_ns: 0,
                },
                format!(
                    r#"{{"cause":"exited with code 4","event":"departed","exit_code":4,{}"rank":3,"signal":null}}"#,
                    r#""host":"node","pid":null,"#
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
                JobEvent::EndAnnounced {
                    ending: Ending::Interrupted(15),
                    left: Some(second),
                },
                r#"{"event":"end_announced","left_s":1.0}"#.to_owned(),
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
                JobEvent::FenceEnded {
                    group: 0,
                    fence: "0-3".to_owned(),
                    members: 4,
                    failed: None,
                },
                r#"{"event":"fence_ended","failed":null,"fence":"0-3","group":0,"members":4}"#.to_owned(),
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
                JobEvent::Lost {
                    what: "gone".to_owned(),
                    stall: None,
                },
                r#"{"event":"lost","stall_s":null,"what":"gone"}"#.to_owned(),
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
                    failure: failure.clone(),
                    pause,
                    stall: Some(second),
                },
                format!(
                    r#"{{"cause":"{told}","event":"respawning","host":"node","pause_s":1.5,"rank":3,"stall_s":1.0}}"#
                ),
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
        ]
    }
}
