//! `ropewalk run` on several hosts, each with an agent of its own, in a tree. The hosts are all this machine, behind a
//! command that is used like rsh.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rig::{LIMIT, ROPEWALK, TRIES, assert_in_time, assert_none_left, text, write_script};

/// A job on hosts in a chain of agents, the hardest tree: `h1` above `h2` above `h3`.
struct Job {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Job {
    fn on(hosts: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("like-rsh");
        let script = "#!/bin/sh\nhost=$1; shift\ncase $host in unknown*) echo no such host: $host >&2; exit 255;; \
                      silent*) exec sleep 100;; esac\nexec \"$@\"\n";
        write_script(&path, script);
        let command = path.to_str().unwrap();
        let words = [
            "run",
            "-launcher-exec",
            command,
            "-iface",
            "127.0.0.1",
            "--detect",
            "1",
            "--arity",
            "1",
            "-hosts",
            hosts,
        ];
        let arguments = words.map(str::to_owned).into();
        Self { folder, arguments }
    }

    fn with(mut self, words: &[&str]) -> Self {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(ROPEWALK);
        command.args(&self.arguments).stdin(Stdio::null());
        command
    }

    fn run(&self) -> (Output, Duration) {
        let begin = Instant::now();
        let output = self.command().output().unwrap();
        (output, begin.elapsed())
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }
}

/// Ranks fill the slots of the hosts, and each knows its place; all output arrives.
#[test]
fn ranks_run_on_their_hosts() {
    let script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR";
    let job = Job::on("h1,h2:2,h3").with(&["-n", "5", "-prepend-pattern", "%h ", "sh", "-c", script]);
    let (output, _) = job.run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "h1 0/5 0/2 h1",
            "h1 4/5 1/2 h1",
            "h2 1/5 0/2 h1",
            "h2 2/5 1/2 h1",
            "h3 3/5 0/1 h1"
        ]
    );
}

/// All ranks get the values that one rank put before the barrier, on whichever host they are. No rank passes
/// the barrier before all have come.
#[test]
fn pmi_goes_through_the_tree() {
    let script = r#"
        ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
        ask 'cmd=init pmi_version=1 pmi_subversion=1'
        ask 'cmd=get_my_kvsname'; kvs=${answer##*kvsname=}
        ask "cmd=put kvsname=$kvs key=from$RANK value=$RANK$RANK"
        ask 'cmd=barrier_in'
        for other in 0 1 2 3; do ask "cmd=get kvsname=$kvs key=from$other"; all="$all ${answer##*value=}"; done
        ask "cmd=get kvsname=$kvs key=PMI_process_mapping"; echo $all "${answer##*value=}"
        ask 'cmd=finalize'
    "#;
    let (output, _) = Job::on("h1:2,h2,h3")
        .with(&["-n", "4", "bash", "-c", script])
        .run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "00 11 22 33 (vector,(0,1,2),(1,2,1))\n".repeat(4)
    );
}

/// Input for all ranks reaches each of them whole, whatever host it is on.
#[test]
fn input_goes_to_all() {
    let job = Job::on("h1,h2,h3").with(&[
        "-n",
        "3",
        "--stdin",
        "all",
        "-l",
        "sh",
        "-c",
        "sleep 0.$RANK; wc -l",
    ]);
    let input: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let output = assert_cmd::Command::from_std(job.command())
        .write_stdin(input)
        .output()
        .unwrap();
    let stdout = text(&output.stdout);
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 200000", "[1] 200000", "[2] 200000"]);
}

/// An agent in the middle of the tree that is killed, or stopped, is named in time, and nothing stays: not
/// below it, not above it, not what has cleared its environment and left its session.
#[test]
fn an_agent_that_is_lost_in_the_middle_is_named() {
    for (signal, how, limit, tries) in [
        ("KILL", "was killed by signal 9", Duration::from_millis(100), 5),
        ("STOP", "gave no sign of life for 1 s", LIMIT, TRIES),
    ] {
        assert_in_time(limit, tries, || {
            let job = Job::on("h1,h2,h3");
            let mark = job.mark();
            let (marker, program) = (mark.to_str().unwrap().to_owned(), "sh");
            let script = format!(
                "setsid env -i sh -c 'sleep 100; : {marker}' & sleep 0.3
                 if [ $RANK = 1 ]; then date +%s%N >{marker}; kill -{signal} $PPID; fi
                 sleep 100; : {marker}"
            );
            let job = job.with(&["-n", "3", program, "-c", &script]);
            let (output, _) = job.run();
            let end = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap();
            let struck: u64 = fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
            assert_eq!(output.status.code(), Some(125));
            let stderr = text(&output.stderr);
            assert!(
                stderr.contains("the agent on host h2 ") && stderr.contains(how),
                "{stderr}"
            );
            assert_none_left(&marker);
            end.saturating_sub(Duration::from_nanos(struck))
        });
    }
}

