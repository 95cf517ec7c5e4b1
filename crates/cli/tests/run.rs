//! `ropewalk run` with real processes: exit codes, output, input, and that nothing is ever left behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use assert_cmd::assert::Assert;

use rig::{PATIENCE, ROPEWALK, all_pids, assert_none_left, await_end, marked, signal};

/// The program is not there, cannot be executed, goes well, or says how it went: the exit code tells.
#[test]
fn exit_codes_are_those_of_shells() {
    run(&["true"]).code(0);
    run(&["-n", "3", "sh", "-c", "exit 7"]).code(7);
    let missing = run(&["-n", "2", "no-such-program"]).code(127);
    assert_eq!(stderr(&missing).lines().count(), 1, "{}", stderr(&missing));
    assert!(stderr(&missing).contains("no-such-program: No such file"));
    assert!(stderr(&run(&["/etc/passwd"]).code(126)).contains("/etc/passwd: Permission denied"));
    let directory = run(&["--wdir", "/no/such/directory", "true"]).code(127);
    assert!(stderr(&directory).contains("/no/such/directory"));
    run(&["-n", "0", "true"]).code(125);
    run(&["--timeout", "1e19", "true"]).code(0);
}

/// The exit code comes out even if nothing can be written to standard error.
#[test]
fn an_exit_code_needs_no_standard_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut job = Command::new(ROPEWALK)
        .args(["run", "sh", "-c", "exit 7"])
        .stdin(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    assert_eq!(wait(&mut job).code(), Some(7));
}

/// A rank that is killed is named, with signal, host, time and process; the others are ended with it.
#[test]
fn a_killed_rank_is_named_and_ends_the_job() {
    let marker = marker();
    let script = format!("if [ $RANK = 2 ]; then kill -9 $$; fi; exec sleep {marker}");
    let begin = Instant::now();
    let job = run(&["-n", "4", "sh", "-c", &script]).code(137);
    assert!(begin.elapsed() < Duration::from_secs(20));
    let text = stderr(&job);
    assert!(text.starts_with("ropewalk: rank 2 on host "), "{text}");
    assert!(text.contains("was killed by signal 9 (SIGKILL) "), "{text}");
    assert!(text.contains(" s after start, pid "), "{text}");
    assert!(text.ends_with("; the job was ended\n"), "{text}");
    assert_none_left(&marker);
}

/// With `continue` the others do their work to the end; the exit code is the first failing rank's all the same.
#[test]
fn with_continue_the_others_go_on() {
    let script = "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.2; echo done";
    let job = run(&["-n", "3", "--on-failure", "continue", "sh", "-c", script]).code(3);
    assert_eq!(stdout(&job), "done\ndone\n");
    assert!(stderr(&job).contains("rank 1 on host"), "{}", stderr(&job));
    assert!(stderr(&job).contains("the others went on"), "{}", stderr(&job));
}

/// A job that takes too long is ended, even if its ranks do not listen, and the exit code is 124.
#[test]
fn a_job_that_takes_too_long_is_ended() {
    let marker = marker();
    let script = format!("trap '' TERM; while true; do sleep {marker}; done");
    let job = run(&["-n", "2", "--timeout", "0.3", "--grace", "1", "sh", "-c", &script]).code(124);
    assert!(stderr(&job).contains("longer than 0.3 s"), "{}", stderr(&job));
    assert_none_left(&marker);
}

/// Eight ranks that write as fast as they can: every line comes out whole, behind its rank, in its order.
#[test]
fn lines_of_many_ranks_stay_whole() {
    let job = run(&[
        "-n",
        "8",
        "-l",
        "sh",
        "-c",
        "seq -f \"$RANK %0160.0f\" 3000; seq -f \"$RANK %0160.0f\" 3000 >&2",
    ])
    .code(0);
    for text in [stdout(&job), stderr(&job)] {
        let mut next = [1; 8];
        for line in text.lines() {
            let rank: usize = line[1..2].parse().unwrap();
            assert_eq!(line, format!("[{rank}] {rank} {:0160}", next[rank]));
            next[rank] += 1;
        }
        assert_eq!(next, [3001; 8]);
    }
}

