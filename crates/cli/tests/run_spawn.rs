//! Programs that spawn others, in C over `libpmi.so` and `libpmi2.so`: MPI_Comm_spawn as the process manager sees it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, compile, write_script};

fn run(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let mut command = rig::run(options);
    command.arg(program).args(arguments);
    rig::output(command)
}

fn count(output: &Output, text: &str) -> usize {
    String::from_utf8_lossy(&output.stdout).matches(text).count()
}

/// On one host and across a tree of agents; by themselves and beside others.
const PLACES: [&[&str]; 2] = [
    &["-n", "2"],
    &[
        "-n",
        "4",
        "-arity",
        "1",
        "-launcher",
        "fork",
        "-hosts",
        "alpha,beta,gamma,delta",
    ],
];

/// "Effects: new process group = new KVS with the preput pairs already in it .., ranks 0.., PMI_SPAWNED=1,
/// PMI_SIZE = sum(nprocs), appnum = block index, own barrier domain", "Shell quoting: none, args are passed
/// verbatim": two programs that are spawned by PMI-1 have one key-value space with what their parent put
/// there, barriers of their own, their own numbers, arguments and directory, and meet their parent by name.
#[test]
fn a_pmi1_program_spawns() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn1.c", &["pmi"], folder.path());
    for place in PLACES {
        let output = run(place, &program, &[]);
        assert!(output.status.success(), "{place:?}: {output:?}");
        assert_eq!(count(&output, "of 3 is content"), 3, "{output:?}");
        let parents: usize = place[1].parse().unwrap();
        assert_eq!(count(&output, "parent "), parents, "{output:?}");
    }
}

/// A program spawned by PMI-2 gets what its parent put, and the parent gets by connecting what the program put.
#[test]
fn a_pmi2_program_spawns() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn2.c", &["pmi2"], folder.path());
    for place in PLACES {
        let output = run(place, &program, &[]);
        assert!(output.status.success(), "{place:?}: {output:?}");
        assert_eq!(count(&output, "of 2 is content"), 2, "{output:?}");
        assert_eq!(count(&output, "parent is content"), 1, "{output:?}");
    }
}

/// "Ours may wait for exec": a program that is not there is an error to whoever spawns it, and the job goes
/// on; nobody waits for ever.
#[test]
fn a_missing_program_is_an_error_to_the_spawner() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn1.c", &["pmi"], folder.path());
    for place in PLACES {
        let output = run(place, &program, &["/no/such/program"]);
        assert!(output.status.success(), "{place:?}: {output:?}");
        assert_eq!(count(&output, "spawn was refused"), 1, "{output:?}");
        let text = rig::text(&output.stderr);
        assert!(text.contains("/no/such/program: No such file"), "{text}");
    }
}

