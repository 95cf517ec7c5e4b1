//! MPICH programs of different jobs that find each other by a name, at `ropewalk nameserver`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Instant,
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, text};

/// A program, a key and a name server that has it.
struct Scene {
    folder: TempDir,
    program: PathBuf,
    server: Child,
    address: String,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let program = rig::compile_mpi("mpicc.mpich", "names.c", folder.path());
        let (server, address) = serve(&folder.path().join("key"), "127.0.0.1:0");
        Self {
            folder,
            program,
            server,
            address,
        }
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// A job on these hosts whose first rank does this.
    fn command(&self, place: &[&str], key: &Path, does: &[&str]) -> Command {
        let mut command = Command::new(ROPEWALK);
        command
            .args(["run", "-nameserver", &self.address, "--nameserver-key"])
            .arg(key)
            .args(["-timeout", "60"])
            .args(place)
            .arg(&self.program)
            .args(does)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, place: &[&str], does: &[&str]) -> Job {
        let mut child = self.command(place, &self.key(), does).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Job { child, lines }
    }

    fn run(&self, place: &[&str], does: &[&str]) -> Output {
        self.command(place, &self.key(), does).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A job that goes on.
struct Job {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Job {
    fn says(&mut self, line: &str) {
        let mut said = String::new();
        self.lines.read_line(&mut said).unwrap();
        assert_eq!(said.trim_end(), line, "{}", self.stderr_if_over());
    }

    fn goes_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn ends_well(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.stderr_if_over());
    }

    fn stderr_if_over(&mut self) -> String {
        let mut text = String::new();
        if self.child.try_wait().unwrap().is_some() {
            self.child
                .stderr
                .as_mut()
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
        }
        text
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(key: &Path, address: &str) -> (Child, String) {
    let mut server = Command::new(ROPEWALK)
        .args(["nameserver", "--listen", address, "--key-file"])
        .arg(key)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    (server, said.trim_end().to_owned())
}

const HERE: &[&str] = &["-n", "2"];
/// The root of PMI is the launcher, and not the agent of the only host.
const THERE: &[&str] = &[
    "-n",
    "3",
    "-launcher",
    "fork",
    "-hosts",
    "alpha,beta,gamma",
    "-arity",
    "1",
];

/// Two jobs that are started by themselves meet by a name, on one host and on several; with the job that
/// published it the name is gone.
#[test]
fn jobs_meet_by_a_name() {
    let scene = Scene::new();
    let mode = fs::metadata(scene.key()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (place, other) in [(HERE, THERE), (THERE, HERE)] {
        let mut first = scene.start(place, &["publish", "accept", "wait"]);
        first.says("published well");
        let second = scene.run(other, &["publish", "unpublish", "lookup", "connect"]);
        assert_eq!(
            text(&second.stdout),
            "published badly\nunpublished badly\nlooked up well\n",
            "{second:?}"
        );
        let told = text(&second.stderr);
        assert!(told.contains("only that one can unpublish it"), "{told}");
        first.says("heard 42");
        first.goes_on();
        first.ends_well();
        let later = scene.run(other, &["lookup", "publish", "lookup", "unpublish", "lookup"]);
        assert_eq!(
            text(&later.stdout),
            "looked up badly\npublished well\nlooked up well\nunpublished well\nlooked up badly\n",
            "{later:?}"
        );
        assert!(later.stderr.is_empty(), "{later:?}");
    }
}

/// A launcher that is killed leaves no name.
#[test]
fn a_killed_job_leaves_no_name() {
    let scene = Scene::new();
    let mut first = scene.start(HERE, &["publish", "wait"]);
    first.says("published well");
    drop(first);
    let later = scene.run(HERE, &["publish"]);
    assert_eq!(text(&later.stdout), "published well\n", "{later:?}");
}

/// Who has another key hears nothing, and the user hears why; a key that others may read is none.
#[test]
fn another_key_opens_nothing() {
    let scene = Scene::new();
    let other = scene.folder.path().join("other");
    let (mut stranger, _) = serve(&other, "127.0.0.1:0");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let job = scene.command(HERE, &other, &["lookup"]).output().unwrap();
    assert_eq!(text(&job.stdout), "looked up badly\n", "{job:?}");
    let told = text(&job.stderr);
    assert!(told.contains("has it the same key?"), "{told}");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    let job = scene.command(HERE, &other, &["lookup"]).output().unwrap();
    assert!(!job.status.success());
    assert!(text(&job.stderr).contains("open to others"), "{job:?}");
}

/// A server that is killed is an error for those who ask, at once, and nothing for the others; one in its
/// place soon knows what the jobs published that go on.
#[test]
fn a_server_may_come_and_go() {
    let mut scene = Scene::new();
    let mut first = scene.start(HERE, &["publish", "wait", "lookup", "accept"]);
    first.says("published well");
    scene.server.kill().unwrap();
    scene.server.wait().unwrap();
    let asked = scene.run(HERE, &["lookup"]);
    assert_eq!(text(&asked.stdout), "looked up badly\n", "{asked:?}");
    assert!(asked.status.success(), "{asked:?}");
    let told = text(&asked.stderr);
    assert!(told.contains("is it running?"), "{told}");
    // Which the system says at once; who waited in vain would be told that it took too long.
    assert!(told.contains("refused"), "{told}");
    assert!(told.contains("was not looked up"), "{told}");
    first.goes_on();
    first.says("looked up badly");
    (scene.server, _) = serve(&scene.key(), &scene.address.clone());
    let begun = Instant::now();
    loop {
        let second = scene.run(HERE, &["lookup"]);
        if text(&second.stdout) == "looked up well\n" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{second:?}");
    }
    let second = scene.run(HERE, &["lookup", "connect"]);
    assert_eq!(text(&second.stdout), "looked up well\n", "{second:?}");
    first.says("heard 42");
    first.ends_well();
}

/// Strangers that send the server anything, or nothing, keep nobody from it: there are more of them than it
/// has room for.
#[test]
fn strangers_are_no_hindrance() {
    let scene = Scene::new();
    let mut strangers = Vec::new();
    for number in 0..400_u32 {
        let mut stranger = TcpStream::connect(&scene.address).unwrap();
        let garbage: Vec<u8> = (0..number * 20).map(|at| (at * 7 + number) as u8).collect();
        // It may have been shown out already.
        let _ = match number % 3 {
            0 => stranger.write_all(&garbage),
            1 => stranger.write_all(b"ropewalk\x03\0ropewalk names 1"),
            _ => Ok(()),
        };
        strangers.push(stranger);
    }
    let job = scene.run(HERE, &["publish", "lookup", "unpublish"]);
    assert_eq!(
        text(&job.stdout),
        "published well\nlooked up well\nunpublished well\n",
        "{job:?}"
    );
}
