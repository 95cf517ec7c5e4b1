//! `ropewalk run` under ^Z and fg: the job is stopped with its launcher, for longer than anybody may be
//! silent otherwise, and goes on with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    process::{ChildStdout, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rig::{Guarded, ROPEWALK, await_true, parent, signal, state, write_script};

/// Longer than the `--detect` of the jobs, with what it may take to be acted on.
const SUSPENSION: Duration = Duration::from_millis(2500);
/// On this host alone, and on others: these are this machine too, and their agents make a chain.
const PLACES: [&[&str]; 2] = [&[], &["-hosts", "h1,h2", "-launcher", "fork", "--arity", "1"]];

/// A job of two ranks that say their process numbers.
struct Job {
    launcher: Guarded,
    lines: Lines<BufReader<ChildStdout>>,
    /// The process number of each rank.
    ranks: Vec<u32>,
}

impl Job {
    fn start(place: &[&str], then: &str) -> Self {
        Self::start_with(&[place, &["--detect", "1", "--stall", "2"]].concat(), then)
    }

    fn start_with(options: &[&str], then: &str) -> Self {
        let mut launcher = Command::new(ROPEWALK)
            .arg("run")
            .args(options)
            .args(["-n", "2", "sh", "-c", &format!("echo $RANK $$; {then}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let mut ranks: Vec<_> = lines.by_ref().take(2).map(Result::unwrap).collect();
        ranks.sort_unstable();
        let pid_of = |line: &String| line.split_once(' ').unwrap().1.parse().unwrap();
        Self {
            ranks: ranks.iter().map(pid_of).collect(),
            launcher: launcher.into(),
            lines,
        }
    }

    fn signal(&self, name: &str) {
        signal(name, self.launcher.id());
    }

    /// As ^Z does.
    fn suspend(&self) {
        self.signal("TSTP");
        // One that waits for a child to become another program waits longer if that child is stopped (vfork(2)).
        for &pid in self.ranks.iter().chain([&self.launcher.id()]) {
            await_true("is not stopped", || matches!(state(pid), Some('T' | 'D')));
        }
    }
}

/// A job that was suspended goes on where it was: nobody takes anybody for dead, nothing counts as a stall,
/// and the time limit is one of the time in which the job runs.
#[test]
fn a_suspended_job_goes_on() {
    for place in PLACES {
        let options = ["--detect", "1", "--stall", "2", "--timeout", "4"];
        let job = Job::start_with(
            &[place, &options].concat(),
            "for i in 1 2 3 4 5 6; do sleep 0.3; echo $RANK $i; done",
        );
        job.suspend();
        sleep(SUSPENSION);
        job.signal("CONT");
        let mut lines: Vec<_> = job.lines.map(Result::unwrap).collect();
        lines.sort_unstable();
        let said = |rank| (1..=6).map(move |number| format!("{rank} {number}"));
        let expected: Vec<_> = (0..2).flat_map(said).collect();
        let ended = job.launcher.wait_with_output().unwrap();
        let verdict = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{place:?}: {verdict}");
        assert_eq!(lines, expected, "{place:?}: {verdict}");
    }
}

/// It may be suspended again; and a launcher that is killed while it is takes all with it, as always.
#[test]
fn a_suspended_launcher_that_is_killed_leaves_nothing() {
    for place in PLACES {
        let mut job = Job::start(place, "exec sleep 100");
        for _ in 0..2 {
            job.suspend();
            job.signal("CONT");
            for &pid in &job.ranks {
                await_true("does not go on", || state(pid) == Some('S'));
            }
        }
        job.suspend();
        job.launcher.kill().unwrap();
        job.launcher.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(2);
        while job
            .ranks
            .iter()
            .any(|pid| state(*pid).is_some_and(|state| state != 'Z'))
        {
            assert!(Instant::now() < deadline, "{place:?}: ranks are left");
            sleep(Duration::from_millis(10));
        }
    }
}

/// How long a rank is stopped for counts only while the job is not: one that was stopped just before goes on
/// in time, and does not by itself.
#[test]
fn a_stopped_rank_is_not_overdue_when_the_job_goes_on() {
    let options = ["--detect", "2", "--stopped", "fail"];
    let job = Job::start_with(&options, "exec sleep 2");
    signal("STOP", job.ranks[1]);
    await_true("is not stopped", || state(job.ranks[1]) == Some('T'));
    // Its agent has to hear of that first.
    sleep(Duration::from_millis(200));
    job.suspend();
    sleep(SUSPENSION);
    job.signal("CONT");
    await_true("does not go on", || {
        state(job.ranks[0]).is_none_or(|state| state != 'T')
    });
    sleep(Duration::from_millis(200));
    assert_eq!(state(job.ranks[1]), Some('T'));
    signal("CONT", job.ranks[1]);
    let ended = job.launcher.wait_with_output().unwrap();
    let verdict = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{verdict}");
}

/// A job that waits to be suspended until the agent right below the launcher hears of that, which hangs; its number.
fn job_with_deaf_agent(then: &str) -> (Job, String) {
    let job = Job::start_with(&[PLACES[1], &["--detect", "6"]].concat(), then);
    let agent = parent(job.ranks[0]).unwrap().to_string();
    signal_agent(&agent, "STOP");
    job.signal("TSTP");
    sleep(SEEN);
    (job, agent)
}

fn signal_agent(agent: &str, name: &str) {
    // It would be another's number if the agent were gone.
    let command = fs::read_to_string(format!("/proc/{agent}/comm")).unwrap();
    assert_eq!(command, "ropewalk\n");
    signal(name, agent);
}

/// By then a launcher on a busy machine has seen a signal: the order of two that it sees together is unknown to it.
const SEEN: Duration = Duration::from_secs(1);

/// Nobody stops a launcher for this time, in which it would be if it were to be.
fn assert_not_stopped(launcher: u32) {
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_ne!(state(launcher), Some('T'));
        sleep(Duration::from_millis(10));
    }
}

/// A job may be let go on before it is stopped, as batch systems may do. It is not stopped then, and nobody
/// waits for it in vain.
#[test]
fn a_job_that_is_let_go_on_at_once_is_not_stopped() {
    let (job, agent) = job_with_deaf_agent("sleep 2; echo $RANK");
    job.signal("CONT");
    assert_not_stopped(job.launcher.id());
    signal_agent(&agent, "CONT");
    let mut lines: Vec<_> = job.lines.map(Result::unwrap).collect();
    lines.sort_unstable();
    let ended = job.launcher.wait_with_output().unwrap();
    let verdict = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{verdict}");
    assert_eq!(lines, ["0", "1"], "{verdict}");
}

/// ^C after ^Z ends a job that is not stopped yet.
#[test]
fn a_job_that_waits_to_be_stopped_can_be_ended() {
    let (mut job, agent) = job_with_deaf_agent("exec sleep 100");
    job.signal("INT");
    // It hears that now, and not when it is stopped and goes on.
    sleep(SEEN);
    signal_agent(&agent, "CONT");
    let deadline = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = job.launcher.try_wait().unwrap() {
            break status;
        }
        assert_ne!(state(job.launcher.id()), Some('T'));
        assert!(Instant::now() < deadline, "it is not ended");
        sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(128 + 2));
}

/// Who presses ^Z again, because it takes a while, does not suspend the job again when it goes on.
#[test]
fn an_impatient_user_suspends_a_job_once() {
    let (job, agent) = job_with_deaf_agent("sleep 2; echo $RANK");
    for _ in 0..2 {
        job.signal("TSTP");
        sleep(Duration::from_millis(300));
    }
    let launcher = job.launcher.id();
    await_true("is not stopped", || state(launcher) == Some('T'));
    signal_agent(&agent, "CONT");
    job.signal("CONT");
    await_true("does not go on", || state(launcher) != Some('T'));
    assert_not_stopped(launcher);
    let mut lines: Vec<_> = job.lines.map(Result::unwrap).collect();
    lines.sort_unstable();
    let ended = job.launcher.wait_with_output().unwrap();
    let verdict = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{verdict}");
    assert_eq!(lines, ["0", "1"], "{verdict}");
}

/// A job whose agents are on their way when it is suspended goes on too.
#[test]
fn a_job_is_suspended_while_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow-rsh");
    let begun = folder.path().join("begun");
    let script = format!(
        "#!/bin/sh\nshift\ntouch {}\nsleep 0.7\nexec \"$@\"\n",
        begun.display()
    );
    write_script(&slow, &script);
    let launcher = Command::new(ROPEWALK)
        .args(["run", "--detect", "1", "-launcher-exec"])
        .arg(&slow)
        .args(["-hosts", "h1,h2", "-iface", "127.0.0.1"])
        .args(["-n", "2", "sh", "-c", "echo $RANK"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Guarded::from)
        .unwrap();
    await_true("does not begin", || begun.exists());
    let pid = launcher.id();
    signal("TSTP", pid);
    await_true("is not stopped", || state(pid) == Some('T'));
    sleep(SUSPENSION);
    signal("CONT", pid);
    let ended = launcher.wait_with_output().unwrap();
    let verdict = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{verdict}");
    let mut lines: Vec<_> = ended.stdout.lines().map(Result::unwrap).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1"], "{verdict}");
}

/// Runs a command in front of a terminal of its own, presses ^Z once the job runs, and returns what was
/// written after that.
fn press_on_terminal(command: &str) -> String {
    let mut terminal = Command::new("timeout")
        .args(["--signal=KILL", "30", "script", "-qec", command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is missing: install the Debian package bsdutils");
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("up"));
    let mut keys = terminal.stdin.take().unwrap();
    keys.write_all(b"\x1a").unwrap();
    let said: Vec<_> = lines.map(Result::unwrap).collect();
    let said = said.join("\n");
    assert!(terminal.wait().unwrap().success(), "{said:?}");
    assert!(said.contains("^Z"), "{said:?}");
    said
}

/// A shell sees that ^Z has stopped the job, and fg lets it go on.
#[test]
fn a_shell_lets_a_job_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    let job = format!("{ROPEWALK} run --detect 1 -n 1 sh -c 'echo up; sleep 1; echo rank $RANK is done'");
    fs::write(&path, format!("set -m\n{job}\necho paused $?\nsleep 2.5\nfg\n")).unwrap();
    let said = press_on_terminal(&format!("sh {}", path.display()));
    let stopped = format!("paused {}", 128 + 20);
    let (_, rest) = said.split_once(&stopped).expect(&said);
    assert!(rest.contains("rank 0 is done"), "{said:?}");
}

/// ^Z where no shell could let the job go on leaves it running, as it does any other program.
#[test]
fn nobody_is_stopped_whom_nobody_can_let_go_on() {
    let said = press_on_terminal(&format!(
        "exec {ROPEWALK} run -n 1 sh -c 'echo up; sleep 1; echo rank $RANK is done'"
    ));
    assert!(said.contains("rank 0 is done"), "{said:?}");
}

/// Nothing that a job of this host says is lost if its agent, which does not wait for the launcher's answer,
/// ends while the launcher is stopped: neither what lies in a socket nor what has no room there, for which
/// the agent waits.
#[test]
fn a_launcher_that_was_stopped_finds_all_that_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    for (size, leaves) in [(10_000, true), (3_000_000, false)] {
        let gate = gate.display();
        let then = format!(
            "until [ -e {gate}{size} ]; do sleep 0.01; done; head -c {size} /dev/zero | tr '\\0' x | fold -w 1000; \
             echo; exit 3"
        );
        let mut job = Job::start_with(&[], &then);
        job.signal("STOP");
        let keeper = only_child(job.launcher.id());
        await_true("is not stopped", || state(job.launcher.id()) == Some('T'));
        fs::write(format!("{gate}{size}"), "").unwrap();
        for &rank in &job.ranks {
            await_true("does not end", || state(rank).is_none());
        }
        if leaves {
            await_true("the agent does not end", || state(keeper) == Some('Z'));
        }
        job.signal("CONT");
        let said: usize = job.lines.by_ref().map(|line| line.unwrap().len()).sum();
        assert_eq!(said, 2 * size);
        let ended = job.launcher.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    }
}

/// A launcher that somebody stops without a word, as by kill -STOP, is not missed by the agent beside it: its
/// ranks work on, and it does not take their silence while it was stopped for a stall.
#[test]
fn a_launcher_is_stopped_without_a_word() {
    let job = Job::start(&[], "sleep 3; echo $RANK; sleep 0.5");
    job.signal("STOP");
    sleep(SUSPENSION);
    job.signal("CONT");
    let mut lines: Vec<_> = job.lines.map(Result::unwrap).collect();
    lines.sort_unstable();
    let ended = job.launcher.wait_with_output().unwrap();
    let verdict = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{verdict}");
    assert_eq!(lines, ["0", "1"], "{verdict}");
}

fn only_child(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    children.collect::<String>().trim().parse().unwrap()
}