/// Lines of a megabyte come out whole too.
#[test]
fn long_lines_stay_whole() {
    let script = "head -c 1000000 /dev/zero | tr '\\0' $RANK; echo";
    let job = run(&["-n", "4", "sh", "-c", script]).code(0);
    let text = stdout(&job);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<_> = (0..4).map(|rank| rank.to_string().repeat(1_000_000)).collect();
    assert!(lines == expected, "the lines are mixed");
}

/// The output of a single rank comes out as it is, with no line end added.
#[test]
fn output_without_line_end_is_kept() {
    assert_eq!(stdout(&run(&["printf", "a\\nb"]).code(0)), "a\nb");
    let job = run(&["-n", "2", "-l", "sh", "-c", "printf $RANK"]).code(0);
    let text = stdout(&job);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0", "[1] 1"]);
    // The two streams have nothing to do with each other.
    let job = run(&["-l", "sh", "-c", "printf out; exec >&-; sleep 0.3; echo err >&2"]).code(0);
    assert_eq!(
        (stdout(&job), stderr(&job)),
        ("[0] out".into(), "[0] err\n".into())
    );
}

/// A reader that goes away ends the job, as in any pipeline.
#[test]
fn a_closed_output_ends_the_job() {
    let marker = marker();
    let script = format!("while echo {marker}; do :; done; exec sleep {marker}");
    let mut job = Command::new(ROPEWALK)
        .args(["run", "-n", "2", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(job.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert_eq!(first, format!("{marker}\n"));
    assert_eq!(wait(&mut job).code(), Some(141));
    assert_none_left(&marker);
}

/// Ranks know who they are, and get what they are told.
#[test]
fn ranks_get_their_environment() {
    let script = "echo $PMI_RANK/$PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS $RANK/$WORLD_SIZE \
                  $LOCAL_RANK/$LOCAL_WORLD_SIZE $GREETING $(pwd) ${PMI_FD:+fd} ${ROPEWALK_AGENT_FD:+fd}";
    let arguments = [
        "-n",
        "2",
        "--env",
        "GREETING=a=b",
        "--wdir",
        "/",
        "sh",
        "-c",
        script,
    ];
    let job = run(&arguments).code(0);
    let text = stdout(&job);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["0/2 0/2 0/2 0/2 a=b / fd fd", "1/2 1/2 1/2 1/2 a=b / fd fd"]
    );
}

/// A rank has two sockets, for PMI ("inherited, not close-on-exec") and for its agent, and three more: none
/// of another's, and none of ours.
#[test]
fn ranks_inherit_no_descriptors_of_others() {
    let targets = |text: &str| -> Vec<String> {
        let arrows = text.lines().filter_map(|line| line.split_once(" -> "));
        arrows.map(|(_, target)| target.to_owned()).collect()
    };
    // What whoever runs the tests left open is everybody's.
    let outside = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let outside = targets(std::str::from_utf8(&outside.stdout).unwrap());
    let text = stdout(&run(&["-n", "4", "-l", "ls", "-l", "/proc/self/fd"]).code(0));
    for rank in 0..4 {
        let prefix = format!("[{rank}] ");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(&prefix)).collect();
        let mut own = targets(&lines.join("\n"));
        own.retain(|target| !outside.contains(target));
        let sockets = own.iter().filter(|target| target.starts_with("socket:")).count();
        let pipes = own.iter().filter(|target| target.starts_with("pipe:")).count();
        // Standard output and error, and for rank 0 standard input.
        assert_eq!((sockets, pipes), (2, if rank == 0 { 3 } else { 2 }), "{text}");
        assert!(
            own.iter().all(|target| !target.starts_with("anon_inode:")),
            "{text}"
        );
    }
}

/// The job's key stands in no argument list and no environment.
#[test]
fn no_secret_shows_in_proc() {
    let marker = marker();
    let script = format!("echo ready; exec sleep {marker}");
    // The agent has one child then.
    let mut job = start(&["-n", "1", "--pmi", "pmi2", "sh", "-c", &script]);
    await_line(&mut job, "ready");
    let agent = agent_of(&job);
    let arguments = fs::read_to_string(format!("/proc/{agent}/cmdline")).unwrap();
    // A forked agent wrote this over the words of the launcher, which are longer.
    let arguments = arguments.trim_end_matches('\0');
    assert_eq!(arguments.split('\0').skip(1).collect::<Vec<_>>(), ["agent"]);
    let variables = |pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let text = String::from_utf8(environment).unwrap();
        let variables = text.split_terminator('\0').map(str::to_owned);
        variables
            .filter(|variable| variable.starts_with("ROPEWALK"))
            .collect::<Vec<_>>()
    };
    assert_eq!(variables(agent), [""; 0]);
    let rank = child_of(agent);
    let mut of_rank = variables(rank);
    of_rank.sort_unstable();
    let [_, link, incarnation, number] = &of_rank[..] else {
        panic!("{of_rank:?}")
    };
    assert_eq!(incarnation, "ROPEWALK_INCARNATION=0");
    assert!(
        link.strip_prefix("ROPEWALK_AGENT_FD=")
            .unwrap()
            .parse::<u32>()
            .is_ok()
    );
    // The number of the job, 128 bits; a key has 256.
    assert!(
        number.strip_prefix("ROPEWALK_JOB_ID=").unwrap().len() <= 36,
        "{number}"
    );
    signal("TERM", job.id());
    assert_eq!(wait(&mut job).code(), Some(143));
    assert_none_left(&marker);
}