/// "hostfile": programs are spawned on the hosts of the file; one that cannot be used is an error to the
/// spawner, with the reason, and the job goes on.
#[test]
fn a_host_file_says_where_programs_are_spawned() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn1.c", &["pmi"], folder.path());
    let worker = folder.path().join("worker");
    write_script(&worker, "#!/bin/sh\necho spawned on $PMI_HOSTNAME\n");
    let worker = worker.to_str().unwrap();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "# one\ngamma slots=2\n").unwrap();
    let output = run(PLACES[1], &program, &[worker, file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(count(&output, "spawn succeeded"), 1, "{output:?}");
    assert_eq!(count(&output, "spawned on gamma"), 2, "{output:?}");
    for place in PLACES {
        let output = run(place, &program, &[worker, "/no/such/hosts"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(count(&output, "spawn was refused"), 1, "{output:?}");
        let text = rig::text(&output.stderr);
        assert!(text.contains("cannot use /no/such/hosts: No such file"), "{text}");
    }
}

/// A spawned process that dies ends the job like any other, and is named by what it is.
#[test]
fn a_death_in_a_spawned_group_is_named() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn2.c", &["pmi2"], folder.path());
    for place in PLACES {
        let output = run(place, &program, &["death"]);
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        let text = rig::text(&output.stderr);
        // Its number is another if it was begun anew, because a host was left just then.
        assert!(text.contains("(rank 1 of spawned group "), "{text}");
        assert!(text.contains("was killed by signal 9 (SIGKILL)"), "{text}");
    }
}

/// "C listens on an ephemeral TCP port on all interfaces, forks and execs `mpiexec -pmi_args <port> default_interface
/// default_key <pid>` found through PATH": what such a process starts, and its connection.
fn singleton(folder: &TempDir) -> (Child, TcpStream) {
    let mpiexec = folder.path().join("mpiexec");
    std::os::unix::fs::symlink(ROPEWALK, &mpiexec).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let manager = Command::new(mpiexec)
        .arg("-pmi_args")
        .arg(listener.local_addr().unwrap().port().to_string())
        .args(["default_interface", "default_key"])
        .arg(std::process::id().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (manager, stream)
}

/// "Protocol a good mpiexec must do: connect to 127.0.0.1:<port>; .. From there it is a normal PMI-1
/// connection": a program that nobody started is served, may spawn, and its process manager ends with it.
#[test]
fn a_singleton_is_served() {
    let folder = TempDir::new().unwrap();
    let program = compile("tests/spawn_c/spawn1.c", &["pmi"], folder.path());
    let (manager, stream) = singleton(&folder);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = move || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    let say = |text: &str| (&stream).write_all(text.as_bytes()).unwrap();
    assert_eq!(line(), "cmd=singinit authtype=none\n");
    say("cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none\n");
    let info = line();
    assert!(
        info.starts_with("cmd=singinit_info versionok=yes stdio=no kvsname=kvs_"),
        "{info}"
    );
    say("cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_eq!(
        line(),
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    );
    say("cmd=publish_name service=parent port=the parent's port\n");
    assert_eq!(line(), "cmd=publish_result info=ok rc=0 msg=success\n");
    let program = program.display();
    say(&format!(
        "mcmd=spawn\nnprocs=2\nexecname={program}\ntotspawns=2\nspawnssofar=1\narg1=me\narg2=an argument\n\
         arg3=x=y;z\nargcnt=3\npreput_num=1\npreput_key_0=PARENT\npreput_val_0=port with spaces\ninfo_num=1\n\
         info_key_0=wdir\ninfo_val_0=/\nendcmd\nmcmd=spawn\nnprocs=1\nexecname={program}\ntotspawns=2\n\
         spawnssofar=2\narg1=me\nargcnt=1\npreput_num=0\ninfo_num=0\nendcmd\n"
    ));
    assert_eq!(line(), "cmd=spawn_result rc=0 errcodes=0,0,0\n");
    say("cmd=finalize\n");
    assert_eq!(line(), "cmd=finalize_ack\n");
    assert_eq!(line(), "");
    let output = manager.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(count(&output, "of 3 is content"), 3, "{output:?}");
}

/// "mpiexec must exit when that connection finalizes or closes and its spawned jobs ended": a process that is
/// gone without a word is a failure, which ends what it spawned.
#[test]
fn the_manager_of_a_singleton_ends_with_its_connection() {
    let folder = TempDir::new().unwrap();
    let (mut manager, stream) = singleton(&folder);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    let say = |text: &str| (&stream).write_all(text.as_bytes()).unwrap();
    line();
    say("cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none\n");
    line();
    say("cmd=init pmi_version=1 pmi_subversion=1\n");
    line();
    let stay = format!("echo $$; exec tail -f {} /dev/null", folder.path().display());
    say(&format!(
        "mcmd=spawn\nnprocs=1\nexecname=sh\ntotspawns=1\nspawnssofar=1\narg1=-c\narg2={stay}\nargcnt=2\n\
         preput_num=0\ninfo_num=0\nendcmd\n"
    ));
    assert_eq!(line(), "cmd=spawn_result rc=0 errcodes=0\n");
    let mut pid = String::new();
    let mut stdout = BufReader::new(manager.stdout.take().unwrap());
    stdout.read_line(&mut pid).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());

    stream.shutdown(Shutdown::Both).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while manager.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the manager stays");
        sleep(Duration::from_millis(10));
    }
    assert!(!process.exists(), "what was spawned is left");
}

/// "Effects: .. stdin = /dev/null", wherever the processes run: what the launcher reads is for those that it
/// has started.
#[test]
fn spawned_processes_have_no_input() {
    // The others stay meanwhile: what goes to a host that is being left is begun anew elsewhere.
    let script = r#"
        ask() { printf '%s\n' "$@" >&$PMI_FD; read -r answer <&$PMI_FD; }
        ask 'cmd=init pmi_version=1 pmi_subversion=1'
        if [ $RANK = 0 ]; then
            ask mcmd=spawn nprocs=2 execname=readlink totspawns=1 spawnssofar=1 arg1=/proc/self/fd/0 argcnt=1 \
                preput_num=0 info_num=0 endcmd
            echo $answer
        fi
        ask cmd=barrier_in
        ask cmd=finalize
    "#;
    for place in PLACES {
        let mut job = assert_cmd::Command::new(ROPEWALK);
        let job = job.arg("run").args(place).args(["bash", "-c", script]);
        let output = job.write_stdin("input").timeout(PATIENCE).output().unwrap();
        assert!(output.status.success(), "{place:?}: {output:?}");
        assert_eq!(
            count(&output, "cmd=spawn_result rc=0 errcodes=0,0\n"),
            1,
            "{output:?}"
        );
        assert_eq!(count(&output, "/dev/null\n"), 2, "{output:?}");
    }
}