/// A host that is not there, or does not answer, is named with what the command said about it.
#[test]
fn a_host_that_cannot_be_reached_is_named() {
    assert_in_time(LIMIT, TRIES, || {
        let (output, time) = Job::on("h1,unknown2,h3").with(&["-n", "3", "sleep", "100"]).run();
        assert_eq!(output.status.code(), Some(125));
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("the agent on host unknown2 could not be started"),
            "{stderr}"
        );
        assert!(stderr.contains("no such host: unknown2"), "{stderr}");
        time
    });
}

/// An agent that hangs before it can be spoken with is named within the detection time and a second, though it has more
/// time: a login may be slow. Then it is the verdict, as early as the user wants it.
#[test]
fn an_agent_that_hangs_in_its_start_is_named() {
    assert_in_time(LIMIT, TRIES, || {
        let job = Job::on("h1,silent2,h3").with(&["--start-timeout", "2.5", "-n", "3", "sleep", "100"]);
        let begin = Instant::now();
        let mut child = job.command().stderr(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut lines = lines.map_while(Result::ok);
        let named = "the agent on host silent2 has not come up for 1 s; it is waited for";
        assert!(lines.any(|line| line.ends_with(named)));
        let time = begin.elapsed();
        let last = lines.last().unwrap();
        assert!(
            last.contains("the agent on host silent2 did not come up within 2.5 s"),
            "{last}"
        );
        assert_eq!(child.wait().unwrap().code(), Some(125));
        time
    });
}

/// A program that is missing on one host, or a rank that fails there, ends the job everywhere.
#[test]
fn a_failure_on_one_host_ends_all() {
    let (output, _) = Job::on("h1,h2,h3").with(&["-n", "3", "no-such-program"]).run();
    assert_eq!(output.status.code(), Some(127));
    let script = "if [ $RANK = 2 ]; then exit 7; fi; sleep 100";
    let (output, time) = Job::on("h1,h2,h3").with(&["-n", "3", "sh", "-c", script]).run();
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("rank 2 on host h3 exited with code 7"));
    assert!(time < Duration::from_secs(20));
}

/// Several programs are one job.
#[test]
fn several_programs_share_the_world() {
    let job = Job::on("h1,h2").with(&[
        "-n",
        "1",
        "-env",
        "WHO",
        "a",
        "sh",
        "-c",
        "echo $WHO $RANK/$WORLD_SIZE",
    ]);
    let (output, _) = job
        .with(&[":", "-n", "2", "sh", "-c", "echo b$WHO $RANK/$WORLD_SIZE"])
        .run();
    let stdout = text(&output.stdout);
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a 0/3", "b 1/3", "b 2/3"]);
}

/// A killed launcher takes all hosts with it.
#[test]
fn a_killed_launcher_leaves_no_host() {
    let job = Job::on("h1,h2,h3");
    let mark = job.mark();
    let marker = mark.to_str().unwrap().to_owned();
    let script =
        format!("setsid env -i sh -c 'sleep 100; : {marker}' & echo $RANK >>{marker}; sleep 100; : {marker}");
    let job = job.with(&["-n", "3", "sh", "-c", &script]);
    let mut child = job.command().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(&mark).unwrap_or_default().lines().count() < 3 {
        assert!(Instant::now() < deadline, "the ranks did not start");
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_none_left(&marker);
}

/// If ssh fails inside a Slurm allocation, the user reads of the launcher that needs no ssh; elsewhere there is none.
#[test]
fn a_failed_ssh_names_the_launcher_of_slurm() {
    let folder = tempfile::tempdir().unwrap();
    write_script(
        &folder.path().join("ssh"),
        "#!/bin/sh\necho Permission denied >&2\nexit 255\n",
    );
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(ROPEWALK);
        command
            .args([
                "run",
                "-launcher",
                "ssh",
                "-iface",
                "127.0.0.1",
                "-hosts",
                "other",
                "true",
            ])
            .env("PATH", folder.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        text(&command.output().unwrap().stderr)
    };
    let (inside, outside) = (run(&[("SLURM_JOB_ID", "7")]), run(&[]));
    assert!(
        inside.contains("ssh exited with code 255: Permission denied; -launcher slurm starts"),
        "{inside}"
    );
    assert!(
        outside.contains("Permission denied") && !outside.contains("slurm"),
        "{outside}"
    );
}