/// It says who it is, as mpiexec is asked to.
#[test]
fn versions_are_told() {
    for word in ["-version", "--version", "-V"] {
        let output = start(&[word]).wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.trim_end(), concat!("ropewalk ", env!("CARGO_PKG_VERSION")));
    }
}

/// ^C and ^\\ reach the ranks, end the job, and are told in the exit code; signals of the user's reach them,
/// and that is all.
#[test]
fn signals_reach_the_ranks() {
    for (name, code) in [("INT", 130), ("QUIT", 131), ("USR1", 0), ("USR2", 0)] {
        let marker = marker();
        let script = format!("trap 'echo caught; exit 0' {name}; echo ready; sleep {marker} & wait");
        let mut job = start(&["-n", "2", "sh", "-c", &script]);
        let mut output = BufReader::new(job.stdout.take().unwrap()).lines();
        let mut lines: Vec<String> = output.by_ref().take(2).map(Result::unwrap).collect();
        signal(name, job.id());
        lines.extend(output.map(Result::unwrap));
        assert_eq!(lines, ["ready", "ready", "caught", "caught"], "{name}");
        assert_eq!(wait(&mut job).code(), Some(code), "{name}");
        assert_none_left(&marker);
    }
}

/// The end of a terminal ends a job, unless nohup(1) says otherwise.
#[test]
fn a_hangup_is_ignored_under_nohup() {
    for (wrapper, code, expected) in [("env --default-signal=HUP", 129, ""), ("nohup", 0, "done\n")] {
        let mut words = wrapper.split(' ');
        let mut job = Command::new(words.next().unwrap())
            .args(words)
            .args([ROPEWALK, "run", "sh", "-c", "echo ready; sleep 1; echo done"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        await_line(&mut job, "ready");
        signal("HUP", job.id());
        let output = job.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{wrapper}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{wrapper}");
    }
}

/// Signals that are ignored when a job starts stay ignored.
#[test]
fn ignored_signals_stay_ignored() {
    for name in ["INT", "QUIT", "TERM"] {
        let mut job = Command::new("env")
            .arg(format!("--ignore-signal={name}"))
            .args([ROPEWALK, "run", "sh", "-c", "echo ready; sleep 0.5; echo done"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        await_line(&mut job, "ready");
        signal(name, job.id());
        let output = job.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(output.stdout, b"done\n", "{name}");
    }
}

/// A second ^C waits for nobody: ranks that ignore the first would have `--grace` to end, which is 120 s here.
#[test]
fn a_second_interrupt_ends_all_at_once() {
    let marker = marker();
    let script = format!(
        "trap 'echo caught' INT; trap '' TERM; echo ready; while true; do sleep {marker} & wait; done"
    );
    let mut job = start(&["--grace", "120", "sh", "-c", &script]);
    await_line(&mut job, "ready");
    signal("INT", job.id());
    await_line(&mut job, "caught");
    // The first alone ends nothing.
    sleep(Duration::from_millis(300));
    assert_eq!(job.try_wait().unwrap(), None);
    let second = Instant::now();
    signal("INT", job.id());
    assert_eq!(wait(&mut job).code(), Some(130));
    assert!(
        second.elapsed() < Duration::from_secs(10),
        "{:?}",
        second.elapsed()
    );
    assert_none_left(&marker);
}

/// ^C ends the ranks even if nobody reads the output; a second one then ends the launcher, which waits for that.
#[test]
fn interrupts_work_while_the_output_is_blocked() {
    let marker = marker();
    let script = format!("echo ready; while true; do echo {marker}; done");
    let mut job = start(&["-n", "2", "sh", "-c", &script]);
    await_line(&mut job, "ready");
    // Longer than it takes to fill the pipe; if it is not full yet the test only tests less.
    sleep(Duration::from_millis(300));
    signal("INT", job.id());
    let are_ranks_left = || marked(&marker).iter().any(|&pid| pid != job.id());
    let deadline = Instant::now() + PATIENCE;
    while are_ranks_left() {
        assert!(Instant::now() < deadline, "the ranks are still there");
        sleep(Duration::from_millis(5));
    }
    if job.try_wait().unwrap().is_none() {
        signal("INT", job.id());
    }
    assert_eq!(wait(&mut job).code(), Some(130));
    assert_none_left(&marker);
}

/// A launcher that is killed takes everything with it, children of ranks too.
#[test]
fn a_killed_launcher_leaves_nothing() {
    let marker = marker();
    let script = format!("sleep {marker} & setsid sleep {marker} & echo ready; exec sleep {marker}");
    let mut job = start(&["-n", "3", "sh", "-c", &script]);
    await_line(&mut job, "ready");
    signal("KILL", job.id());
    wait(&mut job);
    assert_none_left(&marker);
}

/// An agent that is killed takes its ranks with it, and the launcher says so.
#[test]
fn a_killed_agent_is_named_and_leaves_nothing() {
    let marker = marker();
    let script = format!("sleep {marker} & setsid sleep {marker} & echo ready; exec sleep {marker}");
    let mut job = start(&["-n", "3", "sh", "-c", &script]);
    await_line(&mut job, "ready");
    signal("KILL", agent_of(&job));
    let output = job.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the agent on host "), "{text}");
    assert!(text.contains("was killed by signal 9"), "{text}");
    assert_none_left(&marker);
}

/// An agent that is stopped cannot keep a job from ending, nor save the processes of its ranks.
#[test]
fn a_stopped_agent_does_not_keep_a_job() {
    let marker = marker();
    let script = format!("setsid sleep {marker} & kill -STOP $PPID; exec sleep {marker}");
    let mut job = start(&["--timeout", "0.5", "sh", "-c", &script]);
    assert_eq!(wait(&mut job).code(), Some(124));
    assert_none_left(&marker);
}

/// Processes that a rank leaves running in the background end with the job, even out of its session.
#[test]
fn background_processes_end_with_the_job() {
    let marker = marker();
    let script = format!("sleep {marker} & setsid sleep {marker} & echo $RANK");
    let begin = Instant::now();
    run(&["-n", "2", "sh", "-c", &script]).code(0);
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_none_left(&marker);
}

/// Ranks that speak PMI by hand meet in a barrier although another one sends garbage, which is told.
#[test]
fn garbage_on_pmi_hurts_only_its_sender() {
    let script = r#"
        ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
        if [ $RANK = 1 ]; then
            trap '' PIPE
            printf 'GET / HTTP/1.1\r\n\r\n\0\xff' >&$PMI_FD
            read -r answer <&$PMI_FD || echo closed
            exit 0
        fi
        ask 'cmd=init pmi_version=1 pmi_subversion=1'
        ask 'cmd=barrier_in'; echo $answer
        ask 'cmd=finalize'; echo $answer
    "#;
    let job = run(&["-n", "3", "--on-failure", "continue", "bash", "-c", script]).code(0);
    let text = stdout(&job);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let (barrier, ack) = ("cmd=barrier_out", "cmd=finalize_ack");
    assert_eq!(lines, ["closed", barrier, barrier, ack, ack]);
    assert!(
        stderr(&job).contains("rank 1: its PMI connection was closed"),
        "{}",
        stderr(&job)
    );
}

/// "EOF without finalize after any PMI command = abnormal end of that rank": others would wait for it for ever.
#[test]
fn leaving_pmi_open_is_a_failure() {
    let script = r"
        printf 'cmd=init pmi_version=1 pmi_subversion=1\n' >&$PMI_FD; read -r answer <&$PMI_FD
        if [ $RANK = 0 ]; then
            printf 'cmd=barrier_in\n' >&$PMI_FD; read -r answer <&$PMI_FD; echo $answer; sleep 30
        fi
    ";
    let job = run(&["-n", "2", "bash", "-c", script]).code(1);
    assert!(
        stderr(&job).contains("without finalizing PMI"),
        "{}",
        stderr(&job)
    );
}

/// "`cmd=abort exitcode=7` .. mpiexec kills all and exits with 7", or with any other code, whoever says it.
#[test]
fn a_pmi_abort_ends_the_job() {
    let script = "if [ $RANK = 1 ]; then printf 'cmd=abort exitcode=9\\n' >&$PMI_FD; fi; exec sleep 30";
    let job = run(&["-n", "3", "bash", "-c", script]).code(9);
    assert!(stderr(&job).contains("rank 1 on host"), "{}", stderr(&job));
    assert!(
        stderr(&job).contains("aborted the job with exit code 9"),
        "{}",
        stderr(&job)
    );
}

fn run(arguments: &[&str]) -> Assert {
    assert_cmd::Command::from_std(rig::run(arguments))
        .timeout(PATIENCE)
        .assert()
}

fn stdout(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

fn stderr(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// A job in the background that we can hurt.
fn start(arguments: &[&str]) -> Child {
    rig::run(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn await_line(job: &mut Child, expected: &str) {
    let mut line = Vec::new();
    let stdout = job.stdout.as_mut().unwrap();
    let mut byte = [0];
    while std::io::Read::read(stdout, &mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    assert_eq!(String::from_utf8(line).unwrap(), expected);
}

fn wait(job: &mut Child) -> ExitStatus {
    await_end(job, PATIENCE)
}

/// The agent: between it and the launcher is its keeper.
fn agent_of(job: &Child) -> u32 {
    let keeper = keeper_of(job);
    child_of(keeper)
}

fn keeper_of(job: &Child) -> u32 {
    child_of(job.id())
}

fn child_of(parent: u32) -> u32 {
    all_pids().find(|&pid| rig::parent(pid) == Some(parent)).unwrap()
}

/// A number of seconds that no other test, and no other run of the tests, sleeps for.
fn marker() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(1000);
    let test = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{test}.{:07}", std::process::id())
}
