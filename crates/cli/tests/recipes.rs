//! The files of `docs/recipes` work: each is used as far as one machine can. The tests in `run_namespaces` use the
//! batch scripts for Slurm.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use rig::{PATIENCE, ROPEWALK, text, write_script};

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes")
}

/// Every metric that the board draws is one that a job with checkpoints exports.
#[test]
fn the_board_draws_metrics_that_there_are() {
    let board = fs::read_to_string(recipes().join("prometheus/grafana-board.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&board).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let drawn: BTreeSet<String> = targets
        .flat_map(|target| names(target["expr"].as_str().unwrap()))
        .collect();
    let exported = names(&metrics());
    let unknown: Vec<_> = drawn.difference(&exported).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in {exported:?}");
    assert!(
        drawn.len() > 10,
        "the board draws next to nothing, or is read wrongly: {drawn:?}"
    );
    let variable = board["templating"]["list"][1]["query"].as_str().unwrap();
    assert!(names(variable).is_subset(&exported), "{variable}");
}

/// The words in a text that are names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| word.starts_with("ropewalk_job_"))
        .map(str::to_owned)
        .collect()
}

/// The metrics of a job with checkpoints, once a rank has ended and its checkpoints were looked at.
fn metrics() -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Command::new(ROPEWALK)
        .args(["run", "-n", "2", "--metrics", "0", "--checkpoint"])
        .arg(folder.path().join("saves"))
        .args(["sh", "-c", "[ $RANK = 1 ] || read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(job.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("ropewalk: metrics at http://");
    let address = address.and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    let begin = Instant::now();
    let mut said = String::new();
    let wanted = ["ropewalk_job_ranks_ended_total{", "ropewalk_job_saves_total"];
    while !wanted.iter().all(|name| said.contains(name)) {
        assert!(begin.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut connection = TcpStream::connect(address).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        connection.write_all(request).unwrap();
        said.clear();
        connection.read_to_string(&mut said).unwrap();
    }
    job.stdin.take().unwrap().write_all(b"end\n").unwrap();
    assert!(job.wait().unwrap().success());
    said
}

/// systemd takes the unit, and knows each of its settings; a word that it does not know would be found.
#[test]
fn systemd_takes_the_unit() {
    let unit = fs::read_to_string(recipes().join("systemd/ropewalk-nameserver.service")).unwrap();
    let installed = unit.replace("=/usr/bin/ropewalk ", &format!("={ROPEWALK} "));
    assert_ne!(unit, installed, "the unit starts another command");
    let said = verified(&installed);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let said = verified(&installed.replace("Restart=", "Rstart="));
    assert!(text(&said.stderr).contains("Unknown key"), "{said:?}");
}

fn verified(unit: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropewalk-nameserver.service");
    fs::write(&path, unit).unwrap();
    Command::new("systemd-analyze")
        .args(["--user", "--man=no", "verify"])
        .arg(&path)
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .expect("install the Debian package systemd")
}

/// MPI Operator names its workers in a host file, and that file in HYDRA_HOST_FILE. The stand-in for ssh runs commands
/// here.
#[test]
fn a_job_of_mpi_operator_finds_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    write_script(
        &ssh,
        "#!/bin/sh\necho \"$1\" >> \"${0%/*}/calls\"\nshift\nexec \"$@\"\n",
    );
    let hosts = folder.path().join("hostfile");
    fs::write(
        &hosts,
        "ropewalk-worker-0.ropewalk.default.svc:2\nropewalk-worker-1.ropewalk.default.svc:2\n",
    )
    .unwrap();
    let output = Command::new(ROPEWALK)
        .args(["run", "--start-timeout", "120", "-iface", "127.0.0.1", "-n", "4"])
        .args(["-prepend-pattern", "%h ", "sh", "-c", "echo rank $PMI_RANK"])
        .env("HYDRA_HOST_FILE", &hosts)
        .env("HYDRA_LAUNCHER_EXEC", &ssh)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for (worker, rank) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
        let line = format!("ropewalk-worker-{worker}.ropewalk.default.svc rank {rank}");
        assert!(said.contains(&line), "{said}");
    }
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls.matches("ropewalk-worker-").count(), 2, "{calls}");
}

/// A job starts its agents by `kubexec`, which finds the pod of a host by the name of its Job and its index. The
/// stand-in for kubectl knows the pods of two hosts and runs commands here.
#[test]
fn kubexec_finds_pods_and_starts_agents() {
    const KUBECTL: &str = r#"#!/bin/sh
printf '%s\n' "$*" >> "${0%/*}/calls"
case $* in
*job-name=my-job,*job-completion-index=[01]\ *) index=${4##*=}; echo "pod/my-job-$index-x7k2p" ;;
"exec --stdin pod/my-job-"[01]"-x7k2p -- /bin/sh -c "*) shift 4; exec "$@" ;;
get*) ;;
*) exit 9 ;;
esac
"#;
    let folder = tempfile::tempdir().unwrap();
    write_script(&folder.path().join("kubectl"), KUBECTL);
    let run = |hosts: &str| {
        Command::new(ROPEWALK)
            .args(["run", "-launcher-exec"])
            .arg(recipes().join("kubernetes/kubexec"))
            .args([
                "-iface",
                "127.0.0.1",
                "-n",
                "2",
                "-hosts",
                hosts,
                "-l",
                "echo",
                "up",
            ])
            .env(
                "PATH",
                format!("{}:{}", folder.path().display(), env::var("PATH").unwrap()),
            )
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = run("my-job-0,my-job-1.service");
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("[0] up") && said.contains("[1] up"), "{said}");
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    for pod in ["my-job-0-x7k2p", "my-job-1-x7k2p"] {
        assert!(calls.contains(&format!("exec --stdin pod/{pod} ")), "{calls}");
    }
    let output = run("my-job-0,my-job-2");
    assert!(!output.status.success(), "{output:?}");
    assert!(
        text(&output.stderr).contains("no pod of host my-job-2 runs"),
        "{output:?}"
    );
}
