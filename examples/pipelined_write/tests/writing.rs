//! Remote writes between processes: what is in the file is what was exposed.

#![expect(
    clippy::unwrap_used,
    reason = "what the tests share is outside of test functions, where the lint is off"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use pipelined_write::{Stages, endpoint_options, expose_pattern, write};
use ropewalk_rpc::{Address, CallError, Endpoint, Engine, JobKey};

struct Server {
    process: Child,
    address: Address,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_pipelined-write"))
            .arg("--key-file")
            .arg(folder.join("key"))
            .args(["serve", "--into"])
            .arg(folder.join("written"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut address)
            .unwrap();
        let address = address.trim().parse().unwrap();
        Self { process, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

const LONG: Duration = Duration::from_secs(30);

/// By every way of pulling the file is the same; names that lead elsewhere are refused.
#[test]
fn files_are_what_was_exposed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let key = JobKey::read_from(&folder.path().join("key")).unwrap();
    let mut engine = Engine::new(Endpoint::bind(endpoint_options(key)).unwrap());
    let length = (9 << 20) + 12_345;
    let data = expose_pattern(&mut engine, length).unwrap();
    let expected: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
    let pipelined = |depth, chunk| Stages::Pipelined { depth, chunk };
    for (number, stages) in [
        pipelined(None, None),
        pipelined(Some(4), Some(100_000)),
        pipelined(Some(1), None),
        Stages::AtOnce,
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("file{number}");
        let written = write(&mut engine, &server.address, &name, &data, stages, LONG).unwrap();
        assert_eq!(written.bytes, length);
        assert!(fs::read(folder.path().join("written").join(name)).unwrap() == expected);
    }
    for name in ["", "..", "../file", "/tmp/file", ".hidden"] {
        let refused = write(
            &mut engine,
            &server.address,
            name,
            &data,
            pipelined(None, None),
            LONG,
        );
        assert!(matches!(refused, Err(CallError::Fault { .. })), "{name}");
    }
}

/// The commands of the README work: a file is written, and a small sweep measures all that it is to.
#[test]
fn commands_write_and_measure() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let file = folder.path().join("some file");
    fs::write(&file, b"content").unwrap();
    let command = || Command::new(env!("CARGO_BIN_EXE_pipelined-write"));
    let written = command()
        .arg("--key-file")
        .arg(folder.path().join("key"))
        .args(["write", "--server", &server.address.to_string()])
        .arg(&file)
        .status();
    assert!(written.unwrap().success());
    let there = folder.path().join("written").join("some file");
    assert_eq!(fs::read(there).unwrap(), b"content");

    let swept = command()
        .args(["sweep", "--size", "2", "--rounds", "1", "--into"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(swept.status.success());
    let printed = String::from_utf8(swept.stdout).unwrap();
    assert_eq!(
        printed.lines().filter(|line| line.contains("depth ")).count(),
        6,
        "{printed}"
    );
    assert!(
        printed.contains("all pulled, then written") && printed.contains("chosen: "),
        "{printed}"
    );
}
