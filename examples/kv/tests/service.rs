//! The service as its users have it: one server, several clients, each a process.

#![expect(
    clippy::unwrap_used,
    reason = "what the tests share is outside of test functions, where the lint is off"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use bytes::Bytes;
use kv::{Client, INLINE_MAX};
use ropewalk_rpc::JobKey;
use tempfile::TempDir;

struct Service {
    folder: TempDir,
    address: String,
    server: Child,
}

impl Service {
    fn start(memory: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_kv"))
            .arg("--key-file")
            .arg(folder.path().join("key"))
            .args(["serve", "--memory", &memory.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        out.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        Self {
            folder,
            address,
            server,
        }
    }

    fn key_file(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
        command.arg("--key-file").arg(self.key_file());
        command.args(["--server", &self.address]).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn client(&self) -> Client {
        let key = JobKey::read_from(&self.key_file()).unwrap();
        Client::new(key, self.address.parse().unwrap(), Duration::from_secs(30)).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + at / 251 + seed * 7) as u8)
        .collect()
}

/// The commands of the README: put small and large values, get them back, list and delete.
#[test]
fn values_come_back() {
    let service = Service::start(1 << 30);
    let large = content(5 << 20, 1);
    let file = service.folder.path().join("large");
    fs::write(&file, &large).unwrap();
    assert!(
        service
            .run(&["put", "greeting", "--value", "hello"])
            .status
            .success()
    );
    assert!(
        service
            .run(&["put", "large", "--file", file.to_str().unwrap()])
            .status
            .success()
    );
    let mut piped = service
        .command(&["put", "empty"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    drop(piped.stdin.take());
    assert!(piped.wait().unwrap().success());
    assert_eq!(service.run(&["get", "greeting"]).stdout, b"hello");
    assert!(service.run(&["get", "large"]).stdout == large);
    assert_eq!(service.run(&["get", "empty"]).stdout, b"");
    assert_eq!(service.run(&["get", "nothing"]).status.code(), Some(1));
    let listed = service.run(&["list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let words: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(words, ["0", "empty", "5", "greeting", "5242880", "large"]);
    assert!(service.run(&["delete", "large"]).status.success());
    assert_eq!(service.run(&["delete", "large"]).status.code(), Some(1));
    assert_eq!(service.run(&["get", "large"]).status.code(), Some(1));
}

/// Several clients replace each other's values while others get them: each gets one that was put, whole.
#[test]
fn clients_at_once_see_whole_values() {
    let service = Service::start(1 << 30);
    let lengths = [10, INLINE_MAX, INLINE_MAX + 1, 300_000, 3_000_000];
    thread::scope(|scope| {
        for seed in 0..4 {
            let service = &service;
            scope.spawn(move || {
                let mut client = service.client();
                for round in 0..25 {
                    let length = lengths[(seed + round) % lengths.len()];
                    let value = vec![seed as u8; length];
                    client.put("shared", Bytes::from(value)).unwrap();
                    let got = client.get("shared").unwrap().unwrap();
                    assert!(lengths.contains(&got.len()));
                    assert!(got.iter().all(|&byte| byte == got[0]), "a value is torn");
                }
            });
        }
    });
    assert_eq!(service.client().list("").unwrap().len(), 1);
}

/// A value that has no room is refused, and what was there stays.
#[test]
fn full_servers_refuse() {
    let service = Service::start(1 << 20);
    let mut client = service.client();
    client.put("first", content(500_000, 1).into()).unwrap();
    let refused = client.put("second", content(700_000, 2).into()).unwrap_err();
    assert!(matches!(
        refused,
        kv::ClientError::Refused(kv::Refusal::Full { .. })
    ));
    assert!(client.get("second").unwrap().is_none());
    assert!(client.get("first").unwrap().unwrap() == content(500_000, 1));
    client.delete("first").unwrap();
    client.put("second", content(700_000, 2).into()).unwrap();
}

/// Clients that are killed while the server pulls from them leave nothing: the room is free again, and the others
/// are served.
#[test]
fn killed_clients_leave_nothing() {
    let memory = 300 << 20;
    let service = Service::start(memory);
    let file = service.folder.path().join("large");
    let mut large = fs::File::create(&file).unwrap();
    for _ in 0..100 {
        large.write_all(&content(1 << 20, 3)).unwrap();
    }
    drop(large);
    for round in 0..8 {
        let mut client = service
            .command(&["put", "large", "--file", file.to_str().unwrap()])
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(20 + 25 * round));
        client.kill().unwrap();
        client.wait().unwrap();
    }
    let mut client = service.client();
    client.delete("large").unwrap();
    // As much as there was at first, but for what the key takes.
    let mut room = client.allocate((memory - (1 << 20)) as usize);
    room[5] = 5;
    client.put("all", Bytes::from(room)).unwrap();
    assert_eq!(client.get("all").unwrap().unwrap()[5], 5);
}
