//! `ropewalk run` on hosts whose agents do not come up, or hang: they do not keep a job from ending. The
//! hosts are all this machine, behind a command that is used like rsh.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rig::{
    LIMIT, PATIENCE, ROPEWALK, TRIES, assert_in_time, assert_none_soon, await_file, marked, signal,
    write_script,
};

/// A job on `hosts`, in a chain of agents. When the command for one begins, it leaves a file of that host's
/// name in the folder. For those whose name begins with `hangs` it comes to nothing.
fn start(folder: &Path, hosts: &str, words: &[&str], script: &str) -> Child {
    start_below(folder, "1", hosts, words, script)
}

/// The same with so many agents below the launcher. The command for a host whose name begins with `waits` has
/// a child that comes to nothing, and that for one whose name begins with `stays` does not end at SIGTERM.
/// That for one whose name begins with `lasts` has the agent for a child, and ends two seconds after that; it
/// leaves a file `over` then, and a file `struck` at SIGTERM.
fn start_below(folder: &Path, arity: &str, hosts: &str, words: &[&str], script: &str) -> Child {
    let command = folder.join("like-rsh");
    let path = folder.display();
    let text = format!(
        "#!/bin/sh\nhost=$1; shift; touch {path}/$host\nhang='tail -f {path}/stay /dev/null'\n\
         case $host in hangs*) exec $hang;; waits*) $hang; exit;; stays*) trap '' TERM; exec $hang;; esac\n\
         case $host in lasts*) trap 'touch {path}/struck' TERM; \"$@\"; sleep 2; touch {path}/over; exit;; esac\n\
         exec \"$@\"\n"
    );
    write_script(&command, &text);
    Command::new(ROPEWALK)
        .args(["run", "--launcher-exec", command.to_str().unwrap()])
        .args([
            "--arity",
            arity,
            "-iface",
            "127.0.0.1",
            "--detect",
            "8",
            "-hosts",
            hosts,
        ])
        .args(words)
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("ropewalk-hanging")
        .tempdir()
        .unwrap()
}

/// The processes whose arguments name the folder.
fn left(folder: &Path) -> Vec<u32> {
    marked(folder.to_str().unwrap())
}

/// None of them is left.
fn assert_none_left(folder: &Path) {
    await_none_left(folder, Duration::from_secs(2));
}

fn await_none_left(folder: &Path, patience: Duration) {
    assert_none_soon(patience, || left(folder));
}

/// A signal, or the time limit, ends a job within about a second while all that is missing are hosts that
/// hang, be they below the launcher or below another agent. The verdict is that about a job that runs.
#[test]
fn hosts_that_hang_do_not_keep_a_job() {
    let limited: &[&str] = &["--timeout", "1"];
    for (hosts, hanging, words, signal, code, cause) in [
        (
            "hangs1,hangs2",
            "hangs1",
            &[][..],
            "INT",
            130,
            "was ended by signal 2 (SIGINT)",
        ),
        (
            "hangs1,hangs2",
            "hangs1",
            &[],
            "TERM",
            143,
            "was ended by signal 15 (SIGTERM)",
        ),
        (
            "hangs1,hangs2",
            "hangs1",
            limited,
            "",
            124,
            "took longer than 1 s",
        ),
        (
            "host1,hangs2",
            "hangs2",
            &[],
            "INT",
            130,
            "was ended by signal 2 (SIGINT)",
        ),
    ] {
        assert_in_time(LIMIT, TRIES, || {
            let folder = folder();
            let folder = folder.path();
            let script = format!("exec tail -f {} /dev/null", folder.join("stay").display());
            let begun = Instant::now();
            let job = start(folder, hosts, words, &script);
            await_file(&folder.join(hanging));
            let due = match signal {
                "" => begun + Duration::from_secs(1),
                signal => {
                    rig::signal(signal, job.id());
                    Instant::now()
                }
            };
            let job = job.wait_with_output().unwrap();
            let time = due.elapsed();
            assert_eq!(job.status.code(), Some(code), "{job:?}");
            let told = String::from_utf8_lossy(&job.stderr);
            assert!(told.lines().last().unwrap_or_default().contains(cause), "{told}");
            assert_none_left(folder);
            time
        });
    }
}

/// A second signal ends a job with its verdict although its agent is stopped, and nothing is left, not even
/// of what forgot whose it was.
#[test]
fn a_second_signal_does_not_wait_for_a_stopped_agent() {
    assert_in_time(LIMIT, TRIES, || {
        let folder = folder();
        let folder = folder.path();
        let stopped = folder.join("stopped");
        let stay = format!("tail -f {} /dev/null", folder.join("stay").display());
        let script = format!(
            "trap '' INT TERM; setsid env -i {stay} & kill -STOP $PPID; echo >{}; exec {stay}",
            stopped.display()
        );
        let job = start(folder, "localhost", &[], &script);
        await_file(&stopped);
        let struck = Instant::now();
        for _ in 0..2 {
            signal("INT", job.id());
            // Signals of one kind that come at once are one.
            sleep(Duration::from_millis(50));
        }
        let job = job.wait_with_output().unwrap();
        let time = struck.elapsed();
        assert_eq!(job.status.code(), Some(130), "{job:?}");
        let told = String::from_utf8_lossy(&job.stderr);
        assert!(told.contains("was ended by signal 2 (SIGINT)"), "{told}");
        assert_none_left(folder);
        time
    });
}

/// A launcher that is killed leaves no command behind that hangs, be it one that does not end at SIGTERM or a
/// script that waits for another.
#[test]
fn a_killed_launcher_leaves_no_command_behind() {
    assert_in_time(LIMIT, TRIES, || {
        let folder = folder();
        let folder = folder.path();
        let mut job = start_below(folder, "4", "hangs1,waits2,stays3,host4", &[], "exec true");
        // When the last begins, the launcher is done with those before it.
        for host in ["hangs1", "waits2", "stays3", "host4"] {
            await_file(&folder.join(host));
        }
        let struck = Instant::now();
        job.kill().unwrap();
        job.wait().unwrap();
        await_none_left(folder, PATIENCE);
        struck.elapsed()
    });
}

/// A command whose agent runs is not ended when the launcher is killed: it may be the keeper of that agent,
/// which ends what is left there.
#[test]
fn a_killed_launcher_leaves_agents_to_their_keepers() {
    let folder = folder();
    let folder = folder.path();
    let script = format!("touch {}; exec sleep 1000", folder.join("runs").display());
    let mut job = start(folder, "lasts1", &[], &script);
    await_file(&folder.join("runs"));
    job.kill().unwrap();
    job.wait().unwrap();
    await_file(&folder.join("over"));
    assert!(!folder.join("struck").exists());
    await_none_left(folder, PATIENCE);
}

/// A job on another host is gone at its end with all that the launcher had beside it.
#[test]
fn a_job_that_ends_leaves_nothing_beside_the_launcher() {
    let folder = folder();
    let job = start(folder.path(), "host1", &[], "exec true");
    let job = job.wait_with_output().unwrap();
    assert_eq!(job.status.code(), Some(0), "{job:?}");
    assert_eq!(left(folder.path()), [0; 0]);
}
