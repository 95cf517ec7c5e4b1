//! `ropewalk run --on-failure restart` and the library's hook between attempts, with real processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use ropewalk::{
    launch::{
        JobEvent, JobOutcome, JobSpec, LaunchError, Launcher, OnFailure, OutputStream, Segment,
        restart::{Attempt, BetweenAttempts, Progress, Refusal, RestartPolicy},
    },
    names::Rank,
};

use rig::{PATIENCE, ROPEWALK};

fn run(arguments: &[&str]) -> (i32, String, String) {
    let (code, stdout, stderr) = rig::told(rig::run(arguments));
    (code.unwrap(), stdout, stderr)
}

/// A job that fails once is started again, whole, and the exit code is that of the last attempt; the culprit
/// of the first is told once.
#[test]
fn a_failed_job_is_started_again() {
    let script = "echo $ROPEWALK_ATTEMPT; if [ $RANK$ROPEWALK_ATTEMPT = 11 ]; then kill -9 $$; fi; \
                  if [ $ROPEWALK_ATTEMPT = 1 ]; then sleep 60; fi";
    let (code, stdout, stderr) = run(&["-n", "3", "--on-failure", "restart", "sh", "-c", script]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.lines().filter(|&line| line == "2").count(), 3, "{stdout}");
    assert!(stderr.contains("the job is started again in 1 s"), "{stderr}");
    let told = stderr.matches("ropewalk: attempt 1: rank 1 on host").count();
    assert_eq!(told, 1, "{stderr}");
    assert!(
        stderr.ends_with("ropewalk: the job was done in attempt 2\n"),
        "{stderr}"
    );
}

/// After as many restarts as allowed the last attempt's exit code is the job's; a program that is not there is looked
/// for once.
#[test]
fn it_gives_up() {
    let script = "exit $ROPEWALK_ATTEMPT";
    let (code, _, stderr) = run(&["--on-failure", "restart=1", "sh", "-c", script]);
    assert_eq!(code, 2, "{stderr}");
    let end = "the job was not started again: it was started again 1 time already\n";
    assert!(stderr.ends_with(end), "{stderr}");
    let (code, _, stderr) = run(&["--on-failure=restart", "no-such-program"]);
    assert_eq!((code, stderr.lines().count()), (127, 1), "{stderr}");
}

/// A signal ends a job also while nothing of it runs.
#[test]
fn a_pause_can_be_interrupted() {
    // The second pause lasts two seconds.
    interrupted_at("started again in 2 s", &["--on-failure", "restart", "false"]);
}

/// Runs a job, interrupts it when it has said this, and returns what it says from then on.
fn interrupted_at(word: &str, words: &[&str]) -> Vec<String> {
    let mut job = rig::run(words).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.any(|line| line.contains(word)));
    rig::signal("INT", job.id());
    let rest: Vec<_> = lines.collect();
    assert_eq!(job.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.last().unwrap().contains("ended by signal 2"), "{rest:?}");
    rest
}

/// A signal ends a job also while an attempt of it comes to its end for another reason.
#[test]
fn the_end_of_an_attempt_can_be_interrupted() {
    let script = "trap '' INT TERM; [ $RANK = 0 ] && sleep 0.5 && exit 3; while :; do sleep 0.1; done";
    let options = [
        "-n",
        "2",
        "--grace",
        "1",
        "--log",
        "json",
        "--on-failure",
        "restart",
    ];
    let rest = interrupted_at("departed", &[&options[..], &["sh", "-c", script]].concat());
    assert!(rest.iter().all(|line| !line.contains("restarting")), "{rest:?}");
}

/// A hook that prepares each attempt, and records its calls and what it was told.
#[derive(Clone, Default)]
struct Hook(Arc<Mutex<Vec<String>>>);

impl BetweenAttempts for Hook {
    fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), Refusal> {
        let told = last.map(|last| (last.number, last.verdict.exit_code()));
        self.0.lock().unwrap().push(format!("{number} {told:?}"));
        spec.environment
            .variables
            .push(("RESTORE".into(), number.to_string().into()));
        spec.first.ranks = number;
        match number {
            3 => Err("nothing to restore".into()),
            _ => Ok(()),
        }
    }

    fn progress(&mut self, attempt: &Attempt) -> Progress {
        self.0.lock().unwrap().push(format!("ended {}", attempt.number));
        Progress {
            came_to_something: true,
            step: None,
        }
    }
}

