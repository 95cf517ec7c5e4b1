//! A host in the middle of the tree is lost, and with `--on-failure continue` those below it go on. The hosts
//! are all this machine, behind a command like rsh whose processes outlive who started them, as those of sshd
//! do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../rig/mod.rs"]
mod rig;

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rig::{Guarded, ROPEWALK, all_pids, assert_none_soon, signal, text, write_script};

const PYTHON: &str = "python3";

/// A server that starts processes for whoever connects, and a folder of its own.
struct Remote {
    server: Child,
    folder: tempfile::TempDir,
}

impl Remote {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_orphans/remote.py");
        let socket = folder.path().join("socket");
        let mut server = Command::new(PYTHON)
            .arg(&program)
            .arg("serve")
            .arg(&socket)
            .env("FOLDER", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is missing: install the Debian package python3");
        let mut line = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let script = format!(
            "#!/bin/sh\nexec {PYTHON} {} run {} \"$@\"\n",
            program.display(),
            socket.display()
        );
        let path = folder.path().join("like-rsh");
        write_script(&path, &script);
        Self { server, folder }
    }

    /// Seven hosts: `h1` above `h3` and `h4`, `h2` above `h5` and `h6`, `h3` above `h7`. One rank on each.
    fn job(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(ROPEWALK);
        command
            .args(["run", "-launcher-exec"])
            .arg(self.folder.path().join("like-rsh"))
            .args([
                "-iface",
                "127.0.0.1",
                "--detect",
                "2",
                "--arity",
                "2",
                "--timeout",
                "120",
            ])
            .args(["-hosts", "h1,h2,h3,h4,h5,h6,h7", "-n", "7"])
            .args(options)
            .args(["bash", "-c", script])
            .env("FOLDER", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        self.job(options, script).output().unwrap()
    }

    /// "Nothing left 2 s after exit", but for the server.
    fn assert_none_left(&self) {
        let marker = format!("FOLDER={}", self.folder.path().display());
        let is_left = |pid: &u32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = variables.split(|&byte| byte == 0);
            *pid != self.server.id() && variables.any(|one| one == marker.as_bytes())
        };
        assert_none_soon(Duration::from_secs(2), || all_pids().filter(is_left).collect());
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Each rank tells the others something in a fence before, writes much while the agent of `h1` is killed or
/// stopped, and tells them something in a fence after. Those of the other hosts have all that they told, and
/// all that they wrote is there, once.
#[test]
fn hosts_below_a_lost_one_go_on() {
    let remote = Remote::start();
    for (signal, how) in [
        ("KILL", "was killed by signal 9"),
        ("STOP", "gave no sign of life for 2 s"),
    ] {
        let script = format!(
            r#"
            ask() {{ printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }}
            ask 'cmd=init pmi_version=1 pmi_subversion=1'
            ask 'cmd=get_my_kvsname'; kvs=${{answer##*kvsname=}}
            ask "cmd=put kvsname=$kvs key=before$RANK value=$RANK$RANK"
            ask 'cmd=barrier_in'
            if [ $RANK = 0 ]; then sleep 0.3; kill -{signal} $PPID; sleep 100; fi
            for round in $(seq 30); do seq -f "$RANK $round %g" 1000; sleep 0.05; done
            ask "cmd=put kvsname=$kvs key=after$RANK value=${{RANK}}9"
            ask 'cmd=barrier_in'
            for other in 1 2 3 4 5 6; do
                for when in before after; do
                    ask "cmd=get kvsname=$kvs key=$when$other"; all="$all ${{answer##*value=}}"
                done
            done
            echo "$RANK has$all"
            ask 'cmd=finalize'
            "#
        );
        let output = remote.run(&["--on-failure", "continue"], &script);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        for rank in 1..7 {
            let prefix = format!("{rank} ");
            let mut lines = stdout.lines().filter_map(|line| line.strip_prefix(&prefix));
            for round in 1..=30 {
                for number in 1..=1000 {
                    let expected = format!("{round} {number}");
                    assert_eq!(
                        lines.next(),
                        Some(expected.as_str()),
                        "{signal}: rank {rank}: {stderr}"
                    );
                }
            }
            let last = lines.next();
            assert_eq!(
                last,
                Some("has 11 19 22 29 33 39 44 49 55 59 66 69"),
                "{signal}: rank {rank}: {stderr}"
            );
            assert_eq!(lines.next(), None, "{signal}: rank {rank}");
        }
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        let named = format!("the agent on host h1 {how}");
        assert!(stderr.contains(&named), "{stderr}");
        for host in 2..8 {
            assert!(!stderr.contains(&format!("host h{host} ")), "{stderr}");
        }
        remote.assert_none_left();
    }
}

/// Where the job ends with the first host that is lost, those below it end too, though whoever started them
/// does not end them.
#[test]
fn hosts_below_a_lost_one_end_with_the_job() {
    let remote = Remote::start();
    let script = "if [ $RANK = 0 ]; then sleep 0.3; kill -KILL $PPID; fi; sleep 100";
    let output = remote.run(&[], script);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("the agent on host h1 was killed by signal 9"),
        "{stderr}"
    );
    remote.assert_none_left();
}

/// The launcher is killed when it has adopted hosts: they end as all others do.
#[test]
fn adopted_hosts_end_with_the_launcher() {
    let remote = Remote::start();
    // A host that is not up yet has nobody to adopt it: the agent above is killed when all are there.
    let script = "echo > $FOLDER/up.$RANK
        if [ $RANK = 0 ]; then
            until [ $(ls $FOLDER/up.* | wc -l) = 7 ]; do sleep 0.05; done; kill -KILL $PPID
        fi
        sleep 1.5; echo up; sleep 100";
    let mut job = remote.job(&["--on-failure", "continue"], script);
    let mut job = job.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(job.stdout.take().unwrap()).lines();
    assert_eq!(lines.map_while(Result::ok).take(6).count(), 6);
    job.kill().unwrap();
    job.wait().unwrap();
    remote.assert_none_left();
}

/// How many numbers each rank of [`Suspendable`] says, five in a second, unless it is told that it is enough:
/// for longer than it takes to suspend it.
const PARTS: u32 = 60;

/// A job that is there to be suspended, with ranks that say numbers.
struct Suspendable {
    launcher: Guarded,
    lines: Lines<BufReader<ChildStdout>>,
    /// The process of the agent of `h1`.
    agent: String,
    /// Once it is there, ranks have said enough.
    enough: PathBuf,
}

impl Suspendable {
    /// Returns it when its ranks begin to say numbers.
    fn start(remote: &Remote, detect: Duration) -> Self {
        let script = format!(
            "if [ $RANK = 0 ]; then echo $PPID > $FOLDER/agent; fi; echo up
            until [ -e $FOLDER/go ]; do sleep 0.05; done
            for part in $(seq {PARTS}); do
                sleep 0.2; echo $RANK $part; if [ -e $FOLDER/enough ]; then break; fi
            done
            echo $RANK said $part"
        );
        let detect = detect.as_secs().to_string();
        let mut job = remote.job(&["--on-failure", "continue", "--detect", &detect], &script);
        let launcher = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut launcher = Guarded::from(launcher.unwrap());
        let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().take(7).all(|line| line.unwrap() == "up"));
        let agent = fs::read_to_string(remote.folder.path().join("agent")).unwrap();
        fs::write(remote.folder.path().join("go"), "").unwrap();
        Self {
            launcher,
            lines,
            agent: agent.trim().to_owned(),
            enough: remote.folder.path().join("enough"),
        }
    }

    /// As ^Z does.
    fn suspend(&self) {
        signal("TSTP", self.launcher.id());
        let stat = format!("/proc/{}/stat", self.launcher.id());
        let deadline = Instant::now() + Duration::from_secs(30);
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(Instant::now() < deadline, "it is not stopped");
            sleep(Duration::from_millis(10));
        }
    }

    fn signal_agent(&self, name: &str) {
        // It would be another's number if the agent were gone.
        let command = fs::read_to_string(format!("/proc/{}/comm", self.agent)).unwrap();
        assert_eq!(command, "ropewalk\n");
        signal(name, &self.agent);
    }

    /// Lets it go on. All ranks but that of `h1` go on and say all that they have to say, and no other host is lost.
    fn check_resumed(self) {
        fs::write(self.enough, "").unwrap();
        signal("CONT", self.launcher.id());
        let lines = self.lines.map(Result::unwrap);
        let said: Vec<_> = lines.collect();
        let output = self.launcher.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        for rank in 1..7 {
            let prefix = format!("{rank} ");
            let said: Vec<_> = said
                .iter()
                .filter_map(|line| line.strip_prefix(&prefix))
                .collect();
            let count = said.len().saturating_sub(1) as u32;
            let parts = (1..=count).map(|part| part.to_string());
            let expected: Vec<_> = parts.chain([format!("said {count}")]).collect();
            assert_eq!(said, expected, "rank {rank}: {stderr}");
            assert!(count < PARTS, "rank {rank} was not suspended: {stderr}");
        }
        for host in 2..8 {
            assert!(!stderr.contains(&format!("host h{host} ")), "{stderr}");
        }
        assert_eq!(output.status.code(), Some(125), "{stderr}");
    }
}

/// The time that it takes to act on a loss once it is detected.
const REACTION: Duration = Duration::from_secs(1);

/// Waits until those below a host that was `lost` would be gone, if nobody waited for them: a time-out of their own
/// follows that of the host.
fn outlast(lost: Instant, detect: Duration) {
    sleep((2 * detect + REACTION).saturating_sub(lost.elapsed()));
}

/// A job that is suspended, and then loses the agent of `h1`. Returns it when those who are not waited for
/// would be gone.
fn suspended_without_a_host(remote: &Remote) -> Suspendable {
    let detect = Duration::from_secs(1);
    let job = Suspendable::start(remote, detect);
    job.suspend();
    let lost = Instant::now();
    job.signal_agent("KILL");
    outlast(lost, detect);
    job
}

/// A host in the middle is lost while the user has suspended the job: those below it wait for the launcher,
/// and go on below it.
#[test]
fn hosts_below_one_that_is_lost_go_on_with_a_suspended_launcher() {
    let remote = Remote::start();
    suspended_without_a_host(&remote).check_resumed();
    remote.assert_none_left();
}

/// They end with a launcher that is killed instead.
#[test]
fn hosts_below_one_that_is_lost_end_with_a_suspended_launcher() {
    let remote = Remote::start();
    let mut launcher = suspended_without_a_host(&remote).launcher;
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    remote.assert_none_left();
}

/// A host in the middle hangs when the user suspends the job: the launcher is not stopped before those below
/// have heard of that, which they do from it.
#[test]
fn hosts_below_one_that_hangs_hear_of_a_suspension() {
    let remote = Remote::start();
    let detect = Duration::from_secs(2);
    let job = Suspendable::start(&remote, detect);
    let lost = Instant::now();
    job.signal_agent("STOP");
    job.suspend();
    outlast(lost, detect);
    job.check_resumed();
    remote.assert_none_left();
}