fn lines_and_outcome(spec: JobSpec, hook: Hook) -> (Vec<String>, Vec<Attempt>, JobOutcome) {
    let mut launcher = Launcher::start_with(spec, hook).unwrap();
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the job does not end");
        match launcher.next_event(Some(PATIENCE)).unwrap() {
            Some(JobEvent::Output {
                stream: OutputStream::Stdout,
                line,
                ..
            }) => {
                lines.push(String::from_utf8(line).unwrap());
            }
            Some(JobEvent::Restarting { failed: attempt, .. }) => failed.push(*attempt),
            Some(JobEvent::Finished(outcome)) => return (lines, failed, outcome),
            _ => {}
        }
    }
}

/// The hook is asked before each attempt, may change the attempt, and may refuse it; attempts before the last
/// are events and stand in the outcome.
#[test]
fn a_hook_prepares_each_attempt() {
    let hook = Hook::default();
    let program = Segment {
        arguments: ["-c", "echo $RESTORE$RANK; exit 4"].map(Into::into).to_vec(),
        ..Segment::new("sh")
    };
    let restart = OnFailure::Restart(RestartPolicy {
        pause: Duration::from_millis(10),
        ..RestartPolicy::default()
    });
    let spec = JobSpec {
        reactions: restart.into(),
        ..JobSpec::new(ROPEWALK, program)
    };
    let (mut lines, failed, outcome) = lines_and_outcome(spec, hook.clone());
    lines.sort_unstable();
    assert_eq!(lines[0], "10\n");
    assert!(lines[1..].iter().all(|line| line.starts_with('2')), "{lines:?}");
    let told = hook.0.lock().unwrap().clone();
    let expected = ["1 None", "ended 1", "2 Some((1, 4))", "ended 2", "3 Some((2, 4))"];
    assert_eq!(told, expected);
    assert_eq!(failed.len(), 2);
    assert_eq!(outcome.attempts.len(), 1);
    assert_eq!((outcome.verdict.ranks, outcome.exit_code()), (2, 4));
    assert_eq!(outcome.gave_up.as_deref(), Some("nothing to restore"));
}

/// Between attempts the launcher's thread may be busy: signals wait for it, more than may wait are refused by name, and
/// the job goes on as if nothing had been.
#[test]
fn signals_that_cannot_wait_are_refused() {
    struct Busy {
        reached: mpsc::SyncSender<()>,
        released: mpsc::Receiver<()>,
    }

    impl BetweenAttempts for Busy {
        fn prepare(
            &mut self,
            number: u32,
            _last: Option<&Attempt>,
            _spec: &mut JobSpec,
        ) -> Result<(), Refusal> {
            if number == 2 {
                self.reached.send(()).unwrap();
                self.released.recv().unwrap();
            }
            Ok(())
        }
    }

    let restart = OnFailure::Restart(RestartPolicy {
        pause: Duration::from_millis(10),
        ..RestartPolicy::at_most(1)
    });
    let spec = JobSpec {
        reactions: restart.into(),
        ..JobSpec::new(ROPEWALK, "false")
    };
    let (reached, is_reached) = mpsc::sync_channel(1);
    let (release, released) = mpsc::sync_channel(1);
    let mut launcher = Launcher::start_with(spec, Busy { reached, released }).unwrap();
    is_reached.recv_timeout(PATIENCE).unwrap();
    let continued = || launcher.signal(Rank(0), 18);
    let accepted = (0..10_000).take_while(|_| continued().is_ok()).count();
    assert_eq!(accepted, 1024);
    assert!(matches!(continued(), Err(LaunchError::Busy)));
    release.send(()).unwrap();
    let outcome = loop {
        if let Some(JobEvent::Finished(outcome)) = launcher.next_event(Some(PATIENCE)).unwrap() {
            break outcome;
        }
    };
    assert_eq!((outcome.exit_code(), outcome.attempts.len()), (1, 1), "{outcome}");
}
